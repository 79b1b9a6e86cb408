"""What a study judges and who judges it: strata, probabilities, overlap, balance, order."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from support.studies import COMPOSED, OPEN, SHORTCUT, bare_benchmark

from circus_bench.errors import CircusError, FormatError, MismatchError
from circus_bench.labels.labels import Labels
from circus_bench.labels.provenance import Provenance
from circus_bench.labels.query_label import QueryLabel
from circus_bench.metrics.shortcut import Label
from circus_bench.validation.assignment import assign
from circus_bench.validation.sampling import SamplingFrame, labels_of, read_gold_labels, sample_study
from circus_bench.validation.study import Study

VALID, BROAD = "VALIDATED", "QUERY_TOO_BROAD"
RATERS = ("ann", "ben", "cat", "dan", "eve")


def frame(
    composed: int = 40, open_: int = 10, shortcuts: int = 10, *, name: str = "made", **changes: Any
) -> SamplingFrame:
    labels = [COMPOSED] * composed + [OPEN] * open_ + [SHORTCUT] * shortcuts
    benchmark = bare_benchmark(len(labels), name=name)
    return SamplingFrame(
        benchmark, "../made", dict(zip((q.id for q in benchmark.queries), labels, strict=True)), **changes
    )


def made(*frames: SamplingFrame, **settings: Any) -> Study:
    return sample_study("made", frames or [frame()], **{"raters": RATERS, **settings})


def strata(study: Study) -> dict[str, int]:
    return dict(Counter(item.stratum for item in study.items))


def raters_of(study: Study) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {item.id: [] for item in study.items}
    for rater, items in study.assignments.items():
        for item in items:
            found[item].append(rater)
    return found


class TestDrawing:
    def test_all_shortcut_free_queries_are_drawn_by_default(self) -> None:
        study = made()
        assert strata(study) == {"made/composition_required": 40, "made/unresolved": 10}
        assert {item.inclusion for item in study.items} == {1.0}

    def test_a_number_for_all_strata_is_not_reached_by_small_ones(self) -> None:
        study = made(sizes=30)
        assert strata(study) == {"made/composition_required": 30, "made/unresolved": 10}
        # 30 of 40, and 10 of 10.
        assert {(item.stratum, item.inclusion) for item in study.items} == {
            ("made/composition_required", 0.75),
            ("made/unresolved", 1.0),
        }

    def test_strata_that_are_not_named_are_complete(self) -> None:
        assert strata(made(sizes={"made/unresolved": 3})) == {"made/composition_required": 40, "made/unresolved": 3}

    @pytest.mark.parametrize("sizes", [{"made/unresolved": 11}, {"made/shortcut": 1}, {"made/unresolved": 0}])
    def test_sizes_that_cannot_be_drawn_are_refused_with_the_strata(self, sizes: dict[str, int]) -> None:
        with pytest.raises(CircusError, match=r"made/composition_required \(40\), made/unresolved \(10\)"):
            made(sizes=sizes)

    def test_a_larger_sample_holds_the_smaller_one(self) -> None:
        small, large = ({item.id for item in made(sizes=n).items} for n in (5, 8))
        assert small < large

    def test_the_same_arguments_give_the_same_study(self) -> None:
        assert made(sizes=5, common=2) == made(sizes=5, common=2)

    def test_another_seed_draws_other_queries(self) -> None:
        assert {i.id for i in made(sizes=5, seed=1).items} != {i.id for i in made(sizes=5, seed=2).items}

    def test_each_query_of_a_stratum_is_drawn_equally_often(self) -> None:
        # 5 of 10 over 400 seeds: 200 expected, with a standard deviation of 10; four of them leave 1 in 1,500 seeds.
        few = frame(10, 0, 0)
        drawn = Counter(item.query for seed in range(400) for item in made(few, sizes=5, seed=seed).items)
        assert len(drawn) == 10
        assert all(160 <= times <= 240 for times in drawn.values())

    def test_several_benchmarks_have_their_own_strata(self) -> None:
        study = made(frame(3, 0), frame(0, 4, name="other"))
        assert strata(study) == {"made/composition_required": 3, "other/unresolved": 4}
        assert study.benchmarks == {"made": "../made", "other": "../made"}

    def test_nothing_but_shortcuts_is_an_error(self) -> None:
        with pytest.raises(CircusError, match="no query can be drawn"):
            made(frame(0, 0, 5))

    def test_a_study_is_read_back_as_it_was_written(self, tmp_path: Path) -> None:
        study = made(frame(checks={"q55": VALID}, training={"q56": BROAD}), common=3)
        study.save(tmp_path)
        assert Study.load(tmp_path) == study


class TestAssignment:
    def test_each_item_goes_to_as_many_raters_as_asked_for(self) -> None:
        assert {len(set(raters)) for raters in raters_of(made(per_item=2)).values()} == {2}

    def test_the_common_block_goes_to_all_raters(self) -> None:
        counts = Counter(len(raters) for raters in raters_of(made(per_item=2, common=7)).values())
        assert counts == {5: 7, 2: 43}

    def test_the_common_block_holds_the_strata_by_their_size(self) -> None:
        # 40 to 10, so 8 to 2 in a block of 10.
        study = made(per_item=2, common=10)
        stratum = {item.id: item.stratum for item in study.items}
        shared = [item for item, raters in raters_of(study).items() if len(raters) == 5]
        assert Counter(stratum[item] for item in shared) == {"made/composition_required": 8, "made/unresolved": 2}

    @pytest.mark.parametrize("n_raters", [2, 3, 4, 7, 9, 12])
    @pytest.mark.parametrize("per_item", [2, 3, 4])
    def test_loads_are_equal_and_pairs_of_raters_meet_equally_often(self, n_raters: int, per_item: int) -> None:
        per_item = min(per_item, n_raters)
        names = [f"r{i}" for i in range(n_raters)]
        owned = assign([f"i{i}" for i in range(210)], names, per_item=per_item, everyone=["i1", "i2"])
        loads = [len(items) for items in owned.values()]
        assert max(loads) - min(loads) <= 1
        met = [len(set(owned[a]) & set(owned[b])) for a, b in combinations(names, 2)]
        assert max(met) - min(met) <= 3

    def test_each_rater_has_an_order_of_their_own(self) -> None:
        study = made(raters=("ann", "ben"), per_item=2)
        ann, ben = study.assignments["ann"], study.assignments["ben"]
        assert set(ann) == set(ben)
        assert ann != ben

    def test_the_order_of_items_does_not_follow_their_strata(self) -> None:
        study = made(raters=("ann", "ben"), per_item=2)
        stratum = {item.id: item.stratum for item in study.items}
        shown = [stratum[item] for item in study.assignments["ann"]]
        assert shown not in (sorted(shown), sorted(shown, reverse=True))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"per_item": 1}, "1 raters per item"),
            ({"per_item": 6}, "the number of raters, 5"),
            ({"raters": ("ann", "ann")}, "different names"),
            ({"raters": ("ann", " ")}, "not blank"),
            ({"common": 51}, "only 50 are drawn"),
            ({"sizes": 0}, "ask for 1 or more"),
        ],
    )
    def test_numbers_that_make_no_sense_are_refused(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(CircusError, match=message):
            made(**settings)


class TestKnownAnswers:
    def test_checks_and_training_go_to_all_raters_and_are_not_drawn(self) -> None:
        study = made(frame(checks={"q0": VALID}, training={"q41": BROAD}), per_item=2)
        by_query = {item.query: item for item in study.items}
        assert (by_query["q0"].stratum, by_query["q0"].known, by_query["q0"].training) == ("made/check", VALID, False)
        assert (by_query["q41"].stratum, by_query["q41"].known, by_query["q41"].training) == (
            "made/training",
            BROAD,
            True,
        )
        assert strata(study)["made/composition_required"] == 39
        assert all(len(raters_of(study)[f"made::{query}"]) == 5 for query in ("q0", "q41"))

    def test_training_comes_first_in_the_given_order(self) -> None:
        study = made(frame(training={"q55": BROAD, "q52": VALID}))
        assert {items[:2] for items in study.assignments.values()} == {("made::q55", "made::q52")}

    def test_checks_are_spread_over_the_whole_work(self) -> None:
        # 20 items and 4 checks: one check with 5 items in each quarter of the 24.
        study = made(frame(10, 10, checks=dict.fromkeys(("q20", "q21", "q22", "q23"), VALID)), per_item=5)
        known = {item.id for item in study.items if item.known}
        for items in study.assignments.values():
            assert [len(known & set(items[start : start + 6])) for start in range(0, 24, 6)] == [1, 1, 1, 1]

    def test_checks_do_not_come_at_regular_distances(self) -> None:
        study = made(frame(30, 0, checks={f"q{i}": VALID for i in range(30, 36)}), per_item=5)
        known = {item.id for item in study.items if item.known}
        places = {tuple(p for p, item in enumerate(items) if item in known) for items in study.assignments.values()}
        assert len(places) == 5

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"checks": {"q0": "FINE"}}, "'FINE'"),
            ({"checks": {"nobody": VALID}}, "'nobody'"),
            ({"checks": {"q0": VALID}, "training": {"q0": VALID}}, "both for training and for checks"),
        ],
    )
    def test_answers_that_fit_neither_rubric_nor_benchmark_are_refused(
        self, changes: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(MismatchError, match=message):
            made(frame(**changes))

    def test_a_benchmark_that_occurs_twice_is_refused(self) -> None:
        with pytest.raises(MismatchError, match="occurs twice"):
            made(frame(), frame())

    def test_answers_are_read_by_benchmark(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text(json.dumps({"made::q1": VALID, "made::x::2": BROAD, "other::q1": VALID}))
        assert read_gold_labels(tmp_path / "a.json") == {"made": {"q1": VALID, "x::2": BROAD}, "other": {"q1": VALID}}

    @pytest.mark.parametrize("content", [{"q1": VALID}, {"made::": VALID}, {"made::q1": 1}])
    def test_an_answer_of_another_form_is_refused(self, content: dict[str, Any], tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text(json.dumps(content))
        with pytest.raises(FormatError, match=r"a\.json"):
            read_gold_labels(tmp_path / "a.json")


def test_labels_come_from_verdicts_with_a_label_or_a_stratum() -> None:
    verdicts = {
        "q0": QueryLabel("q0", SHORTCUT),
        "q1": QueryLabel("q1", audited=True, valid=True, stratum=OPEN),
        "q2": QueryLabel("q2"),
    }
    labels: dict[str, Label] = labels_of(bare_benchmark(4), Labels("made", Provenance(), verdicts))
    assert labels == {"q0": SHORTCUT, "q1": OPEN}
