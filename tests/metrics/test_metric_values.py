"""Values of the rank metrics computed by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from circus_bench.errors import CircusError, FormatError
from circus_bench.metrics import Ranks, average_precision, hit_rate, ndcg, recall, reciprocal_rank

# A single target; several of which one is out of the gallery; a query that fails altogether.
RANKS = Ranks.of([[3], [12, 1, math.inf], [math.inf]])


def test_hit_rate_asks_for_the_best_target() -> None:
    assert hit_rate(RANKS, 1).tolist() == [0, 1, 0]
    assert hit_rate(RANKS, 3).tolist() == [1, 1, 0]


def test_recall_counts_unreachable_targets_in_the_denominator() -> None:
    # Second query: of 3 targets, 1 has a rank of at most 3 and 2 have one of at most 12.
    assert recall(RANKS, 3).tolist() == pytest.approx([1, 1 / 3, 0])
    assert recall(RANKS, 12).tolist() == pytest.approx([1, 2 / 3, 0])


def test_reciprocal_rank_is_that_of_the_best_target() -> None:
    assert reciprocal_rank(RANKS).tolist() == pytest.approx([1 / 3, 1, 0])


def test_average_precision_divides_by_the_targets_when_they_are_fewer_than_k() -> None:
    # 1st: precision 1/3 at rank 3, over 1 target. 2nd: (1/1 + 2/12) / 3 targets at K = 20; (1/1) / 3 at K = 10.
    assert average_precision(RANKS, 20).tolist() == pytest.approx([1 / 3, (1 + 2 / 12) / 3, 0])
    assert average_precision(RANKS, 10).tolist() == pytest.approx([1 / 3, 1 / 3, 0])


def test_average_precision_divides_by_k_when_the_targets_are_more() -> None:
    # Nine queries with 14 targets and K = 10: query i misses the first i places, so target j has rank i + j, and the
    # precision at it is j / (i + j), for j = 1 .. 10 - i.
    ranks = Ranks.of([[i + j for j in range(1, 15)] for i in range(9)])
    expected = [sum(j / (i + j) for j in range(1, 11 - i)) / 10 for i in range(9)]
    assert expected[0] == 1
    assert average_precision(ranks, 10).tolist() == pytest.approx(expected)
    assert recall(ranks, 10).tolist() == pytest.approx([(10 - i) / 14 for i in range(9)])


def test_average_precision_does_not_depend_on_the_order_of_the_targets() -> None:
    expected = average_precision(Ranks.of([[2, 4, 7]]), 10).tolist()
    assert average_precision(Ranks.of([[7, 2, 4]]), 10).tolist() == expected


def test_ndcg_of_one_target_is_its_discount() -> None:
    # 1 / log2(1 + rank): a perfect hit is 1, rank 3 is 1/2, rank 7 is 1/3.
    assert ndcg(Ranks.of([[1], [3], [7], [math.inf]])).tolist() == pytest.approx([1, 1 / 2, 1 / 3, 0])


def test_ndcg_ideal_holds_all_targets_from_rank_one() -> None:
    # Ideal of two targets: 1 / log2(2) + 1 / log2(3). One at rank 3, the other not in the gallery: 1/2.
    ideal = 1 + 1 / math.log2(3)
    assert ndcg(Ranks.of([[3, math.inf], [1, 3]])).tolist() == pytest.approx([0.5 / ideal, 1.5 / ideal])


def test_ndcg_cutoff_cuts_both_sums() -> None:
    # K = 2 with three targets at 1, 3, 4: gain 1; ideal 1 + 1 / log2(3).
    assert ndcg(Ranks.of([[1, 3, 4]]), k=2).tolist() == pytest.approx([1 / (1 + 1 / math.log2(3))])
    # Two of the three in the first two places are all that K = 2 can hold.
    assert ndcg(Ranks.of([[1, 2, 90]]), k=2).tolist() == [1]


@pytest.mark.parametrize("n_targets", range(1, 15))
def test_ndcg_of_a_perfect_ranking_is_exactly_one(n_targets: int) -> None:
    assert ndcg(Ranks.of([list(range(n_targets, 0, -1))])).tolist() == [1.0]


def test_a_cutoff_beyond_the_gallery_changes_nothing() -> None:
    ranks = Ranks.of([[3, 1], [5, math.inf]])
    for metric in (hit_rate, recall, average_precision):
        assert metric(ranks, 5).tolist() == metric(ranks, 10**6).tolist()
    assert ndcg(ranks, k=10**6).tolist() == ndcg(ranks).tolist()


METRICS: dict[str, Callable[[Ranks, Any], np.ndarray[Any, Any]]] = {
    "hit_rate": hit_rate,
    "recall": recall,
    "average_precision": average_precision,
    "ndcg": lambda ranks, k: ndcg(ranks, k=k),
}


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("k", [0, -1, 1.5, 10.0, "10", True])
def test_a_cutoff_that_is_no_positive_whole_number_is_refused(metric: Callable[..., Any], k: object) -> None:
    with pytest.raises(CircusError, match="k must be a whole number of at least 1"):
        metric(RANKS, k)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_numpy_cutoff_is_taken(metric: Callable[..., Any]) -> None:
    assert metric(RANKS, np.int64(10)).tolist() == metric(RANKS, 10).tolist()


@pytest.mark.parametrize("metric", [*METRICS.values(), lambda ranks, _: reciprocal_rank(ranks)], ids=[*METRICS, "rr"])
def test_the_result_is_one_float64_per_query(metric: Callable[..., Any]) -> None:
    values = metric(RANKS, 10)
    assert values.dtype == np.float64
    assert values.shape == (3,)
    assert metric(Ranks.of([]), 10).shape == (0,)


@pytest.mark.parametrize("metric", [ndcg, lambda ranks: average_precision(ranks, 10)], ids=["ndcg", "ap"])
def test_repeated_ranks_would_exceed_one_and_are_refused(metric: Callable[..., Any]) -> None:
    with pytest.raises(FormatError, match="share a rank"):
        metric(Ranks.of([[1, 1]]))
