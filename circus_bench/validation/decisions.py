"""Aggregate the annotations of several raters into one decision per item, under a rule that is written down.

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
from circus_bench.validation.annotations import Annotation, AnnotatorRole, latest
from circus_bench.validation.dawid_skene import DawidSkene
from circus_bench.validation.ratings import MISSING, Ratings, blind_annotations, counted_items, label_ratings
from circus_bench.validation.rubric import Rubric
from circus_bench.validation.study import Item, Study


class DecisionRule(StrEnum):
    """Rule by which the annotations of an item are aggregated. Each asks for a quorum of raters; see `decide`."""

    MAJORITY = "majority"
    """Majority vote: valid if more than half of the raters say so, not valid if more than half say otherwise; a tie is
    undecided."""
    UNANIMOUS = "unanimous"
    """Valid if all raters say so, not valid if none does; anything else is undecided."""
    ADJUDICATED = "adjudicated"
    """By adjudication, the majority's if there are several adjudicators; where there are none, as `unanimous`."""
    DAWID_SKENE = "dawid_skene"
    """By the posterior of "valid", in which raters count by their estimated error rates."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Aggregated annotations of one item.

    Attributes:
        item: its id.
        benchmark: name of the query's benchmark.
        query: its id there.
        stratum: what it was drawn from.
        valid: whether the query is sound; None while undecided.
        label: the rubric's label; empty while undecided. Of a query that is not valid it is the label that most of the
            annotations that decide give, the most severe one of several; empty if none of them says what is wrong.
        votes: each of the rubric's labels to the number of raters who gave it.
        posterior: probability that the query is valid, given all annotations of the study under Dawid and Skene's
            model, whatever the rule; None for an item that nobody judged, and where the study cannot tell good raters
            from bad ones (no item with two annotations, no check item).
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
    annotations: Iterable[Annotation],
    *,
    rule: DecisionRule = DecisionRule.MAJORITY,
    quorum: int = 2,
    certainty: float = 0.5,
) -> list[Decision]:
    """Decide each item of a study that is counted (`circus_bench.validation.ratings.counted_items`), in its order.

    Args:
        study: what was judged.
        annotations: the event log, of which the latest versions are taken.
        rule: the rule.
        quorum: raters that an item needs; with fewer it is undecided, unless an adjudicator decides. A study with one
            label per item has to say 1.
        certainty: for `dawid_skene`, valid above this posterior and not valid below 1 minus it; from 0.5 to 1.

    Raises:
        MismatchError: the annotations are about another study.
        CircusError: the quorum or the certainty is out of range.
    """
    if quorum < 1 or not 0.5 <= certainty < 1:
        raise CircusError(f"quorum {quorum} must be 1 or more, certainty {certainty} from 0.5 to below 1")
    log = list(annotations)
    of_item: dict[str, list[Annotation]] = {item.id: [] for item in study.items}
    for annotation in blind_annotations(study, log):
        of_item[annotation.item].append(annotation)
    adjudications: dict[str, list[Annotation]] = {}
    for annotation in latest(log):
        if annotation.role is AnnotatorRole.ADJUDICATOR:
            adjudications.setdefault(annotation.item, []).append(annotation)
    posteriors = validity_posteriors(study, log)
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


def fit_rater_model(study: Study, annotations: Iterable[Annotation]) -> tuple[Ratings, DawidSkene] | None:
    """Fit Dawid and Skene's model to "valid or not": how often each rater errs, and how probably each item is valid.

    Check items take part with their known answers.

    Returns:
        The table that was fitted (category 0 is valid; the counted items, then the check items) and the model; None
        where the study cannot tell good raters from bad ones: no item has two annotations, and no check item has any.

    Raises:
        MismatchError: the annotations are about another study.
    """
    items = (*counted_items(study), *(item for item in study.items if item.is_check))
    ratings = label_ratings(study, annotations, items=items).one_vs_rest(study.rubric.valid)
    known = np.array([MISSING if not item.known else int(item.known != study.rubric.valid) for item in items], int)
    rated = (ratings.codes != MISSING).sum(axis=1)
    if not (rated >= 2).any() and not rated[known != MISSING].any():
        return None
    return ratings, dawid_skene.fit(ratings, known=known)


def validity_posteriors(study: Study, annotations: Iterable[Annotation]) -> dict[str, float]:
    """Compute how probably each annotated item is valid; see `fit_rater_model` and `Decision.posterior`."""
    fitted = fit_rater_model(study, annotations)
    if fitted is None:
        return {}
    ratings, model = fitted
    judged = (ratings.codes != MISSING).any(axis=1).tolist()
    values = model.posterior[:, 0].tolist()
    return {item: value for item, value, has in zip(ratings.items, values, judged, strict=True) if has}


def _majority(rubric: Rubric, annotations: Sequence[Annotation]) -> bool | None:
    votes = sum(annotation.label == rubric.valid for annotation in annotations)
    return None if 2 * votes == len(annotations) else 2 * votes > len(annotations)


def _unanimous(rubric: Rubric, annotations: Sequence[Annotation]) -> bool | None:
    votes = {annotation.label == rubric.valid for annotation in annotations}
    return votes.pop() if len(votes) == 1 else None


def _by_posterior(posterior: float | None, certainty: float) -> bool | None:
    if posterior is None:
        return None
    # A posterior of one half that rounding has moved is still a tie.
    if math.isclose(posterior, 0.5, abs_tol=1e-9) or max(posterior, 1 - posterior) < certainty:
        return None
    return posterior > 0.5


def _label(rubric: Rubric, annotations: Sequence[Annotation], valid: bool | None) -> str:
    if valid is None:
        return ""
    severity = {step.label: step.severity for step in rubric.steps}
    votes = Counter(annotation.label for annotation in annotations if annotation.label != rubric.valid)
    # The model may doubt an item that all its raters called valid: then there is no label that says what is wrong.
    return rubric.valid if valid else max(votes, key=lambda label: (votes[label], severity[label]), default="")


def _decision(
    study: Study,
    item: Item,
    blind: Sequence[Annotation],
    valid: bool | None,
    label: str,
    *,
    posterior: float | None,
    adjudicated: bool,
) -> Decision:
    n, rubric = len(blind), study.rubric
    labels = Counter(annotation.label for annotation in blind)
    flags = Counter(flag for annotation in blind for flag in set(annotation.flags))
    reasons = Counter(reason for annotation in blind for reason in set(annotation.reasons))
    clicks = Counter(image for annotation in blind for image in set(annotation.alternatives))
    answers = {
        entry.id: [annotation.answers[entry.id] for annotation in blind if entry.id in annotation.answers]
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
