"""Find the queries of a Run that belong to `sf` and `v`, from a dataset folder or from the published labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from circus_bench._typing import StrPath
from circus_bench.benchmark import Fingerprint
from circus_bench.errors import MismatchError
from circus_bench.hub.reader import read_benchmark, read_labels
from circus_bench.hub.tables import LabeledBenchmark
from circus_bench.hub.writer import read_manifest
from circus_bench.io import slug
from circus_bench.labels.labels import Labels, Subset
from circus_bench.labels.published import PUBLISHED, published_labels
from circus_bench.runs.run import Run

Mask = NDArray[np.bool_]


def subsets_of_run(run: Run, *, folder: StrPath | None = None, labels: StrPath | None = None) -> dict[Subset, Mask]:
    """Return the subsets of a Run's queries that are known, `full` not among them.

    Args:
        run: the Run.
        folder: the dataset folder of its benchmark; without one the published labels are taken.
        labels: label table of an audit of the benchmark, which gives `sf` instead.

    Returns:
        For each subset bool [n_queries].

    Raises:
        MismatchError: the folder or the labels are about another version of the benchmark.
    """
    if folder is not None:
        _check_version(run, Path(folder))
        found = subsets_of_folder(run.queries, folder=folder, name=slug(run.manifest.benchmark))
        del found[Subset.FULL]
    else:
        found = _published_subsets(run)
    if labels is not None:
        found[Subset.SF] = Labels.load(labels).mask(run, Subset.SF)
    return found


def subsets_of_folder(queries: Sequence[str], *, folder: StrPath, name: str) -> dict[Subset, Mask]:
    """Return the subsets that a dataset folder holds of a benchmark, as masks over a list of query ids.

    Raises:
        CircusError: the folder has no such benchmark.
    """
    subsets = LabeledBenchmark(read_benchmark(folder, name), read_labels(folder, name)).subsets
    return {subset: np.isin(queries, [query.id for query in chosen]) for subset, chosen in subsets.items()}


def _check_version(run: Run, folder: Path) -> None:
    name = slug(run.manifest.benchmark)
    entry = read_manifest(folder)["benchmarks"].get(name)
    if entry is None or not run.manifest.fingerprint.matches(Fingerprint(**entry["fingerprint"])):
        raise MismatchError(
            f"the Run of {run.manifest.model.name} on {run.manifest.benchmark!r} was not made on what {folder} holds "
            f"({'no such benchmark' if entry is None else 'fingerprints differ'}); give the folder that it was run on"
        )


def _published_subsets(run: Run) -> dict[Subset, Mask]:
    if run.manifest.benchmark not in PUBLISHED:
        return {}
    labels = published_labels(run.manifest.benchmark)
    if run.manifest.protocol["id"] not in labels.provenance.protocols:
        return {}
    labeled = len(labels.by_query) == len(run.queries)
    known = (Subset.SF, Subset.V) if labeled else (Subset.V,)
    return {subset: labels.mask(run, subset) for subset in known}
