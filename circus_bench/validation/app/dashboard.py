"""Summarize a study for its owner's dashboard: progress, inter-annotator agreement, speed, drift, and anomalies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from circus_bench.audit.statistics import Estimate
from circus_bench.validation.agreement import Coefficient, Statistic, agreement
from circus_bench.validation.annotation_log import Access, AnnotationLog, Person
from circus_bench.validation.annotations import Annotation, AnnotatorRole, latest
from circus_bench.validation.app.pages import duration
from circus_bench.validation.app.worklist import Worklists
from circus_bench.validation.rater_anomalies import (
    Window,
    check_item_accuracy,
    drift_windows,
    find_anomalies,
    rater_paces,
)
from circus_bench.validation.ratings import counted_items, label_ratings
from circus_bench.validation.study import Study

STATISTICS = {
    Statistic.RAW: "raw agreement",
    Statistic.KRIPPENDORFF: "Krippendorff's alpha",
    Statistic.FLEISS: "Fleiss' kappa",
    Statistic.COHEN: "mean Cohen's kappa",
    Statistic.AC1: "Gwet's AC1",
}


def overview(study: Study, log: AnnotationLog) -> dict[str, Any]:
    """Compute the context of the dashboard's template."""
    annotations = log.annotations()
    worklists = Worklists(study, log)
    labels = label_ratings(study, annotations)
    questions = {"label": labels, "valid or not": labels.one_vs_rest(study.rubric.valid)}
    return {
        "raters": _raters(study, log, worklists, annotations),
        "statistics": list(STATISTICS.values()),
        "agreement": {
            question: [_coefficient(found[statistic]) for statistic in STATISTICS]
            for question, found in ((name, agreement(table)) for name, table in questions.items())
        },
        "overlap": int((labels.counts.sum(axis=1) > 1).sum()),
        "labels": _labels(study, annotations),
        "drift": {
            rater: [_window(window) for window in row] for rater, row in drift_windows(study, annotations).items()
        },
        "anomalies": find_anomalies(study, annotations),
        "disputed": _disputed(worklists, annotations),
        "annotations": len(annotations),
    }


def _raters(
    study: Study, log: AnnotationLog, worklists: Worklists, annotations: Sequence[Annotation]
) -> list[dict[str, Any]]:
    pace, checks = rater_paces(study, annotations), check_item_accuracy(study, annotations)
    rows = []
    for rater in study.assignments:
        person = Person(rater, Access.RATER)
        work, trail = worklists.of(person), log.trail(person)
        of_rater = pace.get(rater)
        rows.append(
            {
                "name": rater,
                "done": work.done,
                "total": work.total,
                "later": len(work.later),
                "median": duration(of_rater.median) if of_rater and of_rater.n else "none yet",
                "spread": f"{duration(of_rater.low)} to {duration(of_rater.high)}" if of_rater and of_rater.n else "",
                "hasty": of_rater.hasty if of_rater else 0,
                "checks": _share(checks[rater]) if rater in checks else "none yet",
                "last": trail[-1].time[:16].replace("T", " ") if trail else "never",
            }
        )
    return rows


def _labels(study: Study, annotations: Sequence[Annotation]) -> list[tuple[str, int]]:
    counted = {item.id for item in counted_items(study)}
    given = [a.label for a in latest(annotations) if a.item in counted and a.role is AnnotatorRole.RATER]
    return [(label, given.count(label)) for label in study.rubric.labels]


def _disputed(worklists: Worklists, annotations: Sequence[Annotation]) -> dict[str, int]:
    disputed = worklists.disputed()
    decided = {annotation.item for annotation in annotations if annotation.role is AnnotatorRole.ADJUDICATOR}
    return {"all": len(disputed), "decided": len([item for item in disputed if item in decided])}


def _coefficient(coefficient: Coefficient) -> str:
    if math.isnan(coefficient.estimate.value):
        return f"undefined: {coefficient.status.value.replace('_', ' ')}"
    return f"{coefficient.estimate.value:.2f} [{coefficient.estimate.low:.2f}, {coefficient.estimate.high:.2f}]"


def _window(window: Window) -> dict[str, str]:
    return {
        "items": f"{window.start + 1} to {window.start + window.n}",
        "valid": _share(window.valid),
        "agreement": _share(window.agreement),
        "seconds": "none" if math.isnan(window.seconds) else duration(window.seconds),
    }


def _share(estimate: Estimate) -> str:
    if math.isnan(estimate.value):
        return "undefined"
    return f"{estimate.value:.0%} [{estimate.low:.0%}, {estimate.high:.0%}]"
