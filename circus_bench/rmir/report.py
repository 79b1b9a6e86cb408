"""Report the progress, losses, output sizes and costs of a pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from circus_bench.api.chat.providers import price_of, shared_budget
from circus_bench.rmir.pipeline import Pipeline, Stage, StageProgress
from circus_bench.rmir.records import (
    CandidateConsensus,
    Check,
    DroppedImage,
    ExcludedImage,
    FailedRequest,
    FailureReason,
    PoolImage,
    SplitAssignment,
)
from circus_bench.rmir.resources import usage_on_disk
from circus_bench.rmir.stages.consensus import positives_by_query


@dataclass(frozen=True)
class PipelineReport:
    """State of a pipeline.

    Attributes:
        stages: progress of each stage.
        losses: kind of loss, in words, to its count; of the stages that are done.
        open_questions: requests among them that were refused or got an unreadable reply.
        outcome: sizes of the outputs of stages 5 to 7.
        usage: of all replies on disk, per unit.
        usd: their cost, or None when a price is not known.
    """

    stages: Sequence[StageProgress]
    losses: Mapping[str, int]
    open_questions: int
    outcome: Mapping[str, int]
    usage: Mapping[str, float]
    usd: float | None


def summarize(pipeline: Pipeline) -> PipelineReport:
    """Summarize the stages' outputs on disk; nothing is run or requested."""
    stages = pipeline.progress()
    done = {row.stage for row in stages if row.done}
    losses: Counter[str] = Counter()
    open_questions = 0
    if Stage.SEED in done:
        losses.update(f"images left out: {row.why}" for row in pipeline.rows(Stage.SEED, DroppedImage))
    for stage in done.intersection((Stage.GENERATE, Stage.CAPTION)):
        unanswered = pipeline.rows(stage, FailedRequest)
        losses.update(f"{stage}: {row.why}" for row in unanswered)
        open_questions += sum(row.why is not FailureReason.IMPOSSIBLE for row in unanswered)
    if Stage.FILTER in done:
        checks = pipeline.rows(Stage.FILTER, Check)
        losses.update(f"filter: {row.constraint} not fulfilled" for row in checks if row.passed is False)
        undecided = sum(row.passed is None for row in checks)
        losses.update({"filter: no verdict": undecided} if undecided else {})
        open_questions += undecided
    if Stage.JUDGE in done:
        abstentions = sum(row.abstentions for row in pipeline.rows(Stage.JUDGE, CandidateConsensus))
        losses.update({"judge: abstentions": abstentions} if abstentions else {})
    usage = usage_on_disk(pipeline.root)
    budget = shared_budget(
        (price_of(model, settings=pipeline.config.providers) for model in pipeline.config.models), None
    )
    known = budget.price is not None and usage.keys() <= budget.price.usd.keys()
    usd = budget.price.cost(usage) if budget.price is not None and known else None
    return PipelineReport(
        stages, dict(sorted(losses.items())), open_questions, _outcome(pipeline, done), dict(usage), usd
    )


def _outcome(pipeline: Pipeline, done: set[Stage]) -> dict[str, int]:
    found: dict[str, int] = {}
    if Stage.KEEP in done:
        positives = positives_by_query(pipeline.rows(Stage.KEEP, CandidateConsensus))
        found["queries with a positive"] = len(positives)
        found["positives"] = sum(map(len, positives.values()))
        found["images deleted"] = len(pipeline.rows(Stage.KEEP, ExcludedImage))
    if Stage.POOL in done:
        found["images of the pool"] = len(pipeline.rows(Stage.POOL, PoolImage))
    if Stage.SPLIT in done:
        assigned = pipeline.rows(Stage.SPLIT, SplitAssignment)
        found.update(Counter(f"queries for {row.split}" for row in assigned))
        found["artificial negatives"] = sum(row.artificial for row in assigned)
    return found
