"""The rank container refuses what no ranking can produce, and keeps what it is given."""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pytest

from circus_bench.errors import FormatError
from circus_bench.metrics.ranks import Ranks, none_to_inf


def test_lists_become_values_and_offsets() -> None:
    ranks = Ranks.of([[3], [12, 1, math.inf]])
    assert ranks.values.dtype == np.float64
    assert ranks.offsets.dtype == np.int64
    assert ranks.values.tolist() == [3, 12, 1, math.inf]
    assert ranks.offsets.tolist() == [0, 1, 4]
    assert ranks.n_queries == 2
    assert ranks.counts.tolist() == [1, 3]
    assert ranks.positions.tolist() == [1, 1, 2, 3]


def test_first_is_the_best_rank_of_each_query() -> None:
    assert Ranks.of([[3], [12, 1, math.inf], [math.inf]]).first().tolist() == [3, 1, math.inf]


def test_ordered_sorts_within_queries_only() -> None:
    assert Ranks.of([[9, 4], [math.inf, 2, 1]]).ordered().tolist() == [4, 9, 1, 2, math.inf]


def test_arrays_and_generators_are_taken_as_lists() -> None:
    rows = [[3], [12, 1]]
    assert Ranks.of(np.array(row) for row in rows) == Ranks.of(rows)


def test_equal_content_is_equal_and_unequal_content_is_not() -> None:
    ranks = Ranks.of([[1, 2], [3]])
    assert ranks == Ranks(np.array([1, 2, 3]), np.array([0, 2, 3]))
    assert ranks != Ranks.of([[1], [2, 3]])
    assert ranks != Ranks.of([[1, 2], [4]])
    assert ranks != [[1, 2], [3]]
    assert pickle.loads(pickle.dumps(ranks)) == ranks


def test_contents_cannot_be_changed() -> None:
    given = np.array([1.0, 2.0])
    ranks = Ranks(given, np.array([0, 2]))
    given[0] = 7
    assert ranks.values.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        ranks.values[0] = 7
    with pytest.raises(dataclasses.FrozenInstanceError):
        ranks.values = given  # type: ignore[misc]


def test_no_queries_are_a_valid_empty_table() -> None:
    empty = Ranks.of([])
    assert empty.n_queries == 0
    assert empty.first().tolist() == []
    assert empty.ordered().tolist() == []


def test_a_query_without_targets_is_named() -> None:
    with pytest.raises(FormatError, match=r"without a target \(indices 2: 1, 3\)"):
        Ranks.of([[1], [], [2], []])


@pytest.mark.parametrize("bad", [0, -1, 0.5, math.nan, -math.inf])
def test_an_impossible_rank_is_refused_and_its_query_named(bad: float) -> None:
    with pytest.raises(FormatError, match=r"query indices 1: 2\b"):
        Ranks.of([[1], [2, 3], [4, bad], [5]])


@pytest.mark.parametrize("bad", [None, "3", True])
def test_what_is_not_a_number_is_refused(bad: object) -> None:
    with pytest.raises(FormatError, match="expected numbers"):
        Ranks.of([[bad]])  # type: ignore[list-item]


def test_bare_numbers_instead_of_lists_are_named() -> None:
    with pytest.raises(FormatError, match=r"list of ranks per query \(query indices 1: 1\)"):
        Ranks.of([[1], 3])  # type: ignore[list-item]


@pytest.mark.parametrize("offsets", [[], [0], [1, 2], [0, 3], [0, 3, 2], [0.0, 2.0], [[0, 2]]])
def test_offsets_that_do_not_fit_are_refused(offsets: list[int]) -> None:
    with pytest.raises(FormatError):
        Ranks(np.array([1.0, 2.0]), np.array(offsets))


def test_targets_cannot_share_a_rank() -> None:
    with pytest.raises(FormatError, match=r"query indices 1: 1\)"):
        Ranks.of([[5, 6], [5, 5], [5]]).ordered()


def test_fractional_ranks_cannot_crowd_the_first_places() -> None:
    # The second best of two targets has an expected rank of at least 2.
    with pytest.raises(FormatError, match="share"):
        Ranks.of([[1, 1.5]]).ordered()
    assert Ranks.of([[1.5, 2.5]]).ordered().tolist() == [1.5, 2.5]


def test_several_targets_may_be_unreachable() -> None:
    assert Ranks.of([[math.inf, 2, math.inf]]).ordered().tolist() == [2, math.inf, math.inf]


def test_none_is_infinity_within_a_list_and_an_error_in_place_of_one() -> None:
    assert none_to_inf([[3, None], []]) == [[3, math.inf], []]
    with pytest.raises(FormatError, match="indices 1: 1"):
        none_to_inf([[3], None])
