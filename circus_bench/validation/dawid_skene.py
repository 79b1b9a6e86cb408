"""Fit Dawid and Skene's model: the true categories of items and the confusion matrices of raters, estimated together.

Source: A. P. Dawid and A. M. Skene, "Maximum likelihood estimation of observer error-rates using the EM algorithm",
Applied Statistics 28 (1979), sections 2 and 3. Raters err independently of each other, each with error rates of their
own; a rater who is often wrong counts little, and one who is nearly always wrong counts the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from circus_bench.audit.statistics import Floats
from circus_bench.errors import CircusError
from circus_bench.validation.ratings import MISSING, Ratings

SMOOTHING = 0.5
"""Ratings added to each cell of each confusion matrix, so that a rater with few ratings counts little either way, and
items added to each category, so that none is impossible."""

_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False, slots=True)
class DawidSkene:
    """Fitted Dawid-Skene model.

    Attributes:
        posterior: float64 [n_items, n_categories], probability of each item's true category, given all ratings. An item
            without a rating has the shares of the categories.
        prevalence: float64 [n_categories], estimated shares of the true categories.
        confusion: float64 [n_raters, n_categories, n_categories], confusion matrices: how a rater (first) rates (last)
            an item that truly is of a category (middle); rows sum to 1.
        log_likelihood: of the ratings under the model.
        iterations: of the EM algorithm.
        converged: whether the posterior had settled by then.
    """

    posterior: Floats
    prevalence: Floats
    confusion: Floats
    log_likelihood: float
    iterations: int
    converged: bool


def fit(ratings: Ratings, *, known: NDArray[np.integer] | None = None, smoothing: float = SMOOTHING) -> DawidSkene:
    """Fit the model to a table with one rating at most for each item and rater; see `fit_counts`."""
    one_hot = (ratings.codes[:, :, None] == np.arange(len(ratings.categories))).astype(np.float64)
    return fit_counts(one_hot, known=known, smoothing=smoothing)


def fit_counts(
    counts: Floats,
    *,
    known: NDArray[np.integer] | None = None,
    smoothing: float = SMOOTHING,
    tolerance: float = 1e-7,
    max_iterations: int = 2000,
) -> DawidSkene:
    """Fit the model with the EM algorithm.

    It starts from each item's shares of ratings (equation 3.1), so that the result is the same at every call and a
    category keeps its meaning as long as raters are more often right than wrong.

    Args:
        counts: float64 [n_items, n_raters, n_categories], how often a rater put an item into a category.
        known: int [n_items], the true category where it is known beforehand, `MISSING` elsewhere. Such items teach the
            raters' error rates, not the shares of the categories, unless there are no others.
        smoothing: see `SMOOTHING`; 0 is the maximum likelihood of the paper.
        tolerance: of the posterior between two iterations.
        max_iterations: after which the algorithm stops, converged or not.

    Raises:
        CircusError: there is no rating, or the arguments do not fit.
    """
    n, _, q = counts.shape
    anchor = np.full(n, MISSING) if known is None else np.asarray(known)
    if anchor.shape != (n,) or (n and not (anchor.min() >= MISSING and anchor.max() < q)):
        raise CircusError(f"known categories of {n:,} items must be {n:,} numbers from {MISSING} to {q - 1}")
    if not counts.sum() or smoothing < 0:
        raise CircusError(f"Dawid and Skene's model needs ratings (found {counts.sum():g}) and smoothing >= 0")
    free = anchor == MISSING
    fixed = (anchor[:, None] == np.arange(q)).astype(np.float64)
    counted = free if (counts.sum(axis=(1, 2)) > 0)[free].any() else np.ones(n, bool)
    counted = counted & (counts.sum(axis=(1, 2)) > 0)

    by_item = counts.sum(axis=1)
    rated = by_item.sum(axis=1, keepdims=True)
    overall = by_item.sum(axis=0) / by_item.sum()
    posterior = np.where(rated > 0, by_item / np.maximum(rated, 1), overall)
    posterior = np.where(free[:, None], posterior, fixed)
    converged, iteration = False, 0
    while not converged and iteration < max_iterations:
        iteration += 1
        prevalence, confusion = _m_step(counts, posterior, counted, smoothing)
        expected, log_likelihood = _e_step(counts, prevalence, confusion, free=free, fixed=fixed)
        converged = bool(np.abs(expected - posterior).max() < tolerance)
        posterior = expected
    return DawidSkene(posterior, prevalence, confusion, log_likelihood, iteration, converged)


def _m_step(counts: Floats, posterior: Floats, counted: NDArray[np.bool_], smoothing: float) -> tuple[Floats, Floats]:
    """Estimate the categories' prevalence (equation 2.4) and the confusion matrices (2.3) from the posterior."""
    items = posterior[counted].sum(axis=0) + smoothing
    prevalence = items / items.sum()
    cells = np.einsum("ij,irl->rjl", posterior, counts) + smoothing
    totals = cells.sum(axis=2, keepdims=True)
    # Without smoothing, a rater who has rated no item of a category has no error rates there: they are set to equal.
    confusion = np.where(totals > 0, cells / np.maximum(totals, _TINY), 1 / counts.shape[2])
    return prevalence, confusion


def _e_step(
    counts: Floats, prevalence: Floats, confusion: Floats, *, free: NDArray[np.bool_], fixed: Floats
) -> tuple[Floats, float]:
    """Compute the posterior of the items' categories (2.5), and the log-likelihood (2.7).

    Logarithms are summed: the product over many raters would underflow.
    """
    joint = np.log(np.maximum(prevalence, _TINY)) + np.einsum(
        "irl,rjl->ij", counts, np.log(np.maximum(confusion, _TINY))
    )
    highest = joint.max(axis=1, keepdims=True)
    evidence = highest[:, 0] + np.log(np.exp(joint - highest).sum(axis=1))
    posterior = np.where(free[:, None], np.exp(joint - evidence[:, None]), fixed)
    of_known = np.where(fixed > 0, joint, 0).sum(axis=1)
    return posterior, float(np.where(free, evidence, of_known).sum())
