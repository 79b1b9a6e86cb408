"""Design-weighted shares: weights, intervals, and what is undecided."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.judged import TEXT, VALID, item, judge_all, study

from circus_bench.audit.statistics import proportion
from circus_bench.validation.decisions import Decision, decide
from circus_bench.validation.estimates import validity_shares


def decisions(*strata: tuple[str, float, list[bool | None]]) -> list[Decision]:
    """Decisions on items drawn from strata with an inclusion probability; None is left undecided."""
    items, labels = [], []
    for name, inclusion, valid in strata:
        items += [item(len(items) + place, stratum=name, inclusion=inclusion) for place in range(len(valid))]
        labels += [{True: VALID, False: TEXT, None: None}[value] for value in valid]
    return decide(study(items), judge_all({"ann": labels}) if any(labels) else [], quorum=1)


def test_a_stratum_s_share_has_wilson_s_interval() -> None:
    found = validity_shares(decisions(("a", 0.1, [True] * 3 + [False] * 7))).strata["a"]
    expected = proportion(np.array([1] * 3 + [0] * 7))
    assert (found.value, found.n) == (expected.value, expected.n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_strata_count_with_the_number_of_queries_that_they_stand_for() -> None:
    # Stratum a: 10 items of 100, half valid. Stratum b: 10 items of 20, all valid. (100 * 0.5 + 20 * 1) / 120.
    found = validity_shares(decisions(("a", 0.1, [True, False] * 5), ("b", 0.5, [True] * 10)))
    assert found.overall.value == pytest.approx(70 / 120)
    assert found.sizes == {"a": pytest.approx(100), "b": pytest.approx(20)}


def test_the_overall_interval_adds_the_distances_of_the_strata_in_squares() -> None:
    parts = ("a", 0.1, [True, False] * 5), ("b", 0.5, [True] * 10)
    found = validity_shares(decisions(*parts))
    half, all_of = proportion(np.array([1, 0] * 5)), proportion(np.ones(10))
    low = math.hypot(100 / 120 * (half.value - half.low), 20 / 120 * (all_of.value - all_of.low))
    high = math.hypot(100 / 120 * (half.high - half.value), 0)
    assert (found.overall.low, found.overall.high) == pytest.approx((70 / 120 - low, 70 / 120 + high))


def test_with_one_stratum_the_overall_estimate_is_that_of_the_stratum() -> None:
    found = validity_shares(decisions(("a", 0.2, [True, False, False])))
    only = found.strata["a"]
    assert (found.overall.low, found.overall.high) == pytest.approx((only.low, only.high))


def test_unequal_weights_within_a_stratum_count_as_fewer_items() -> None:
    # Weights 10 and 1, ten items each: share (10 * 10 + 0) / 110; effective number 110^2 / (10 * 100 + 10) = 11.98.
    mixed = decisions(("a", 0.1, [True] * 10)) + decisions(("a", 1.0, [False] * 10))
    found = validity_shares(mixed).strata["a"]
    p, n, z = 100 / 110, 110**2 / 1010, 1.959964
    assert found.value == pytest.approx(p)
    # Wilson's limits solve (p - limit)^2 = z^2 limit (1 - limit) / n.
    for limit in (found.low, found.high):
        assert (p - limit) ** 2 == pytest.approx(z**2 * limit * (1 - limit) / n, rel=1e-5)


def test_undecided_items_are_left_out_of_the_share_but_not_of_the_size() -> None:
    found = validity_shares(decisions(("a", 0.5, [True, True, False, None])))
    assert found.strata["a"].value == pytest.approx(2 / 3)
    assert (found.undecided, found.sizes) == ({"a": 1}, {"a": 8})


def test_overall_is_undefined_while_a_stratum_has_no_decision() -> None:
    found = validity_shares(decisions(("a", 0.5, [True]), ("b", 0.5, [None])))
    assert math.isnan(found.overall.value)
    assert math.isnan(found.strata["b"].value)
    assert found.strata["a"].value == 1


def test_nothing_has_no_share() -> None:
    assert math.isnan(validity_shares([]).overall.value)


def test_the_overall_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    # Strata of 1,000, 300 and 4 with shares 0.3, 0.7 and 0.75, drawn by the hundred (the last completely).
    rng = np.random.default_rng(1)
    sizes, shares = [1000, 300, 4], [0.3, 0.7, 0.75]
    truth = float(np.average(shares, weights=sizes))
    covered = 0
    for _ in range(200):
        drawn = [
            (f"s{h}", min(1.0, 100 / size), (rng.random(min(size, 100)) < share).tolist())
            for h, (size, share) in enumerate(zip(sizes, shares, strict=True))
        ]
        found = validity_shares(decisions(*drawn)).overall
        covered += found.low <= truth <= found.high
    # 200 trials at 0.95 leave this range once in some thousand times.
    assert 180 <= covered <= 199
