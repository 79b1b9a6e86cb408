"""Simulate raters who know the ground truth of the synthetic scenes benchmark, and err at set rates.

Their annotations show whether the way from annotations to the subset V works, and how many errors of raters it stands.
They say nothing about people: real errors are not independent of each other.
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

from circus_bench._typing import StrPath
from circus_bench.audit.audit import Audit
from circus_bench.audit.statistics import Estimate, proportion
from circus_bench.benchmark import Benchmark
from circus_bench.errors import BenchmarkError, CircusError, MismatchError
from circus_bench.io import slug, write_json
from circus_bench.metrics.shortcut import Label
from circus_bench.sources.scenes import QueryKind, expected_label
from circus_bench.sources.scenes.language import fulfills
from circus_bench.sources.scenes.synthetic import SyntheticQuery, make_synthetic_set
from circus_bench.validation.agreement import Coefficient, Statistic, study_agreement
from circus_bench.validation.annotations import LOG_FILE, Annotation, write_annotations
from circus_bench.validation.decisions import Decision, DecisionRule, decide
from circus_bench.validation.export import agreement_dict, export_verdicts
from circus_bench.validation.hash_order import hash_uniform
from circus_bench.validation.panel import DEFAULT_K
from circus_bench.validation.rubric import Rubric
from circus_bench.validation.sampling import SamplingFrame, sample_study
from circus_bench.validation.study import Item, Study

FAILS = {QueryKind.TOO_BROAD: "breadth", QueryKind.INVALID_TARGET: "target", QueryKind.INVALID_TEXT: "text"}
"""Step of the CIRCUS rubric that a synthetic query fails; the other kinds are valid."""

_ALONE = {QueryKind.TEXT_SHORTCUT: "text_alone", QueryKind.IMAGE_SHORTCUT: "image_alone"}
_START = datetime(2026, 1, 1, 9, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SimulatedRater:
    """Error rates of a simulated rater.

    Attributes:
        false_negative_rate: chance to call an invalid query valid.
        false_positive_rate: chance to call a valid query invalid, under any label.
        confusion_rate: chance that an invalid query which is found goes under another label than its own.
        missed_alternative_rate: chance not to click an image of the panel that answers the query as well.
        false_click_rate: chance to click an image that does not.
        seconds: median time for an annotation.
        spread: standard deviation of the logarithm of that time.

    Raises:
        CircusError: a chance is no number from 0 to 1, or a time is not positive.
    """

    false_negative_rate: float = 0.1
    false_positive_rate: float = 0.1
    confusion_rate: float = 0.1
    missed_alternative_rate: float = 0.3
    false_click_rate: float = 0.01
    seconds: float = 40.0
    spread: float = 0.5

    def __post_init__(self) -> None:
        rates = {name: value for name, value in dataclasses.asdict(self).items() if name.endswith("_rate")}
        wrong = [f"{name} = {rate}" for name, rate in rates.items() if not 0 <= rate <= 1]
        if wrong or self.seconds <= 0 or self.spread < 0:
            raise CircusError(
                f"a simulated rater needs chances from 0 to 1 and a positive time: {', '.join(wrong) or self.seconds}"
            )


class SceneGroundTruth:
    """Ground truth of the queries of a scenes benchmark, to the last image that would answer one as well.

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
                f"benchmark {benchmark.name!r} is not `scenes`, so it has no ground truth ({error!r})"
            ) from error
        synthetic_set = make_synthetic_set(**settings)
        if [made.text for made in synthetic_set.queries] != [query.text for query in benchmark.queries]:
            raise BenchmarkError(
                f"benchmark {benchmark.name!r} was cut, or made by another version of the generator; make it anew"
            )
        self._scene_of = dict(zip(benchmark.gallery.ids, synthetic_set.scenes, strict=True))
        ids = [query.id for query in benchmark.queries]
        self._made_of: dict[str, SyntheticQuery] = dict(zip(ids, synthetic_set.queries, strict=True))
        self._target_of = {query.id: query.targets[0] for query in benchmark.queries}

    def fails(self, query: str) -> str:
        """Return the step of the rubric that a query fails; empty for a valid one."""
        return FAILS.get(self._made_of[query].kind, "")

    def alone(self, query: str) -> str:
        """Return the follow-up question to answer with yes; empty where there is none."""
        return _ALONE.get(self._made_of[query].kind, "")

    def answered_by(self, query: str, image: str) -> bool:
        """Return whether an image answers a query as well as its target does."""
        made, scene = self._made_of[query], self._scene_of[image]
        if made.kind in (QueryKind.INVALID_TARGET, QueryKind.INVALID_TEXT):
            return False
        if made.kind in (QueryKind.TEXT_SHORTCUT, QueryKind.TOO_BROAD):
            return fulfills(scene, made.claims)
        return scene == self._scene_of[self._target_of[query]]

    def target(self, query: str) -> str:
        """Return the query's target."""
        return self._target_of[query]


def expected_labels(benchmark: Benchmark, *, k: int = DEFAULT_K) -> dict[str, Label]:
    """Map query ids to the labels that an ideal pool gives in the scenes benchmark, without those that chance decides.

    Raises:
        BenchmarkError: the benchmark is another one.
    """
    labels = {query.id: expected_label(query, k) for query in benchmark.queries}
    return {query: Label(label) for query, label in labels.items() if label is not None}


def simulate_annotations(
    study: Study, truth: Mapping[str, SceneGroundTruth], raters: Mapping[str, SimulatedRater], *, seed: int = 0
) -> list[Annotation]:
    """Simulate the annotations of all raters of a study. The same arguments give the same annotations.

    A rater's annotation of an item depends on nothing but the seed, the rater and the item.

    Args:
        study: over scenes benchmarks.
        truth: benchmark name to its ground truth.
        raters: rater to how they err; one for each of the study's.
        seed: of the errors.

    Returns:
        The annotations by their times; each rater works without a break from the same start.

    Raises:
        MismatchError: a rater or a benchmark of the study is missing, or the rubric lacks a step that queries fail.
    """
    lacking = [rater for rater in study.assignments if rater not in raters]
    lacking += sorted({item.benchmark for item in study.items} - truth.keys())
    lacking += [step for step in FAILS.values() if step not in {s.id for s in study.rubric.steps}]
    if lacking:
        raise MismatchError(f"study {study.name!r} cannot be simulated: no {', '.join(map(repr, lacking))} is given")
    made = []
    for rater, ids in study.assignments.items():
        clock = 0.0
        for item_id in ids:
            item = study.item_by_id[item_id]
            annotation = _annotate(item, study.rubric, truth[item.benchmark], raters[rater], (seed, rater, item_id))
            clock += annotation.seconds
            time = (_START + timedelta(seconds=clock)).isoformat(timespec="seconds")
            made.append(dataclasses.replace(annotation, rater=rater, event=f"{rater}/{item_id}/1", time=time))
    return sorted(made, key=lambda annotation: (annotation.time, annotation.rater))


def _annotate(
    item: Item, rubric: Rubric, truth: SceneGroundTruth, rater: SimulatedRater, key: tuple[object, ...]
) -> Annotation:
    def chance(*what: str) -> float:
        return hash_uniform(*key, *what)

    def one_of(choices: Sequence[str], what: str) -> str:
        return choices[int(chance(what) * len(choices))]

    fails = truth.fails(item.query)
    steps = [step.id for step in rubric.steps]
    if not fails:
        flag = one_of(steps, "label") if chance("valid") < rater.false_positive_rate else ""
    elif chance("valid") < rater.false_negative_rate:
        flag = ""
    else:
        confused = chance("confused") < rater.confusion_rate
        flag = one_of([step for step in steps if step != fails], "label") if confused else fails
    reasons = next((tuple(step.reasons) for step in rubric.steps if step.id == flag), ())
    deviation = NormalDist().inv_cdf(min(max(chance("seconds"), 1e-6), 1 - 1e-6))
    return Annotation(
        item=item.id,
        rater="",
        label=rubric.label_of({flag} - {""}),
        flags=(flag,) if flag else (),
        reasons=(f"{flag}.{one_of(reasons, 'reason')}",) if reasons else (),
        answers={} if flag else {entry.id: entry.id == truth.alone(item.query) for entry in rubric.follow_ups},
        alternatives=tuple(
            image
            for image in item.panel
            if image != truth.target(item.query)
            and chance("click", image)
            < (1 - rater.missed_alternative_rate if truth.answered_by(item.query, image) else rater.false_click_rate)
        ),
        seconds=round(rater.seconds * np.exp(rater.spread * deviation).item(), 1),
    )


@dataclass(frozen=True, slots=True)
class Recovery:
    """Precision and recall with which the decisions recover the valid queries.

    Attributes:
        precision: share of truly valid queries among those decided valid.
        recall: share of those decided valid among the truly valid ones.
        undecided: queries without a decision; they are not in V.
    """

    precision: Estimate
    recall: Estimate
    undecided: int

    def to_dict(self) -> dict[str, Any]:
        """Convert to strict JSON."""
        return {"precision": self.precision.to_dict(), "recall": self.recall.to_dict(), "undecided": self.undecided}


def recovery(decisions: Iterable[Decision], truth: Mapping[str, SceneGroundTruth]) -> Recovery:
    """Evaluate decisions against the ground truth, with Wilson's confidence intervals.

    Args:
        decisions: one per item.
        truth: benchmark name to its ground truth.
    """
    decided = list(decisions)
    valid = np.array([decision.valid is True for decision in decided], bool)
    sound = np.array([not truth[decision.benchmark].fails(decision.query) for decision in decided], bool)
    undecided = sum(decision.valid is None for decision in decided)
    return Recovery(proportion(sound[valid]), proportion(valid[sound]), undecided)


@dataclass(frozen=True, slots=True)
class SimulatedStudy:
    """Study that simulated raters have annotated.

    Attributes:
        study: the study.
        error: the chance of each rater to call a query valid that is not, and the other way round.
        rule: how the decisions were come to.
        annotations: by their times.
        decisions: one per item.
        agreement: by question; see `circus_bench.validation.agreement.study_agreement`.
        recovery: the decisions held against the ground truth.
    """

    study: Study
    error: float
    rule: DecisionRule
    annotations: tuple[Annotation, ...]
    decisions: tuple[Decision, ...]
    agreement: Mapping[str, Mapping[Statistic, Coefficient]]
    recovery: Recovery

    def valid(self, benchmark: str) -> tuple[str, ...]:
        """List a benchmark's queries that were decided to be valid."""
        return tuple(d.query for d in self.decisions if d.benchmark == benchmark and d.valid)

    def save(self, folder: StrPath, benchmarks: Mapping[str, Benchmark]) -> None:
        """Write `judgements.jsonl`, `simulated.json`, and each benchmark's verdicts twice.

        Args:
            folder: the folder.
            benchmarks: those of the study; their verdicts are `<name>.v.parquet` and `<name>.v.json`.
        """
        folder = Path(folder)
        write_annotations(folder / LOG_FILE, self.annotations)
        write_json(folder / "rehearsal.json", self.to_dict())
        for name in benchmarks:
            for suffix in ("parquet", "json"):
                path = folder / f"{slug(name)}.v.{suffix}"
                export_verdicts(path, self.study, self.decisions, benchmark=name, sources=benchmarks, rule=self.rule)

    def to_dict(self) -> dict[str, Any]:
        """Convert all but the annotations and decisions to strict JSON."""
        return {
            "error": self.error,
            "rule": self.rule.value,
            "recovery": self.recovery.to_dict(),
            "agreement": agreement_dict(self.agreement),
        }


def simulate_study(
    study: Study,
    truth: Mapping[str, SceneGroundTruth],
    *,
    error: float,
    seed: int = 0,
    rule: DecisionRule = DecisionRule.MAJORITY,
) -> SimulatedStudy:
    """Simulate raters of one error rate, decide, and evaluate the decisions against the ground truth.

    Args:
        study: over scenes benchmarks.
        truth: benchmark name to its ground truth.
        error: chance of each rater to call an invalid query valid, and a valid one invalid.
        seed: of the errors.
        rule: how the annotations come to decisions.

    Raises:
        CircusError: the error is no number from 0 to 1.
        MismatchError: see `simulate_annotations`.
    """
    raters = dict.fromkeys(study.assignments, SimulatedRater(false_negative_rate=error, false_positive_rate=error))
    annotations = simulate_annotations(study, truth, raters, seed=seed)
    decisions = decide(study, annotations, rule=rule)
    return SimulatedStudy(
        study=study,
        error=error,
        rule=rule,
        annotations=tuple(annotations),
        decisions=tuple(decisions),
        agreement=study_agreement(study, annotations),
        recovery=recovery(decisions, truth),
    )


def simulate_validation(
    audit: Audit, benchmark: Benchmark, *, folder: str, error: float = 0.1, n_raters: int = 3, seed: int = 0
) -> tuple[Audit, SimulatedStudy]:
    """Simulate the validation of all shortcut-free queries of an audit, and add the scores on the valid ones.

    Args:
        audit: of Runs on the benchmark.
        benchmark: made by `circus_bench.sources.scenes.scenes`.
        folder: where it is saved, relative to where the study is going to be.
        error: see `simulate_study`.
        n_raters: all of them judge every query.
        seed: of the study and of the errors.

    Raises:
        MismatchError: the audit is about another benchmark.
        CircusError: no query is shortcut-free.
    """
    labels = dict(zip(audit.pool.queries, map(Label, audit.shortcut_labels.labels.tolist()), strict=True))
    raters = [f"rater-{place}" for place in range(1, n_raters + 1)]
    frame = SamplingFrame(benchmark, folder, labels, runs=audit.runs)
    study = sample_study("simulated raters", [frame], raters=raters, per_item=n_raters, seed=seed)
    simulated = simulate_study(study, {benchmark.name: SceneGroundTruth(benchmark)}, error=error, seed=seed)
    how = f"simulated: {n_raters} raters, each wrong with chance {error:g}, decided by {simulated.rule}"
    return audit.with_validated(simulated.valid(benchmark.name), how=how), simulated
