"""An audit by group, with both averages."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from support.makers import make_run

from circus_bench.audit.audit import Audit, audit_runs
from circus_bench.audit.groups import Grouped, audit_by_group
from circus_bench.audit.statistics import UNDEFINED, combined, proportion, ratio
from circus_bench.benchmark import Benchmark, Condition, Query
from circus_bench.errors import MismatchError
from circus_bench.io import to_json
from circus_bench.metrics.shortcut import Label

GROUPS = ("causal", "causal", "causal", "functional")


@pytest.fixture
def audit() -> Audit:
    """K = 10: q0 is a text shortcut, q3 an image shortcut, q1 takes both, q2 is never solved."""
    return audit_runs([make_run([1, 5, 90, 2], [3, 50, 90, 50], [50, 50, 90, 10])])


@pytest.fixture
def benchmark(toy_benchmark: Callable[..., Benchmark]) -> Benchmark:
    queries = [Query(f"q{i}", "a", f"text {i}", ("b",), group=group) for i, group in enumerate(GROUPS)]
    return toy_benchmark(queries=queries, with_images=False)


def test_micro_is_over_queries_and_macro_over_groups(audit: Audit, benchmark: Benchmark) -> None:
    shortcuts = audit_by_group(audit, benchmark).labels[Label.SHORTCUT]
    assert {group: share.value for group, share in shortcuts.groups.items()} == {
        "causal": pytest.approx(1 / 3),
        "functional": 1,
    }
    assert shortcuts.micro.value == 2 / 4
    assert shortcuts.macro.value == pytest.approx((1 / 3 + 1) / 2)


def test_hit_rates_are_told_by_model_and_condition(audit: Audit, benchmark: Benchmark) -> None:
    rates = audit_by_group(audit, benchmark).hit_rates["tests/a"]
    assert rates[Condition.MULTIMODAL].groups["causal"].value == pytest.approx(2 / 3)
    assert rates[Condition.IMAGE_ONLY].micro.value == 1 / 4


def test_the_order_of_the_benchmark_does_not_matter(audit: Audit, benchmark: Benchmark) -> None:
    turned = dataclasses.replace(benchmark, queries=benchmark.queries[::-1])
    assert audit_by_group(audit, turned) == audit_by_group(audit, benchmark)


def test_another_benchmark_is_refused(audit: Audit, toy_benchmark: Callable[..., Benchmark]) -> None:
    with pytest.raises(MismatchError):
        audit_by_group(audit, toy_benchmark(with_images=False))


def test_the_table_is_strict_json_and_names_the_averages(audit: Audit, benchmark: Benchmark) -> None:
    written = json.loads(to_json(audit_by_group(audit, benchmark).to_dict()))
    assert written["averages"] == {"micro": "mean over queries", "macro": "plain mean of the groups"}
    assert written["labels"]["unresolved"]["macro"]["value"] == pytest.approx((1 / 3 + 0) / 2)


def test_one_group_is_its_own_average() -> None:
    shares = Grouped.of(np.array([1, 0, 1]), ["a"] * 3)
    assert (shares.macro.value, shares.macro.low) == (pytest.approx(2 / 3), pytest.approx(shares.groups["a"].low))


def test_a_mean_of_shares_has_the_interval_of_mover() -> None:
    one, two = proportion(np.array([1, 1, 1, 0])), proportion(np.array([1, 0]))
    found = combined([one, two], [3, 1])
    assert found.value == pytest.approx((3 * 0.75 + 0.5) / 4)
    assert found.low == pytest.approx(
        found.value - math.hypot(0.75 * (one.value - one.low), 0.25 * (two.value - two.low))
    )


def test_a_mean_with_an_undefined_share_is_undefined() -> None:
    assert math.isnan(combined([proportion(np.array([1])), UNDEFINED], [1, 1]).value)
    assert math.isnan(combined([], []).value)


def test_a_ratio_weighs_queries_by_what_they_have() -> None:
    # 1 of 1, and 1 of 3; the third query has nothing.
    found = ratio(np.array([1.0, 1.0, 0.0]), np.array([1.0, 3.0, 0.0]))
    assert (found.value, found.n) == (0.5, 2)


def test_a_ratio_of_all_has_wilsons_interval_over_queries() -> None:
    assert ratio(np.array([5.0, 7.0]), np.array([5.0, 7.0])) == proportion(np.ones(2))


def test_a_ratio_of_nothing_is_undefined() -> None:
    assert math.isnan(ratio(np.zeros(3), np.zeros(3)).value)
