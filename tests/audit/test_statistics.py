"""Intervals: published values, coverage, pairing, and what is undefined."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from circus_bench.audit import statistics
from circus_bench.audit.statistics import (
    UNDEFINED,
    Estimate,
    mean,
    pool_comp_gap_of,
    proportion,
)
from circus_bench.benchmark import Condition
from circus_bench.io import to_json


def hits(count: int, n: int) -> np.ndarray:
    return np.arange(n) < count


def scores(multimodal: list[float], text_only: list[float], image_only: list[float]) -> dict[Condition, np.ndarray]:
    rows = (multimodal, text_only, image_only)
    return {condition: np.array(row, float) for condition, row in zip(Condition, rows, strict=True)}


# Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998), table I,
# method 3 (Wilson's score interval without continuity correction), to four decimals.
NEWCOMBE = [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)]


@pytest.mark.parametrize(("count", "n", "low", "high"), NEWCOMBE)
def test_the_interval_of_a_share_is_the_published_wilson_interval(count: int, n: int, low: float, high: float) -> None:
    found = proportion(hits(count, n))
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


@pytest.mark.parametrize("n", [1, 7, 220, 30031])
def test_the_interval_of_a_share_solves_the_equation_of_the_score_test(n: int) -> None:
    # Wilson's limits are the p at which (share - p)^2 = z^2 p (1 - p) / n.
    z = stats.norm.ppf(0.975)
    for count in {0, 1, n // 3, n}:
        found = proportion(hits(count, n))
        for limit in (found.low, found.high):
            assert (found.value - limit) ** 2 == pytest.approx(z**2 * limit * (1 - limit) / n, abs=1e-12)


def test_a_query_of_weight_w_counts_as_w_queries_but_is_no_more_evidence() -> None:
    found = proportion(np.array([1, 0, 1]), np.array([3.0, 1.0, 1.0]))
    assert found.value == 4 / 5
    assert found.n == 3
    # The effective number is 5^2 / 11; the limits solve the equation of the score test with it.
    z = stats.norm.ppf(0.975)
    for limit in (found.low, found.high):
        assert (found.value - limit) ** 2 == pytest.approx(z**2 * limit * (1 - limit) * 11 / 25)


def test_equal_weights_give_the_plain_share_and_mean() -> None:
    flags, values = hits(81, 263), np.random.default_rng(0).random(50)
    weighted, plain = proportion(flags, np.full(263, 2.5)), proportion(flags)
    assert (weighted.value, weighted.low, weighted.high) == pytest.approx((plain.value, plain.low, plain.high))
    weighted, plain = mean(values, np.full(50, 2.5)), mean(values)
    assert (weighted.value, weighted.low, weighted.high) == pytest.approx((plain.value, plain.low, plain.high))


def test_a_weighted_mean_covers_the_mean_of_what_was_drawn_from() -> None:
    rng = np.random.default_rng(1)
    rare, common = rng.beta(8, 2, 4000), rng.beta(2, 8, 4000)
    truth = np.concatenate([rare, common]).mean()
    covered = plain = 0
    for _ in range(200):
        drawn = np.concatenate([rng.choice(rare, 200, replace=False), rng.choice(common, 40, replace=False)])
        found = mean(drawn, np.repeat([20.0, 100.0], [200, 40]))
        covered += found.low <= truth <= found.high
        plain += mean(drawn).low <= truth <= mean(drawn).high
    assert covered >= 180
    assert plain == 0  # the rare ones are drawn five times as often


def test_the_interval_of_a_share_agrees_with_scipy() -> None:
    found = proportion(hits(164, 220))
    expected = stats.binomtest(164, 220).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_a_share_is_the_hits_over_the_queries() -> None:
    assert (proportion(hits(3, 4)).value, proportion(hits(3, 4)).n) == (0.75, 4)


def test_hits_may_be_numbers() -> None:
    assert proportion(np.array([1.0, 0.0, 1.0])) == proportion(np.array([True, False, True]))


def test_a_share_of_nothing_is_undefined() -> None:
    assert proportion(hits(0, 0)) is UNDEFINED


def test_a_mean_is_the_mean_of_the_values() -> None:
    found = mean(np.array([0.0, 0.5, 1.0, 0.1]))
    assert (found.value, found.n) == (pytest.approx(0.4), 4)


def test_a_mean_over_nothing_is_undefined() -> None:
    assert mean(np.array([])) is UNDEFINED


def test_the_interval_of_equal_values_is_a_point() -> None:
    found = mean(np.full(30, 0.25))
    assert (found.low, found.high) == pytest.approx((0.25, 0.25))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_mean_of_zeros_or_ones_alone_has_the_interval_of_a_share(value: float) -> None:
    # Every resample is the same, and yet 30 zeros do not prove that there is nothing else.
    assert mean(np.full(30, value)) == proportion(np.full(30, value))


def test_the_interval_of_a_mean_agrees_with_the_bootstrap_of_scipy() -> None:
    values = np.random.default_rng(5).exponential(size=80)
    found = mean(values)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=20000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    # The 2.5 % quantile of 2,000 resampled means errs by about sqrt(.025 * .975 / 2000) / (normal density .058 / sd) =
    # .06 sd, and the standard deviation of the mean is about 1 / sqrt(80) = .11: four such errors are .026.
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.026)


def test_the_interval_of_a_mean_covers_the_truth_about_95_times_in_100() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        found = mean(rng.uniform(size=60))
        covered += found.low <= 0.5 <= found.high
    # 190 are expected of 200; three standard deviations, sqrt(200 * .95 * .05) = 3.1, are 9.
    assert 181 <= covered <= 199


def test_intervals_are_the_same_every_time() -> None:
    values = np.random.default_rng(2).uniform(size=50)
    assert mean(values) == mean(values.copy())


def test_intervals_leave_numpy_s_global_generator_alone() -> None:
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    mean(np.array([0.0, 1.0, 0.5]))
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_resampling_in_small_pieces_gives_the_same_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).uniform(size=70)
    whole = mean(values)
    monkeypatch.setattr(statistics, "_CELLS", 70 * 300)  # 2,000 resamples in pieces of 300
    pieces = mean(values)
    assert (pieces.low, pieces.high) == pytest.approx((whole.low, whole.high), abs=1e-12)


def test_the_composition_gap_is_one_minus_the_better_single_part_over_both() -> None:
    # Means: multimodal .8, text .2, image .4; 1 - .4 / .8.
    found = pool_comp_gap_of([scores([1.0, 0.6], [0.2, 0.2], [0.3, 0.5])])
    assert (found.value, found.n) == (pytest.approx(0.5), 2)


def test_the_conditions_of_a_composition_gap_share_their_resampled_queries() -> None:
    # Text scores half of multimodal on every query, so the gap of every paired resample is 1 - 1/2. Resampled apart,
    # the ratio of two means would vary.
    multimodal = np.random.default_rng(4).uniform(0.1, 1, 40)
    found = pool_comp_gap_of([scores(multimodal.tolist(), (multimodal / 2).tolist(), [0.0] * 40)])
    assert (found.low, found.value, found.high) == pytest.approx((0.5, 0.5, 0.5))


def test_a_composition_gap_may_be_negative() -> None:
    assert pool_comp_gap_of([scores([0.2, 0.2], [0.1, 0.1], [0.3, 0.3])]).value == pytest.approx(-0.5)


def test_the_better_single_part_is_chosen_by_mean_not_query_by_query() -> None:
    # Either part has the mean .5; the better part of each query would have 1.
    assert pool_comp_gap_of([scores([1.0, 1.0], [1.0, 0.0], [0.0, 1.0])]).value == pytest.approx(0.5)


def test_a_composition_gap_without_multimodal_success_is_undefined() -> None:
    found = pool_comp_gap_of([scores([0.0, 0.0], [0.5, 0.5], [0.0, 0.0])])
    assert [math.isnan(number) for number in (found.value, found.low, found.high)] == [True] * 3


def test_resamples_without_multimodal_success_are_left_out_of_the_interval() -> None:
    # A quarter of the resamples draws the second query twice: multimodal 0, no gap. In all others the gap is 1.
    found = pool_comp_gap_of([scores([1.0, 0.0], [0.0, 0.0], [0.0, 0.0])])
    assert (found.low, found.value, found.high) == (1, 1, 1)


def test_a_composition_gap_over_nothing_is_undefined() -> None:
    assert pool_comp_gap_of([scores([], [], [])]) is UNDEFINED


def test_the_gap_of_a_pool_is_the_mean_of_its_models_gaps() -> None:
    # Gaps 1 - .5 / 1 and 1 - .2 / .25: the mean of .5 and .2. The ratio of pooled means would give .44.
    first = scores([1.0, 1.0], [0.5, 0.5], [0.0, 0.0])
    second = scores([0.25, 0.25], [0.0, 0.0], [0.2, 0.2])
    assert pool_comp_gap_of([first, second]).value == pytest.approx(0.35)


def test_the_gap_of_a_pool_is_undefined_when_that_of_a_model_is() -> None:
    working, failing = scores([1.0, 1.0], [0.5, 0.5], [0.0, 0.0]), scores([0.0, 0.0], [0.0, 0.0], [0.0, 0.0])
    assert math.isnan(pool_comp_gap_of([working, failing]).value)


def test_the_models_of_a_pool_share_their_resampled_queries() -> None:
    # The second model's gap is 1 minus the first one's on every resample: their mean is always 1/2.
    part = np.random.default_rng(6).uniform(0, 1, 30)
    first = scores([1.0] * 30, part.tolist(), [0.0] * 30)
    second = scores([1.0] * 30, (1 - part).tolist(), [0.0] * 30)
    found = pool_comp_gap_of([first, second])
    assert (found.low, found.high) == pytest.approx((0.5, 0.5))


def test_an_undefined_estimate_is_null_with_a_status_in_strict_json() -> None:
    written = json.loads(to_json(UNDEFINED.to_dict()))
    assert written == {"value": None, "low": None, "high": None, "n": 0, "status": "undefined"}


def test_a_defined_estimate_has_no_status() -> None:
    assert Estimate(0.5, 0.25, 0.75, 8).to_dict() == {"value": 0.5, "low": 0.25, "high": 0.75, "n": 8}
