"""Aggregate votes, and filter candidates by the judges' consensus: stages 4 and 5.

A candidate that at least `confidence` of the judges accept, or reject, is certain; the paper's value of 1 asks for all
of them, and an abstention is a doubt. (Whether the paper keeps unanimous rejects is unknown; its pool and its TSR need
negatives, so they stay here, as hard negatives.) Any other candidate is dropped, and its image is excluded from every
query's list, for it might be a false negative there. The paper makes no exception where another query's judges were
unanimous about that image, and neither is one made here: that query loses the candidate, even if it was its only
positive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from circus_bench.rmir.records import CandidateConsensus, ExcludedImage, JudgeDecision, Vote

VERSION = 1


def aggregate_votes(votes: Sequence[Vote]) -> list[CandidateConsensus]:
    """Aggregate the votes on each candidate, in the order of the first vote on it."""
    counts: dict[tuple[str, str], Counter[JudgeDecision]] = {}
    for vote in votes:
        counts.setdefault((vote.query, vote.image), Counter())[vote.decision] += 1
    return [_consensus(query, image, of_candidate) for (query, image), of_candidate in counts.items()]


def filter_by_consensus(
    judged: Sequence[CandidateConsensus], *, confidence: float
) -> tuple[list[CandidateConsensus], list[ExcludedImage]]:
    """Drop doubtful candidates, and every candidate with an image that was doubted.

    Args:
        judged: all candidates of all queries.
        confidence: least share of the judges that agree.

    Returns:
        The candidates that survive, in their order, and the excluded images by id.
    """
    certain = [row for row in judged if row.decision is not JudgeDecision.ABSTAIN and row.confidence >= confidence]
    doubted = Counter(row.image for row in judged)
    doubted.subtract(row.image for row in certain)
    excluded = {image for image, count in doubted.items() if count}
    lost = Counter(row.image for row in certain if row.image in excluded and row.decision is JudgeDecision.ACCEPT)
    survivors = [row for row in certain if row.image not in excluded]
    return survivors, [ExcludedImage(image, doubted[image], lost[image]) for image in sorted(excluded)]


def positives_by_query(survivors: Sequence[CandidateConsensus]) -> dict[str, list[str]]:
    """Collect the positives of each query that still has one, by query in the order of its first candidate."""
    found: dict[str, list[str]] = {}
    for row in survivors:
        if row.decision is JudgeDecision.ACCEPT:
            found.setdefault(row.query, []).append(row.image)
    return found


def _consensus(query: str, image: str, votes: Counter[JudgeDecision]) -> CandidateConsensus:
    accepts, rejects, abstentions = (
        votes[d] for d in (JudgeDecision.ACCEPT, JudgeDecision.REJECT, JudgeDecision.ABSTAIN)
    )
    judges = accepts + rejects + abstentions
    decision, agreeing = JudgeDecision.ABSTAIN, 0
    if 2 * accepts > judges:
        decision, agreeing = JudgeDecision.ACCEPT, accepts
    elif 2 * rejects > judges:
        decision, agreeing = JudgeDecision.REJECT, rejects
    return CandidateConsensus(query, image, accepts, rejects, abstentions, decision, agreeing / judges)
