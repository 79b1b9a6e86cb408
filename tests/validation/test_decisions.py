"""Decisions: each rule with ties, missing annotations and adjudicators, and what goes along with a decision."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from support.judged import BROAD, REFERENCE, TARGET, TEXT, VALID, item, judge, judge_all, study

from circus_bench.errors import CircusError, MismatchError
from circus_bench.io import to_json
from circus_bench.validation.annotations import Annotation, AnnotatorRole
from circus_bench.validation.decisions import Decision, DecisionRule, decide, fit_rater_model, validity_posteriors


def one(labels: list[str], rule: DecisionRule, *more: Annotation, **options: float) -> Decision:
    """The decision on one item to which raters gave these labels."""
    log = [judge(f"r{place}", 0, label) for place, label in enumerate(labels)]
    (decision,) = decide(study(1), [*log, *more], rule=rule, **options)
    return decision


def adjudicated(label: str, *, by: str = "zoe", number: int = 0) -> Annotation:
    return judge(by, number, label, role=AnnotatorRole.ADJUDICATOR)


@pytest.mark.parametrize(
    ("labels", "valid", "label"),
    [
        ([VALID, VALID, TEXT], True, VALID),
        ([VALID, TEXT, TEXT], False, TEXT),
        ([VALID, TEXT], None, ""),
        ([VALID, VALID, TEXT, BROAD], None, ""),
        # Two call it unsound for different reasons: more than half, and the severer reason gives the label.
        ([VALID, TEXT, BROAD], False, TEXT),
        ([BROAD, TARGET, TEXT], False, TARGET),
        ([BROAD, BROAD, TARGET], False, BROAD),
    ],
)
def test_the_majority_decides_on_validity_and_a_tie_does_not(labels: list[str], valid: bool | None, label: str) -> None:
    decision = one(labels, DecisionRule.MAJORITY)
    assert (decision.valid, decision.label) == (valid, label)


@pytest.mark.parametrize(
    ("labels", "valid", "label"),
    [
        ([VALID, VALID, VALID], True, VALID),
        ([VALID, VALID, TEXT], None, ""),
        ([TEXT, BROAD, BROAD], False, BROAD),
    ],
)
def test_unanimous_raters_decide_and_others_do_not(labels: list[str], valid: bool | None, label: str) -> None:
    decision = one(labels, DecisionRule.UNANIMOUS)
    assert (decision.valid, decision.label) == (valid, label)


def test_an_adjudicator_overrules_the_raters_only_where_the_rule_says_so() -> None:
    labels = [TEXT, TEXT, TEXT]
    overruled = one(labels, DecisionRule.ADJUDICATED, adjudicated(VALID))
    assert (overruled.valid, overruled.label, overruled.adjudicated) == (True, VALID, True)
    majority = one(labels, DecisionRule.MAJORITY, adjudicated(VALID))
    assert (majority.valid, majority.label, majority.adjudicated) == (False, TEXT, False)


def test_what_waits_for_an_adjudicator_is_undecided() -> None:
    decision = one([VALID, VALID, TEXT], DecisionRule.ADJUDICATED)
    assert (decision.valid, decision.adjudicated) == (None, False)


def test_what_needs_no_adjudicator_is_decided() -> None:
    assert one([VALID, VALID], DecisionRule.ADJUDICATED).valid is True


def test_adjudicators_who_differ_leave_it_undecided() -> None:
    decision = one([VALID, TEXT], DecisionRule.ADJUDICATED, adjudicated(VALID), adjudicated(TEXT, by="yan"))
    assert (decision.valid, decision.label) == (None, "")


def test_votes_are_those_of_the_blind_raters() -> None:
    decision = one([VALID, TEXT], DecisionRule.ADJUDICATED, adjudicated(TEXT))
    assert decision.votes == {VALID: 1, TEXT: 1, REFERENCE: 0, TARGET: 0, BROAD: 0}
    assert decision.raters == 2


@pytest.mark.parametrize("rule", [DecisionRule.MAJORITY, DecisionRule.UNANIMOUS, DecisionRule.DAWID_SKENE])
def test_one_annotation_decides_nothing_unless_it_is_said_to(rule: DecisionRule) -> None:
    log = judge_all({"ann": [VALID] * 9, "bob": [VALID] * 8})
    assert decide(study(9), log, rule=rule)[8].valid is None
    assert decide(study(9), log, rule=rule, quorum=1)[8].valid is True


def test_an_item_without_annotations_is_undecided_and_has_no_posterior() -> None:
    decision = decide(study(2), judge_all({"ann": [VALID], "bob": [VALID]}))[1]
    assert (decision.valid, decision.label, decision.raters, decision.posterior) == (None, "", 0, None)
    assert (decision.flags, decision.reasons, decision.alternatives) == ((), {}, {})


def test_every_counted_item_is_decided_once_in_the_study_s_order() -> None:
    items = [item(2), item(0, training=True, known=VALID), item(1, known=TEXT), item(3)]
    log = [judge(rater, number) for number in range(4) for rater in ("ann", "bob")]
    assert [decision.item for decision in decide(study(items), log)] == ["made::2", "made::3"]


def test_the_last_version_counts() -> None:
    log = [judge("ann", 0, TEXT), judge("bob", 0), judge("ann", 0, VALID, version=2)]
    assert decide(study(1), log)[0].valid is True


def test_the_order_of_the_log_makes_no_difference() -> None:
    rng = np.random.default_rng(0)
    labels = {rater: rng.choice([VALID, TEXT, BROAD], 30).tolist() for rater in ("ann", "bob", "cy")}
    log = judge_all(labels, alternatives=("b", "a"))
    for rule in DecisionRule:
        assert decide(study(30), log[::-1], rule=rule) == decide(study(30), log, rule=rule)


def simulated(errors: list[float], *, items: int = 300, seed: int = 0) -> tuple[np.ndarray, list[Annotation]]:
    rng = np.random.default_rng(seed)
    valid = rng.random(items) < 0.5
    said = valid[:, None] ^ (rng.random((items, len(errors))) < errors)
    columns = {f"r{rater}": [VALID if v else BROAD for v in column] for rater, column in enumerate(said.T)}
    return valid, judge_all(columns)


def test_with_ten_per_cent_errors_and_three_raters_the_majority_is_precise() -> None:
    # A majority of three errs with 3 * 0.01 * 0.9 + 0.001 = 0.028; precision at a half of valid items 0.972.
    valid, log = simulated([0.1, 0.1, 0.1], items=2000)
    kept = np.array([decision.valid for decision in decide(study(2000), log)])
    assert valid[kept].mean() >= 0.95


def test_the_posterior_weighs_careful_raters_more() -> None:
    valid, log = simulated([0.02, 0.4, 0.4])
    wrong = {
        rule: sum(
            decision.valid != truth for decision, truth in zip(decide(study(300), log, rule=rule), valid, strict=True)
        )
        for rule in (DecisionRule.MAJORITY, DecisionRule.DAWID_SKENE)
    }
    assert wrong[DecisionRule.DAWID_SKENE] < wrong[DecisionRule.MAJORITY] / 2


def test_the_posterior_is_told_under_every_rule() -> None:
    _, log = simulated([0.1, 0.2, 0.3], items=40)
    told = [[decision.posterior for decision in decide(study(40), log, rule=rule)] for rule in DecisionRule]
    assert all(posteriors == told[0] for posteriors in told)
    assert None not in told[0]


def test_more_certainty_leaves_more_undecided() -> None:
    _, log = simulated([0.2, 0.3, 0.4])
    undecided = [
        sum(d.valid is None for d in decide(study(300), log, rule=DecisionRule.DAWID_SKENE, certainty=certainty))
        for certainty in (0.5, 0.9, 0.99)
    ]
    assert undecided == sorted(undecided)
    assert undecided[0] < undecided[-1]


def test_two_raters_whom_nothing_tells_apart_leave_a_tie_undecided() -> None:
    # Symmetric in raters and in labels: the posterior of each item that they differ on is one half.
    labels = [VALID, BROAD] * 5
    log = judge_all({"ann": [*labels, VALID, BROAD], "bob": [*labels, BROAD, VALID]})
    decisions = decide(study(12), log, rule=DecisionRule.DAWID_SKENE)
    assert [decision.valid for decision in decisions[10:]] == [None, None]


def test_a_study_of_single_annotations_has_no_posteriors() -> None:
    log = judge_all({"ann": [VALID, TEXT, None, None], "bob": [None, None, VALID, VALID]})
    assert fit_rater_model(study(4), log) is None
    assert validity_posteriors(study(4), log) == {}
    decisions = decide(study(4), log, rule=DecisionRule.DAWID_SKENE, quorum=1)
    assert [(decision.valid, decision.posterior) for decision in decisions] == [(None, None)] * 4


def test_check_items_tell_whom_to_believe() -> None:
    # Ann is right and Bob wrong on all check items; on the others they differ.
    items = [item(n) for n in range(4)] + [item(n, known=VALID if n % 2 else TEXT) for n in range(4, 14)]
    ann = [VALID, TEXT] * 7
    bob = [TEXT, VALID] * 7
    log = judge_all({"ann": [*ann[:4], *[TEXT, VALID] * 5], "bob": [*bob[:4], *[VALID, TEXT] * 5]})
    decisions = decide(study(items), log, rule=DecisionRule.DAWID_SKENE)
    assert [decision.valid for decision in decisions] == [True, False, True, False]


def test_the_model_may_doubt_what_all_raters_called_valid() -> None:
    # Hardly an item is valid, and Bob says so of everything, wrongly on the check items: his word says nothing.
    items = [item(n) for n in range(21)] + [item(n, known=BROAD) for n in range(21, 40)]
    log = judge_all({"ann": [BROAD] * 20, "cy": [BROAD] * 20, "bob": [None] * 20 + [VALID] * 20})
    decision = decide(study(items), log, rule=DecisionRule.DAWID_SKENE, quorum=1)[20]
    assert (decision.valid, decision.label) == (False, "")
    assert decision.posterior is not None
    assert decision.posterior < 0.1


def test_a_flag_is_told_when_more_than_half_of_the_raters_raise_it() -> None:
    log = [
        judge("ann", 0, TARGET, flags=("target", "breadth")),
        judge("bob", 0, TARGET, flags=("target", "text")),
        judge("cy", 0, BROAD, flags=("breadth",)),
        judge("dee", 0, VALID),
    ]
    assert decide(study(1), log[:3])[0].flags == ("target", "breadth")
    assert decide(study(1), log)[0].flags == ()


def test_reasons_are_counted_by_rater() -> None:
    log = [
        judge("ann", 0, TARGET, reasons=("target.mismatch", "target.cropped")),
        judge("bob", 0, TARGET, reasons=("target.mismatch", "target.mismatch")),
    ]
    assert decide(study(1), log)[0].reasons == {"target.cropped": 1, "target.mismatch": 2}


def test_alternatives_are_graded_by_the_share_of_raters_who_clicked_them() -> None:
    log = [
        judge("ann", 0, alternatives=("b", "a")),
        judge("bob", 0, alternatives=("c", "b")),
        judge("cy", 0),
        judge("dee", 0, alternatives=("b",)),
    ]
    found = decide(study(1), log)[0].alternatives
    assert list(found.items()) == [("b", 0.75), ("a", 0.25), ("c", 0.25)]


def test_follow_up_answers_are_shares_of_those_who_were_asked() -> None:
    log = [
        judge("ann", 0, answers={"text_alone": True, "image_alone": False}),
        judge("bob", 0, answers={"text_alone": False, "image_alone": False}),
        judge("cy", 0, TEXT),
    ]
    assert decide(study(1), log)[0].answers == {"text_alone": 0.5, "image_alone": 0.0}


def test_an_item_weighs_the_inverse_of_its_inclusion_probability() -> None:
    assert decide(study([item(0, inclusion=0.25)]), [])[0].weight == 4


def test_where_a_query_comes_from_goes_along() -> None:
    decision = decide(study([item(7, stratum="made/composition_required")]), [])[0]
    assert (decision.benchmark, decision.query, decision.stratum) == ("made", "7", "made/composition_required")


def test_a_decision_is_strict_json() -> None:
    (decision,) = decide(study(1), judge_all({"ann": [VALID], "bob": [VALID]}, alternatives=("a",)))
    assert json.loads(to_json(dataclasses.asdict(decision)))["alternatives"] == {"a": 1.0}


@pytest.mark.parametrize("options", [{"quorum": 0}, {"certainty": 0.4}, {"certainty": 1.0}])
def test_rules_out_of_range_are_refused(options: dict) -> None:
    with pytest.raises(CircusError, match="must be"):
        decide(study(1), [], **options)


@pytest.mark.parametrize("role", AnnotatorRole)
def test_annotations_of_another_study_are_refused(role: AnnotatorRole) -> None:
    with pytest.raises(MismatchError, match="unknown items"):
        decide(study(1), [judge("ann", 9, role=role)])
