"""Compute average precision at K, the measure of CIRCO."""

from __future__ import annotations

import numpy as np

from circus_bench.metrics._checks import positive_int
from circus_bench.metrics.ranks import Floats, Ranks


def average_precision(ranks: Ranks, k: int) -> Floats:
    """Average the precision at the ranks of the targets, as far as these are at most K.

    With the targets' ranks in rising order r_1 < r_2 < ..., AP@K = sum over r_j <= K of j / r_j, divided by
    min(number of targets, K): the denominator of CIRCO (Baldrati et al., ICCV 2023), under which K targets in the first
    K places score 1 even for a query with more targets. trec_eval's `map_cut_K` divides by the number of targets.

    Args:
        ranks: the ranks of n_queries queries.
        k: the cut-off, at least 1.

    Returns:
        float64 [n_queries] in [0, 1].

    Raises:
        CircusError: `k` is not a whole number of at least 1.
        FormatError: two targets of a query share a rank.

    Example:
        Targets at ranks 2 and 4: (1/2 + 2/4) / 2.

        >>> average_precision(Ranks.of([[4, 2]]), 10).tolist()
        [0.5]
    """
    k = positive_int(k, "k")
    ordered = ranks.ordered()
    precision = np.where(ordered <= k, ranks.positions / ordered, 0.0)
    return ranks.sums(precision) / np.minimum(ranks.counts, k)
