"""An audit of the scenes benchmark, held against what was planted there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from circus_bench.audit.statistics import Estimate, proportion
from circus_bench.benchmark import Benchmark, Condition
from circus_bench.labels.pool import Pool, check_same_queries
from circus_bench.metrics.shortcut import Label
from circus_bench.sources.scenes import Kind, truth


@dataclass(frozen=True)
class PlantedCheck:
    """How well the labels at one cut-off agree with the plants.

    Attributes:
        k: the cut-off.
        agreement: share of agreeing labels among the queries whose label the plant decides.
        text_caught: share of planted text shortcuts that are labelled shortcut.
        image_caught: share of planted image shortcuts that are labelled shortcut.
        composition_found: share of planted composition_required queries that are labelled so.
        best_multimodal: on these, the best single model's multimodal hit rate@k.
    """

    k: int
    agreement: Estimate
    text_caught: Estimate
    image_caught: Estimate
    composition_found: Estimate
    best_multimodal: Estimate

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = ("agreement", "text_caught", "image_caught", "composition_found", "best_multimodal")
        return {"k": self.k, **{name: getattr(self, name).to_dict() for name in names}}


def check_planted(benchmark: Benchmark, pool: Pool, *, k: int) -> PlantedCheck:
    """Compare a pool's labels with the planted truth.

    Args:
        benchmark: made by `circus_bench.sources.scenes.scenes`.
        pool: best ranks on that benchmark.
        k: the cut-off.

    Raises:
        MismatchError: the pool is about other queries.
    """
    check_same_queries(pool, benchmark)
    labels = pool.label(k=k).labels
    query_of = {query.id: query for query in benchmark.queries}
    planted = np.array([truth(query_of[query], k) or "" for query in pool.queries])
    kinds = np.array([query_of[query].group for query in pool.queries])
    decided = planted != ""
    composed = kinds == Kind.COMPOSITION_REQUIRED.value
    hits = pool.best[Condition.MULTIMODAL][:, composed] <= k
    return PlantedCheck(
        k=k,
        agreement=proportion((labels == planted)[decided]),
        text_caught=proportion(labels[kinds == Kind.TEXT_SHORTCUT.value] == Label.SHORTCUT.value),
        image_caught=proportion(labels[kinds == Kind.IMAGE_SHORTCUT.value] == Label.SHORTCUT.value),
        composition_found=proportion(labels[composed] == Label.COMPOSITION_REQUIRED.value),
        best_multimodal=proportion(hits[hits.sum(axis=1).argmax()]),
    )
