"""Decisions: what the judgements of several people come to, item by item, under a rule that is written down.

Ties are never broken by chance or by order: an item that the rule does not settle is undecided.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from circus_bench.errors import CircusError
from circus_bench.validation import dawid_skene
from circus_bench.validation.annotations import Judgement, Role, in_force
from circus_bench.validation.dawid_skene import DawidSkene
from circus_bench.validation.ratings import MISSING, Ratings, blind_judgements, counted_items, label_ratings
from circus_bench.validation.rubric import Rubric
from circus_bench.validation.study import Item, Study


class DecisionRule(StrEnum):
    """How the judgements of an item come to one decision. Each asks for a quorum of raters; see `decide`."""

    MAJORITY = "majority"
    """Valid if more than half of the raters say so, not valid if more than half say otherwise; a tie is undecided."""
    UNANIMOUS = "unanimous"
    """Valid if all raters say so, not valid if none does; anything else is undecided."""
    ADJUDICATED = "adjudicated"
    """As the adjudicators say (the majority, if there are several); where there are none, as `unanimous`."""
    DAWID_SKENE = "dawid_skene"
    """By the posterior of "valid", in which raters count by their estimated error rates."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the judgements of one item come to.

    Attributes:
        item: its id.
        benchmark: name of the query's benchmark.
        query: its id there.
        stratum: what it was drawn from.
        valid: whether the query is sound; None while undecided.
        label: the rubric's label; empty while undecided. Of a query that is not valid it is the label that most of the
            judgements that decide give, the most severe one of several; empty if none of them says what is wrong.
        votes: each of the rubric's labels to the number of raters who gave it.
        posterior: probability that the query is valid, given all judgements of the study under Dawid and Skene's model,
            whatever the rule; None for an item that nobody judged, and where the study cannot tell good raters from bad
            ones (no item with two judgements, no check item).
        flags: ids of the steps that more than half of the raters flagged.
        raters: number of raters.
        adjudicated: whether an adjudicator decided.
        weight: inverse of the probability with which the item was drawn.
        reasons: reason id to the number of raters who gave it.
        answers: follow-up id to the share of yes among the raters who answered it.
        alternatives: gallery id to the share of raters who clicked it, the greatest first: graded relevance.
    """

    item: str
    benchmark: str
    query: str
    stratum: str
    valid: bool | None
    label: str
    votes: Mapping[str, int]
    posterior: float | None
    flags: tuple[str, ...]
    raters: int
    adjudicated: bool
    weight: float
    reasons: Mapping[str, int]
    answers: Mapping[str, float]
    alternatives: Mapping[str, float]


def decide(
    study: Study,
    judgements: Iterable[Judgement],
    *,
    rule: DecisionRule = DecisionRule.MAJORITY,
    quorum: int = 2,
    certainty: float = 0.5,
) -> list[Decision]:
    """Decide each item of a study that is counted (`circus_bench.validation.ratings.counted_items`), in its order.

    Args:
        study: what was judged.
        judgements: the event log; those in force are taken.
        rule: the rule.
        quorum: raters that an item needs; with fewer it is undecided, unless an adjudicator decides. A study with one
            label for each item has to say 1.
        certainty: for `dawid_skene`, valid above this posterior and not valid below 1 minus it; from 0.5 to 1.

    Raises:
        MismatchError: the judgements are about another study.
        CircusError: the quorum or the certainty is out of range.
    """
    if quorum < 1 or not 0.5 <= certainty < 1:
        raise CircusError(f"quorum {quorum} must be 1 or more, certainty {certainty} from 0.5 to below 1")
    log = list(judgements)
    of_item: dict[str, list[Judgement]] = {item.id: [] for item in study.items}
    for judgement in blind_judgements(study, log):
        of_item[judgement.item].append(judgement)
    adjudications: dict[str, list[Judgement]] = {}
    for judgement in in_force(log):
        if judgement.role is Role.ADJUDICATOR:
            adjudications.setdefault(judgement.item, []).append(judgement)
    posteriors = posteriors_of_valid(study, log)
    decided = []
    for item in counted_items(study):
        blind, posterior = of_item[item.id], posteriors.get(item.id)
        deciding = adjudications.get(item.id, []) if rule is DecisionRule.ADJUDICATED else []
        adjudicated = bool(deciding)
        if adjudicated:
            valid = _majority(study.rubric, deciding)
        elif len(blind) < quorum:
            valid = None
        elif rule is DecisionRule.MAJORITY:
            valid = _majority(study.rubric, blind)
        elif rule is DecisionRule.DAWID_SKENE:
            valid = _by_posterior(posterior, certainty)
        else:
            valid = _unanimous(study.rubric, blind)
        label = _label(study.rubric, deciding or blind, valid)
        decided.append(_decision(study, item, blind, valid, label, posterior=posterior, adjudicated=adjudicated))
    return decided


def rater_model(study: Study, judgements: Iterable[Judgement]) -> tuple[Ratings, DawidSkene] | None:
    """Fit Dawid and Skene's model to "valid or not": how often each rater errs, and how probably each item is valid.

    Check items take part with their known answers.

    Returns:
        The table that was fitted (category 0 is valid; the counted items, then the check items) and the model; None
        where the study cannot tell good raters from bad ones: no item has two judgements, and no check item has any.

    Raises:
        MismatchError: the judgements are about another study.
    """
    checks = tuple(item for item in study.items if item.known and not item.training)
    items = counted_items(study) + checks
    ratings = label_ratings(study, judgements, items=items).against_rest(study.rubric.valid)
    known = np.array([MISSING if not item.known else int(item.known != study.rubric.valid) for item in items], int)
    rated = (ratings.codes != MISSING).sum(axis=1)
    if not (rated >= 2).any() and not rated[known != MISSING].any():
        return None
    return ratings, dawid_skene.fit(ratings, known=known)


def posteriors_of_valid(study: Study, judgements: Iterable[Judgement]) -> dict[str, float]:
    """For each item with a judgement the probability that it is valid; see `rater_model` and `Decision.posterior`."""
    fitted = rater_model(study, judgements)
    if fitted is None:
        return {}
    ratings, model = fitted
    judged = (ratings.codes != MISSING).any(axis=1).tolist()
    values = model.posterior[:, 0].tolist()
    return {item: value for item, value, has in zip(ratings.items, values, judged, strict=True) if has}


def _majority(rubric: Rubric, judgements: Sequence[Judgement]) -> bool | None:
    votes = sum(judgement.label == rubric.valid for judgement in judgements)
    return None if 2 * votes == len(judgements) else 2 * votes > len(judgements)


def _unanimous(rubric: Rubric, judgements: Sequence[Judgement]) -> bool | None:
    votes = {judgement.label == rubric.valid for judgement in judgements}
    return votes.pop() if len(votes) == 1 else None


def _by_posterior(posterior: float | None, certainty: float) -> bool | None:
    if posterior is None:
        return None
    # A posterior of one half that rounding has moved is still a tie.
    if math.isclose(posterior, 0.5, abs_tol=1e-9) or max(posterior, 1 - posterior) < certainty:
        return None
    return posterior > 0.5


def _label(rubric: Rubric, judgements: Sequence[Judgement], valid: bool | None) -> str:
    if valid is None:
        return ""
    severity = {step.label: step.severity for step in rubric.steps}
    votes = Counter(judgement.label for judgement in judgements if judgement.label != rubric.valid)
    # The model may doubt an item that all its raters called valid: then there is no label that says what is wrong.
    return rubric.valid if valid else max(votes, key=lambda label: (votes[label], severity[label]), default="")


def _decision(
    study: Study,
    item: Item,
    blind: Sequence[Judgement],
    valid: bool | None,
    label: str,
    *,
    posterior: float | None,
    adjudicated: bool,
) -> Decision:
    n, rubric = len(blind), study.rubric
    labels = Counter(judgement.label for judgement in blind)
    flags = Counter(flag for judgement in blind for flag in set(judgement.flags))
    reasons = Counter(reason for judgement in blind for reason in set(judgement.reasons))
    clicks = Counter(image for judgement in blind for image in set(judgement.alternatives))
    answers = {
        entry.id: [judgement.answers[entry.id] for judgement in blind if entry.id in judgement.answers]
        for entry in rubric.follow_ups
    }
    return Decision(
        item=item.id,
        benchmark=item.benchmark,
        query=item.query,
        stratum=item.stratum,
        valid=valid,
        label=label,
        votes={name: labels[name] for name in rubric.labels},
        posterior=posterior,
        flags=tuple(step.id for step in rubric.steps if 2 * flags[step.id] > n),
        raters=n,
        adjudicated=adjudicated,
        weight=1 / item.inclusion,
        reasons=dict(sorted(reasons.items())),
        answers={name: sum(given) / len(given) for name, given in answers.items() if given},
        alternatives={image: clicks[image] / n for image in sorted(clicks, key=lambda image: (-clicks[image], image))},
    )
