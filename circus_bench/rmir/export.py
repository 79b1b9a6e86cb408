"""Export the result of a pipeline: one Benchmark per split, and a dataset folder that mteb reads."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Gallery, Query
from circus_bench.errors import CircusError
from circus_bench.hub.tables import LabeledBenchmark
from circus_bench.hub.writer import MANIFEST, n_rows, read_manifest, write_dataset_folder
from circus_bench.io import to_json
from circus_bench.rmir.pipeline import Pipeline, Stage
from circus_bench.rmir.records import CandidateConsensus, Draft, ExcludedImage, PoolImage, Split, SplitAssignment
from circus_bench.rmir.stages.consensus import positives_by_query
from circus_bench.sources.rmir import PROTOCOLS


def benchmark_of(pipeline: Pipeline, split: Split = Split.TEST) -> Benchmark:
    """Make the benchmark of a split's queries over the whole pool, under the protocol `rmir/test` or `rmir/train`.

    Args:
        pipeline: run to its end.
        split: of the queries.

    Returns:
        The benchmark; `Query.group` is the category, `Query.details` holds the described answer, the reading grade, TSR
        and how many negatives of it are artificial.

    Raises:
        FormatError: a stage was not run.
        BenchmarkError: the split has no query.
    """
    drafts = {draft.query: draft for draft in pipeline.rows(Stage.FILTER, Draft)}
    positives = positives_by_query(pipeline.rows(Stage.KEEP, CandidateConsensus))
    assigned = pipeline.rows(Stage.SPLIT, SplitAssignment)
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
                "deleted_images": len(pipeline.rows(Stage.KEEP, ExcludedImage)),
            },
            "averages": {"micro": "mean over queries", "macro": "mean of the means of the three categories"},
        },
    )


def write_release(
    pipeline: Pipeline,
    out: StrPath,
    *,
    name: str = "rmir",
    with_images: bool = True,
) -> dict[str, Any]:
    """Write the splits into a dataset folder: `CIRCUS_DATA=OUT mteb run -t RMIR` scores a model on the test split.

    Args:
        pipeline: run to its end.
        out: the folder. Splits of an earlier result are replaced; a split without a query now is deleted, for its
            queries belong to another pool. Without any query an earlier result is not touched.
        name: of the test split in it; the task looks for `rmir`. The other split gets `-train`.
        with_images: include the images; mteb needs them. Those of a benchmark under RMIR's protocol always count as not
            redistributable: the folder can then not be published.

    Returns:
        The manifest.

    Raises:
        FormatError: a stage was not run.
        CircusError: no query is left.
    """
    out = Path(out)
    there = {row.split for row in pipeline.rows(Stage.SPLIT, SplitAssignment)}
    if not there:
        raise CircusError(
            f"{pipeline.root}: no query is left after stage 5, so there is no benchmark; `circus-bench rmir status` "
            f"tells at which stage they were lost"
        )
    parts = [
        LabeledBenchmark(dataclasses.replace(benchmark_of(pipeline, split), name=_named(name, split)))
        for split in Split
        if split in there
    ]
    if (out / MANIFEST).exists() and read_manifest(out)["benchmarks"].keys() - {part.name for part in parts}:
        shutil.rmtree(out)
    total, rows = n_rows(parts), itertools.count(1)

    def advance() -> None:
        pipeline.watch("dataset", next(rows), total)

    return write_dataset_folder(parts, out, with_images=with_images, advance=advance)


def _named(name: str, split: Split) -> str:
    """Name what belongs to a split; the test split has the plain name."""
    return name if split is Split.TEST else f"{name}-{split}"


def _query(draft: Draft, positives: list[str], row: SplitAssignment) -> Query:
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
    """Collect the settings that the result depends on, as plain JSON: no paths, no addresses."""
    settings = dataclasses.asdict(pipeline.config)
    kept = {name: of for name, of in settings.items() if name not in {"collection", "providers", "run", "source"}}
    plain: dict[str, Any] = json.loads(to_json(kept))
    return plain
