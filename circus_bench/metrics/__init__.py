"""Compute metrics with pure functions from ranks to one float64 value per query, one file each.

Means over queries are left to the caller, who knows the subset they are taken over. The `evaluate` modules in
`circus_bench.metrics.hub_modules` are thin adapters around these functions.
"""

from __future__ import annotations

from circus_bench.metrics.average_precision import average_precision
from circus_bench.metrics.comp_gap import comp_gap, pool_comp_gap
from circus_bench.metrics.hit_rate import hit_rate
from circus_bench.metrics.loading import load_metric
from circus_bench.metrics.mrr import reciprocal_rank
from circus_bench.metrics.ndcg import ndcg
from circus_bench.metrics.ranks import Ranks
from circus_bench.metrics.recall import recall
from circus_bench.metrics.shortcut import Label, Shortcut, ShortcutLabels, min_rank_labels
from circus_bench.metrics.tsr import Verdict, negative_share, tsr

__all__ = [
    "Label",
    "Ranks",
    "Shortcut",
    "ShortcutLabels",
    "Verdict",
    "average_precision",
    "comp_gap",
    "hit_rate",
    "load_metric",
    "min_rank_labels",
    "ndcg",
    "negative_share",
    "pool_comp_gap",
    "recall",
    "reciprocal_rank",
    "tsr",
]
