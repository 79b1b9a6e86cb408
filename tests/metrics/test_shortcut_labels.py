"""The min-rank labels and their evidence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from circus_bench.errors import CircusError, FormatError
from circus_bench.metrics import Label, Shortcut, min_rank_labels

FAR = 99.0


def one_query(multimodal: list[float], text: list[float], image: list[float], **options: int) -> tuple[str, str]:
    """Label a single query from one rank per model and condition."""
    found = min_rank_labels(*(np.array(ranks)[:, None] for ranks in (multimodal, text, image)), **options)
    return str(found.labels[0]), str(found.details[0])


@pytest.mark.parametrize(
    ("multimodal", "text", "image", "expected"),
    [
        ([1.0], [10.0], [11.0], (Label.SHORTCUT, Shortcut.TEXT_ONLY)),  # a rank of K itself is a hit
        ([1.0], [11.0], [10.0], (Label.SHORTCUT, Shortcut.IMAGE_ONLY)),
        ([1.0], [1.0], [1.0], (Label.SHORTCUT, Shortcut.BOTH)),
        ([FAR], [1.0], [FAR], (Label.SHORTCUT, Shortcut.TEXT_ONLY)),  # a shortcut, though both together fail
        ([10.0], [11.0], [11.0], (Label.COMPOSITION_REQUIRED, "")),
        ([11.0], [11.0], [11.0], (Label.UNRESOLVED, "")),
        ([math.inf], [math.inf], [math.inf], (Label.UNRESOLVED, "")),
    ],
)
def test_label_and_detail_of_one_model(
    multimodal: list[float], text: list[float], image: list[float], expected: tuple[str, str]
) -> None:
    assert one_query(multimodal, text, image) == expected


def test_hits_of_different_models_make_both() -> None:
    assert one_query([FAR, FAR], [1, FAR], [FAR, 1]) == (Label.SHORTCUT, Shortcut.BOTH)


def test_any_model_suffices_by_default() -> None:
    assert one_query([FAR, FAR, FAR], [FAR, FAR, 2], [FAR] * 3) == (Label.SHORTCUT, Shortcut.TEXT_ONLY)
    assert one_query([FAR, 2, FAR], [FAR] * 3, [FAR] * 3) == (Label.COMPOSITION_REQUIRED, "")


def test_min_unimodal_counts_models_with_a_hit_in_either_part() -> None:
    # Models 0 and 1 hit with different parts: two models with a unimodal hit, though no part has two.
    ranks = ([1.0] * 3, [1.0, FAR, FAR], [FAR, 1.0, FAR])
    assert one_query(*ranks, min_unimodal=2) == (Label.SHORTCUT, Shortcut.BOTH)
    # A model that hits with both parts counts once.
    assert one_query([1.0] * 3, [1.0, FAR, FAR], [1.0, FAR, FAR], min_unimodal=2) == (Label.COMPOSITION_REQUIRED, "")


def test_detail_is_read_from_all_hits_also_when_more_models_are_needed() -> None:
    # Two text hits make the shortcut; one image hit of a third model still makes the detail `both`.
    ranks = ([1.0] * 3, [1.0, 1.0, FAR], [FAR, FAR, 1.0])
    assert one_query(*ranks, min_unimodal=2) == (Label.SHORTCUT, Shortcut.BOTH)


def test_min_multimodal_counts_models() -> None:
    ranks = ([1.0, FAR, 1.0], [FAR] * 3, [FAR] * 3)
    assert one_query(*ranks, min_multimodal=2) == (Label.COMPOSITION_REQUIRED, "")
    assert one_query(*ranks, min_multimodal=3) == (Label.UNRESOLVED, "")


def test_k_moves_the_labels() -> None:
    assert one_query([5.0], [15.0], [FAR], k=4)[0] == Label.UNRESOLVED
    assert one_query([5.0], [15.0], [FAR], k=5)[0] == Label.COMPOSITION_REQUIRED
    assert one_query([5.0], [15.0], [FAR], k=15)[0] == Label.SHORTCUT


def test_evidence_is_kept() -> None:
    found = min_rank_labels(
        [[1, 40, 90], [20, 4, 80]],
        [[7, 55, math.inf], [9, 70, 60]],
        [[99, 41, 50], [3, 40, math.inf]],
    )
    assert found.best_multimodal.tolist() == [1, 4, 80]
    assert found.best_text_only.tolist() == [7, 55, 60]
    assert found.best_image_only.tolist() == [3, 40, 50]
    assert found.support_multimodal.tolist() == [1, 1, 0]
    assert found.support_text_only.tolist() == [2, 0, 0]
    assert found.support_image_only.tolist() == [1, 0, 0]
    assert found.support_unimodal.tolist() == [2, 0, 0]
    assert (found.k, found.min_unimodal, found.min_multimodal) == (10, 1, 1)


def test_counts_cover_all_queries_and_the_shortcut_free_are_the_other_two_labels() -> None:
    found = min_rank_labels([[1, 4, 90, 1]], [[7, 55, 60, 90]], [[99, 41, 50, 2]])
    assert found.counts() == {Label.SHORTCUT: 2, Label.COMPOSITION_REQUIRED: 1, Label.UNRESOLVED: 1}
    assert found.detail_counts() == {Shortcut.TEXT_ONLY: 1, Shortcut.IMAGE_ONLY: 1, Shortcut.BOTH: 0}
    assert found.shortcut_free.tolist() == [False, True, True, False]


def test_a_pool_with_no_queries_has_no_labels() -> None:
    found = min_rank_labels(*[np.empty((2, 0))] * 3)
    assert found.labels.tolist() == []
    assert sum(found.counts().values()) == 0


@pytest.mark.parametrize("bad", [math.nan, 0.0, -3.0])
@pytest.mark.parametrize("condition", ["multimodal", "text_only", "image_only"])
def test_an_impossible_rank_is_refused_with_its_condition_and_query(condition: str, bad: float) -> None:
    ranks = {name: np.ones((2, 3)) for name in ("multimodal", "text_only", "image_only")}
    ranks[condition][1, 2] = bad
    with pytest.raises(FormatError, match=rf"{condition}: .*query indices 1: 2\)"):
        min_rank_labels(**ranks)


def test_conditions_of_different_shape_are_refused() -> None:
    with pytest.raises(FormatError, match=r"image_only \(2, 4\)"):
        min_rank_labels(np.ones((2, 3)), np.ones((2, 3)), np.ones((2, 4)))


@pytest.mark.parametrize("shape", [(3,), (0, 3), (1, 1, 3)])
def test_ranks_that_are_no_table_of_models_and_queries_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(FormatError, match="n_models, n_queries"):
        min_rank_labels(*[np.ones(shape)] * 3)


def test_rows_of_unequal_length_are_refused() -> None:
    with pytest.raises(FormatError, match="multimodal: rows of unequal length"):
        min_rank_labels([[1, 2], [1]], [[1, 2], [1]], [[1, 2], [1]])


@pytest.mark.parametrize("option", ["k", "min_unimodal", "min_multimodal"])
@pytest.mark.parametrize("value", [0, -1, 1.0, True])
def test_options_are_whole_numbers_of_at_least_one(option: str, value: Any) -> None:
    with pytest.raises(CircusError, match=f"{option} must be a whole number"):
        min_rank_labels([[1]], [[1]], [[1]], **{option: value})


@pytest.mark.parametrize("option", ["min_unimodal", "min_multimodal"])
def test_asking_for_more_models_than_there_are_is_refused(option: str) -> None:
    with pytest.raises(CircusError, match=f"{option} is 2, but the pool has 1 models"):
        min_rank_labels([[1]], [[1]], [[1]], **{option: 2})  # type: ignore[arg-type]
