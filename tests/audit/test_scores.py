"""Scores of a Run: every metric by its name, on every subset, under both reference policies."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from support.makers import make_run

from circus_bench.audit.scores import CUTOFFS, pool_comp_gap, score_run
from circus_bench.audit.statistics import proportion
from circus_bench.benchmark import Condition, ReferencePolicy
from circus_bench.io import to_json
from circus_bench.ranking.ranker import ReferencePosition

MM, T, I = Condition  # noqa: E741


def mask(*chosen: bool) -> np.ndarray:
    return np.array(chosen)


def value(run: Any, name: str, condition: Condition = MM, **options: Any) -> float:
    return score_run(run, **options).by_condition[condition][name].value


def test_a_run_has_every_metric_under_every_condition() -> None:
    found = score_run(make_run([1, 20], [2, 30], [3, 40])).by_condition
    names = {f"{metric}@{k}" for metric in ("hit_rate", "recall", "map") for k in (1, 5, 10, 50)} | {"ndcg", "mrr"}
    assert list(found) == [MM, T, I]
    assert all(set(of_condition) == names for of_condition in found.values())


# One target a query, at the ranks 1 and 20: log2(1 + 20) = 4.392.
SINGLE = {
    **{f"hit_rate@{k}": share for k, share in ((1, 0.5), (5, 0.5), (10, 0.5), (50, 1))},
    **{f"recall@{k}": share for k, share in ((1, 0.5), (5, 0.5), (10, 0.5), (50, 1))},
    **{f"map@{k}": share for k, share in ((1, 0.5), (5, 0.5), (10, 0.5), (50, (1 + 1 / 20) / 2))},
    "mrr": (1 + 1 / 20) / 2,
    "ndcg": (1 + 1 / math.log2(21)) / 2,
}


@pytest.mark.parametrize("name", SINGLE)
def test_metrics_of_queries_with_one_target(name: str) -> None:
    assert value(make_run([1, 20], [1, 1], [1, 1]), name) == pytest.approx(SINGLE[name])


# Targets at 3 and 1, and one at 12 with another outside the gallery. Ideal gain of two targets: 1 + 1 / log2(3).
IDEAL = 1 + 1 / math.log2(3)
MULTIPLE = {
    "hit_rate@1": 0.5,
    "hit_rate@10": 0.5,
    "hit_rate@50": 1,
    "recall@1": (1 / 2 + 0) / 2,
    "recall@10": (2 / 2 + 0) / 2,
    "recall@50": (2 / 2 + 1 / 2) / 2,
    "map@1": (1 / 1 + 0) / 2,  # divided by min(2 targets, K = 1)
    "map@10": ((1 / 1 + 2 / 3) / 2 + 0) / 2,
    "map@50": ((1 / 1 + 2 / 3) / 2 + (1 / 12) / 2) / 2,
    "mrr": (1 + 1 / 12) / 2,
    "ndcg": ((1 + 1 / math.log2(4)) / IDEAL + (1 / math.log2(13)) / IDEAL) / 2,
}


@pytest.mark.parametrize("name", MULTIPLE)
def test_metrics_of_queries_with_several_targets(name: str) -> None:
    run = make_run([[3, 1], [12, None]], [[1, 2], [1, None]], [[1, 2], [1, None]])
    assert value(run, name) == pytest.approx(MULTIPLE[name])


@pytest.mark.parametrize("k", CUTOFFS)
def test_with_one_target_recall_is_the_hit_rate_interval_included(k: int) -> None:
    found = score_run(make_run([1, 4, 9, 30, 80], [2] * 5, [3] * 5)).by_condition[MM]
    assert found[f"recall@{k}"] == found[f"hit_rate@{k}"]


def test_each_condition_is_scored_from_its_own_ranks() -> None:
    found = score_run(make_run([1], [20], [None])).by_condition
    assert [found[condition]["hit_rate@10"].value for condition in Condition] == [1, 0, 0]
    assert [found[condition]["hit_rate@50"].value for condition in Condition] == [1, 1, 0]


def test_a_share_has_wilson_s_interval() -> None:
    found = score_run(make_run([1, 20, 30], [1] * 3, [1] * 3)).by_condition[MM]["hit_rate@10"]
    assert found == proportion(mask(True, False, False))


@pytest.mark.parametrize(("policy", "hit"), [(ReferencePolicy.KEPT, 0), (ReferencePolicy.REMOVED, 1)])
@pytest.mark.parametrize("place", [ReferencePosition.ABOVE, ReferencePosition.TIED])
def test_a_reference_before_the_target_costs_a_place_only_where_it_is_kept(
    policy: ReferencePolicy, hit: float, place: ReferencePosition
) -> None:
    # Rank 11 with the reference in it, 10 without.
    run = make_run([1], [1], [11], policy=policy, places={I: [place]})
    assert value(run, "hit_rate@10", I) == hit


@pytest.mark.parametrize("policy", list(ReferencePolicy))
def test_a_reference_behind_the_target_costs_nothing(policy: ReferencePolicy) -> None:
    run = make_run([1], [1], [10], policy=policy, places={I: [ReferencePosition.BELOW]})
    assert value(run, "hit_rate@10", I) == 1


@pytest.mark.parametrize(("policy", "hit"), [(ReferencePolicy.KEPT, 1), (ReferencePolicy.REMOVED, 0)])
def test_a_target_that_is_the_reference_is_found_only_where_it_is_kept(policy: ReferencePolicy, hit: float) -> None:
    run = make_run([1], [1], [1], policy=policy, places={I: [ReferencePosition.IS_TARGET]})
    assert value(run, "hit_rate@10", I) == hit


def test_a_cut_off_of_one_s_own_adds_its_metrics() -> None:
    found = score_run(make_run([3, 4], [1, 1], [1, 1]), k=3, cutoffs=(1,)).by_condition[MM]
    assert found["hit_rate@3"].value == 0.5
    assert "hit_rate@10" not in found


def test_either_unimodal_is_the_share_of_queries_that_one_part_alone_finds() -> None:
    # Text finds q0, the image q1, both q2, neither q3.
    assert score_run(make_run([1] * 4, [10, 11, 1, 99], [11, 10, 1, 99])).either_unimodal.value == 0.75


def test_chance_is_the_hit_rate_of_the_null_targets() -> None:
    nulls = {MM: [10, 11], T: [1, 2], I: [500, 600]}
    found = score_run(make_run([1, 1], [1, 1], [1, 1], nulls=nulls)).chance
    assert {condition: estimate.value for condition, estimate in found.items()} == {MM: 0.5, T: 1, I: 0}


def test_without_null_ranks_no_chance_level_is_given() -> None:
    assert score_run(make_run([1], [1], [1])).chance == {}


def test_ties_are_the_share_of_targets_that_share_their_score() -> None:
    run = make_run([[1, 2], 5], [[1, 2], 5], [[1, 2], 5], ties={MM: [0, 3, 1]})
    shares = {condition: share.value for condition, share in score_run(run).ties.items()}
    assert shares == {MM: pytest.approx(2 / 3), T: 0, I: 0}


def test_the_composition_gap_is_that_of_mean_ndcg() -> None:
    # nDCG of the ranks 1, 3 and 7 is 1, 1/2 and 1/3: 1 - max(1/2, 1/3) / 1.
    assert score_run(make_run([1], [3], [7])).comp_gap.value == pytest.approx(0.5)


def test_the_hit_rate_within_the_queries_own_subsets_is_scored_at_1_2_and_3() -> None:
    # CIRR's Recall_subset: the target's rank among the five others of its image set, here 1, 2, 3 and 5.
    subsets = {MM: [1, 2, 3, 5], T: [1, 1, 1, 1], I: [5, 5, 5, 5]}
    found = score_run(make_run([20] * 4, [20] * 4, [20] * 4, subsets=subsets)).by_condition
    shares = {c: [found[c][f"subset_hit_rate@{k}"].value for k in (1, 2, 3)] for c in Condition}
    assert shares == {MM: [0.25, 0.5, 0.75], T: [1, 1, 1], I: [0, 0, 0]}


def test_a_query_without_a_subset_of_its_own_leaves_the_hit_rate_there_undefined() -> None:
    subsets = {condition: [1, 0] for condition in Condition}
    found = score_run(make_run([1, 1], [1, 1], [1, 1], subsets=subsets)).by_condition[MM]
    assert not [name for name in found if name.startswith("subset_")]


def test_a_subset_is_scored_over_its_queries_alone() -> None:
    run = make_run([1, 20, 5], [1, 1, 1], [1, 1, 1])
    found = score_run(run, subset="sf", chosen=mask(False, True, True))
    assert (found.subset, found.n_queries, found.by_condition[MM]["hit_rate@10"].value) == ("sf", 2, 0.5)


def test_queries_count_for_those_that_they_stand_for() -> None:
    nulls = dict.fromkeys(Condition, (1, 40, 40, 1))
    run = make_run([1, 2, 30, 7], [1, 50, 30, 1], [2, 60, 1, 1], nulls=nulls)
    chosen, weights = mask(True, True, True, False), np.array([4.0, 1.0, 3.0, 9.0])
    found = score_run(run, subset="v", chosen=chosen, weights=weights)
    assert found.weighted
    assert found.to_dict()["weighted"] is True
    assert found.by_condition[MM]["hit_rate@10"].value == 5 / 8
    assert found.by_condition[MM]["mrr"].value == pytest.approx((4 / 1 + 1 / 2 + 3 / 30) / 8)
    assert found.either_unimodal.value == 7 / 8
    assert found.chance[MM].value == 4 / 8
    # Whoever stands for several queries could as well be there several times.
    repeated = np.repeat([0, 1, 2], [4, 1, 3])
    ranks = ([1, 2, 30], [1, 50, 30], [2, 60, 1])
    spelt_out = score_run(make_run(*(np.array(row)[repeated].tolist() for row in ranks)))
    assert found.comp_gap.value == pytest.approx(spelt_out.comp_gap.value)
    for condition in Condition:
        for name, estimate in spelt_out.by_condition[condition].items():
            assert found.by_condition[condition][name].value == pytest.approx(estimate.value), (condition, name)


def test_equal_weights_are_no_weights() -> None:
    run, chosen = make_run([1, 2, 30], [1, 50, 30], [2, 60, 1]), mask(True, True, False)
    assert score_run(run, chosen=chosen, weights=np.array([2.0, 2.0, 5.0])) == score_run(run, chosen=chosen)


@pytest.mark.parametrize(("group", "share"), [("dress", 1), ("shirt", 1 / 3)])
def test_a_group_is_scored_over_its_queries_alone(group: str, share: float) -> None:
    groups = np.array(["dress", "shirt", "shirt", "dress", "shirt"])
    found = score_run(make_run([1, 2, 30, 4, 50], [1] * 5, [1] * 5), subset=group, chosen=groups == group)
    assert found.by_condition[MM]["hit_rate@10"].value == pytest.approx(share)


def test_the_relevant_images_of_a_subset_are_counted() -> None:
    run = make_run([[1, 2, 3], [4], [5, None]], [[1, 2, 3], [4], [5, None]], [[1, 2, 3], [4], [5, None]])
    assert score_run(run).n_relevant == 6
    assert score_run(run, chosen=mask(True, False, True)).n_relevant == 5


def test_every_number_over_an_empty_subset_is_undefined() -> None:
    nulls = {condition: [1, 2] for condition in Condition}
    found = score_run(make_run([1, 2], [1, 2], [1, 2], nulls=nulls), chosen=mask(False, False))
    of_conditions = [estimate for metrics in found.by_condition.values() for estimate in metrics.values()]
    for estimate in (*of_conditions, found.either_unimodal, found.comp_gap, *found.chance.values()):
        assert (math.isnan(estimate.value), estimate.n) == (True, 0)


def test_the_share_of_ties_over_an_empty_subset_is_undefined() -> None:
    written = score_run(make_run([1], [1], [1]), chosen=mask(False)).to_dict()
    assert {name: share["value"] for name, share in written["share_tied"].items()} == dict.fromkeys(Condition)


def test_an_empty_subset_is_written_as_strict_json() -> None:
    found = json.loads(to_json(score_run(make_run([1], [1], [1]), chosen=mask(False)).to_dict()))
    assert found["comp_gap"] == {"value": None, "low": None, "high": None, "n": 0, "status": "undefined"}


def test_scores_are_written_under_the_documented_names() -> None:
    nulls = {condition: [1] for condition in Condition}
    written = json.loads(to_json(score_run(make_run([1], [3], [7], nulls=nulls)).to_dict()))
    assert (written["model"], written["subset"], written["n_queries"], written["n_relevant"]) == (
        "tests/a",
        "full",
        1,
        1,
    )
    assert written["conditions"]["multimodal"]["hit_rate@10"]["value"] == 1
    assert written["conditions"]["text_only"]["ndcg"]["value"] == 0.5
    assert written["chance"]["image_only"]["value"] == 1
    assert {name: share["value"] for name, share in written["share_tied"].items()} == dict.fromkeys(Condition, 0)
    assert written["comp_gap"]["value"] == 0.5


def test_the_gap_of_a_pool_is_the_mean_of_its_models_gaps() -> None:
    # nDCG 1 and 1/2 against 1 and 1/3: gaps 1/2 and 2/3.
    runs = [make_run([1], [3], [99]), make_run([1], [99], [7], model="tests/b")]
    assert pool_comp_gap(runs).value == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_the_gap_of_a_pool_on_a_subset_is_over_its_queries_alone() -> None:
    runs = [make_run([1, 1], [3, 1], [99, 1]), make_run([1, 1], [99, 1], [7, 1], model="tests/b")]
    assert pool_comp_gap(runs, mask(False, True)).value == pytest.approx(0)


def test_the_gap_of_a_pool_is_undefined_where_a_model_never_succeeds() -> None:
    runs = [make_run([1], [3], [7]), make_run([None], [None], [None], model="tests/b")]
    assert math.isnan(pool_comp_gap(runs).value)
