"""The composition gap: its values, its sign, and where it is undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest

from circus_bench.errors import FormatError
from circus_bench.metrics import Ranks, comp_gap, ndcg, pool_comp_gap


def test_gap_is_the_share_that_the_better_part_leaves() -> None:
    assert comp_gap(0.8, 0.2, 0.6) == pytest.approx(1 - 0.6 / 0.8)
    assert comp_gap(0.8, 0.6, 0.2) == pytest.approx(1 - 0.6 / 0.8)


def test_gap_is_a_ratio_of_means_not_a_mean_of_ratios() -> None:
    # Means 0.6, 0.45, 0.3: gap 0.25. Query by query: (1 - 0.8 / 1 + 1 - 0.2 / 0.2) / 2 = 0.1.
    # The better part is also chosen on the means: text, although the image is better for the second query.
    assert comp_gap([1.0, 0.2], [0.8, 0.1], [0.4, 0.2]) == pytest.approx(0.25)


def test_gap_from_ranks() -> None:
    # nDCG 1 and 1/2 multimodally: mean 3/4. Text 1/2 and 1/4 (rank 15): 3/8. Image never.
    multimodal, text, image = (Ranks.of(lists) for lists in ([[1], [3]], [[3], [15]], [[math.inf], [math.inf]]))
    assert comp_gap(ndcg(multimodal), ndcg(text), ndcg(image)) == pytest.approx(0.5)


def test_gap_is_negative_when_one_part_alone_does_better() -> None:
    assert comp_gap(0.4, 0.6, 0.1) == pytest.approx(-0.5)


def test_gap_is_one_when_neither_part_retrieves_anything() -> None:
    assert comp_gap([0.5, 0.1], [0.0, 0.0], [0.0, 0.0]) == 1


@pytest.mark.parametrize("parts", [(0.0, 0.0), (0.3, 0.2)])
def test_gap_is_undefined_when_both_together_retrieve_nothing(parts: tuple[float, float]) -> None:
    assert math.isnan(comp_gap(0.0, *parts))
    assert math.isnan(comp_gap([0.0, 0.0], [parts[0]] * 2, [parts[1]] * 2))


def test_gap_of_no_queries_is_undefined() -> None:
    assert math.isnan(comp_gap([], [], []))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1])
@pytest.mark.parametrize("condition", ["multimodal", "text_only", "image_only"])
def test_an_impossible_score_is_refused_and_its_condition_named(condition: str, bad: float) -> None:
    scores = {name: np.array([0.5, 0.5]) for name in ("multimodal", "text_only", "image_only")}
    scores[condition][1] = bad
    with pytest.raises(FormatError, match=condition):
        comp_gap(**scores)


def test_conditions_of_different_length_are_refused() -> None:
    with pytest.raises(FormatError, match=r"text_only \(1,\)"):
        comp_gap([0.5, 0.5], [0.5], [0.5, 0.5])
    with pytest.raises(FormatError, match="same queries"):
        comp_gap([0.5, 0.5], 0.5, 0.5)
    with pytest.raises(FormatError, match="one score per query"):
        comp_gap([[0.5]], [[0.5]], [[0.5]])


def test_pool_value_is_the_mean_over_models() -> None:
    assert pool_comp_gap([0.5, -0.25, 0.2]) == pytest.approx(0.15)


def test_pool_value_is_undefined_when_one_model_is() -> None:
    assert math.isnan(pool_comp_gap([0.5, math.nan]))


@pytest.mark.parametrize("gaps", [[], [0.5, -math.inf], [None]])
def test_pool_of_nothing_or_of_infinities_is_refused(gaps: list[float]) -> None:
    with pytest.raises(FormatError, match="composition gaps"):
        pool_comp_gap(gaps)
