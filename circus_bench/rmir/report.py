"""How far a pipeline is, what came of it so far, and what it cost."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from circus_bench.api.chat.providers import budget_meter, price_of
from circus_bench.rmir.pipeline import Pipeline, Progress, Stage
from circus_bench.rmir.records import Assigned, Check, Deleted, Judged, PoolImage, Removed, Unanswered, Why
from circus_bench.rmir.resources import usage_on_disk
from circus_bench.rmir.stages.consensus import answered


@dataclass(frozen=True)
class Summary:
    """The state of a pipeline.

    Attributes:
        stages: how far each is.
        losses: what was lost on the way, in words, and how often; of the stages that are done.
        open_questions: those among them whose reply was refused or could not be read.
        outcome: sizes of what stages 5 to 7 made.
        usage: of all replies on disk, by unit.
        usd: what they cost, or None when a price is not known.
    """

    stages: Sequence[Progress]
    losses: Mapping[str, int]
    open_questions: int
    outcome: Mapping[str, int]
    usage: Mapping[str, float]
    usd: float | None

    def to_dict(self) -> dict[str, Any]:
        """For strict JSON."""
        return dataclasses.asdict(self)


def summarise(pipeline: Pipeline) -> Summary:
    """Look at what is there; nothing is run or asked."""
    stages = pipeline.progress()
    done = {row.stage for row in stages if row.done}
    losses: Counter[str] = Counter()
    open_questions = 0
    if Stage.SEED in done:
        losses.update(f"images left out: {row.why}" for row in pipeline.rows(Stage.SEED, Removed))
    for stage in done.intersection((Stage.GENERATE, Stage.CAPTION)):
        unanswered = pipeline.rows(stage, Unanswered)
        losses.update(f"{stage}: {row.why}" for row in unanswered)
        open_questions += sum(row.why is not Why.IMPOSSIBLE for row in unanswered)
    if Stage.FILTER in done:
        checks = pipeline.rows(Stage.FILTER, Check)
        losses.update(f"filter: {row.constraint} not fulfilled" for row in checks if row.passed is False)
        undecided = sum(row.passed is None for row in checks)
        losses.update({"filter: no verdict": undecided} if undecided else {})
        open_questions += undecided
    if Stage.JUDGE in done:
        abstentions = sum(row.abstentions for row in pipeline.rows(Stage.JUDGE, Judged))
        losses.update({"judge: abstentions": abstentions} if abstentions else {})
    usage = usage_on_disk(pipeline.root)
    meter = budget_meter(
        (price_of(model, settings=pipeline.config.providers) for model in pipeline.config.models), None
    )
    known = meter.price is not None and usage.keys() <= meter.price.usd.keys()
    usd = meter.price.cost(usage) if meter.price is not None and known else None
    return Summary(stages, dict(sorted(losses.items())), open_questions, _outcome(pipeline, done), dict(usage), usd)


def _outcome(pipeline: Pipeline, done: set[Stage]) -> dict[str, int]:
    found: dict[str, int] = {}
    if Stage.KEEP in done:
        positives = answered(pipeline.rows(Stage.KEEP, Judged))
        found["queries with a positive"] = len(positives)
        found["positives"] = sum(map(len, positives.values()))
        found["images deleted"] = len(pipeline.rows(Stage.KEEP, Deleted))
    if Stage.POOL in done:
        found["images of the pool"] = len(pipeline.rows(Stage.POOL, PoolImage))
    if Stage.SPLIT in done:
        assigned = pipeline.rows(Stage.SPLIT, Assigned)
        found.update(Counter(f"queries for {row.split}" for row in assigned))
        found["artificial negatives"] = sum(row.artificial for row in assigned)
    return found
