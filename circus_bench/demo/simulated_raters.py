"""Simulated raters: they know what is planted in the scenes benchmark, and err at set rates.

What they make shows whether the way from judgements to the subset V works, and how many errors of raters it stands. It
says nothing about people: real errors are not independent of each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from circus_bench.audit.audit import Audit
from circus_bench.audit.statistics import Estimate, proportion
from circus_bench.benchmark import Benchmark
from circus_bench.errors import BenchmarkError, CircusError, MismatchError
from circus_bench.io import slug, write_json
from circus_bench.metrics.shortcut import Label
from circus_bench.sources.scenes import Kind, truth
from circus_bench.sources.scenes.language import fulfils
from circus_bench.sources.scenes.plants import Plant, plant
from circus_bench.validation.agreement import Coefficient, Statistic, study_agreement
from circus_bench.validation.annotations import LOG_FILE, Judgement, write_judgements
from circus_bench.validation.decisions import Decision, DecisionRule, decide
from circus_bench.validation.export import agreement_dict, export_verdicts
from circus_bench.validation.hash_order import fraction
from circus_bench.validation.panel import DEFAULT_K
from circus_bench.validation.rubric import Rubric
from circus_bench.validation.sampling import Frame, new_study
from circus_bench.validation.study import Item, Study

FAILS = {Kind.TOO_BROAD: "breadth", Kind.INVALID_TARGET: "target", Kind.INVALID_TEXT: "text"}
"""The step of the CIRCUS rubric that a planted query fails; the other kinds are valid."""

_ALONE = {Kind.TEXT_SHORTCUT: "text_alone", Kind.IMAGE_SHORTCUT: "image_alone"}
_START = datetime(2026, 1, 1, 9, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Oracle:
    """How a simulated rater errs.

    Attributes:
        misses: chance to call an invalid query valid.
        false_alarms: chance to call a valid query invalid, under any label.
        confusion: chance that an invalid query which is found goes under another label than its own.
        overlooked: chance not to click an image of the panel that answers the query as well.
        strays: chance to click an image that does not.
        seconds: median time for a judgement.
        spread: standard deviation of the logarithm of that time.

    Raises:
        CircusError: a chance is no number from 0 to 1, or a time is not positive.
    """

    misses: float = 0.1
    false_alarms: float = 0.1
    confusion: float = 0.1
    overlooked: float = 0.3
    strays: float = 0.01
    seconds: float = 40.0
    spread: float = 0.5

    def __post_init__(self) -> None:
        chances = {
            name: getattr(self, name) for name in ("misses", "false_alarms", "confusion", "overlooked", "strays")
        }
        wrong = [f"{name} = {chance}" for name, chance in chances.items() if not 0 <= chance <= 1]
        if wrong or self.seconds <= 0 or self.spread < 0:
            raise CircusError(
                f"a simulated rater needs chances from 0 to 1 and a positive time: {', '.join(wrong) or self.seconds}"
            )


class Planted:
    """What is true of the queries of a scenes benchmark, to the last image that would answer one as well.

    Args:
        benchmark: made by `circus_bench.sources.scenes.scenes`; annotations are enough.

    Raises:
        BenchmarkError: it is another benchmark, a part of it, or of another version of the generator.
    """

    def __init__(self, benchmark: Benchmark) -> None:
        try:
            settings = {name: int(benchmark.source[name]) for name in ("seed", "queries", "gallery")}
        except (KeyError, TypeError, ValueError) as error:
            raise BenchmarkError(
                f"benchmark {benchmark.name!r} is not `scenes`, so nothing is planted in it ({error!r})"
            ) from error
        planting = plant(**settings)
        if [planted.text for planted in planting.plants] != [query.text for query in benchmark.queries]:
            raise BenchmarkError(
                f"benchmark {benchmark.name!r} was cut, or made by another version of the generator; make it anew"
            )
        self._scene_of = dict(zip(benchmark.gallery.ids, planting.scenes, strict=True))
        ids = [query.id for query in benchmark.queries]
        self._plant_of: dict[str, Plant] = dict(zip(ids, planting.plants, strict=True))
        self._target_of = {query.id: query.targets[0] for query in benchmark.queries}

    def fails(self, query: str) -> str:
        """The step of the rubric that a query fails; empty for a valid one."""
        return FAILS.get(self._plant_of[query].kind, "")

    def alone(self, query: str) -> str:
        """The follow-up question to answer with yes; empty where there is none."""
        return _ALONE.get(self._plant_of[query].kind, "")

    def answered_by(self, query: str, image: str) -> bool:
        """Whether an image answers a query as well as its target does."""
        planted, scene = self._plant_of[query], self._scene_of[image]
        if planted.kind in (Kind.INVALID_TARGET, Kind.INVALID_TEXT):
            return False
        if planted.kind in (Kind.TEXT_SHORTCUT, Kind.TOO_BROAD):
            return fulfils(scene, planted.claims)
        return scene == self._scene_of[self._target_of[query]]

    def targets(self, query: str) -> tuple[str, ...]:
        """The query's target."""
        return (self._target_of[query],)


def planted_labels(benchmark: Benchmark, *, k: int = DEFAULT_K) -> dict[str, Label]:
    """Query id to the label that an ideal pool gives it in the scenes benchmark; what chance decides is left out.

    Raises:
        BenchmarkError: the benchmark is another one.
    """
    labels = {query.id: truth(query, k) for query in benchmark.queries}
    return {query: Label(label) for query, label in labels.items() if label is not None}


def simulate(
    study: Study, planted: Mapping[str, Planted], raters: Mapping[str, Oracle], *, seed: int = 0
) -> list[Judgement]:
    """Let simulated raters judge what is assigned to them. The same arguments give the same judgements.

    A rater's judgement of an item depends on nothing but the seed, the rater and the item.

    Args:
        study: over scenes benchmarks.
        planted: benchmark name to what is true of it.
        raters: rater to how they err; one for each of the study's.
        seed: of the errors.

    Returns:
        The judgements by their times; each rater works without a break from the same start.

    Raises:
        MismatchError: a rater or a benchmark of the study is missing, or the rubric lacks a step that queries fail.
    """
    lacking = [rater for rater in study.assignments if rater not in raters]
    lacking += sorted({item.benchmark for item in study.items} - planted.keys())
    lacking += [step for step in FAILS.values() if step not in {s.id for s in study.rubric.steps}]
    if lacking:
        raise MismatchError(f"study {study.name!r} cannot be simulated: no {', '.join(map(repr, lacking))} is given")
    item_of = {item.id: item for item in study.items}
    made = []
    for rater, ids in study.assignments.items():
        clock = 0.0
        for item_id in ids:
            item = item_of[item_id]
            judgement = _judge(item, study.rubric, planted[item.benchmark], raters[rater], (seed, rater, item_id))
            clock += judgement.seconds
            time = (_START + timedelta(seconds=clock)).isoformat(timespec="seconds")
            made.append(dataclasses.replace(judgement, rater=rater, event=f"{rater}/{item_id}/1", time=time))
    return sorted(made, key=lambda judgement: (judgement.time, judgement.rater))


def _judge(item: Item, rubric: Rubric, planted: Planted, oracle: Oracle, key: tuple[object, ...]) -> Judgement:
    def chance(*what: str) -> float:
        return fraction(*key, *what)

    def one_of(choices: Sequence[str], what: str) -> str:
        return choices[int(chance(what) * len(choices))]

    fails = planted.fails(item.query)
    steps = [step.id for step in rubric.steps]
    if not fails:
        flag = one_of(steps, "label") if chance("valid") < oracle.false_alarms else ""
    elif chance("valid") < oracle.misses:
        flag = ""
    else:
        confused = chance("confused") < oracle.confusion
        flag = one_of([step for step in steps if step != fails], "label") if confused else fails
    reasons = next((tuple(step.reasons) for step in rubric.steps if step.id == flag), ())
    deviation = NormalDist().inv_cdf(min(max(chance("seconds"), 1e-6), 1 - 1e-6))
    return Judgement(
        item=item.id,
        rater="",
        label=rubric.label_of({flag} - {""}),
        flags=(flag,) if flag else (),
        reasons=(f"{flag}.{one_of(reasons, 'reason')}",) if reasons else (),
        answers={} if flag else {entry.id: entry.id == planted.alone(item.query) for entry in rubric.follow_ups},
        alternatives=tuple(
            image
            for image in item.panel
            if image not in planted.targets(item.query)
            and chance("click", image)
            < (1 - oracle.overlooked if planted.answered_by(item.query, image) else oracle.strays)
        ),
        seconds=round(oracle.seconds * np.exp(oracle.spread * deviation).item(), 1),
    )


@dataclass(frozen=True, slots=True)
class Recovery:
    """How well the decisions recover which queries are valid.

    Attributes:
        precision: share of planted valid queries among those decided valid.
        recall: share of those decided valid among the planted valid ones.
        undecided: queries without a decision; they are not in V.
    """

    precision: Estimate
    recall: Estimate
    undecided: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "precision": self.precision.to_dict(),
            "recall": self.recall.to_dict(),
            "undecided": self.undecided,
        }


def recovery(study: Study, decisions: Iterable[Decision], planted: Mapping[str, Planted]) -> Recovery:
    """Hold decisions against the planted truth, with Wilson's intervals.

    Args:
        study: what was judged.
        decisions: one an item.
        planted: benchmark name to what is true of it.
    """
    item_of = {item.id: item for item in study.items}
    decided = list(decisions)
    valid = np.array([decision.valid is True for decision in decided], bool)
    items = [item_of[decision.item] for decision in decided]
    sound = np.array([not planted[item.benchmark].fails(item.query) for item in items], bool)
    undecided = sum(decision.valid is None for decision in decided)
    return Recovery(proportion(sound[valid]), proportion(valid[sound]), undecided)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A study that simulated raters have judged.

    Attributes:
        study: what was judged.
        error: the chance of each rater to call a query valid that is not, and the other way round.
        rule: how the decisions were come to.
        judgements: by their times.
        decisions: one an item.
        agreement: by question; see `circus_bench.validation.agreement.study_agreement`.
        recovery: the decisions held against the planted truth.
    """

    study: Study
    error: float
    rule: DecisionRule
    judgements: tuple[Judgement, ...]
    decisions: tuple[Decision, ...]
    agreement: Mapping[str, Mapping[Statistic, Coefficient]]
    recovery: Recovery

    def valid(self, benchmark: str) -> tuple[str, ...]:
        """Ids of a benchmark's queries that were decided to be valid."""
        return tuple(d.query for d in self.decisions if d.benchmark == benchmark and d.valid)

    def save(self, folder: Path, benchmarks: Mapping[str, Benchmark]) -> None:
        """Write `judgements.jsonl`, `rehearsal.json`, and each benchmark's verdicts twice.

        Args:
            folder: the folder.
            benchmarks: those of the study; their verdicts are `<name>.v.parquet` and `<name>.v.json`.
        """
        write_judgements(folder / LOG_FILE, self.judgements)
        write_json(folder / "rehearsal.json", self.to_dict())
        for name in benchmarks:
            for suffix in ("parquet", "json"):
                path = folder / f"{slug(name)}.v.{suffix}"
                export_verdicts(path, self.study, self.decisions, benchmark=name, sources=benchmarks, rule=self.rule)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the judgements and decisions, for strict JSON."""
        return {
            "error": self.error,
            "rule": self.rule.value,
            "recovery": self.recovery.to_dict(),
            "agreement": agreement_dict(self.agreement),
        }


def rehearse(
    study: Study,
    planted: Mapping[str, Planted],
    *,
    error: float,
    seed: int = 0,
    rule: DecisionRule = DecisionRule.MAJORITY,
) -> Rehearsal:
    """Let raters of one error rate judge a study, decide, and hold the decisions against the planted truth.

    Args:
        study: over scenes benchmarks.
        planted: benchmark name to what is true of it.
        error: chance of each rater to call an invalid query valid, and a valid one invalid.
        seed: of the errors.
        rule: how the judgements come to decisions.

    Raises:
        CircusError: the error is no number from 0 to 1.
        MismatchError: see `simulate`.
    """
    raters = dict.fromkeys(study.assignments, Oracle(misses=error, false_alarms=error))
    judgements = simulate(study, planted, raters, seed=seed)
    decisions = decide(study, judgements, rule=rule)
    return Rehearsal(
        study=study,
        error=error,
        rule=rule,
        judgements=tuple(judgements),
        decisions=tuple(decisions),
        agreement=study_agreement(study, judgements),
        recovery=recovery(study, decisions, planted),
    )


def rehearse_audit(
    audit: Audit, benchmark: Benchmark, *, folder: str, error: float = 0.1, n_raters: int = 3, seed: int = 0
) -> tuple[Audit, Rehearsal]:
    """Let simulated raters judge all shortcut-free queries of an audit, and add the scores on what they find valid.

    Args:
        audit: of Runs on the benchmark.
        benchmark: made by `circus_bench.sources.scenes.scenes`.
        folder: where it is saved, relative to where the study is going to be.
        error: see `rehearse`.
        n_raters: all of them judge every query.
        seed: of the study and of the errors.

    Raises:
        MismatchError: the audit is about another benchmark.
        CircusError: no query is shortcut-free.
    """
    labels = dict(zip(audit.pool.queries, map(Label, audit.labels.labels.tolist()), strict=True))
    raters = [f"rater-{place}" for place in range(1, n_raters + 1)]
    frame = Frame(benchmark, folder, labels, runs=audit.runs)
    study = new_study("simulated raters", [frame], raters=raters, per_item=n_raters, seed=seed)
    rehearsal = rehearse(study, {benchmark.name: Planted(benchmark)}, error=error, seed=seed)
    how = f"simulated: {n_raters} raters, each wrong with chance {error:g}, decided by {rehearsal.rule}"
    return audit.with_validated(rehearsal.valid(benchmark.name), how=how), rehearsal
