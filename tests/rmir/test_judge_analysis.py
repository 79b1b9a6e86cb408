"""Analysis of judges, counted by hand on four candidates and three judges of two families."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import pytest

from circus_bench.demo.world.synthetic_judges import family_of
from circus_bench.errors import CircusError
from circus_bench.io import to_json
from circus_bench.rmir.judge_analysis import (
    ConsensusChange,
    FamilyEffect,
    family_effect,
    judge_rates,
    judge_report,
    leave_one_judge_out,
    positives_of,
    vote_ratings,
)
from circus_bench.rmir.records import JudgeDecision, Vote
from circus_bench.validation.agreement import Statistic

JUDGES = ("a/1", "a/2", "b/1")
DECISIONS = {"A": JudgeDecision.ACCEPT, "R": JudgeDecision.REJECT, "-": JudgeDecision.ABSTAIN}
TABLE = {("q1", "x"): "AAA", ("q1", "y"): "AAR", ("q2", "z"): "RRR", ("q2", "w"): "A-A"}


def make_votes(table: Mapping[tuple[str, str], str] = TABLE, judges: Sequence[str] = JUDGES) -> list[Vote]:
    return [
        Vote(query, image, judge, DECISIONS[letter], "")
        for (query, image), letters in table.items()
        for judge, letter in zip(judges, letters, strict=True)
    ]


@pytest.fixture
def effect() -> FamilyEffect:
    return family_effect(make_votes(), family_of)


def test_rates_count_abstentions() -> None:
    rates = judge_rates(make_votes())["a/2"]
    assert (rates.accept.value, rates.reject.value, rates.abstain.value) == (0.5, 0.25, 0.25)
    assert rates.accept.n == 2  # queries


def test_an_abstention_is_no_rating() -> None:
    ratings = vote_ratings(make_votes())
    assert ratings.raters == JUDGES
    assert ratings.categories == ("accept", "reject")
    assert ratings.codes.tolist() == [[0, 0, 0], [0, 0, 1], [1, 1, 1], [0, -1, 0]]


def test_stage_5_runs_on_any_votes() -> None:
    # y is disputed, and w has an abstention.
    positives, survivors = positives_of(make_votes())
    assert positives == {"q1": ["x"]}
    assert [row.image for row in survivors] == ["x", "z"]


def test_leaving_a_judge_out_changes_what_is_kept() -> None:
    assert leave_one_judge_out(make_votes()) == {
        # y: A R, w: - A, both doubted.
        "a/1": ConsensusChange(judges=2, queries=1, positives=1, gained=0, lost=0, deleted=2),
        # y: A R; w: A A is kept.
        "a/2": ConsensusChange(judges=2, queries=2, positives=2, gained=1, lost=0, deleted=1),
        # y: A A is kept; w: A -.
        "b/1": ConsensusChange(judges=2, queries=1, positives=2, gained=1, lost=0, deleted=1),
    }


def test_what_only_the_whole_panel_keeps_is_lost() -> None:
    # Three of four accept, which is enough at a confidence of 0.7; two of three are not.
    votes = make_votes({("q", "x"): "AAAR"}, judges=("a", "b", "c", "d"))
    changes = leave_one_judge_out(votes, confidence=0.7)
    assert (changes["a"].lost, changes["d"].lost) == (1, 0)


def test_one_judge_cannot_be_left_out() -> None:
    with pytest.raises(CircusError, match="two or more; the votes are those of \\['a'\\]"):
        leave_one_judge_out(make_votes({("q", "x"): "A"}, judges=("a",)))


def test_families_are_counted(effect: FamilyEffect) -> None:
    assert effect.judges == {"a": 2, "b": 1}
    assert effect.accept["a"].value == pytest.approx(5 / 8)
    assert effect.accept["b"].value == pytest.approx(2 / 4)


def test_agreement_is_told_apart_within_and_between_families(effect: FamilyEffect) -> None:
    # a/1 and a/2 agree on x, y and z, and share no vote on w. With b/1, a/1 agrees on 3 of 4 and a/2 on 2 of 3.
    assert effect.within.value == 1
    assert effect.between.value == pytest.approx(5 / 7)


def test_what_one_family_accepts_alone_is_contradicted(effect: FamilyEffect) -> None:
    # Both of a accept x and y, b does not accept y. Family b accepts x and w, which a/1 accepts too.
    assert effect.contradicted["a"].value == pytest.approx(1 / 2)
    assert effect.contradicted["b"].value == 0


def test_a_family_alone_keeps_other_candidates(effect: FamilyEffect) -> None:
    assert effect.alone == {
        "a": ConsensusChange(judges=2, queries=1, positives=2, gained=1, lost=0, deleted=1),
        "b": ConsensusChange(judges=1, queries=2, positives=2, gained=1, lost=0, deleted=0),
    }


def test_families_need_each_other() -> None:
    with pytest.raises(CircusError, match="two or more; all are of \\['a'\\]"):
        family_effect(make_votes(judges=("a/1", "a/2", "a/3")), family_of)


def test_a_panel_of_one_family_has_no_effect_of_families() -> None:
    assert judge_report(make_votes(judges=("a/1", "a/2", "a/3")), family_of=family_of).families is None
    assert judge_report(make_votes()).families is None


def test_pairs_of_judges_are_compared() -> None:
    matrix = judge_report(make_votes()).matrix
    assert matrix.shared[0].tolist() == [0, 3, 4]
    assert matrix.agreement[0, 1:].tolist() == [1, 0.75]


def test_agreement_of_all_judges_leaves_abstentions_out() -> None:
    # Equal pairs of votes: x 3 of 3, y 1 of 3, z 3 of 3, w 1 of 1.
    found = judge_report(make_votes()).agreement[Statistic.RAW].estimate
    assert found.value == pytest.approx((1 + 1 / 3 + 1 + 1) / 4)


def test_the_report_is_strict_json() -> None:
    # All votes are equal, so that kappa is undefined.
    votes = make_votes({("q", "x"): "AAA", ("q", "y"): "AAA"})
    written = json.loads(to_json(judge_report(votes, family_of=family_of).to_dict()))
    assert written["pairs"][0] == {"judges": ["a/1", "a/2"], "shared": 2, "agreement": 1, "kappa": None}
    assert written["families"]["judges"] == {"a": 2, "b": 1}
    assert written["leave_one_out"]["b/1"]["positives"] == 2


def test_intervals_draw_queries_and_not_votes() -> None:
    # Every vote of one query accepts, every vote of the other rejects: two queries, so next to nothing is known.
    table = {("q1", str(n)): "A" for n in range(50)} | {("q2", str(n)): "R" for n in range(50)}
    rate = judge_rates(make_votes(table, judges=("a",)))["a"].accept
    assert (rate.value, rate.low, rate.high) == (0.5, 0, 1)
    assert not math.isnan(rate.low)
