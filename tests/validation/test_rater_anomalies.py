"""Rater anomalies: each is found where it was put, and careful raters are left alone."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from support.judged import BROAD, REFERENCE, TARGET, TEXT, VALID, item, judge, judge_all, study

from circus_bench.errors import MismatchError
from circus_bench.validation.annotations import Annotation, AnnotatorRole
from circus_bench.validation.rater_anomalies import (
    AnomalyPattern,
    RaterAnomaly,
    check_item_accuracy,
    drift_windows,
    find_anomalies,
    rater_paces,
)
from circus_bench.validation.study import Study

LABELS = [VALID, BROAD, TARGET, TEXT, REFERENCE]
RATERS = ("ann", "bob", "cy")


def careful(
    *, items: int = 200, error: float = 0.15, seed: int = 0, raters: tuple[str, ...] = RATERS
) -> list[Annotation]:
    """Raters who give the true label but for some errors, in about the time that the rubric expects."""
    rng = np.random.default_rng(seed)
    shares = [0.4, 0.35, 0.15, 0.08, 0.02]
    truth = rng.choice(LABELS, items, p=shares)
    return [
        judge(
            rater,
            number,
            str(truth[number]) if rng.random() > error else str(rng.choice(LABELS, p=shares)),
            seconds=float(rng.lognormal(math.log(40), 0.5)),
        )
        for number in range(items)
        for rater in raters
    ]


def patterns(found: list[RaterAnomaly]) -> list[tuple[AnomalyPattern, tuple[str, ...]]]:
    return [(anomaly.pattern, anomaly.raters) for anomaly in found]


def changed(log: list[Annotation], of: str, **fields: object) -> list[Annotation]:
    return [dataclasses.replace(j, **fields) if j.rater == of else j for j in log]


@pytest.mark.parametrize("raters", [("ann", "bob"), RATERS, tuple("abcdefghi")])
def test_careful_raters_are_hardly_ever_suspected(raters: tuple[str, ...]) -> None:
    # Each of five tests asks for less than one case in 100 studies.
    found = [find_anomalies(study(200), careful(seed=seed, raters=raters), length=10) for seed in range(10)]
    assert sum(map(len, found)) <= 1


def test_careful_raters_of_easy_items_are_hardly_ever_suspected() -> None:
    found = [find_anomalies(study(200), careful(seed=seed, error=0.03)) for seed in range(10)]
    assert sum(map(len, found)) <= 1


def test_a_rater_who_copies_another_is_found_with_the_items() -> None:
    log = careful()
    from_ann = {j.item: j for j in log if j.rater == "ann" and 50 <= int(j.item.split("::")[1]) < 110}
    copied = [
        dataclasses.replace(from_ann[j.item], rater="cy") if j.rater == "cy" and j.item in from_ann else j for j in log
    ]
    (found,) = find_anomalies(study(200), copied)
    assert (found.pattern, found.raters) == (AnomalyPattern.COPIED, ("ann", "cy"))
    assert {f"made::{n}" for n in range(50, 110)} <= set(found.items)
    assert len(found.items) < 75
    assert f"equal answers to {len(found.items)} items in a row" in found.message


def test_two_raters_with_equal_answers_throughout_are_found_without_a_third() -> None:
    log = careful(raters=("ann",), items=60)
    assert patterns(find_anomalies(study(60), log + changed(log, "ann", rater="bob"))) == [
        (AnomalyPattern.COPIED, ("ann", "bob"))
    ]


def test_a_block_that_one_rater_repeats_on_other_items_is_found() -> None:
    log = careful(items=100)
    anns = [j for j in log if j.rater == "ann"]
    pasted = {f"made::{70 + n}": anns[10 + n] for n in range(25)}
    log = [
        dataclasses.replace(pasted[j.item], item=j.item) if j.rater == "ann" and j.item in pasted else j for j in log
    ]
    (found,) = [s for s in find_anomalies(study(100), log) if s.pattern is AnomalyPattern.REPEATED]
    assert found.raters == ("ann",)
    assert set(found.items) <= {f"made::{n}" for n in range(70, 100)}
    assert len(found.items) >= 20
    assert "from 'made::1" in found.message


def test_blocks_that_all_raters_share_are_found_in_the_joint_answers() -> None:
    # A file was pasted twice: items 60 to 99 have the answers of items 0 to 39, rater by rater.
    log = careful(items=60)
    pasted = [dataclasses.replace(j, item=f"made::{60 + int(j.item.split('::')[1])}") for j in log[: 3 * 40]]
    found = [s for s in find_anomalies(study(100), log + pasted) if s.pattern is AnomalyPattern.REPEATED]
    assert RATERS in [s.raters for s in found]
    (joint,) = [s for s in found if s.raters == RATERS]
    assert joint.items == tuple(f"made::{n}" for n in range(60, 100))


def test_a_rater_who_says_the_same_of_everything_repeats_no_block() -> None:
    log = changed(careful(), "cy", label=VALID, flags=())
    assert patterns(find_anomalies(study(200), log)) == [(AnomalyPattern.CONSTANT, ("cy",))]


def test_items_with_each_other_s_notes_and_clicks_are_found() -> None:
    # As in a published annotation file, where 18 of 19 records shared all annotators' entries with another record.
    rows = {n: (f"note {n % 8}", (f"image {n % 8}",)) for n in range(18)} | {18: ("own", ())}
    log = [
        judge(rater, n, TEXT, note=f"{rater}: {note}", alternatives=clicks)
        for n, (note, clicks) in rows.items()
        for rater in RATERS
    ]
    items = [item(n, panel=tuple(f"image {shown}" for shown in range(8))) for n in range(19)]
    found = [s for s in find_anomalies(study(items), log) if s.pattern is AnomalyPattern.IDENTICAL_ITEMS]
    assert len(found) == 8
    assert sum(len(s.items) for s in found) == 18
    assert found[0].items == ("made::0", "made::8", "made::16")
    assert found[0].raters == RATERS


def test_equal_labels_without_notes_are_not_taken_for_identical_items() -> None:
    log = judge_all({rater: [VALID, TEXT] * 4 for rater in RATERS})
    assert find_anomalies(study(8), log) == []


def test_one_rater_s_standing_note_is_no_identical_item() -> None:
    log = judge_all({"ann": [BROAD] * 5}, note="too many") + judge_all({"bob": [BROAD] * 5})
    assert find_anomalies(study(5), log) == []


def test_constant_answers_to_constant_items_are_not_suspected() -> None:
    log = judge_all({rater: ([VALID] * 19 + [TEXT]) * 2 for rater in RATERS})
    assert AnomalyPattern.CONSTANT not in [s.pattern for s in find_anomalies(study(40), log)]


def test_a_single_rater_with_constant_answers_is_found() -> None:
    assert patterns(find_anomalies(study(30), judge_all({"ann": [VALID] * 30}))) == [
        (AnomalyPattern.CONSTANT, ("ann",))
    ]


@pytest.mark.parametrize(("seconds", "pattern"), [(5.0, AnomalyPattern.FAST), (400.0, AnomalyPattern.SLOW)])
def test_a_rater_far_off_the_others_pace_is_found(seconds: float, pattern: AnomalyPattern) -> None:
    (found,) = find_anomalies(study(200), changed(careful(), "bob", seconds=seconds))
    assert (found.pattern, found.raters, found.items) == (pattern, ("bob",), ())
    assert f"bob takes {seconds:.1f} s" in found.message


def test_of_two_raters_nobody_can_tell_who_is_off_the_pace() -> None:
    assert find_anomalies(study(200), changed(careful(raters=("ann", "bob")), "bob", seconds=5.0)) == []


def test_two_careful_raters_are_not_taken_for_copying_beside_a_careless_one() -> None:
    rng = np.random.default_rng(0)
    log = [
        judge("cy", n, str(rng.choice(LABELS)), seconds=j.seconds) if j.rater == "cy" else j
        for j in careful(error=0.05)
        for n in [int(j.item.split("::")[1])]
    ]
    assert find_anomalies(study(200), log) == []


def strata_of_unequal_difficulty() -> tuple[Study, list[Annotation]]:
    """Nearly all of the first 200 items are valid, as nearly all of a study's composition-required queries are."""
    easy = [judge(rater, n, VALID, seconds=40.0) for n in range(200) for rater in RATERS]
    hard = [dataclasses.replace(j, item=f"made::{200 + int(j.item.split('::')[1])}") for j in careful(error=0.3)]
    strata, log = ("made/composition_required", "made/unresolved"), easy + hard
    judged = [log[place] for place in np.random.default_rng(1).permutation(len(log))]
    return study([item(n, stratum=strata[n >= 200]) for n in range(400)]), judged


def test_an_easy_stratum_does_not_make_careful_raters_suspicious() -> None:
    # In a row, 200 equal answers: with the rate of both strata together chance would hardly bring that about.
    assert find_anomalies(*strata_of_unequal_difficulty()) == []


def test_a_rater_who_copies_in_the_hard_stratum_is_found_beside_an_easy_one() -> None:
    made, log = strata_of_unequal_difficulty()
    bob = {j.item: j for j in log if j.rater == "bob"}
    copied = {f"made::{n}" for n in range(230, 290)}
    log = [dataclasses.replace(bob[j.item], rater="cy") if j.rater == "cy" and j.item in copied else j for j in log]
    found = [s for s in find_anomalies(made, log) if s.pattern is AnomalyPattern.COPIED]
    assert [s.raters for s in found] == [("bob", "cy")]
    assert copied <= {*found[0].items}


def test_without_times_nobody_is_fast() -> None:
    log = [dataclasses.replace(j, seconds=0.0) for j in careful()]
    assert find_anomalies(study(200), log) == []
    assert math.isnan(rater_paces(study(200), log)["ann"].median)


def test_a_rater_whose_standard_drifts_is_found() -> None:
    # Ann lets two thirds of the items pass in her first half, and hardly any in her second.
    first, second = [VALID, VALID, BROAD] * 30, [BROAD, TEXT, BROAD, VALID, TARGET, TEXT] * 15
    (found,) = [
        s for s in find_anomalies(study(180), judge_all({"ann": first + second})) if s.pattern is AnomalyPattern.DRIFT
    ]
    assert found.raters == ("ann",)
    assert found.message == "ann called 60 of the first 90 items valid, but 15 of the last 90"


def test_a_rater_who_fails_check_items_is_found() -> None:
    items = [item(n, known=LABELS[n % 5]) for n in range(10)]
    log = judge_all({"ann": LABELS * 2, "bob": [*LABELS, *[VALID] * 5]})
    assert patterns(find_anomalies(study(items), log)) == [(AnomalyPattern.FAILED_CHECKS, ("bob",))]


def test_known_answers_are_counted_without_training() -> None:
    items = [item(0, known=VALID), item(1, known=TEXT), item(2, known=TEXT, training=True), item(3)]
    found = check_item_accuracy(study(items), judge_all({"ann": [VALID, VALID, TEXT, VALID]}))
    assert (found["ann"].value, found["ann"].n) == (0.5, 2)


def test_check_items_do_not_count_as_copied() -> None:
    # All raters know the answers of the check items; that says nothing of the others.
    items = [item(n, known=LABELS[n % 5]) for n in range(60)]
    assert find_anomalies(study(items), judge_all({"ann": LABELS * 12, "bob": LABELS * 12})) == []


def test_a_pace_holds_quantiles_and_hasty_annotations() -> None:
    # The rubric expects 60 s; less than a twentieth of it, 3 s, is hasty.
    seconds = [2.0, 2.9, 3.1, *[float(n) for n in range(10, 18)]]
    log = [judge("ann", n, seconds=value) for n, value in enumerate(seconds)]
    found = rater_paces(study(11), log)["ann"]
    assert (found.n, found.median, found.hasty) == (11, 12.0, 2)
    assert (found.low, found.high) == (2.9, 16.0)


def test_windows_follow_the_order_of_judging() -> None:
    log = judge_all({"ann": [VALID] * 3 + [TEXT] * 2}, seconds=10.0) + judge_all({"bob": [VALID] * 5}, seconds=20.0)
    first, second = drift_windows(study(5), log, size=3)["ann"]
    assert (first.start, first.n, second.start, second.n) == (0, 3, 3, 2)
    assert (first.valid.value, second.valid.value) == (1, 0)
    assert (first.agreement.value, second.agreement.value) == (1, 0)
    assert (first.seconds, second.seconds) == (10, 10)


def test_a_window_without_others_has_no_agreement() -> None:
    (window,) = drift_windows(study(2), judge_all({"ann": [VALID, TEXT]}))["ann"]
    assert math.isnan(window.agreement.value)
    assert window.agreement.n == 0


def test_adjudicators_and_training_are_not_looked_at() -> None:
    items = [item(n, training=True, known=VALID) for n in range(40)] + [item(n) for n in range(40, 80)]
    log = [judge("ann", n) for n in range(40)] + [
        judge("zoe", n, role=AnnotatorRole.ADJUDICATOR) for n in range(40, 80)
    ]
    assert find_anomalies(study(items), log) == []


def test_an_empty_log_shows_nothing() -> None:
    assert find_anomalies(study(3), []) == []


@pytest.mark.parametrize("function", [find_anomalies, rater_paces, check_item_accuracy, drift_windows])
def test_annotations_of_another_study_are_refused(function: object) -> None:
    of: Study = study(1)
    with pytest.raises(MismatchError, match="unknown items"):
        function(of, [judge("ann", 9)])  # type: ignore[operator]
