"""Compute recall at K, the share of the targets among the first K."""

from __future__ import annotations

import numpy as np

from circus_bench.metrics._checks import positive_int
from circus_bench.metrics.ranks import Floats, Ranks


def recall(ranks: Ranks, k: int) -> Floats:
    """Compute the share of each query's targets with a rank of at most K; the hit rate for queries with one target.

    The denominator is the number of targets, also where it exceeds K and where some are not in the gallery; this is
    trec_eval's `recall_K`.

    Args:
        ranks: the ranks of n_queries queries.
        k: the cut-off, at least 1. It may exceed the gallery.

    Returns:
        float64 [n_queries] in [0, 1].

    Raises:
        CircusError: `k` is not a whole number of at least 1.

    Example:
        >>> recall(Ranks.of([[3], [12, 40], [12, 1]]), 10).tolist()
        [1.0, 0.0, 0.5]
    """
    found = (ranks.values <= positive_int(k, "k")).astype(np.float64)
    return ranks.sums(found) / ranks.counts
