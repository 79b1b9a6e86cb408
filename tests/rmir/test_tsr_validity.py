"""Whether TSR tells who misses a positive: against known ones, and against what people find in a study."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from support.standins import StandIn

from circus_bench.audit.statistics import proportion
from circus_bench.benchmark import Benchmark
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.errors import CircusError, MismatchError
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.rmir.tsr_validity import (
    ANSWERS_RUBRIC,
    answer_study,
    checked_validity,
    incomplete_queries,
    pairs_benchmark,
    tsr_validity,
)
from circus_bench.runs.run import Run, run_benchmark
from circus_bench.validation.annotations import Annotation
from circus_bench.validation.decisions import decide
from circus_bench.validation.rubric import load_rubric

TSR = {"a": 0.1, "b": 0.2, "c": 0.8, "d": 0.9}
MISSED = {"a": True, "b": False, "c": True, "d": False}


def test_bins_hold_equally_many_queries_by_rising_tsr() -> None:
    found = tsr_validity(TSR, MISSED, bins=2).bins
    assert [(entry.low, entry.high, entry.incomplete.value, entry.incomplete.n) for entry in found] == [
        (0.1, 0.2, 0.5, 2),
        (0.8, 0.9, 0.5, 2),
    ]


def test_equal_values_stay_in_one_bin() -> None:
    found = tsr_validity(dict.fromkeys("abcde", 0.5) | {"f": 0.7}, dict.fromkeys("abcdef", False), bins=3).bins
    assert [(entry.low, entry.high, entry.incomplete.n) for entry in found] == [(0.5, 0.5, 5), (0.7, 0.7, 1)]


def test_thresholds_take_what_reaches_them() -> None:
    found = tsr_validity(TSR, MISSED, thresholds=(0.2, 0.85, 0.95)).thresholds
    assert (found[0.2].value, found[0.2].n) == (pytest.approx(1 / 3), 3)  # b, c, d
    assert (found[0.85].value, found[0.85].n) == (0, 1)  # d
    assert math.isnan(found[0.95].value)


def test_concordance_counts_pairs_of_a_complete_and_an_incomplete_query() -> None:
    # Complete: 0.2 and 0.9; incomplete: 0.1 and 0.8. Three of the four pairs are in order.
    found = tsr_validity(TSR, MISSED).concordance
    assert (found.value, found.n) == (0.75, 4)
    # DeLong: placements of the complete 1/2 and 1, of the incomplete 1 and 1/2; each has the variance 1/8, so the
    # standard error is sqrt(1/16 + 1/16), and the upper limit is cut off at 1.
    assert found.low == pytest.approx(0.75 - 1.959964 * math.sqrt(1 / 8))
    assert found.high == 1


def test_ties_count_half() -> None:
    tied = tsr_validity({"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.9}, MISSED).concordance
    assert tied.value == (0.5 + 0.5 + 1 + 1) / 4


def test_concordance_agrees_with_another_library() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    values, missed = rng.integers(0, 9, 200) / 8, rng.random(200) < 0.3
    names = [str(number) for number in range(200)]
    found = tsr_validity(dict(zip(names, values.tolist(), strict=True)), dict(zip(names, missed.tolist(), strict=True)))
    assert found.concordance.value == pytest.approx(metrics.roc_auc_score(~missed, values))


def test_a_perfect_order_still_has_an_interval() -> None:
    found = tsr_validity(TSR, {"a": True, "b": True, "c": False, "d": False}).concordance
    assert (found.value, found.low, found.high) == (1, proportion(np.ones(2)).low, 1)


@pytest.mark.parametrize(
    ("tsr", "missed"),
    [
        (TSR, dict.fromkeys(TSR, False)),  # none is incomplete
        (TSR, {**dict.fromkeys(TSR, False), "a": True}),  # one is
        (dict.fromkeys(TSR, 0.5), MISSED),  # all have the same TSR
        ({}, {}),
    ],
)
def test_what_cannot_be_compared_is_undefined(tsr: Mapping[str, float], missed: Mapping[str, bool]) -> None:
    found = tsr_validity(tsr, missed)
    assert math.isnan(found.concordance.value)
    assert found.to_dict()["concordance"]["status"] == "undefined"


def test_a_query_without_tsr_or_of_unknown_completeness_is_left_out() -> None:
    found = tsr_validity({**TSR, "no tsr": None, "unknown": 0.99}, {**MISSED, "no tsr": True})
    assert found.concordance.n == 4


@pytest.fixture(scope="module")
def benchmark(toy_benchmark: Callable[..., Benchmark]) -> Benchmark:
    return toy_benchmark()


@pytest.fixture(scope="module")
def run(benchmark: Benchmark, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_benchmark(StandIn(), benchmark, store=EmbeddingStore(tmp_path_factory.mktemp("store")))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pairs(benchmark: Benchmark, run: Run) -> Benchmark:
    return pairs_benchmark(benchmark, [run], k=4)


def test_what_models_retrieve_and_nobody_labeled_becomes_a_pair(pairs: Benchmark) -> None:
    # The gallery is a b c d. q1 has the reference a and the target b, q2 b and c; q3 comes from outside, with d and a.
    assert {query.id: query.targets for query in pairs.queries} == {
        "q1::c": ("c",),
        "q1::d": ("d",),
        "q2::a": ("a",),
        "q2::d": ("d",),
        "q3::b": ("b",),
        "q3::c": ("c",),
    }
    assert pairs.name == "toy-answers"


def test_a_draw_of_queries_is_checked_whole(benchmark: Benchmark, run: Run, pairs: Benchmark) -> None:
    drawn = pairs_benchmark(benchmark, [run], queries=1, k=4)
    (query,) = {query.details["query"] for query in drawn.queries}
    assert drawn.queries == tuple(entry for entry in pairs.queries if entry.details["query"] == query)


def test_a_query_of_which_all_retrieved_images_are_labeled_counts_as_complete(
    benchmark: Benchmark, tmp_path: Path
) -> None:
    first, *others = (dataclasses.replace(query, details={"tsr": 0.5}) for query in benchmark.queries)
    whole = dataclasses.replace(first, targets=("b", "c", "d"), details={"tsr": 0.9})  # all but the reference, a
    labeled = dataclasses.replace(benchmark, queries=(whole, *others))
    run = run_benchmark(StandIn(), labeled, store=EmbeddingStore(tmp_path / "store"))  # type: ignore[arg-type]
    save_benchmark(pairs_benchmark(labeled, [run], k=4), tmp_path / "pairs")
    pairs = load_benchmark(tmp_path / "pairs")
    study = answer_study(pairs, "pairs", raters=["ann", "bob"])
    decisions = decide(
        study, [Annotation(item.id, rater, "ANSWERS") for item in study.items for rater in ("ann", "bob")]
    )
    assert incomplete_queries(pairs, decisions) == {"q1": False, "q2": True, "q3": True}
    # One of three queries is complete, and it is the one of the greatest TSR.
    found = checked_validity([(pairs, decisions)])
    assert (found.thresholds[0.0].n, found.thresholds[0.9].value) == (3, 0)


def test_without_runs_there_is_nothing_to_check(benchmark: Benchmark) -> None:
    with pytest.raises(MismatchError, match="retrieved no unlabeled image"):
        pairs_benchmark(benchmark, [])


def test_the_study_asks_whether_the_image_answers(pairs: Benchmark) -> None:
    study = answer_study(pairs, "../pairs", raters=["ann", "bob", "cy"], per_item=2)
    assert study.rubric.title == "Does the image answer the question?"
    assert {item.query for item in study.items} == {query.id for query in pairs.queries}
    assert sorted(map(len, study.assignments.values())) == [4, 4, 4]  # six pairs, two raters each
    assert study.benchmarks == {"toy-answers": "../pairs"}


def test_a_study_needs_raters(pairs: Benchmark) -> None:
    with pytest.raises(CircusError, match="2 raters per item"):
        answer_study(pairs, "../pairs", raters=["ann"])


def test_people_tell_which_queries_are_incomplete(pairs: Benchmark) -> None:
    study = answer_study(pairs, "../pairs", raters=["ann", "bob"])
    said = {"q1::c": "yy", "q2::a": "nn", "q2::d": "nn", "q3::b": "yn"}  # q1::d and q3::c are not judged
    annotations = [
        Annotation(f"toy-answers::{pair}", rater, *_label(letter))
        for pair, letters in said.items()
        for rater, letter in zip(("ann", "bob"), letters, strict=True)
    ]
    # q1 has an answer that nobody labeled; q2 none; q3 is disputed.
    assert incomplete_queries(pairs, decide(study, annotations)) == {"q1": True, "q2": False}


def test_decisions_on_something_else_are_refused(benchmark: Benchmark, pairs: Benchmark) -> None:
    study = answer_study(pairs, "../pairs", raters=["ann", "bob"])
    with pytest.raises(MismatchError, match="not about 'toy'"):
        incomplete_queries(
            benchmark_without(benchmark), decide(study, [Annotation("toy-answers::q1::c", "ann", "ANSWERS")])
        )


def test_the_rubric_has_three_outcomes() -> None:
    rubric = load_rubric(ANSWERS_RUBRIC)
    assert rubric.labels == ("ANSWERS", "UNCLEAR_QUESTION", "DOES_NOT_ANSWER")
    assert rubric.label_of({"question", "answer"}) == "UNCLEAR_QUESTION"


def benchmark_without(benchmark: Benchmark) -> Benchmark:
    """Pairs of no query at all: the benchmark itself, whose queries are other ones."""
    queries = tuple(dataclasses.replace(query, details={"query": query.id}) for query in benchmark.queries)
    return dataclasses.replace(benchmark, queries=queries)


def _label(letter: str) -> tuple[str, tuple[str, ...]]:
    return ("ANSWERS", ()) if letter == "y" else ("DOES_NOT_ANSWER", ("answer",))
