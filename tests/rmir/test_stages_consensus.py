"""Stages 5 and 6: consensus, excluded images, and the retrieval pool."""

from __future__ import annotations

import pytest

from circus_bench.rmir.records import CandidateConsensus, ExcludedImage, JudgeDecision, PoolImage, Vote
from circus_bench.rmir.stages.consensus import aggregate_votes, filter_by_consensus, positives_by_query
from circus_bench.rmir.stages.pool import pool


def judged(query: str, image: str, votes: str) -> CandidateConsensus:
    """A candidate with one vote a letter: a accept, r reject, - abstain."""
    words = {"a": JudgeDecision.ACCEPT, "r": JudgeDecision.REJECT, "-": JudgeDecision.ABSTAIN}
    (row,) = aggregate_votes([Vote(query, image, f"j{n}", words[letter], "") for n, letter in enumerate(votes)])
    return row


def kept(*rows: CandidateConsensus, confidence: float = 1.0) -> tuple[list[tuple[str, str]], list[ExcludedImage]]:
    survivors, deleted = filter_by_consensus(rows, confidence=confidence)
    return [(row.query, row.image) for row in survivors], deleted


@pytest.mark.parametrize(
    ("votes", "decision", "confidence"),
    [
        ("aaaaa", "accept", 1.0),
        ("aaaar", "accept", 0.8),
        ("rrrrr", "reject", 1.0),
        ("rrraa", "reject", 0.6),
        ("aaaa-", "accept", 0.8),  # an abstention is one of the five
        ("aa-rr", "abstain", 0.0),  # two of five are no majority
        ("aarr", "abstain", 0.0),  # nor are two of four
        ("-----", "abstain", 0.0),
        ("a", "accept", 1.0),
    ],
)
def test_confidence_is_the_share_of_all_judges_in_the_majority(votes: str, decision: str, confidence: float) -> None:
    row = judged("q", "x", votes)
    assert (row.decision, row.confidence) == (decision, confidence)
    assert (row.accepts, row.rejects, row.abstentions) == tuple(votes.count(letter) for letter in "ar-")


def test_unanimous_accepts_and_rejects_stay() -> None:
    assert kept(judged("q", "x", "aaa"), judged("q", "y", "rrr")) == ([("q", "x"), ("q", "y")], [])


@pytest.mark.parametrize("votes", ["aar", "rra", "aa-", "rr-", "a-r", "---"])
def test_a_candidate_that_one_judge_doubts_is_dropped(votes: str) -> None:
    assert kept(judged("q", "x", votes)) == ([], [ExcludedImage("x", 1, 0)])


def test_a_doubted_image_is_excluded_from_every_list() -> None:
    rows = [judged("p", "x", "aar"), judged("q", "x", "rrr"), judged("q", "y", "aaa"), judged("r", "x", "rrr")]
    assert kept(*rows) == ([("q", "y")], [ExcludedImage("x", 1, 0)])


def test_a_doubted_image_is_excluded_even_where_it_is_another_ones_accepted_target() -> None:
    # The paper's rule, without exception: q loses its only positive, and with it goes q.
    rows = [judged("p", "x", "aar"), judged("p", "y", "aaa"), judged("q", "x", "aaa"), judged("q", "z", "rrr")]
    survivors, deleted = filter_by_consensus(rows, confidence=1.0)
    assert deleted == [ExcludedImage("x", 1, 1)]
    assert positives_by_query(survivors) == {"p": ["y"]}


def test_a_query_keeps_the_positives_that_were_not_excluded() -> None:
    rows = [judged("p", "x", "arr"), judged("q", "x", "aaa"), judged("q", "y", "aaa")]
    survivors, _ = filter_by_consensus(rows, confidence=1.0)
    assert positives_by_query(survivors) == {"q": ["y"]}


def test_an_image_doubted_twice_is_counted_twice() -> None:
    _, deleted = kept(judged("p", "x", "aar"), judged("q", "x", "arr"))
    assert deleted == [ExcludedImage("x", 2, 0)]


def test_a_lower_confidence_forgives_a_doubt() -> None:
    rows = [judged("p", "x", "aaaar"), judged("p", "y", "aaarr")]
    assert kept(*rows, confidence=0.8) == ([("p", "x")], [ExcludedImage("y", 1, 0)])


def test_the_order_of_the_candidates_changes_nothing_but_the_order() -> None:
    rows = [judged("p", "x", "aar"), judged("q", "x", "aaa"), judged("q", "y", "aaa"), judged("p", "z", "rrr")]
    survivors, deleted = kept(*rows)
    backwards, deleted_too = kept(*reversed(rows))
    assert backwards == survivors[::-1]
    assert deleted == deleted_too


def test_the_pool_is_made_of_the_survivors_of_queries_with_a_positive() -> None:
    # The negatives of r, which nothing answers, are in no query's list any more.
    rows = [judged("p", "b", "aa"), judged("p", "a", "rr"), judged("q", "b", "aa"), judged("r", "c", "rr")]
    survivors, _ = filter_by_consensus(rows, confidence=1.0)
    assert pool(survivors) == [PoolImage("a"), PoolImage("b")]
