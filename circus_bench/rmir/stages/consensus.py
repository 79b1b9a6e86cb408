"""Stage 5: what is beyond doubt stays, and no image that was doubted is left anywhere.

A candidate that at least `confidence` of the judges accept, or reject, is certain; the paper's value of 1 asks for all
of them, and an abstention is a doubt. (Whether the paper keeps unanimous rejects is unknown; its pool and its TSR need
negatives, so they stay here, as negatives.) Any other candidate is dropped, and its image is deleted from every query's
list, for it might be an unlabelled positive. The paper makes no exception where another query's judges were unanimous
about that image, and neither is one made here: that query loses the candidate, even if it was its only positive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from circus_bench.rmir.records import Decision, Deleted, Judged, Vote

VERSION = 1


def sum_up(votes: Sequence[Vote]) -> list[Judged]:
    """Sum up the votes on each candidate, in the order of the first vote on it."""
    counts: dict[tuple[str, str], Counter[Decision]] = {}
    for vote in votes:
        counts.setdefault((vote.query, vote.image), Counter())[vote.decision] += 1
    return [_judged(query, image, of_candidate) for (query, image), of_candidate in counts.items()]


def keep(judged: Sequence[Judged], *, confidence: float) -> tuple[list[Judged], list[Deleted]]:
    """Drop doubtful candidates, and every candidate with an image that was doubted.

    Args:
        judged: all candidates of all queries.
        confidence: least share of the judges that agree.

    Returns:
        The candidates that survive, in their order, and the deleted images by id.
    """
    certain = [row for row in judged if row.decision is not Decision.ABSTAIN and row.confidence >= confidence]
    doubted = Counter(row.image for row in judged)
    doubted.subtract(row.image for row in certain)
    deleted = {image for image, count in doubted.items() if count}
    lost = Counter(row.image for row in certain if row.image in deleted and row.decision is Decision.ACCEPT)
    survivors = [row for row in certain if row.image not in deleted]
    return survivors, [Deleted(image, doubted[image], lost[image]) for image in sorted(deleted)]


def answered(survivors: Sequence[Judged]) -> dict[str, list[str]]:
    """The positives of each query that still has one, by query in the order of its first candidate."""
    found: dict[str, list[str]] = {}
    for row in survivors:
        if row.decision is Decision.ACCEPT:
            found.setdefault(row.query, []).append(row.image)
    return found


def _judged(query: str, image: str, votes: Counter[Decision]) -> Judged:
    accepts, rejects, abstentions = (votes[d] for d in (Decision.ACCEPT, Decision.REJECT, Decision.ABSTAIN))
    judges = accepts + rejects + abstentions
    decision, agreeing = Decision.ABSTAIN, 0
    if 2 * accepts > judges:
        decision, agreeing = Decision.ACCEPT, accepts
    elif 2 * rejects > judges:
        decision, agreeing = Decision.REJECT, rejects
    return Judged(query, image, accepts, rejects, abstentions, decision, agreeing / judges)
