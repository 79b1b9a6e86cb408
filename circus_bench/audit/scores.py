"""Score a Run on a subset of its queries under the three conditions, each metric with a confidence interval."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.audit.statistics import Estimate, mean, pool_comp_gap_of, proportion
from circus_bench.benchmark import Condition
from circus_bench.io import to_plain
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


@dataclass(frozen=True, repr=False)
class Scores:
    """Scores of one model on one subset.

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
        """Return strict JSON."""
        content = {field.name: to_plain(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return {"conditions": content.pop("by_condition"), "share_tied": content.pop("ties"), **content}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Scores:
        """Make scores from the JSON of `to_dict`."""
        values: dict[str, Any] = {field.name: content.get(field.name) for field in dataclasses.fields(cls)}
        for name, key in (("chance", "chance"), ("ties", "share_tied")):
            of = content[key]
            values[name] = {c: Estimate.from_dict(of[c]) for c in Condition if c in of}
        for name in ("comp_gap", "either_unimodal"):
            values[name] = Estimate.from_dict(content[name])
        values["by_condition"] = {
            c: {name: Estimate.from_dict(entry) for name, entry in content["conditions"][c].items()} for c in Condition
        }
        return cls(**values)

    def __repr__(self) -> str:
        """Name the subset and the gap rather than every metric."""
        return f"Scores({self.model!r} on {self.subset}, {self.n_queries:,} queries: CompGap {self.comp_gap.value:.3f})"


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
    if own is not None:  # a ratio of means: weighting the summands weights both of them
        gains = {condition: own * of_condition for condition, of_condition in gains.items()}
    return Scores(
        model=run.manifest.model.name,
        subset=subset,
        n_queries=int(chosen.sum()),
        n_relevant=int(rows.sum()),
        by_condition=by_condition,
        either_unimodal=proportion(either, own),
        chance={c: proportion(hit_rate(null, k)[chosen], own) for c, null in nulls.items() if null is not None},
        comp_gap=pool_comp_gap_of([gains]),
        ties={c: proportion(run.ties(c)[rows] > 0, of_rows) for c in Condition},
        weighted=own is not None,
    )


def pool_comp_gap(runs: Sequence[Run], chosen: Mask | None = None) -> Estimate:
    """Compute the mean CompGap over the Runs of a pool on the chosen queries; undefined if that of any model is."""
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
