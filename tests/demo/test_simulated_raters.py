"""Simulated raters err as often as they are told to, and V recovers the ground truth as far as that allows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from support.judged import item, study
from support.parts import without_images
from support.studies import run_with_tops

from circus_bench.benchmark import Benchmark
from circus_bench.demo.simulated_raters import (
    FAILS,
    SceneGroundTruth,
    SimulatedRater,
    expected_labels,
    recovery,
    simulate_annotations,
    simulate_study,
)
from circus_bench.errors import BenchmarkError, CircusError, MismatchError
from circus_bench.labels.formats import load_labels
from circus_bench.sources.scenes import QueryKind, scenes
from circus_bench.validation.annotations import Annotation, read_annotations
from circus_bench.validation.decisions import Decision, DecisionRule, decide
from circus_bench.validation.sampling import SamplingFrame, sample_study
from circus_bench.validation.study import Study

RATERS = ("ann", "ben", "cat")
PERFECT = SimulatedRater(
    false_negative_rate=0, false_positive_rate=0, confusion_rate=0, missed_alternative_rate=0, false_click_rate=0
)


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    """The scenes as the demo has them: 600 queries, 3,000 images."""
    return without_images(scenes())


@pytest.fixture(scope="module")
def truth(benchmark: Benchmark) -> SceneGroundTruth:
    return SceneGroundTruth(benchmark)


@pytest.fixture(scope="module")
def made(benchmark: Benchmark) -> Study:
    """All 360 queries that an ideal pool finds shortcut-free: 210 valid ones, 150 that are not."""
    return sample_study("made", [SamplingFrame(benchmark, "scenes", expected_labels(benchmark))], raters=RATERS)


def annotations(made: Study, truth: SceneGroundTruth, rater: SimulatedRater, *, seed: int = 0) -> list[Annotation]:
    return simulate_annotations(made, {"scenes": truth}, dict.fromkeys(RATERS, rater), seed=seed)


def test_perfect_raters_recover_exactly_the_ground_truth(made: Study, truth: SceneGroundTruth) -> None:
    decisions = decide(made, annotations(made, truth, PERFECT))
    found = recovery(decisions, {"scenes": truth})
    assert (found.precision.value, found.recall.value, found.undecided) == (1.0, 1.0, 0)
    assert (found.precision.n, found.recall.n) == (210, 210)
    kinds = {query: truth.fails(query) for query in (decision.query for decision in decisions)}
    assert all(decision.flags == ((kinds[decision.query],) if kinds[decision.query] else ()) for decision in decisions)


def test_with_10_percent_errors_and_3_raters_the_majority_is_95_percent_precise(
    made: Study, truth: SceneGroundTruth
) -> None:
    # The majority of three is wrong with chance 3 * 0.1^2 * 0.9 + 0.1^3 = 0.028. Of 210 valid and 150 invalid queries
    # 210 * 0.972 = 204.1 and 150 * 0.028 = 4.2 are expected in V: precision 0.980, recall 0.972. The number of wrong
    # ones is binomial; precision below 0.95 takes 11 of them, which has a chance of 0.4 %.
    found = simulate_study(made, {"scenes": truth}, error=0.1).recovery
    assert found.precision.value >= 0.95
    assert found.precision.low <= 0.980 <= found.precision.high
    assert found.recall.low <= 0.972 <= found.recall.high


def test_with_25_percent_errors_v_is_as_imprecise_as_expected(made: Study, truth: SceneGroundTruth) -> None:
    # Wrong with chance 3 * 0.25^2 * 0.75 + 0.25^3 = 0.15625: 210 * 0.84375 = 177.2 and 150 * 0.15625 = 23.4 in V,
    # precision 0.883, recall 0.844.
    found = simulate_study(made, {"scenes": truth}, error=0.25).recovery
    assert found.precision.low <= 0.883 <= found.precision.high
    assert found.recall.low <= 0.844 <= found.recall.high


def test_raters_err_as_often_as_set(made: Study, truth: SceneGroundTruth) -> None:
    rater = SimulatedRater(false_negative_rate=0.3, false_positive_rate=0.1, confusion_rate=0.5)
    query_of = {entry.id: entry.query for entry in made.items}
    sound, unsound, found = 0, 0, {"false negatives": 0, "false alarms": 0, "confused": 0}
    for annotation in annotations(made, truth, rater):
        fails = truth.fails(query_of[annotation.item])
        sound, unsound = sound + (not fails), unsound + bool(fails)
        found["false negatives"] += bool(fails) and not annotation.flags
        found["false alarms"] += not fails and bool(annotation.flags)
        found["confused"] += bool(fails) and bool(annotation.flags) and annotation.flags != (fails,)
    # 3 raters: 630 and 450 annotations. Four standard deviations are 0.048, 0.086 and (of 315 found) 0.113.
    assert (sound, unsound) == (630, 450)
    assert found["false alarms"] / sound == pytest.approx(0.1, abs=0.048)
    assert found["false negatives"] / unsound == pytest.approx(0.3, abs=0.086)
    assert found["confused"] / (unsound - found["false negatives"]) == pytest.approx(0.5, abs=0.113)


def test_raters_err_independently(made: Study, truth: SceneGroundTruth) -> None:
    # Two raters who err with chance 0.5 each agree on validity on half of the 360 items; four deviations are 0.105.
    log = annotations(made, truth, SimulatedRater(false_negative_rate=0.5, false_positive_rate=0.5))
    by_rater = {rater: {j.item: bool(j.flags) for j in log if j.rater == rater} for rater in RATERS}
    equal = sum(by_rater["ann"][item] == by_rater["ben"][item] for item in by_rater["ann"])
    assert equal / 360 == pytest.approx(0.5, abs=0.105)


def test_the_same_seed_gives_the_same_annotations_and_another_one_others(made: Study, truth: SceneGroundTruth) -> None:
    once, again, other = (annotations(made, truth, SimulatedRater(), seed=seed) for seed in (1, 1, 2))
    assert once == again
    assert once != other


def test_annotations_follow_the_assignments_in_time(made: Study, truth: SceneGroundTruth) -> None:
    log = annotations(made, truth, SimulatedRater())
    assert [annotation.time for annotation in log] == sorted(annotation.time for annotation in log)
    for rater in RATERS:
        assert tuple(j.item for j in log if j.rater == rater) == made.assignments[rater]
    assert len({annotation.event for annotation in log}) == len(log) == 3 * 360


def test_the_times_have_the_median_that_is_set(made: Study, truth: SceneGroundTruth) -> None:
    seconds = sorted(j.seconds for j in annotations(made, truth, SimulatedRater(seconds=20, spread=0.5)))
    # The standard error of the median of 1,080 values is about 1.25 * 0.5 / sqrt(1080) = 2 % of it.
    assert seconds[len(seconds) // 2] == pytest.approx(20, rel=0.08)
    assert min(seconds) > 0


def test_perfect_raters_click_what_answers_the_query_as_well(benchmark: Benchmark, truth: SceneGroundTruth) -> None:
    query = next(query for query in benchmark.queries if query.group == QueryKind.TOO_BROAD)
    others = [image for image in benchmark.gallery.ids if image not in (query.reference, *query.targets)]
    fitting = [image for image in others if truth.answered_by(query.id, image)]
    # Any of many images answers a query that is too broad, and not all do.
    assert 10 <= len(fitting) < len(others)
    panel = tuple(sorted((*query.targets, *fitting[:4], *[image for image in others if image not in fitting][:4])))
    entry = dataclasses.replace(item(0, panel=panel), id="scenes::x", benchmark="scenes", query=query.id)
    clicked = annotations(study([entry], raters=RATERS), truth, PERFECT)[0].alternatives
    assert set(clicked) == set(fitting[:4])


def test_nothing_answers_an_invalid_query(benchmark: Benchmark, truth: SceneGroundTruth) -> None:
    query = next(query for query in benchmark.queries if query.group == QueryKind.INVALID_TARGET)
    assert not any(truth.answered_by(query.id, image) for image in benchmark.gallery.ids)


def test_follow_up_questions_are_answered_by_the_plant(benchmark: Benchmark, truth: SceneGroundTruth) -> None:
    kinds = (QueryKind.TEXT_SHORTCUT, QueryKind.IMAGE_SHORTCUT, QueryKind.COMPOSITION_REQUIRED, QueryKind.INVALID_TEXT)
    queries = [next(query for query in benchmark.queries if query.group == kind) for kind in kinds]
    entries = [dataclasses.replace(item(n), benchmark="scenes", query=query.id) for n, query in enumerate(queries)]
    answers = {j.item: dict(j.answers) for j in annotations(study(entries, raters=("ann",)), truth, PERFECT)}
    yes = {place: [name for name, answer in given.items() if answer] for place, given in answers.items()}
    assert yes == {"made::0": ["text_alone"], "made::1": ["image_alone"], "made::2": [], "made::3": []}
    assert answers["made::3"] == {}


def test_annotations_are_what_the_store_accepts(benchmark: Benchmark, truth: SceneGroundTruth, tmp_path: Path) -> None:
    from circus_bench.validation.annotation_log import AnnotationLog

    tops = [[image for image in benchmark.gallery.ids[:14] if image != query.reference] for query in benchmark.queries]
    few = SamplingFrame(benchmark, "scenes", expected_labels(benchmark), runs=[run_with_tops(benchmark, tops)])
    small = sample_study("small", [few], raters=RATERS, sizes=15)
    log = AnnotationLog(small, tmp_path / "log.sqlite")
    for annotation in annotations(
        small, truth, SimulatedRater(false_negative_rate=0.3, false_positive_rate=0.3, false_click_rate=0.2)
    ):
        log.check(annotation)
    log.close()


def test_a_simulated_study_is_written_with_its_verdicts(
    made: Study, benchmark: Benchmark, truth: SceneGroundTruth, tmp_path: Path
) -> None:
    simulated = simulate_study(made, {"scenes": truth}, error=0.1)
    simulated.save(tmp_path, {"scenes": benchmark})
    assert tuple(read_annotations(tmp_path / "judgements.jsonl")) == simulated.annotations
    written = json.loads((tmp_path / "rehearsal.json").read_text())
    assert written["recovery"] == simulated.recovery.to_dict()
    assert written["agreement"]["label"]["krippendorff_alpha"]["status"] == "ok"
    for name in ("scenes.v.parquet", "scenes.v.json"):
        verdicts = load_labels(tmp_path / name).by_query
        assert sorted(query for query, v in verdicts.items() if v.valid) == sorted(simulated.valid("scenes"))


def test_undecided_items_count_neither_as_valid_nor_against_precision(made: Study, truth: SceneGroundTruth) -> None:
    two_votes = [
        j
        for j in annotations(made, truth, SimulatedRater(false_negative_rate=0.4, false_positive_rate=0.4))
        if j.rater != "cat"
    ]
    decisions = decide(made, two_votes, rule=DecisionRule.MAJORITY)
    found = recovery(decisions, {"scenes": truth})
    undecided = sum(decision.valid is None for decision in decisions)
    assert found.undecided == undecided > 0
    assert found.precision.n == sum(decision.valid is True for decision in decisions)


def test_recovery_without_any_valid_decision_is_undefined(made: Study, truth: SceneGroundTruth) -> None:
    none: list[Decision] = [d for d in decide(made, annotations(made, truth, PERFECT)) if not d.valid]
    assert recovery(none, {"scenes": truth}).to_dict()["precision"]["status"] == "undefined"


class TestRefusals:
    @pytest.mark.parametrize("changes", [{"false_negative_rate": 1.1}, {"false_click_rate": -0.1}, {"seconds": 0.0}])
    def test_rates_that_are_none_are_refused(self, changes: dict[str, float]) -> None:
        with pytest.raises(CircusError, match="chances from 0 to 1"):
            SimulatedRater(**changes)

    def test_a_benchmark_without_plants_is_refused(self, benchmark: Benchmark) -> None:
        with pytest.raises(BenchmarkError, match="has no ground truth"):
            SceneGroundTruth(dataclasses.replace(benchmark, source={}))

    def test_scenes_of_another_generator_are_refused(self, benchmark: Benchmark) -> None:
        with pytest.raises(BenchmarkError, match="another version"):
            SceneGroundTruth(dataclasses.replace(benchmark, source={**benchmark.source, "seed": 8}))

    def test_a_part_of_the_scenes_is_refused(self, benchmark: Benchmark) -> None:
        with pytest.raises(BenchmarkError, match="was cut"):
            SceneGroundTruth(dataclasses.replace(benchmark, queries=benchmark.queries[:10]))

    def test_a_rater_without_rates_is_refused(self, made: Study, truth: SceneGroundTruth) -> None:
        with pytest.raises(MismatchError, match="'cat'"):
            simulate_annotations(made, {"scenes": truth}, dict.fromkeys(("ann", "ben"), SimulatedRater()))

    def test_a_rubric_that_lacks_a_step_is_refused(self, made: Study, truth: SceneGroundTruth) -> None:
        steps = tuple(step for step in made.rubric.steps if step.id != FAILS[QueryKind.TOO_BROAD])
        other = dataclasses.replace(made, rubric=dataclasses.replace(made.rubric, steps=steps))
        with pytest.raises(MismatchError, match="'breadth'"):
            annotations(other, truth, SimulatedRater())
