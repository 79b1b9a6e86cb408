"""Benchmarks and Runs that a study is drawn from, without images and encoders."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from support.makers import make_run

from circus_bench.benchmark import Benchmark, Gallery, Protocol, Query, ReferencePolicy
from circus_bench.metrics.shortcut import Label
from circus_bench.runs.run import Run

COMPOSED, OPEN, SHORTCUT = Label.COMPOSITION_REQUIRED, Label.UNRESOLVED, Label.SHORTCUT


def bare_benchmark(n: int = 10, *, name: str = "made", prefix: str = "q", **changes: Any) -> Benchmark:
    """Queries q0, q1, ... without images; query i has the reference r<i> and the target t<i>."""
    queries = tuple(Query(f"{prefix}{i}", f"r{i}", f"text {i}", (f"t{i}",)) for i in range(n))
    gallery = Gallery(tuple(f"{kind}{i}" for kind in "rt" for i in range(n)))
    protocol = Protocol(f"{name}/test", ReferencePolicy.KEPT)
    return Benchmark(**{"name": name, "protocol": protocol, "queries": queries, "gallery": gallery, **changes})


def run_with_tops(
    benchmark: Benchmark,
    tops: Sequence[Sequence[str]],
    *,
    ranks: Sequence[Sequence[int]] | None = None,
    model: str = "tests/a",
) -> Run:
    """A Run that retrieves these images for the benchmark's queries under every condition.

    Args:
        benchmark: the benchmark.
        tops: for each query the images retrieved.
        ranks: for each condition the ranks of the targets; 1 by default.
        model: the model's name.
    """
    best = [[1] * len(query.targets) for query in benchmark.queries]
    made = make_run(*(ranks or [best] * 3), model=model)
    return dataclasses.replace(
        made,
        manifest=dataclasses.replace(
            made.manifest,
            benchmark=benchmark.name,
            fingerprint=benchmark.fingerprint,
            protocol=dataclasses.asdict(benchmark.protocol),
            n_gallery=len(benchmark.gallery.ids),
        ),
        queries=tuple(query.id for query in benchmark.queries),
        targets=tuple(query.targets for query in benchmark.queries),
        results={
            condition: dataclasses.replace(result, top_ids=tuple(map(tuple, tops)))
            for condition, result in made.results.items()
        },
    )
