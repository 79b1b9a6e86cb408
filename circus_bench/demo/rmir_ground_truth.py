"""Evaluate drafts, labels, judge panels and TSR of each stage against the synthetic world's ground truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from circus_bench.audit.statistics import Estimate, proportion, ratio
from circus_bench.demo.rmir_setup import compared_panels
from circus_bench.demo.world.collection import World
from circus_bench.demo.world.relations import meaning_of
from circus_bench.demo.world.synthetic_judges import family_of
from circus_bench.io import to_plain
from circus_bench.rmir.config import JudgeSettings, JudgeSpec, SplitSettings, TsrScope
from circus_bench.rmir.judge_analysis import positives_of
from circus_bench.rmir.pipeline import Pipeline, Stage
from circus_bench.rmir.records import (
    Candidate,
    CandidateConsensus,
    Draft,
    Index,
    JudgeDecision,
    PoolImage,
    Split,
    SplitAssignment,
    Vote,
)
from circus_bench.rmir.stages.consensus import aggregate_votes, filter_by_consensus, positives_by_query
from circus_bench.rmir.stages.pool import pool
from circus_bench.rmir.stages.split import split
from circus_bench.rmir.tsr_validity import TsrValidity, tsr_validity


@dataclass(frozen=True, slots=True)
class LabelQuality:
    """Precision and false negatives of labels, against the ground truth.

    Attributes:
        queries: those with a positive.
        images: number of images that each of them is ranked against.
        positives: labeled pairs of query and image.
        precision: share of them that are right; `n` counts queries, which are resampled as a whole.
        missed: false negatives: pairs of a query and an image of the pool that are right and not labeled.
        rejected: those of them that the judges saw; the others were never proposed.
        missed_share: of all right pairs in the pool those that are missed.
        incomplete: share of the queries that have a missed pair.
    """

    queries: int
    images: int
    positives: int
    precision: Estimate
    missed: int
    rejected: int
    missed_share: Estimate
    incomplete: Estimate


def label_quality(
    truth: Mapping[str, frozenset[str]],
    positives: Mapping[str, Sequence[str]],
    pool: Collection[str],
    *,
    seen: Collection[tuple[str, str]] = (),
) -> LabelQuality:
    """Evaluate labels against the ground truth.

    Args:
        truth: query id to all images that answer it.
        positives: query id to the images that are labeled so; only queries that have some count.
        pool: the images that queries are ranked against.
        seen: pairs of query and image that the judges saw.
    """
    labeled = {query: frozenset(found) for query, found in positives.items() if found}
    missed = false_negatives(truth, labeled, pool)
    right = np.array([len(found & truth[query]) for query, found in labeled.items()], float)
    given = np.array([len(found) for found in labeled.values()], float)
    lacking = np.array([len(missed[query]) for query in labeled], float)
    known = frozenset(seen)
    return LabelQuality(
        queries=len(labeled),
        images=len(frozenset(pool)),
        positives=int(given.sum()),
        precision=ratio(right, given),
        missed=int(lacking.sum()),
        rejected=sum((query, image) in known for query, images in missed.items() for image in images),
        missed_share=ratio(lacking, right + lacking),
        incomplete=proportion(lacking > 0),
    )


def false_negatives(
    truth: Mapping[str, frozenset[str]], positives: Mapping[str, Collection[str]], pool: Collection[str]
) -> dict[str, frozenset[str]]:
    """Map each query with a positive to the images of the pool that answer it and are not labeled."""
    images = frozenset(pool)
    return {query: (truth[query] & images).difference(found) for query, found in positives.items() if found}


@dataclass(frozen=True, slots=True)
class DraftQuality:
    """Flaws of the drafts of stages 1 and 2, against the ground truth.

    Attributes:
        drafts: generated queries.
        flawed: share of them that break a constraint.
        passed: those that stage 2 let pass.
        flawed_passed: share of these that break a constraint.
        sound_lost: share of the sound drafts that stage 2 dropped.
    """

    drafts: int
    flawed: Estimate
    passed: int
    flawed_passed: Estimate
    sound_lost: Estimate


@dataclass(frozen=True, slots=True)
class PanelQuality:
    """Outcome of stages 5 and 6 with one LLM-as-a-judge panel.

    Attributes:
        judges: family to the number of its judges.
        deleted: images that stage 5 excludes.
        labels: the pool's labels against the ground truth.
    """

    judges: Mapping[str, int]
    deleted: int
    labels: LabelQuality

    def to_dict(self) -> dict[str, Any]:
        """Convert to strict JSON, the labels' numbers beside the others."""
        return {"judges": dict(self.judges), "deleted": self.deleted, **to_plain(self.labels)}


def draft_quality(drafts: Sequence[Draft], passed: Sequence[Draft]) -> DraftQuality:
    """Evaluate stages 1 and 2 against the meaning of the drafts' texts."""
    flawed = {draft.query: meaning_of(draft.text).flaw is not None for draft in drafts}
    through = {draft.query for draft in passed}
    return DraftQuality(
        drafts=len(drafts),
        flawed=proportion(np.array([*flawed.values()], bool)),
        passed=len(passed),
        flawed_passed=proportion(np.array([flawed[query] for query in flawed if query in through], bool)),
        sound_lost=proportion(np.array([query not in through for query, bad in flawed.items() if not bad], bool)),
    )


def candidate_recall(truth: Mapping[str, frozenset[str]], candidates: Sequence[Candidate]) -> dict[str, Estimate]:
    """Compute the share of all right pairs of query and image that each index proposes, and both together."""
    found: dict[str, dict[str, set[str]]] = {name: {query: set() for query in truth} for name in (*Index, "both")}
    for row in candidates:
        for name in (row.index, "both"):
            found[name][row.query].add(row.image)
    wholes = np.array([len(images) for images in truth.values()], float)
    return {
        str(name): ratio(np.array([len(of[query] & truth[query]) for query in truth], float), wholes)
        for name, of in found.items()
    }


def quality_by_stage(world: World, pipeline: Pipeline, truth: Mapping[str, frozenset[str]]) -> dict[str, LabelQuality]:
    """Evaluate the labels before stage 5 and after stages 5, 6 and 7 against the ground truth."""
    judged = pipeline.rows(Stage.JUDGE, CandidateConsensus)
    majority = positives_by_query([row for row in judged if row.decision is JudgeDecision.ACCEPT])
    survivors, deleted = filter_by_consensus(judged, confidence=pipeline.config.keep.confidence)
    sure = positives_by_query(survivors)
    left = frozenset(world.images).difference(row.image for row in deleted)
    of_pool = _pool_of(pipeline)
    tested = {row.query for row in pipeline.rows(Stage.SPLIT, SplitAssignment) if row.split is Split.TEST}
    of_tested = {query: images for query, images in sure.items() if query in tested}
    steps = {
        "4 judge: majority, whole collection": (majority, world.images),
        "5 keep: beyond doubt, without doubted images": (sure, left),
        "6 pool: surviving candidates": (sure, of_pool),
        "7 split: test queries": (of_tested, of_pool),
    }
    seen = {(row.query, row.image) for row in judged}
    return {name: label_quality(truth, labels, images, seen=seen) for name, (labels, images) in steps.items()}


@dataclass(frozen=True, slots=True)
class TsrCheck:
    """Validity of TSR, computed in one way, against the pool's false negatives.

    Attributes:
        missed: against all of them.
        unproposed: against those that no index proposed, which are all that TSR is meant to detect.
    """

    missed: TsrValidity
    unproposed: TsrValidity


def tsr_by_list(pipeline: Pipeline, truth: Mapping[str, frozenset[str]]) -> dict[str, TsrCheck]:
    """Evaluate TSR, computed in the three ways that stage 7 has, against the ground truth."""
    judged, survivors = pipeline.rows(Stage.JUDGE, CandidateConsensus), pipeline.rows(Stage.KEEP, CandidateConsensus)
    missed = false_negatives(truth, positives_by_query(survivors), _pool_of(pipeline))
    seen: dict[str, set[str]] = {}
    for row in judged:
        seen.setdefault(row.query, set()).add(row.image)
    unproposed = {query: images - seen[query] for query, images in missed.items()}
    found = {}
    for name, settings in {
        "surviving, padded": SplitSettings(lists=TsrScope.SURVIVING, pad=True),
        "surviving": SplitSettings(lists=TsrScope.SURVIVING, pad=False),
        "judged": SplitSettings(lists=TsrScope.JUDGED, pad=False),
    }.items():
        visual_k = pipeline.config.candidates.visual_k
        rows = split(
            survivors, pipeline.rows(Stage.CANDIDATES, Candidate), judged, visual_k=visual_k, settings=settings
        )
        values = {row.query: row.tsr for row in rows}
        found[name] = TsrCheck(
            *(tsr_validity(values, {query: bool(of[query]) for query in of}) for of in (missed, unproposed))
        )
    return found


def quality_by_panel(truth: Mapping[str, frozenset[str]], votes: Sequence[Vote]) -> dict[str, PanelQuality]:
    """Evaluate stages 5 and 6 with each of `compared_panels` against the ground truth."""
    found = {}
    seen = {(vote.query, vote.image) for vote in votes}
    for name, panel in compared_panels().items():
        own = votes_of(votes, panel)
        positives, survivors = positives_of(own)
        _, deleted = filter_by_consensus(aggregate_votes(own), confidence=1.0)
        families = Counter(family_of(judge.name) for judge in JudgeSettings(panel).judges)
        images = [row.image for row in pool(survivors)]
        found[name] = PanelQuality(dict(families), len(deleted), label_quality(truth, positives, images, seen=seen))
    return found


def votes_of(votes: Sequence[Vote], panel: tuple[JudgeSpec, ...]) -> list[Vote]:
    """Select the votes of a panel's judges."""
    names = {judge.name for judge in JudgeSettings(panel).judges}
    return [vote for vote in votes if vote.judge in names]


def _pool_of(pipeline: Pipeline) -> list[str]:
    return [row.image for row in pipeline.rows(Stage.POOL, PoolImage)]
