"""Which queries of a Run belong to `sf` and `v`: from a dataset folder, or from the verdicts in the package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from circus_bench.benchmark import Fingerprint
from circus_bench.errors import MismatchError
from circus_bench.hub.reader import benchmark_of
from circus_bench.hub.writer import read_manifest
from circus_bench.io import slug
from circus_bench.labels.label_table import LabelTable, Subset
from circus_bench.labels.labels import PUBLISHED, published
from circus_bench.runs.run import Run

Mask = NDArray[np.bool_]


def subsets_of_run(run: Run, *, data: Path | None = None, labels: Path | None = None) -> dict[Subset, Mask]:
    """The subsets of a Run's queries that are known, `full` not among them.

    Args:
        run: the Run.
        data: the dataset folder of its benchmark; without one the published verdicts are taken.
        labels: label table of an audit of the benchmark, which gives `sf` instead.

    Returns:
        For each subset bool [n_queries].

    Raises:
        MismatchError: the folder or the labels are about another version of the benchmark.
    """
    if data is not None:
        _check_version(run, data)
        found = folder_subsets(run.queries, folder=data, name=slug(run.manifest.benchmark))
        del found[Subset.FULL]
    else:
        found = _published_subsets(run)
    if labels is not None:
        found[Subset.SF] = LabelTable.load(labels).mask_of(run, Subset.SF)
    return found


def folder_subsets(queries: Sequence[str], *, folder: Path, name: str) -> dict[Subset, Mask]:
    """The subsets that a dataset folder holds of a benchmark, as masks over a list of query ids.

    Raises:
        CircusError: the folder has no such benchmark.
    """
    benchmark_of(folder, name)  # refuses what the folder does not hold
    configs = read_manifest(folder)["benchmarks"][name]["configs"].values()
    held = [subset for subset in Subset if any(of["subset"] == subset for of in configs)]
    return {
        subset: np.isin(queries, [query.id for query in benchmark_of(folder, name, subset).queries]) for subset in held
    }


def _check_version(run: Run, data: Path) -> None:
    name = slug(run.manifest.benchmark)
    entry = read_manifest(data)["benchmarks"].get(name)
    if entry is None or not run.manifest.fingerprint.matches(Fingerprint(**entry["fingerprint"])):
        raise MismatchError(
            f"the Run of {run.manifest.model.name} on {run.manifest.benchmark!r} was not made on what {data} holds "
            f"({'no such benchmark' if entry is None else 'fingerprints differ'}); give the folder that it was run on"
        )


def _published_subsets(run: Run) -> dict[Subset, Mask]:
    if run.manifest.benchmark not in PUBLISHED:
        return {}
    verdicts = published(run.manifest.benchmark)
    if run.manifest.protocol["id"] not in verdicts.origin.protocols:
        return {}
    labelled = len(verdicts.verdicts) == len(run.queries)
    known = (Subset.SF, Subset.V) if labelled else (Subset.V,)
    return {subset: verdicts.mask(run.queries, subset) for subset in known}
