"""Make a leaderboard: a benchmark of 40 images in a dataset folder, and Runs of a stand-in encoder on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from support.parts import FREE, png
from support.standins import StandIn

from circus_bench.benchmark import Benchmark, Condition, Defect, Gallery, Protocol, Query, ReferencePolicy
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.hub.tables import LabeledBenchmark
from circus_bench.hub.writer import write_dataset_folder
from circus_bench.labels.labels import Labels
from circus_bench.labels.provenance import Provenance
from circus_bench.labels.query_label import QueryLabel
from circus_bench.metrics.shortcut import Label
from circus_bench.runs.run import Run, run_benchmark
from circus_bench.submit.leaderboard import Leaderboard

MODEL = StandIn.name
DATASET = "group/circus"
REVISION = "1234567890" * 4
LISTED = 15


def leaderboard_benchmark(policy: ReferencePolicy = ReferencePolicy.REMOVED, **changes: Any) -> Benchmark:
    """Twelve queries in a gallery of 40; every third one has two targets, and q11 a target that is not there."""
    ids = tuple(f"g{i}" for i in range(40))
    queries = tuple(
        Query(f"q{i}", f"g{i}", f"text {i}", (f"g{i + 12}", f"g{i + 24}") if i % 3 == 0 else (f"g{i + 12}",))
        for i in range(11)
    )
    settings: dict[str, Any] = {
        "name": "made",
        "protocol": Protocol("made/test", policy),
        "queries": (*queries, Query("q11", "g11", "text 11", ("g23", "nowhere"))),
        "gallery": Gallery(ids, {image_id: png(seed) for seed, image_id in enumerate(ids)}),
        "source": FREE,
        "allow": frozenset({Defect.DANGLING_TARGET}),
    }
    return Benchmark(**{**settings, **changes})


def leaderboard_labels(benchmark: Benchmark) -> Labels:
    """q0 to q3 are shortcuts; of the others people found q4 to q7 valid."""

    def verdict(place: int, query: str) -> QueryLabel:
        if place < 4:
            return QueryLabel(query, Label.SHORTCUT)
        label = Label.UNRESOLVED if place % 2 else Label.COMPOSITION_REQUIRED
        return QueryLabel(query, label, audited=True, valid=place < 8, stratum=label)

    origin = Provenance(source="made up", k=10, n_queries=len(benchmark.queries))
    verdicts = {query.id: verdict(place, query.id) for place, query in enumerate(benchmark.queries)}
    return Labels(benchmark.name, origin, verdicts)


def make_leaderboard(folder: Path, benchmark: Benchmark | None = None) -> Leaderboard:
    """Write the dataset folder."""
    benchmark = benchmark or leaderboard_benchmark()
    write_dataset_folder([LabeledBenchmark(benchmark, leaderboard_labels(benchmark))], folder)
    return Leaderboard(folder, DATASET, REVISION)


def run_on(benchmark: Benchmark, folder: Path, *, encoder: StandIn | None = None, top_k: int = LISTED) -> Run:
    """Run an encoder and save the Run to `folder`; its alarms are struck out, for stand-ins are no real models."""
    made = run_benchmark(encoder or StandIn(), benchmark, store=EmbeddingStore(folder / "store"), top_k=top_k)
    run = dataclasses.replace(made, manifest=dataclasses.replace(made.manifest, alarms=()))
    run.save(folder)
    return run


def with_ranking(run: Run, condition: Condition = Condition.MULTIMODAL, **changes: Any) -> Run:
    """The Run with other arrays in the ranking of a condition."""
    result = run.results[condition]
    ranking = dataclasses.replace(result.ranking, **changes)
    return dataclasses.replace(run, results={**run.results, condition: dataclasses.replace(result, ranking=ranking)})
