"""What the pipeline is for: a Benchmark a split, and a dataset folder that mteb reads."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from circus_bench.benchmark import Benchmark, Gallery, Query
from circus_bench.errors import CircusError
from circus_bench.hub.tables import Part
from circus_bench.hub.writer import MANIFEST, n_rows, read_manifest, write_dataset_folder
from circus_bench.io import to_json
from circus_bench.rmir.pipeline import Pipeline, Stage
from circus_bench.rmir.records import Assigned, Deleted, Draft, Judged, PoolImage, Split
from circus_bench.rmir.stages.consensus import answered
from circus_bench.sources.rmir import PROTOCOLS


def benchmark_of(pipeline: Pipeline, split: Split = Split.TEST) -> Benchmark:
    """The queries of a split over the whole pool, under the protocol `rmir/test` or `rmir/train`.

    Args:
        pipeline: run to its end.
        split: which queries.

    Returns:
        The benchmark; `Query.group` is the category, `Query.details` holds the described answer, the reading grade, TSR
        and how many negatives of it are artificial.

    Raises:
        FormatError: a stage was not run.
        BenchmarkError: the split has no query.
    """
    drafts = {draft.query: draft for draft in pipeline.rows(Stage.FILTER, Draft)}
    positives = answered(pipeline.rows(Stage.KEEP, Judged))
    assigned = pipeline.rows(Stage.SPLIT, Assigned)
    queries = tuple(_query(drafts[row.query], positives[row.query], row) for row in assigned if row.split is split)
    pool = tuple(row.image for row in pipeline.rows(Stage.POOL, PoolImage))
    return Benchmark(
        name=_named(pipeline.config.name, split),
        protocol=PROTOCOLS[f"rmir/{split}"],
        queries=queries,
        gallery=Gallery(pool, pipeline.images),
        source={
            **pipeline.config.source,
            "generator": "circus_bench.rmir",
            "split": split.value,
            "settings": _settings(pipeline),
            "stages": {stage.value: pipeline.folder(stage).key for stage in Stage},
            "counts": {
                **Counter(query.group for query in queries),
                "queries": len(queries),
                "targets": sum(len(query.targets) for query in queries),
                "drafts": len(drafts),
                "answered": len(positives),
                "deleted_images": len(pipeline.rows(Stage.KEEP, Deleted)),
            },
            "averages": {"micro": "mean over queries", "macro": "mean of the means of the three categories"},
        },
    )


def save_all(pipeline: Pipeline, out: Path) -> None:
    """Write both splits as benchmarks, and as a dataset folder; the pipeline's `watch` is told of the rows.

    Args:
        pipeline: run to its end.
        out: gets the folders `benchmark`, `benchmark-train` and `dataset`. Those of an earlier outcome are replaced; of
            a split that has no query now nothing stays, for its queries belong to another pool.

    Raises:
        CircusError: see `write_release`.
    """
    there = {row.split for row in pipeline.rows(Stage.SPLIT, Assigned)}
    dataset = out / "dataset"
    # Without any query `write_release` fails, and what an earlier outcome left is not touched.
    if there and (dataset / MANIFEST).exists():
        names = {_named("rmir", split) for split in there}
        if read_manifest(dataset)["benchmarks"].keys() - names:
            shutil.rmtree(dataset)
    write_release(pipeline, dataset)
    for split in Split:
        folder = out / _named("benchmark", split)
        if split in there:
            benchmark_of(pipeline, split).save(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def write_release(
    pipeline: Pipeline,
    out: Path,
    *,
    name: str = "rmir",
    with_images: bool = True,
    local_only: bool = True,
) -> dict[str, Any]:
    """Write the splits into a dataset folder: `CIRCUS_DATA=OUT mteb run -t RMIR` scores a model on the test split.

    Args:
        pipeline: run to its end.
        out: the folder.
        name: of the test split in it; the task looks for `rmir`. The other split gets `-train`.
        with_images: put the images into it; mteb needs them.
        local_only: allow images that must not be redistributed, which those of a benchmark under RMIR's protocol count
            as whatever is said of them. The folder can then not be published.

    Returns:
        The manifest.

    Raises:
        FormatError: a stage was not run.
        CircusError: no query is left.
    """
    there = {row.split for row in pipeline.rows(Stage.SPLIT, Assigned)}
    if not there:
        raise CircusError(
            f"{pipeline.root}: no query is left after stage 5, so there is no benchmark; `circus-bench rmir status` "
            f"tells at which stage they were lost"
        )
    parts = [
        Part(dataclasses.replace(benchmark_of(pipeline, split), name=_named(name, split)))
        for split in Split
        if split in there
    ]
    total, rows = n_rows(parts), itertools.count(1)

    def advance() -> None:
        pipeline.watch("dataset", next(rows), total)

    return write_dataset_folder(parts, out, with_images=with_images, local_only=local_only, advance=advance)


def _named(name: str, split: Split) -> str:
    """What belongs to the test split has the plain name."""
    return name if split is Split.TEST else f"{name}-{split}"


def _query(draft: Draft, positives: list[str], row: Assigned) -> Query:
    details: Mapping[str, Any] = {
        "answer": draft.answer,
        "grade": draft.grade,
        "generator": draft.generator,
        "tsr": row.tsr,
        "judged": row.judged,
        "artificial": row.artificial,
    }
    return Query(draft.query, draft.image, draft.text, tuple(positives), draft.category.value, details=details)


def _settings(pipeline: Pipeline) -> dict[str, Any]:
    """The settings that the outcome depends on, as plain JSON: no paths, no addresses."""
    settings = dataclasses.asdict(pipeline.config)
    kept = {name: of for name, of in settings.items() if name not in {"collection", "providers", "run", "source"}}
    plain: dict[str, Any] = json.loads(to_json(kept))
    return plain
