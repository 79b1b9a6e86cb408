"""The owner's dashboard: progress, agreement so far, speed and drift, and patterns to look at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from circus_bench.audit.statistics import Estimate
from circus_bench.validation.agreement import Coefficient, Statistic, agreement
from circus_bench.validation.annotation_log import Access, JudgementStore, Person
from circus_bench.validation.annotations import Judgement, Role, in_force
from circus_bench.validation.app.pages import duration
from circus_bench.validation.app.worklist import Desk
from circus_bench.validation.rater_anomalies import Window, known_answers, paces, suspicions, windows
from circus_bench.validation.ratings import label_ratings
from circus_bench.validation.study import Study

STATISTICS = {
    Statistic.RAW: "raw agreement",
    Statistic.KRIPPENDORFF: "Krippendorff's alpha",
    Statistic.FLEISS: "Fleiss' kappa",
    Statistic.COHEN: "mean Cohen's kappa",
    Statistic.AC1: "Gwet's AC1",
}


def overview(study: Study, store: JudgementStore) -> dict[str, Any]:
    """What the dashboard shows, for its template."""
    log = store.judgements()
    desk = Desk(study, store)
    labels = label_ratings(study, log)
    questions = {"label": labels, "valid or not": labels.against_rest(study.rubric.valid)}
    return {
        "raters": _raters(study, store, desk, log),
        "statistics": list(STATISTICS.values()),
        "agreement": {
            question: [_coefficient(found[statistic]) for statistic in STATISTICS]
            for question, found in ((name, agreement(table)) for name, table in questions.items())
        },
        "overlap": int((labels.counts.sum(axis=1) > 1).sum()),
        "labels": _labels(study, log),
        "drift": {rater: [_window(window) for window in row] for rater, row in windows(study, log).items()},
        "suspicions": suspicions(study, log),
        "disputed": _disputed(desk, log),
        "judgements": len(log),
    }


def _raters(study: Study, store: JudgementStore, desk: Desk, log: Sequence[Judgement]) -> list[dict[str, Any]]:
    pace, checks = paces(study, log), known_answers(study, log)
    rows = []
    for rater in study.assignments:
        person = Person(rater, Access.RATER)
        work, trail = desk.worklist(person), store.trail(person)
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


def _labels(study: Study, log: Sequence[Judgement]) -> list[tuple[str, int]]:
    counted = {item.id for item in study.items if not item.training and not item.known}
    given = [j.label for j in in_force(log) if j.item in counted and j.role is Role.RATER]
    return [(label, given.count(label)) for label in study.rubric.labels]


def _disputed(desk: Desk, log: Sequence[Judgement]) -> dict[str, int]:
    disputed = desk.disputed()
    decided = {judgement.item for judgement in log if judgement.role is Role.ADJUDICATOR}
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
