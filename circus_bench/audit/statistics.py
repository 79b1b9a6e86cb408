"""Compute confidence intervals: Wilson's for shares, and a bootstrap over queries with shared draws for all else.

The bootstrap is our own because conditions, models and metrics have to share their draws: CompGap compares means over
the same resampled queries, and a table of scores needs the same draws hundreds of times. Kept as counts, they turn
resampling into one matrix product; `scipy.stats.bootstrap` would draw anew for every statistic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.benchmark import Condition
from circus_bench.metrics.comp_gap import comp_gap, pool_comp_gap

Floats = NDArray[np.float64]

LEVEL = 0.95
_RESAMPLES = 2000
_SEED = 0
_CELLS = 2**24  # resampled values held at a time
_KEPT_CELLS = 2**27  # bytes of draws kept for the next call


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, its confidence interval at the 95 % level, and how many queries it comes from.

    Attributes:
        value: the number; NaN when it is undefined.
        low: lower end; NaN when undefined.
        high: upper end; NaN when undefined.
        n: queries.
    """

    value: float
    low: float
    high: float
    n: int

    def to_dict(self) -> dict[str, Any]:
        """Return strict JSON: an undefined number is None, with a status."""
        named = {"value": self.value, "low": self.low, "high": self.high}
        content: dict[str, Any] = {name: None if math.isnan(number) else number for name, number in named.items()}
        return {**content, "n": self.n, **({"status": "undefined"} if math.isnan(self.value) else {})}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Estimate:
        """Make an estimate from the JSON of `to_dict`."""
        value, low, high = (math.nan if content[x] is None else float(content[x]) for x in ("value", "low", "high"))
        return cls(value, low, high, content["n"])


UNDEFINED = Estimate(math.nan, math.nan, math.nan, 0)


def proportion(hits: NDArray[Any], weights: Floats | None = None) -> Estimate:
    """Compute the share of hits among queries, with Wilson's confidence interval.

    Args:
        hits: bool or 0/1 [n_queries].
        weights: float [n_queries], for queries that stand for different numbers of queries: the share is Hajek's
            estimator, and the interval that of the effective number of Kish, (sum of weights)^2 / (sum of squares).

    Example:
        >>> estimate = proportion(np.array([1, 1, 1, 0]))
        >>> round(estimate.low, 3), estimate.value, round(estimate.high, 3)
        (0.301, 0.75, 0.954)
    """
    from scipy.stats import binomtest

    if not len(hits):
        return UNDEFINED
    if weights is not None:
        share = float(weights @ hits / weights.sum())
        return Estimate(share, *_wilson(share, float(weights.sum() ** 2 / (weights**2).sum())), len(hits))
    count = int(np.count_nonzero(hits))
    interval = binomtest(count, len(hits)).proportion_ci(LEVEL, method="wilson")
    return Estimate(count / len(hits), float(interval.low), float(interval.high), len(hits))


def _wilson(share: float, n: float) -> tuple[float, float]:
    """Compute Wilson's interval for a share of n queries, where n need not be whole."""
    from scipy.special import ndtri

    z = float(ndtri((1 + LEVEL) / 2))
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def mean(values: Floats, weights: Floats | None = None) -> Estimate:
    """Compute the mean over queries, with a bootstrap interval over queries (seeded).

    Args:
        values: float [n_queries], each from 0 to 1.
        weights: as in `proportion`; the bootstrap draws queries with their weights.
    """
    if not len(values):
        return UNDEFINED
    if values.min() == values.max() and values[0] in {0, 1}:
        # Resampling equal values shows no spread at all; as 0s or 1s they have Wilson's interval.
        return proportion(values, weights)
    if weights is not None:
        return ratio(weights * values, weights)
    resampled = resampled_means(values[None])[0]
    value = float(values.mean(dtype=np.float64))
    return Estimate(value, *interval_of(resampled, value), len(values))


def ratio(parts: Floats, wholes: Floats) -> Estimate:
    """Compute a share of things that belong to queries, such as correct labels among all labels.

    The things of one query are alike, so the bootstrap draws queries, not things.

    Args:
        parts: float [n_queries], how many of a query's things count.
        wholes: float [n_queries], how many things the query has; queries without any are left out.

    Returns:
        The sum of the parts over the sum of the wholes; `n` is the number of queries that have things. Where all or
        none of the things count, resampling shows no spread, and the interval is Wilson's for that many queries.

    Example:
        >>> estimate = ratio(np.array([1.0, 3.0]), np.array([2.0, 3.0]))
        >>> estimate.value, estimate.n
        (0.8, 2)
    """
    has = wholes > 0
    parts, wholes = parts[has], wholes[has]
    if not len(wholes):
        return UNDEFINED
    value = float(parts.sum() / wholes.sum())
    if value in {0.0, 1.0}:
        return proportion(np.full(len(wholes), value))
    sums = resampled_means(np.stack([parts, wholes]))
    return Estimate(value, *interval_of(sums[0] / sums[1], value), len(wholes))


def combined(estimates: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """Compute a weighted mean of independent shares.

    The interval adds the distances of the shares' limits in squares (MOVER; G. Y. Zou, W. Huang and X. Zhang, "A note
    on confidence interval estimation for a linear function of binomial proportions", Computational Statistics and Data
    Analysis 53, 2009).

    Args:
        estimates: shares, each with its interval.
        weights: of the shares, in any unit.

    Returns:
        The mean; undefined where there is no share, or one of them is undefined.
    """
    if not estimates or any(math.isnan(estimate.value) for estimate in estimates):
        return UNDEFINED
    parts = np.array(weights) / math.fsum(weights)
    values, lows, highs = (
        np.array([getattr(estimate, end) for estimate in estimates]) for end in ("value", "low", "high")
    )

    def distance(ends: Floats) -> float:
        return math.sqrt(float((parts**2 * (values - ends) ** 2).sum()))

    value = float(parts @ values)
    n = sum(estimate.n for estimate in estimates)
    return Estimate(value, max(value - distance(lows), 0.0), min(value + distance(highs), 1.0), n)


def pool_comp_gap_of(models: Sequence[Mapping[Condition, Floats]]) -> Estimate:
    """Compute the mean CompGap over models, with a bootstrap interval: conditions and models share resampled queries.

    Args:
        models: of each model nDCG by condition, float [n_queries].
    """
    n = len(models[0][Condition.MULTIMODAL])
    if not n:
        return UNDEFINED
    stacked = np.stack([of_model[condition] for of_model in models for condition in Condition])
    means = resampled_means(stacked).reshape(len(models), len(Condition), -1)
    value = pool_comp_gap(comp_gap(*(of_model[condition] for condition in Condition)) for of_model in models)
    multimodal, text_only, image_only = means.transpose(1, 0, 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = (1 - np.maximum(text_only, image_only) / multimodal).mean(axis=0)
    # A resample in which a model never succeeds has no gap; the interval is that of the others.
    return Estimate(value, *interval_of(gaps[np.isfinite(gaps)], value), n)


def resampled_means(values: Floats) -> Floats:
    """Compute means of the rows over resampled columns: float64 [n_rows, resamples]."""
    n = values.shape[1]
    return np.concatenate([values @ counts.T.astype(np.float64) / n for counts in _resamples(n)], axis=1)


def _resamples(n: int) -> Iterable[NDArray[np.uint8]]:
    """Count how often each of n queries is drawn in each resample: parts of uint8 [resamples, n], always the same."""
    return _kept_draws(n) if n * _RESAMPLES <= _KEPT_CELLS else _draws(n)


@lru_cache(maxsize=2)
def _kept_draws(n: int) -> tuple[NDArray[np.uint8], ...]:
    """Keep draws: they take much longer than what is done with them, and a table of scores needs them many times."""
    return tuple(_draws(n))


def _draws(n: int) -> Iterator[NDArray[np.uint8]]:
    rng = np.random.default_rng(_SEED)
    chunk = max(1, _CELLS // n)
    for start in range(0, _RESAMPLES, chunk):
        # A query drawn more than 255 times does not occur: at most n times, and once on average.
        yield rng.multinomial(n, np.full(n, 1 / n), size=min(chunk, _RESAMPLES - start)).astype(np.uint8)


def interval_of(resampled: Floats, value: float) -> tuple[float, float]:
    """Compute the bias-corrected percentile interval (Efron, 1981) of an estimate.

    CompGap takes the greater of two means, which in a resample is on average greater than in the data; plain
    percentiles would lie too low.
    """
    from scipy.special import ndtr, ndtri

    if not len(resampled) or math.isnan(value):
        return math.nan, math.nan
    below = ((resampled < value).mean() + (resampled <= value).mean()) / 2
    shift = ndtri(np.clip(below, 1 / (2 * len(resampled)), 1 - 1 / (2 * len(resampled))))
    low, high = np.quantile(resampled, ndtr(2 * shift + ndtri([(1 - LEVEL) / 2, (1 + LEVEL) / 2])))
    return float(low), float(high)
