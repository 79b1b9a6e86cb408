"""The checks of the annotations, one at a time, on benchmarks of a few queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from circus_bench.benchmark import Benchmark, Defect, Protocol, Query, ReferencePolicy
from circus_bench.doctor import Agreement, Severity, diagnose
from circus_bench.doctor.annotation_checks import (
    contradictory_targets,
    double_spaces,
    empty_captions,
    hard_target_missed,
    identical_captions,
    many_positives,
    non_ascii_captions,
    positives_distribution,
    recorded_defects,
    reference_for_hard_target,
    references_outside,
    repeated_queries,
    shared_images,
    short_captions,
    soft_label_is_reference,
)
from circus_bench.doctor.counts import PUBLISHED, counts_of

Make = Callable[..., Benchmark]
ALL = frozenset(Defect)


@pytest.fixture
def benchmark_of(toy_benchmark: Make) -> Callable[..., Benchmark]:
    """`benchmark_of(*queries)`: annotations of these queries over the gallery a-z, all defects allowed."""

    def make(*queries: Query, **changes: Any) -> Benchmark:
        settings: dict[str, Any] = {"gallery": tuple("abcdefghijklmnopqrstuvwxyz"), "allow": ALL, **changes}
        return toy_benchmark(queries=queries, with_images=False, **settings)

    return make


def query(number: int, text: str = "make it red", targets: str = "b", reference: str = "a", **details: Any) -> Query:
    return Query(f"q{number}", reference, text, tuple(targets), details=details)


def captioned(number: int, *captions: Any) -> Query:
    return query(number, captions=list(captions))


def test_a_sound_benchmark_has_no_defect(benchmark_of: Make) -> None:
    assert diagnose(benchmark_of(query(1), query(2, "make it blue"))).results == ()


def test_allowed_defects_are_reported_with_all_their_ids(benchmark_of: Make) -> None:
    made = benchmark_of(query(1, targets="ab"), query(2, " "), query(3, "x", targets="b?"), query(4, "y", targets="a"))
    found = {result.check: result.ids for result in recorded_defects(made)}
    assert found == {"dangling_target": ("?",), "reference_is_target": ("q1", "q4"), "empty_text": ("q2",)}


@pytest.mark.parametrize("kind", Defect)
def test_every_kind_of_defect_has_a_meaning(kind: Defect, benchmark_of: Make) -> None:
    from circus_bench.benchmark import Finding

    (found,) = recorded_defects(benchmark_of(query(1), findings=(Finding(kind, ("x",)),)))
    assert (found.severity, bool(found.meaning)) == (Severity.DEFECT, True)


def test_the_reference_in_place_of_the_hard_target_is_found(benchmark_of: Make) -> None:
    made = benchmark_of(
        query(1, targets="ab", target_hard=["c"]),  # the defect of CIRR's soft labels
        query(2, targets="ab", target_hard=["b"]),  # the reference beside the hard target
        query(3, targets="b", target_hard=["c"]),  # missed, but the reference is no positive
        query(4, targets="b", target_hard="b"),
        query(5, targets="ab"),  # no hard target is known
    )
    found, missed = reference_for_hard_target(made), hard_target_missed(made)
    assert found is not None
    assert missed is not None
    assert (found.ids, missed.ids) == (("q1",), ("q3",))
    assert (found.severity, missed.severity) == (Severity.DEFECT, Severity.DEFECT)


def test_a_query_of_two_rows_is_right_with_one_of_their_hard_targets(benchmark_of: Make) -> None:
    assert hard_target_missed(benchmark_of(query(1, targets="b", target_hard=["c", "b"]))) is None


def test_soft_labels_that_the_protocol_does_not_use_are_noted(benchmark_of: Make) -> None:
    made = benchmark_of(
        query(1, targets="b", target_hard=["b"], target_soft=[{"a": 1.0, "c": 1.0}]),
        query(2, targets="b", target_hard=["b"], target_soft=[{"a": 1.0, "b": 1.0}]),
        query(3, targets="b", target_hard=["b"], target_soft={"a": 0.5}),
        query(4, targets="b", target_hard=["b"], target_soft=[{"a": 1.0}, {"a": -1.0}]),  # the later value counts
    )
    found = soft_label_is_reference(made)
    assert found is not None
    assert (found.ids, found.severity) == (("q1",), Severity.NOTE)


def test_references_outside_the_gallery_are_noted_once_each(benchmark_of: Make) -> None:
    found = references_outside(benchmark_of(query(1, reference="?"), query(2, "other", reference="?"), query(3)))
    assert found is not None
    assert (found.ids, found.severity) == (("?",), Severity.NOTE)


def test_the_same_query_with_other_targets_contradicts_itself(benchmark_of: Make) -> None:
    made = benchmark_of(
        query(1),
        query(2, targets="c"),
        query(3, targets="cb"),
        query(4, "make it blue"),
        query(5, targets="c", reference="d"),
    )
    found = contradictory_targets(made)
    assert found is not None
    assert (found.groups, found.severity) == ((("q1", "q2", "q3"),), Severity.NOTE)


def test_the_order_of_targets_is_no_contradiction(benchmark_of: Make) -> None:
    assert contradictory_targets(benchmark_of(query(1, targets="bc"), query(2, targets="cb"))) is None


def test_the_same_query_with_the_same_targets_is_a_repetition(benchmark_of: Make) -> None:
    found = repeated_queries(benchmark_of(query(1, targets="bc"), query(2, targets="cb"), query(3, targets="b")))
    assert found is not None
    assert found.groups == (("q1", "q2"),)


def test_queries_of_hidden_targets_neither_repeat_nor_contradict(benchmark_of: Make) -> None:
    protocol = Protocol("toy/test", ReferencePolicy.KEPT, hidden_targets=True)
    made = benchmark_of(query(1, targets=""), query(2, targets=""), protocol=protocol)
    assert (repeated_queries(made), contradictory_targets(made)) == (None, None)


def test_one_empty_caption_of_two_is_a_defect(benchmark_of: Make) -> None:
    made = benchmark_of(captioned(1, ["red", " "]), captioned(2, ["red", "blue"]), captioned(3, "red"))
    found = empty_captions(made)
    assert found is not None
    assert (found.ids, found.severity) == (("q1",), Severity.DEFECT)


def test_a_text_that_is_all_blank_is_reported_once(benchmark_of: Make) -> None:
    blank = benchmark_of(Query("q1", "a", " ", ("b",), details={"captions": [["", " "]]}))
    assert [result.check for result in diagnose(blank).results] == ["empty_text"]


def test_captions_are_identical_within_a_row_whatever_their_case(benchmark_of: Make) -> None:
    made = benchmark_of(
        captioned(1, ["is Red ", "Is red"]),
        captioned(2, ["is red", "is blue"]),
        captioned(3, "is red", "is red"),  # two rows of one caption each, merged to a query
        captioned(4, ["is red", "is blue"], ["x", "x"]),  # the second row repeats itself
        captioned(5, ["", ""]),  # empty, which is another matter
    )
    found = identical_captions(made)
    assert found is not None
    assert found.ids == ("q1", "q4")


@pytest.mark.parametrize(
    ("check", "caption", "fine"),
    [
        (short_captions, "ab ", "abc"),
        (non_ascii_captions, "ça va", "ca va"),
        (double_spaces, "with  two", "with one"),
    ],
)
def test_peculiar_captions_are_noted(check: Any, caption: str, fine: str, benchmark_of: Make) -> None:
    made = benchmark_of(captioned(1, ["is red", caption]), captioned(2, ["is red", fine]), captioned(3, ["", "is red"]))
    found = check(made)
    assert (found.ids, found.severity) == (("q1",), Severity.NOTE)


def test_without_raw_captions_the_text_is_judged(benchmark_of: Make) -> None:
    found = short_captions(benchmark_of(query(1, "ok"), query(2, "make it red")))
    assert found is not None
    assert found.ids == ("q1",)


def test_more_than_ten_positives_are_noted(benchmark_of: Make) -> None:
    ten, eleven = "bcdefghijk", "bcdefghijkl"
    made = benchmark_of(query(1, targets=ten), query(2, "other", targets=eleven), query(3, "third", targets=ten))
    found = many_positives(made)
    assert found is not None
    assert found.ids == ("q2",)
    assert positives_distribution(made) == {10: 2, 11: 1}


def test_images_of_two_galleries_are_found_for_each_pair(benchmark_of: Make) -> None:
    galleries = {"one": "abc", "two": "bcdx", "three": "axy", "four": "abz"}
    parts = {name: benchmark_of(query(1, targets=ids[1]), gallery=tuple(ids)) for name, ids in galleries.items()}
    found = {result.check: result.ids for result in shared_images(parts)}
    assert found == {
        "shared_by_one_and_two": ("b", "c"),
        "shared_by_one_and_three": ("a",),
        "shared_by_one_and_four": ("a", "b"),
        "shared_by_two_and_three": ("x",),
        "shared_by_two_and_four": ("b",),
        "shared_by_three_and_four": ("a",),
    }


def test_counts_of_an_unknown_protocol_have_nothing_to_compare_with(benchmark_of: Make) -> None:
    found = {count.what: count for count in counts_of(benchmark_of(query(1), query(2, targets="bc")))}
    assert {what: count.found for what, count in found.items()} == {
        "queries": 2,
        "positives": 3,
        "distinct positives": 2,
        "gallery": 26,
        "references": 1,
        "texts": 1,
        "characters": 22,  # twice "make it red"
    }
    assert {count.agreement for count in found.values()} == {Agreement.UNKNOWN}


def test_a_count_that_differs_from_the_published_one_is_no_health(benchmark_of: Make) -> None:
    found = diagnose(benchmark_of(query(1), protocol=Protocol("circo/val", ReferencePolicy.KEPT)))
    differing = {count.what: count.published for count in found.counts if count.differs}
    # CIRCO's own numbers: 220 queries, each with a reference of its own, 916 ground truths, 123,403 images.
    assert differing == {"queries": 220, "positives": 916, "gallery": 123403, "references": 220}
    assert not found.healthy
    assert found.defects == ()


def test_of_two_published_counts_either_is_a_match(benchmark_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PUBLISHED, "toy/test", {"queries": ((5, "one"), (1, "other")), "positives": ((5, "one"),)})
    found = {count.what: count for count in counts_of(benchmark_of(query(1)))}
    assert (found["queries"].published, found["queries"].source) == (1, "other")
    assert (found["positives"].published, found["positives"].differs) == (5, True)


def test_defects_come_before_notes(benchmark_of: Make) -> None:
    found = diagnose(benchmark_of(query(1, "ok"), captioned(2, ["", "x"])))
    assert [result.severity for result in found.results] == [Severity.DEFECT, Severity.NOTE]
