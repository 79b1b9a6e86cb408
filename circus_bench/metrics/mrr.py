"""Compute the reciprocal rank; its mean over queries is the MRR."""

from __future__ import annotations

from circus_bench.metrics.ranks import Floats, Ranks


def reciprocal_rank(ranks: Ranks) -> Floats:
    """Compute 1 / rank of each query's best target, over the whole gallery; 0 when none is retrieved.

    Args:
        ranks: the ranks of n_queries queries.

    Returns:
        float64 [n_queries] in [0, 1].

    Example:
        >>> reciprocal_rank(Ranks.of([[4], [9, 2], [float("inf")]])).tolist()
        [0.25, 0.5, 0.0]
    """
    return 1 / ranks.first()
