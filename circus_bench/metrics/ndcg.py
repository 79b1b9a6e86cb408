"""Compute the normalized discounted cumulative gain over the whole gallery."""

from __future__ import annotations

import math

import numpy as np

from circus_bench.metrics._checks import positive_int
from circus_bench.metrics.ranks import Floats, Ranks


def ndcg(ranks: Ranks, *, k: int | None = None) -> Floats:
    """Sum 1 / log2(1 + rank) over each query's targets, divided by the sum for ranks 1 to the number of targets.

    Gains are binary (Järvelin and Kekäläinen, 2002, with the usual log2 discount). The ideal counts all targets: one
    that is not in the gallery adds nothing above the line and its full share below.

    Args:
        ranks: the ranks of n_queries queries.
        k: a cut-off for both sums; None (the default, and what CompGap uses) ranks the whole gallery.

    Returns:
        float64 [n_queries] in [0, 1]; exactly 1 for a perfect ranking.

    Raises:
        CircusError: `k` is neither None nor a whole number of at least 1.
        FormatError: two targets of a query share a rank.

    Example:
        1 / log2(1 + 3) = 1/2; and a perfect ranking.

        >>> ndcg(Ranks.of([[3], [2, 1]])).tolist()
        [0.5, 1.0]
    """
    cutoff = math.inf if k is None else positive_int(k, "k")
    gain = _gains(ranks.ordered(), cutoff)
    # The ideal is summed over rows of the same layout, in the same order, so that rounding cannot take a ratio above 1.
    ideal = _gains(ranks.positions.astype(np.float64), cutoff)
    return ranks.sums(gain) / ranks.sums(ideal)


def _gains(ordered: Floats, cutoff: float) -> Floats:
    return np.where(ordered <= cutoff, 1 / np.log2(1 + ordered), 0.0)
