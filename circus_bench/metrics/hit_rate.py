"""Compute the hit rate at K, the share of queries with any target among the first K."""

from __future__ import annotations

import numpy as np

from circus_bench.metrics._checks import positive_int
from circus_bench.metrics.ranks import Floats, Ranks


def hit_rate(ranks: Ranks, k: int) -> Floats:
    """Compute [best rank <= K] per query: what papers on composed image retrieval call Recall@K.

    Args:
        ranks: the ranks of n_queries queries.
        k: the cut-off, at least 1. It may exceed the gallery.

    Returns:
        float64 [n_queries] of 0 and 1.

    Raises:
        CircusError: `k` is not a whole number of at least 1.

    Example:
        >>> hit_rate(Ranks.of([[3], [12, 40], [12, 1]]), 10).tolist()
        [1.0, 0.0, 1.0]
    """
    return (ranks.first() <= positive_int(k, "k")).astype(np.float64)
