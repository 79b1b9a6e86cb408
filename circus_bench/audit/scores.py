"""Scores of a Run on a subset of its queries, in all three conditions, each with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.audit.statistics import Estimate, comp_gap_of, mean, pool_comp_gap_of, proportion
from circus_bench.benchmark import Condition
from circus_bench.metrics.average_precision import average_precision
from circus_bench.metrics.hit_rate import hit_rate
from circus_bench.metrics.mrr import reciprocal_rank
from circus_bench.metrics.ndcg import ndcg
from circus_bench.metrics.ranks import Ranks
from circus_bench.metrics.recall import recall
from circus_bench.runs.run import Run

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]

CUTOFFS = (1, 5, 10, 50)
SUBSET_CUTOFFS = (1, 2, 3)


@dataclass(frozen=True)
class Scores:
    """What one model scores on one subset.

    Attributes:
        model: its name.
        subset: `full`, `sf`, a label or a group.
        n_queries: queries in the subset.
        n_relevant: their targets.
        by_condition: condition to metric name to estimate. Names: `hit_rate@K`, `recall@K`, `map@K`, `ndcg`, `mrr`,
            and `subset_hit_rate@K` (CIRR's Recall_subset) where the queries have subsets.
        either_unimodal: share of queries with a hit@k from the text alone or the image alone.
        chance: hit rate@k of null targets under each condition; empty where a Run has none.
        comp_gap: 1 - max(text, image) / multimodal, of mean full-gallery nDCG.
        ties: share of targets that tie with other images, per condition.
        weighted: whether queries count for different numbers of queries, for which they were drawn.
    """

    model: str
    subset: str
    n_queries: int
    n_relevant: int
    by_condition: dict[Condition, dict[str, Estimate]]
    either_unimodal: Estimate
    chance: dict[Condition, Estimate]
    comp_gap: Estimate
    ties: dict[Condition, Estimate]
    weighted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "model": self.model,
            "subset": self.subset,
            "n_queries": self.n_queries,
            "n_relevant": self.n_relevant,
            "weighted": self.weighted,
            "comp_gap": self.comp_gap.to_dict(),
            "either_unimodal": self.either_unimodal.to_dict(),
            "conditions": {
                condition.value: {name: estimate.to_dict() for name, estimate in of_condition.items()}
                for condition, of_condition in self.by_condition.items()
            },
            "chance": {condition.value: estimate.to_dict() for condition, estimate in self.chance.items()},
            "share_tied": {condition.value: share.to_dict() for condition, share in self.ties.items()},
        }


def score_run(
    run: Run,
    *,
    subset: str = "full",
    chosen: Mask | None = None,
    weights: Floats | None = None,
    k: int = 10,
    cutoffs: Sequence[int] = CUTOFFS,
) -> Scores:
    """Score a Run under its protocol's reference policy.

    Args:
        run: the Run.
        subset: the name of the subset.
        chosen: bool [n_queries], the queries of the subset; all by default.
        weights: float [n_queries], how many queries each stands for (of a validated sample, say); all alike by default.
        k: cut-off of `either_unimodal` and `chance`.
        cutoffs: the K of the metrics that have one.
    """
    if chosen is None:
        chosen = np.ones(len(run.queries), bool)
    own = weights[chosen] if weights is not None else None
    if own is not None and np.all(own == own[:1]):
        own = None  # alike: plain means, and the intervals that go with them
    by_condition = {
        condition: _metrics(run.ranks(condition), chosen, own, sorted({*cutoffs, k}))
        | _subset_metrics(run.subset_ranks(condition), chosen, own)
        for condition in Condition
    }
    unimodal = (Condition.TEXT_ONLY, Condition.IMAGE_ONLY)
    either = np.max([hit_rate(run.ranks(condition), k) for condition in unimodal], axis=0)[chosen]
    nulls = {condition: run.null_ranks(condition) for condition in Condition}
    rows = np.repeat(chosen, np.diff(run.offsets))
    of_rows = None if own is None else np.repeat(own, np.diff(run.offsets)[chosen])
    gains = _ndcg(run, chosen)
    return Scores(
        model=run.manifest.model.name,
        subset=subset,
        n_queries=int(chosen.sum()),
        n_relevant=int(rows.sum()),
        by_condition=by_condition,
        either_unimodal=proportion(either, own),
        chance={c: proportion(hit_rate(null, k)[chosen], own) for c, null in nulls.items() if null is not None},
        # A ratio of means: weighting the summands weights both of them.
        comp_gap=comp_gap_of(gains if own is None else {c: own * of_condition for c, of_condition in gains.items()}),
        ties={c: proportion(run.ties(c)[rows] > 0, of_rows) for c in Condition},
        weighted=own is not None,
    )


def pool_comp_gap(runs: Sequence[Run], chosen: Mask | None = None) -> Estimate:
    """Mean CompGap over the Runs of a pool on the chosen queries; undefined if that of any model is."""
    if chosen is None:
        chosen = np.ones(len(runs[0].queries), bool)
    return pool_comp_gap_of([_ndcg(run, chosen) for run in runs])


def _ndcg(run: Run, chosen: Mask) -> dict[Condition, NDArray[np.float64]]:
    return {condition: ndcg(run.ranks(condition))[chosen] for condition in Condition}


def _metrics(ranks: Ranks, chosen: Mask, weights: Floats | None, cutoffs: Sequence[int]) -> dict[str, Estimate]:
    single = bool((ranks.counts == 1).all())
    found: dict[str, Estimate] = {}
    for k in cutoffs:
        found[f"hit_rate@{k}"] = proportion(hit_rate(ranks, k)[chosen], weights)
    for k in cutoffs:
        # With one target a query, recall is the hit rate; its interval should then be the same one.
        found[f"recall@{k}"] = found[f"hit_rate@{k}"] if single else mean(recall(ranks, k)[chosen], weights)
    for k in cutoffs:
        found[f"map@{k}"] = mean(average_precision(ranks, k)[chosen], weights)
    found["ndcg"] = mean(ndcg(ranks)[chosen], weights)
    found["mrr"] = mean(reciprocal_rank(ranks)[chosen], weights)
    return found


def _subset_metrics(ranks: Ranks | None, chosen: Mask, weights: Floats | None) -> dict[str, Estimate]:
    if ranks is None:
        return {}
    return {f"subset_hit_rate@{k}": proportion(hit_rate(ranks, k)[chosen], weights) for k in SUBSET_CUTOFFS}
