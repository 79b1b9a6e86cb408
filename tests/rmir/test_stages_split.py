"""Stage 7: TSR over the visual list, artificial negatives, and who goes where."""

from __future__ import annotations

from typing import Any

import pytest

from circus_bench.rmir.config import SplitSettings, TsrScope
from circus_bench.rmir.records import Candidate, CandidateConsensus, Index, JudgeDecision, SplitAssignment
from circus_bench.rmir.stages.split import split


def judged(query: str, image: str, accepts: int, rejects: int, abstentions: int = 0) -> CandidateConsensus:
    decision = JudgeDecision.ACCEPT if accepts > rejects else JudgeDecision.REJECT
    return CandidateConsensus(query, image, accepts, rejects, abstentions, decision, 1.0)


def found(query: str, images: str, index: Index = Index.VISUAL) -> list[Candidate]:
    """Candidates of one letter each, best first."""
    return [Candidate(query, image, index, rank, 1 / rank) for rank, image in enumerate(images, start=1)]


def assigned(
    rows: list[CandidateConsensus], candidates: list[Candidate], *, k: int = 4, **settings: Any
) -> dict[str, SplitAssignment]:
    survivors = settings.pop("survivors", rows)
    made = split(survivors, candidates, rows, visual_k=k, settings=SplitSettings(**settings))
    return {row.query: row for row in made}


def one(verdicts: str, **settings: Any) -> SplitAssignment:
    """A query whose visual list has one letter a candidate: P all accept, N all reject; the text index finds a P."""
    names = "abcdefgh"[: len(verdicts)]
    rows = [
        judged("q", name, *((3, 0) if verdict == "P" else (0, 3)))
        for name, verdict in zip(names, verdicts, strict=True)
    ]
    rows.append(judged("q", "z", 3, 0))
    return assigned(rows, [*found("q", names), *found("q", "z", Index.TEXT)], **settings)["q"]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    # Suffix means of the list, averaged: rmir-paper's worked values.
    [("NNNN", 1.0), ("PNNN", 0.9375), ("NNNP", (3 / 4 + 2 / 3 + 1 / 2 + 0) / 4), ("PPPP", 0.0)],
)
def test_tsr_is_computed_on_the_visual_list(verdicts: str, expected: float) -> None:
    assert one(verdicts).tsr == pytest.approx(expected)


def test_short_lists_are_filled_up_with_flagged_negatives() -> None:
    # P N and two artificial negatives: (3/4 + 1 + 1 + 1) / 4.
    row = one("PN", pad=True)
    assert (row.tsr, row.judged, row.artificial) == (0.9375, 2, 2)


def test_short_lists_can_be_left_short() -> None:
    # P N: (1/2 + 1) / 2.
    row = one("PN", pad=False)
    assert (row.tsr, row.judged, row.artificial) == (0.75, 2, 0)


def test_a_list_without_a_judged_candidate_has_no_tsr_and_is_for_training() -> None:
    row = one("", threshold=0.0)
    assert (row.tsr, row.judged, row.artificial, row.split) == (None, 0, 0, "train")


def test_the_list_follows_the_ranks_of_the_index() -> None:
    rows = [judged("q", "a", 3, 0), judged("q", "b", 0, 3)]
    backwards = [Candidate("q", "a", Index.VISUAL, 2, 0.5), Candidate("q", "b", Index.VISUAL, 1, 0.9)]
    # b is a negative at rank 1, a a positive at rank 2: (1/2 + 0) / 2.
    assert assigned(rows, backwards, k=2)["q"].tsr == 0.25


def test_tsr_can_be_computed_on_all_that_was_judged() -> None:
    doubted = judged("q", "b", 1, 2)
    rows = [judged("q", "a", 3, 0), doubted, judged("q", "c", 0, 3)]
    survivors = [rows[0], rows[2]]
    visual = found("q", "abc")
    # What survived is P N: (1/2 + 1) / 2. All of it is P 2/3 N: (5/9 + 5/6 + 1) / 3.
    surviving = assigned(rows, visual, k=3, pad=False, survivors=survivors)["q"]
    everything = assigned(rows, visual, k=3, pad=False, survivors=survivors, lists=TsrScope.JUDGED)["q"]
    assert surviving.tsr == pytest.approx(0.75)
    assert everything.tsr == pytest.approx((5 / 9 + 5 / 6 + 1) / 3)


def test_an_abstention_never_makes_a_list_more_reliable() -> None:
    rows = [judged("q", "a", 3, 0), judged("q", "b", 0, 2, 1)]
    # neg is 0 and 2/3: (1/3 + 2/3) / 2.
    assert assigned(rows, found("q", "ab"), k=2)["q"].tsr == pytest.approx(0.5)


def three(**settings: Any) -> dict[str, str]:
    """Queries whose lists are N N, P N and N P, with a positive of the text index each: TSR 1, 0.75, 0.25."""
    rows, candidates = [], []
    for query, verdicts in (("best", "NN"), ("good", "PN"), ("bad", "NP")):
        rows += [judged(query, n, *((3, 0) if v == "P" else (0, 3))) for n, v in zip("ab", verdicts, strict=True)]
        rows.append(judged(query, "z", 3, 0))
        candidates += [*found(query, "ab"), *found(query, "z", Index.TEXT)]
    return {query: row.split.value for query, row in assigned(rows, candidates, k=2, **settings).items()}


@pytest.mark.parametrize(
    ("settings", "test"),
    [
        ({"threshold": 0.75}, {"best", "good"}),
        ({"threshold": 0.76}, {"best"}),
        ({"threshold": 0.0}, {"best", "good", "bad"}),
        ({"test_size": 0}, set()),
        ({"test_size": 1}, {"best"}),
        ({"test_size": 9}, {"best", "good", "bad"}),
        ({"test_share": 0.5}, {"best", "good"}),  # 1.5 queries, rounded up
        ({}, {"best"}),  # 0.196 of 3
    ],
)
def test_the_most_reliable_queries_are_for_testing(settings: dict[str, Any], test: set[str]) -> None:
    assert {query for query, where in three(**settings).items() if where == "test"} == test


def test_queries_of_the_same_tsr_come_in_a_seeded_order() -> None:
    rows = [judged(f"q{n}", "a", 3, 0) for n in range(20)]
    candidates = [row for n in range(20) for row in found(f"q{n}", "a")]

    def chosen(seed: int) -> set[str]:
        made = assigned(rows, candidates, k=1, test_size=10, seed=seed)
        return {query for query, row in made.items() if row.split == "test"}

    assert chosen(0) == chosen(0) != chosen(1)
    assert len(chosen(0)) == 10


def test_a_query_without_a_positive_is_in_no_split() -> None:
    assert assigned([judged("q", "a", 0, 3)], found("q", "a")) == {}
