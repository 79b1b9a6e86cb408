"""What a result holds, from Runs whose ranks are written down."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.makers import make_run

from circus_bench.benchmark import Condition, ReferencePolicy
from circus_bench.ranking.ranker import ReferencePosition
from circus_bench.tasks.scores import score_subset, summarize_scores

EVERY = np.ones(4, bool)
RANKS = ([1, 11, 5, 30], [20, 2, 40, 50], [3, 60, 70, 80])


def scored(run, **options):
    return score_subset(run, **{"subset": "full", "chosen": EVERY, "k": 10, **options})


def test_the_main_score_counts_hits_up_to_k():
    # Of 1, 11, 5, 30 two are up to 10, three up to 20.
    assert scored(make_run(*RANKS))["hit_rate_at_10"] == 0.5
    assert scored(make_run(*RANKS), k=20)["hit_rate_at_20"] == 0.75


def test_the_conditions_beside_it_count_theirs():
    scores = scored(make_run(*RANKS))
    assert (scores["text_only_hit_rate_at_10"], scores["image_only_hit_rate_at_10"]) == (0.25, 0.25)


def test_a_subset_is_scored_alone():
    chosen = np.array([True, False, True, False])
    scores = scored(make_run(*RANKS), subset="v", chosen=chosen)
    assert (scores["hit_rate_at_10"], scores["n_queries"]) == (1.0, 2)


@pytest.mark.parametrize(("policy", "expected"), [(ReferencePolicy.KEPT, 0.5), (ReferencePolicy.REMOVED, 0.75)])
def test_both_reference_policies_are_there_and_the_protocols_own_is_the_main_one(policy, expected):
    # The reference is above the target of the second query: without it that target has rank 10.
    above = [ReferencePosition.BELOW, ReferencePosition.ABOVE, ReferencePosition.BELOW, ReferencePosition.BELOW]
    scores = scored(make_run(*RANKS, policy=policy, places={Condition.MULTIMODAL: above}))
    values = {
        name: of["conditions"]["multimodal"]["hit_rate_at_10"]["value"] for name, of in scores["by_reference"].items()
    }
    assert values == {"kept": 0.5, "removed": 0.75}
    assert scores["hit_rate_at_10"] == expected
    assert scores["reference"] == policy


def test_an_undefined_comp_gap_is_none_in_strict_json():
    # No multimodal target is in the gallery, so that the mean nDCG is 0 and CompGap has no denominator.
    scores = scored(make_run([None] * 4, *RANKS[1:]))
    assert scores["comp_gap"] is None
    assert '"comp_gap": null' in json.dumps(scores, allow_nan=False)
    assert summarize_scores(scores, k=10).endswith("CompGap undefined")


def test_ties_are_counted_by_target():
    scores = scored(make_run(*RANKS, ties={Condition.TEXT_ONLY: [0, 2, 0, 1]}))
    assert scores["ties"] == {"multimodal": 0, "text_only": 2, "image_only": 0}


def test_the_chance_level_is_that_of_the_null_ranks():
    nulls = {condition: [10, 11, 12, 9] for condition in Condition}
    chance = scored(make_run(*RANKS, nulls=nulls))["by_reference"]["kept"]["chance"]
    assert {condition: estimate["value"] for condition, estimate in chance.items()} == dict.fromkeys(Condition, 0.5)


def test_groups_have_scores_of_their_own_and_a_plain_mean():
    groups = {"a": np.array([True, False, False, False]), "b": ~np.array([True, False, False, False])}
    found = scored(make_run(*RANKS), groups=groups)["groups"]
    # a: rank 1; b: ranks 11, 5, 30. The mean over groups weighs them alike.
    assert found["by_group"]["a"]["multimodal"]["value"] == 1
    assert found["by_group"]["b"]["multimodal"]["value"] == pytest.approx(1 / 3)
    assert found["macro"]["multimodal"] == pytest.approx(2 / 3)


def test_a_group_without_queries_in_the_subset_is_undefined_and_not_in_the_mean():
    groups = {"a": np.array([True, False, False, False]), "b": ~np.array([True, False, False, False])}
    found = scored(make_run(*RANKS), chosen=groups["a"], groups=groups)["groups"]
    assert found["by_group"]["b"]["multimodal"]["value"] is None
    assert found["macro"]["multimodal"] == 1
