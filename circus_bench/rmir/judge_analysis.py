"""Analyze the LLM judges of stage 4: rates, inter-rater agreement, leave-one-out and the effect of model families.

An abstention counts as one in the rates, and in the kept set, where it is a doubt; between two judges it is no vote to
agree with. Confidence intervals resample queries, not votes: the candidates of one query are alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.audit.statistics import Estimate, ratio
from circus_bench.errors import CircusError
from circus_bench.io import to_plain
from circus_bench.rmir.records import CandidateConsensus, JudgeDecision, Vote
from circus_bench.rmir.stages.consensus import aggregate_votes, filter_by_consensus, positives_by_query
from circus_bench.validation.agreement import Coefficient, RaterMatrix, Statistic, agreement, rater_matrix
from circus_bench.validation.ratings import MISSING, Ratings

Pair = tuple[str, str]
_CATEGORIES = (JudgeDecision.ACCEPT.value, JudgeDecision.REJECT.value)


@dataclass(frozen=True, slots=True)
class JudgeRates:
    """Shares of a judge's verdicts, which add up to 1; `n` counts queries."""

    accept: Estimate
    reject: Estimate
    abstain: Estimate


def judge_rates(votes: Sequence[Vote]) -> dict[str, JudgeRates]:
    """Compute the rates of each judge, in the order of their first votes."""
    queries = _queries(votes)
    counts: dict[str, dict[JudgeDecision, NDArray[np.float64]]] = {}
    for vote in votes:
        of_judge = counts.setdefault(vote.judge, {decision: np.zeros(len(queries)) for decision in JudgeDecision})
        of_judge[vote.decision][queries[vote.query]] += 1
    return {
        judge: JudgeRates(
            *(
                ratio(of_judge[decision], np.sum(list(of_judge.values()), axis=0))
                for decision in (JudgeDecision.ACCEPT, JudgeDecision.REJECT, JudgeDecision.ABSTAIN)
            )
        )
        for judge, of_judge in counts.items()
    }


def vote_ratings(votes: Sequence[Vote]) -> Ratings:
    """Tabulate the votes, candidates by judges; an abstention is a missing entry."""
    pairs = {pair: row for row, pair in enumerate(dict.fromkeys((vote.query, vote.image) for vote in votes))}
    judges = {judge: column for column, judge in enumerate(dict.fromkeys(vote.judge for vote in votes))}
    codes = np.full((len(pairs), len(judges)), MISSING, np.int16)
    for vote in votes:
        if vote.decision is not JudgeDecision.ABSTAIN:
            codes[pairs[vote.query, vote.image], judges[vote.judge]] = _CATEGORIES.index(vote.decision)
    return Ratings(tuple(map(" ".join, pairs)), tuple(judges), _CATEGORIES, codes)


@dataclass(frozen=True, slots=True)
class ConsensusChange:
    """Output of stage 5 with fewer judges, compared with the whole panel.

    Attributes:
        judges: number of judges that are left.
        queries: with a positive.
        positives: kept pairs of query and image.
        gained: of them those that the whole panel does not keep.
        lost: pairs that only the whole panel keeps.
        deleted: images that are excluded everywhere.
    """

    judges: int
    queries: int
    positives: int
    gained: int
    lost: int
    deleted: int


def leave_one_judge_out(votes: Sequence[Vote], *, confidence: float = 1.0) -> dict[str, ConsensusChange]:
    """Compute for each judge what the consensus keeps without it (leave-one-out).

    Raises:
        CircusError: there is one judge only.
    """
    judges = list(dict.fromkeys(vote.judge for vote in votes))
    if len(judges) < 2:
        raise CircusError(f"leaving a judge out takes two or more; the votes are those of {judges}")
    whole, _ = positives_of(votes, confidence=confidence)
    return {out: _change(votes, {*judges} - {out}, whole, confidence) for out in judges}


def positives_of(
    votes: Sequence[Vote], *, confidence: float = 1.0
) -> tuple[dict[str, list[str]], list[CandidateConsensus]]:
    """Run stage 5 on some votes.

    Returns:
        The positives of each query that has some, and all candidates that survive.
    """
    survivors, _ = filter_by_consensus(aggregate_votes(votes), confidence=confidence)
    return positives_by_query(survivors), survivors


@dataclass(frozen=True, slots=True)
class FamilyEffect:
    """Agreement within and between families of judges.

    Attributes:
        judges: family to the number of its judges.
        accept: family to the share of its votes that accept.
        within: share of equal votes, over pairs of judges of one family.
        between: the same over pairs of judges of different families.
        contradicted: family to the share of the pairs accepted by all its judges that no judge of another family
            accepts: perhaps a blind spot of one of them.
        alone: family to the output of stage 5 when only it judges.
    """

    judges: Mapping[str, int]
    accept: Mapping[str, Estimate]
    within: Estimate
    between: Estimate
    contradicted: Mapping[str, Estimate]
    alone: Mapping[str, ConsensusChange]


def family_effect(votes: Sequence[Vote], family_of: Callable[[str], str], *, confidence: float = 1.0) -> FamilyEffect:
    """Compare families of judges.

    Args:
        votes: of a panel of two families or more.
        family_of: a judge's name to its family.
        confidence: of stage 5.

    Raises:
        CircusError: all judges are of one family.
    """
    ratings, queries = vote_ratings(votes), _queries(votes)
    families = np.array([family_of(judge) for judge in ratings.raters])
    names = list(dict.fromkeys(families.tolist()))
    if len(names) < 2:
        raise CircusError(f"the effect of families takes judges of two or more; all are of {names}")
    place = np.array([queries[query] for query, _ in dict.fromkeys((vote.query, vote.image) for vote in votes)])
    accepts, given = ratings.codes == _CATEGORIES.index(JudgeDecision.ACCEPT), ratings.codes != MISSING
    same, other = (_pairs_of_judges(families, equal=equal) for equal in (True, False))
    contradicted = {}
    for name in names:
        own = families == name
        by_all = accepts[:, own].all(axis=1)
        contradicted[name] = _share(by_all & ~accepts[:, ~own].any(axis=1), by_all, place, len(queries))
    whole, _ = positives_of(votes, confidence=confidence)
    return FamilyEffect(
        judges={name: int((families == name).sum()) for name in names},
        accept={
            name: _share(accepts[:, families == name], np.ones_like(given[:, families == name]), place, len(queries))
            for name in names
        },
        within=_agreement(ratings.codes, same, place, len(queries)),
        between=_agreement(ratings.codes, other, place, len(queries)),
        contradicted=contradicted,
        alone={
            name: _change(votes, {judge for judge in ratings.raters if family_of(judge) == name}, whole, confidence)
            for name in names
        },
    )


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """Analysis of one LLM-as-a-judge panel.

    Attributes:
        rates: judge to its rates.
        agreement: coefficients over all judges.
        matrix: each judge with each other one.
        leave_one_out: judge to the output of stage 5 without it.
        families: None where all judges are of one family.
    """

    rates: Mapping[str, JudgeRates]
    agreement: Mapping[Statistic, Coefficient]
    matrix: RaterMatrix
    leave_one_out: Mapping[str, ConsensusChange]
    families: FamilyEffect | None

    def to_dict(self) -> dict[str, Any]:
        """Convert to strict JSON; an undefined kappa is None."""
        return {
            "rates": to_plain(self.rates),
            "agreement": to_plain(self.agreement),
            "pairs": [
                {"judges": [self.matrix.raters[a], self.matrix.raters[b]], "shared": int(self.matrix.shared[a, b]),
                 "agreement": _number(self.matrix.agreement[a, b]), "kappa": _number(self.matrix.kappa[a, b])}
                for a, b in itertools.combinations(range(len(self.matrix.raters)), 2)
            ],
            "leave_one_out": to_plain(self.leave_one_out),
            "families": to_plain(self.families),
        }  # fmt: skip


def judge_report(
    votes: Sequence[Vote], *, family_of: Callable[[str], str] | None = None, confidence: float = 1.0
) -> JudgeReport:
    """Analyze the votes of a panel.

    Args:
        votes: stage 4's.
        family_of: a judge's name to its family; without it, or with one family, there is no effect of families.
        confidence: of stage 5.

    Raises:
        CircusError: there is one judge only.
    """
    ratings = vote_ratings(votes)
    several = family_of is not None and len({family_of(judge) for judge in ratings.raters}) > 1
    return JudgeReport(
        rates=judge_rates(votes),
        agreement=agreement(ratings),
        matrix=rater_matrix(ratings),
        leave_one_out=leave_one_judge_out(votes, confidence=confidence),
        families=family_effect(votes, family_of, confidence=confidence) if family_of and several else None,
    )


def _queries(votes: Iterable[Vote]) -> dict[str, int]:
    return {query: place for place, query in enumerate(dict.fromkeys(vote.query for vote in votes))}


def _change(
    votes: Sequence[Vote], judges: Collection[str], whole: Mapping[str, Sequence[str]], confidence: float
) -> ConsensusChange:
    left = [vote for vote in votes if vote.judge in judges]
    survivors, deleted = filter_by_consensus(aggregate_votes(left), confidence=confidence)
    found = positives_by_query(survivors)
    before, after = _pairs(whole), _pairs(found)
    return ConsensusChange(len(judges), len(found), len(after), len(after - before), len(before - after), len(deleted))


def _pairs(positives: Mapping[str, Sequence[str]]) -> set[Pair]:
    return {(query, image) for query, images in positives.items() for image in images}


def _pairs_of_judges(families: NDArray[np.str_], *, equal: bool) -> list[tuple[int, int]]:
    pairs = itertools.combinations(range(len(families)), 2)
    return [(a, b) for a, b in pairs if bool(families[a] == families[b]) is equal]


def _agreement(
    codes: NDArray[np.int16], pairs: Sequence[tuple[int, int]], place: NDArray[np.int64], n_queries: int
) -> Estimate:
    """Compute the share of equal votes of some pairs of judges, where both voted."""
    a, b = ([pair[side] for pair in pairs] for side in (0, 1))
    both = (codes[:, a] != MISSING) & (codes[:, b] != MISSING)
    return _share(both & (codes[:, a] == codes[:, b]), both, place, n_queries)


def _share(parts: NDArray[Any], wholes: NDArray[Any], place: NDArray[np.int64], n_queries: int) -> Estimate:
    """Compute a share of candidates (and judges) by query: bool [n_candidates, ...] each, each candidate's query."""

    def summed(values: NDArray[Any]) -> NDArray[np.float64]:
        of_candidate = values.reshape(len(values), -1).sum(axis=1)
        return np.bincount(place, of_candidate, minlength=n_queries).astype(np.float64)

    return ratio(summed(parts), summed(wholes))


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
