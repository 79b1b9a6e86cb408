"""Check the labels of the scenes benchmark against its ground truth: each synthetic query was made to have a label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circus_bench.audit.statistics import Estimate, proportion
from circus_bench.benchmark import Benchmark, Condition
from circus_bench.labels.pool import Pool, check_same_queries
from circus_bench.metrics.shortcut import Label
from circus_bench.sources.scenes import QueryKind, expected_label


@dataclass(frozen=True)
class GroundTruthCheck:
    """Agreement of the labels at one cut-off with the ground truth.

    Attributes:
        k: the cut-off.
        agreement: share of agreeing labels among the queries whose label the ground truth decides.
        text_caught: share of synthetic text shortcuts that are labeled shortcut.
        image_caught: share of synthetic image shortcuts that are labeled shortcut.
        composition_found: share of synthetic composition_required queries that are labeled so.
        best_multimodal: on these, the best single model's multimodal hit rate@k.
    """

    k: int
    agreement: Estimate
    text_caught: Estimate
    image_caught: Estimate
    composition_found: Estimate
    best_multimodal: Estimate


def check_ground_truth(benchmark: Benchmark, pool: Pool, *, k: int) -> GroundTruthCheck:
    """Compare a pool's labels with the ground truth.

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
    expected = np.array([expected_label(query_of[query], k) or "" for query in pool.queries])
    kinds = np.array([query_of[query].group for query in pool.queries])
    decided = expected != ""
    composed = kinds == QueryKind.COMPOSITION_REQUIRED.value
    hits = pool.best[Condition.MULTIMODAL][:, composed] <= k
    return GroundTruthCheck(
        k=k,
        agreement=proportion((labels == expected)[decided]),
        text_caught=proportion(labels[kinds == QueryKind.TEXT_SHORTCUT.value] == Label.SHORTCUT.value),
        image_caught=proportion(labels[kinds == QueryKind.IMAGE_SHORTCUT.value] == Label.SHORTCUT.value),
        composition_found=proportion(labels[composed] == Label.COMPOSITION_REQUIRED.value),
        best_multimodal=proportion(hits[hits.sum(axis=1).argmax()]),
    )
