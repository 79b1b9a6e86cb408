"""Laws that hold for all ranks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from circus_bench.metrics import (
    Label,
    Ranks,
    average_precision,
    comp_gap,
    hit_rate,
    min_rank_labels,
    ndcg,
    recall,
    reciprocal_rank,
    tsr,
)

Lists = list[list[float]]
Metric = Callable[[Ranks], NDArray[np.float64]]

AT_K: dict[str, Callable[[Ranks, int], NDArray[np.float64]]] = {
    "hit_rate": hit_rate,
    "recall": recall,
    "average_precision": average_precision,
    "ndcg": lambda ranks, k: ndcg(ranks, k=k),
}
METRICS: dict[str, Metric] = {
    **{name: (lambda ranks, metric=metric: metric(ranks, 10)) for name, metric in AT_K.items()},
    "full_ndcg": ndcg,
    "reciprocal_rank": reciprocal_rank,
}
# No deadline: a loaded machine is no failure.
moderate = settings(max_examples=50, deadline=None)
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)


@st.composite
def queries(draw: st.DrawFn) -> list[float]:
    """Distinct ranks and unreachable targets of one query, at least one in all."""
    ranks: list[float] = [*draw(st.lists(st.integers(1, 60), unique=True, max_size=12))]
    unreachable = draw(st.integers(0 if ranks else 1, 2))
    return draw(st.permutations(ranks + [math.inf] * unreachable))


rank_lists = st.lists(queries(), min_size=1, max_size=6)


@every_metric
@moderate
@given(lists=rank_lists)
def test_values_lie_between_zero_and_one(metric: Metric, lists: Lists) -> None:
    values = metric(Ranks.of(lists))
    assert ((values >= 0) & (values <= 1)).all()


@every_metric
@moderate
@given(lists=rank_lists, seed=st.integers(0, 2**32 - 1))
def test_a_query_scores_the_same_wherever_it_stands(metric: Metric, lists: Lists, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(lists))
    moved = metric(Ranks.of([lists[i] for i in order]))
    np.testing.assert_array_equal(moved, metric(Ranks.of(lists))[order])


@every_metric
@moderate
@given(lists=rank_lists)
def test_the_order_of_the_targets_is_immaterial(metric: Metric, lists: Lists) -> None:
    np.testing.assert_array_equal(metric(Ranks.of(lists)), metric(Ranks.of([sorted(row) for row in lists])))


@pytest.mark.parametrize("metric", [hit_rate, recall])
@moderate
@given(lists=rank_lists, k=st.integers(1, 60), more=st.integers(0, 60))
def test_hit_rate_and_recall_never_fall_with_k(
    metric: Callable[[Ranks, int], NDArray[np.float64]], lists: Lists, k: int, more: int
) -> None:
    ranks = Ranks.of(lists)
    assert (metric(ranks, k) <= metric(ranks, k + more)).all()


@moderate
@given(lists=rank_lists, k=st.integers(1, 60))
def test_average_precision_and_recall_never_exceed_the_hit_rate(lists: Lists, k: int) -> None:
    ranks = Ranks.of(lists)
    assert (recall(ranks, k) <= hit_rate(ranks, k)).all()
    assert (average_precision(ranks, k) <= hit_rate(ranks, k)).all()


@moderate
@given(lists=st.lists(st.integers(1, 60).map(lambda rank: [float(rank)]), min_size=1), k=st.integers(1, 60))
def test_recall_is_the_hit_rate_for_single_targets(lists: Lists, k: int) -> None:
    ranks = Ranks.of(lists)
    np.testing.assert_array_equal(recall(ranks, k), hit_rate(ranks, k))
    # One target: the average precision is its reciprocal rank, if it counts.
    np.testing.assert_array_equal(average_precision(ranks, k), reciprocal_rank(ranks) * hit_rate(ranks, k))


@moderate
@given(row=queries())
def test_ndcg_is_one_only_for_the_first_places(row: list[float]) -> None:
    perfect = sorted(row) == list(range(1, len(row) + 1))
    assert (ndcg(Ranks.of([row]))[0] == 1) == perfect


@pytest.mark.parametrize("metric", [METRICS["recall"], METRICS["full_ndcg"]], ids=["recall", "full_ndcg"])
@moderate
@given(row=queries())
def test_a_further_unreachable_target_never_raises_a_share_of_all_targets(metric: Metric, row: list[float]) -> None:
    assert metric(Ranks.of([[*row, math.inf]]))[0] <= metric(Ranks.of([row]))[0]


@every_metric
@moderate
@given(row=queries(), data=st.data())
def test_a_target_that_drops_never_raises_a_value(metric: Metric, row: list[float], data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(row) - 1))
    # Beyond every finite rank in use, so that the ranks stay distinct.
    lower = math.inf if math.isinf(row[which]) else data.draw(st.sampled_from([61.0, 1000.0, math.inf]))
    worse = [*row[:which], lower, *row[which + 1 :]]
    assert metric(Ranks.of([worse]))[0] <= metric(Ranks.of([row]))[0]


positive_scores = st.lists(st.floats(0.01, 1), min_size=3, max_size=3)


@moderate
@given(scores=positive_scores)
def test_comp_gap_is_at_most_one_and_changes_sign_with_the_better_part(scores: list[float]) -> None:
    multimodal, text, image = scores
    gap = comp_gap(multimodal, text, image)
    assert gap <= 1
    assert (gap >= 0) == (multimodal >= max(text, image))
    assert gap == comp_gap(multimodal, image, text)


POOL = st.integers(1, 4).flatmap(
    lambda n_models: st.lists(
        st.lists(st.lists(st.integers(1, 30), min_size=4, max_size=4), min_size=n_models, max_size=n_models),
        min_size=3,
        max_size=3,
    )
)


@moderate
@given(pool=POOL, k=st.integers(1, 30))
def test_labels_follow_from_the_best_ranks_of_the_pool(pool: list[list[list[int]]], k: int) -> None:
    found = min_rank_labels(*pool, k=k)
    for query in range(4):
        best = [min(model[query] for model in condition) for condition in pool]
        expected = (
            Label.SHORTCUT if min(best[1:]) <= k else Label.COMPOSITION_REQUIRED if best[0] <= k else Label.UNRESOLVED
        )
        assert found.labels[query] == expected
        assert [found.best_multimodal[query], found.best_text_only[query], found.best_image_only[query]] == best


@moderate
@given(pool=POOL, k=st.integers(1, 29))
def test_shortcuts_grow_with_k_and_with_the_pool(pool: list[list[list[int]]], k: int) -> None:
    shortcuts = ~min_rank_labels(*pool, k=k).shortcut_free
    assert (shortcuts <= ~min_rank_labels(*pool, k=k + 1).shortcut_free).all()
    first_model = [condition[:1] for condition in pool]
    assert (~min_rank_labels(*first_model, k=k).shortcut_free <= shortcuts).all()


VERDICTS = st.integers(1, 4).flatmap(
    lambda n_judges: st.lists(
        st.lists(st.sampled_from(["negative", "positive", "abstain"]), min_size=n_judges, max_size=n_judges),
        min_size=1,
        max_size=8,
    )
)


@moderate
@given(verdicts=VERDICTS)
def test_tsr_lies_between_zero_and_one_and_is_one_only_for_unanimous_negatives(verdicts: list[list[str]]) -> None:
    value = tsr(verdicts)
    assert 0 <= value <= 1
    assert (value == 1) == all(verdict == "negative" for row in verdicts for verdict in row)


@moderate
@given(verdicts=VERDICTS)
def test_appended_negatives_never_lower_tsr(verdicts: list[list[str]]) -> None:
    # The known weakness that makes lists of different length incomparable.
    assert tsr([*verdicts, ["negative"] * len(verdicts[0])]) >= tsr(verdicts) - 1e-12
