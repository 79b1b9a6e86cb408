"""Measure inter-annotator agreement with confidence intervals, and an explicit status where it is undefined.

Every coefficient (Krippendorff's alpha, Fleiss' kappa, Cohen's kappa, Gwet's AC1) has the form
1 - (1 - observed) / (1 - chance), where the observed agreement is the share of equal pairs of ratings of an item; they
differ in what they expect by chance. Skewed categories can push all but AC1 and the raw agreement to 0 or below
although raters hardly ever differ, which is why they are printed together. They are our own because the implementation
on PyPI, `krippendorff`, is under the GPL, and for the bootstrap over items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.audit.statistics import UNDEFINED, Estimate, Floats, interval_of, proportion, ratio, resampled_means
from circus_bench.validation.annotations import Annotation
from circus_bench.validation.ratings import MISSING, Ratings, flag_ratings, label_ratings
from circus_bench.validation.study import Study

_EXACT = 1e-12
"""Below this, what chance leaves over is 0 up to rounding."""


class Statistic(StrEnum):
    """Coefficient of inter-annotator agreement."""

    RAW = "raw_agreement"
    KRIPPENDORFF = "krippendorff_alpha"
    FLEISS = "fleiss_kappa"
    COHEN = "mean_cohen_kappa"
    AC1 = "gwet_ac1"


class Status(StrEnum):
    """Status of a coefficient: defined, or the reason why not."""

    OK = "ok"
    NO_RATINGS = "no_ratings"
    ONE_RATER = "one_rater"
    NO_OVERLAP = "no_overlap"
    """No item was rated twice."""
    TOO_FEW_ITEMS = "too_few_items"
    """A single item was rated twice, which says nothing of other items."""
    SINGLE_CATEGORY = "single_category"
    """Chance alone would make all ratings equal: they hold one category only, or the table has only one."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """Measured coefficient of agreement.

    Attributes:
        statistic: which one.
        status: whether it is defined.
        estimate: its value, with a bootstrap interval over items; `n` is the number of items with two ratings or more.
        raters: raters with a rating.
        ratings: all ratings.
    """

    statistic: Statistic
    status: Status
    estimate: Estimate
    raters: int
    ratings: int

    def to_dict(self) -> dict[str, Any]:
        """Convert to strict JSON: an undefined value is None."""
        about = {"statistic": self.statistic.value, "raters": self.raters, "ratings": self.ratings}
        return {**about, **self.estimate.to_dict(), "status": self.status.value}


def raw_agreement(ratings: Ratings) -> Coefficient:
    """Average the share of equal pairs of ratings over items; items with a single rating have no pair."""

    def observed(sums: Floats) -> tuple[Floats, Floats]:
        return sums[0] / sums[1], np.ones_like(sums[0])

    return _coefficient(Statistic.RAW, ratings, _item_rows(ratings)[:2], observed)


def krippendorff_alpha(ratings: Ratings) -> Coefficient:
    """Compute Krippendorff's alpha for nominal data, any number of raters, missing ratings allowed.

    Source: K. Krippendorff, "Computing Krippendorff's alpha-reliability" (2011), section C. Items with a single rating
    are not pairable and left out.
    """
    counts = ratings.counts.astype(np.float64)
    total = counts.sum(axis=1)
    pairable = total >= 2
    equal = (counts * (counts - 1)).sum(axis=1) / np.maximum(total - 1, 1)

    def alpha(sums: Floats) -> tuple[Floats, Floats]:
        values, n = sums[1:], sums[1:].sum(axis=0)
        return _corrected(sums[0] / n, (n**2 - (values**2).sum(axis=0)) / (n * (n - 1)))

    return _coefficient(Statistic.KRIPPENDORFF, ratings, np.vstack([equal, counts.T]) * pairable, alpha)


def fleiss_kappa(ratings: Ratings) -> Coefficient:
    """Compute Fleiss' kappa.

    Source: J. L. Fleiss, "Measuring nominal scale agreement among many raters", Psychological Bulletin 76 (1971). It
    asks for the same number of ratings per item; with other tables this is the generalization of K. L. Gwet,
    "Handbook of Inter-Rater Reliability" (4th edition, 2014), chapter 2: observed agreement is `raw_agreement`, and the
    share of a category is the mean over rated items of its share among the item's ratings.
    """

    def kappa(sums: Floats) -> tuple[Floats, Floats]:
        shares = sums[2:] / sums[2:].sum(axis=0)
        return _corrected(sums[0] / sums[1], 1 - (shares**2).sum(axis=0))

    return _coefficient(Statistic.FLEISS, ratings, _item_rows(ratings), kappa)


def gwet_ac1(ratings: Ratings) -> Coefficient:
    """Compute Gwet's AC1, any number of raters, missing ratings allowed.

    Source: K. L. Gwet, "Computing inter-rater reliability and its variance in the presence of high agreement", British
    Journal of Mathematical and Statistical Psychology 61 (2008); shares of categories as in `fleiss_kappa`. The number
    of categories is that of the table, chosen or not.
    """
    q = len(ratings.categories)

    def ac1(sums: Floats) -> tuple[Floats, Floats]:
        shares = sums[2:] / sums[2:].sum(axis=0)
        return _corrected(
            sums[0] / sums[1], 1 - (shares * (1 - shares)).sum(axis=0) / (q - 1) if q > 1 else 0 * sums[0]
        )

    return _coefficient(Statistic.AC1, ratings, _item_rows(ratings), ac1)


def mean_cohen_kappa(ratings: Ratings) -> Coefficient:
    """Average Cohen's kappa over the pairs of raters, on the items that both rated.

    Source: J. Cohen, "A coefficient of agreement for nominal scales", Educational and Psychological Measurement 20
    (1960); the mean over pairs is R. J. Light's, Psychological Bulletin 76 (1971). Pairs without a kappa (fewer than
    two shared items, or one category only) are left out; see `rater_matrix`.
    """

    def mean_of(sums_of: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
        parts = [kappas for _, kappas in _pair_kappas(ratings, sums_of)]
        return _nanmean(np.concatenate([p[0] for p in parts])), _nanmean(np.concatenate([p[1] for p in parts]))

    status = _status(ratings)
    if status is not Status.OK:
        return _make(Statistic.COHEN, ratings, status, UNDEFINED)
    value, slope = mean_of(_total)
    if math.isnan(value[0]):
        return _make(Statistic.COHEN, ratings, Status.SINGLE_CATEGORY, UNDEFINED)
    resampled, _ = mean_of(lambda rows: resampled_means(rows) * rows.shape[1])
    return _make(Statistic.COHEN, ratings, status, _estimate(ratings, value[0], slope[0], resampled))


STATISTICS: dict[Statistic, Callable[[Ratings], Coefficient]] = {
    Statistic.RAW: raw_agreement,
    Statistic.KRIPPENDORFF: krippendorff_alpha,
    Statistic.FLEISS: fleiss_kappa,
    Statistic.COHEN: mean_cohen_kappa,
    Statistic.AC1: gwet_ac1,
}


def agreement(ratings: Ratings) -> dict[Statistic, Coefficient]:
    """Compute all coefficients of a table."""
    return {statistic: function(ratings) for statistic, function in STATISTICS.items()}


def study_agreement(study: Study, annotations: Iterable[Annotation]) -> dict[str, dict[Statistic, Coefficient]]:
    """Compute the agreement of a study's raters by question.

    Returns:
        For `label` the agreement on the label; for each label of the rubric that on "this one or another" (the rubric's
        valid label gives the agreement on validity); for each step's id that on its flag. Check items and training are
        left out (`circus_bench.validation.ratings.counted_items`).

    Raises:
        MismatchError: the annotations are about another study.
    """
    log = list(annotations)
    labels = label_ratings(study, log)
    tables = {"label": labels}
    tables |= {label: labels.one_vs_rest(label) for label in study.rubric.labels}
    tables |= {step.id: flag_ratings(study, log, step.id) for step in study.rubric.steps}
    return {question: agreement(table) for question, table in tables.items()}


@dataclass(frozen=True, eq=False, slots=True)
class RaterMatrix:
    """Agreement of each pair of raters; the diagonals are NaN, and 0 shared items.

    Attributes:
        raters: ids.
        shared: int64 [n_raters, n_raters], items that both rated.
        agreement: float64, share of the shared items that both put into one category; NaN without a shared item.
        kappa: float64, Cohen's kappa; NaN where it is undefined, see `mean_cohen_kappa`.
    """

    raters: tuple[str, ...]
    shared: NDArray[np.int64]
    agreement: Floats
    kappa: Floats


def rater_matrix(ratings: Ratings) -> RaterMatrix:
    """Compare each rater with each other one."""
    n = len(ratings.raters)
    given = ratings.codes != MISSING
    equal = np.zeros((n, n))
    for code in range(len(ratings.categories)):
        chosen = (ratings.codes == code).astype(np.float64)
        equal += chosen.T @ chosen
    shared = given.T.astype(np.int64) @ given.astype(np.int64)
    np.fill_diagonal(shared, 0)
    kappa = np.full((n, n), np.nan)
    for pairs, (values, _) in _pair_kappas(ratings, _total):
        for (a, b), value in zip(pairs, values[:, 0].tolist(), strict=True):
            kappa[a, b] = kappa[b, a] = value
    with np.errstate(divide="ignore", invalid="ignore"):
        return RaterMatrix(ratings.raters, shared, np.where(shared > 0, equal / shared, np.nan), kappa)


def survival(ratings: Ratings, category: str, *, at_least: int = 3) -> Estimate:
    """Estimate how probably a single rater's choice of a category is the majority vote of the item's raters.

    It answers what a study with one label per item leaves open: had the item gone to all its raters, would the label
    have stood? The majority is more than half of the item's ratings, the single rater's among them; with a tie
    the choice does not survive.

    Args:
        ratings: the table.
        category: the choice, such as the rubric's valid label.
        at_least: ratings that an item needs to count.

    Returns:
        The share of such choices that survive, with a bootstrap interval over items (Wilson's where all items agree);
        `n` is the number of items on which the category was chosen. Undefined where it never was.

    Raises:
        CircusError: there is no such category.
    """
    votes, others = ratings.one_vs_rest(category).counts.T
    total = votes + others
    used = (total >= at_least) & (votes > 0)
    chosen = votes[used].astype(np.float64)
    return ratio(chosen * (2 * votes[used] > total[used]), chosen)


def _total(rows: Floats) -> Floats:
    """Sum over items: float64 [n_rows, 1]."""
    sums: Floats = rows.sum(axis=1, keepdims=True)
    return sums


def _item_rows(ratings: Ratings) -> Floats:
    """Compute per item the share of equal pairs, whether there is one, and the categories' shares: [2 + q, n_items]."""
    counts = ratings.counts.astype(np.float64)
    total = counts.sum(axis=1)
    equal = (counts * (counts - 1)).sum(axis=1) / np.maximum(total * (total - 1), 1)
    rows: Floats = np.vstack([equal, total >= 2, (counts / np.maximum(total, 1)[:, None]).T])
    return rows


def _corrected(observed: Floats, left: Floats) -> tuple[Floats, Floats]:
    """Correct for chance: the coefficient and its slope in the observed agreement; NaN where chance leaves nothing."""
    left = np.where(left > _EXACT, left, np.nan)
    return 1 - (1 - observed) / left, 1 / left


def _status(ratings: Ratings) -> Status:
    given = ratings.codes != MISSING
    overlapping = int((given.sum(axis=1) >= 2).sum())
    if not given.any():
        return Status.NO_RATINGS
    if given.any(axis=0).sum() == 1:
        return Status.ONE_RATER
    if overlapping < 2:
        return Status.TOO_FEW_ITEMS if overlapping else Status.NO_OVERLAP
    return Status.OK


def _coefficient(
    statistic: Statistic, ratings: Ratings, rows: Floats, function: Callable[[Floats], tuple[Floats, Floats]]
) -> Coefficient:
    """Evaluate a function of sums over items, on the items and on resampled ones.

    Args:
        statistic: which one it is.
        ratings: the table.
        rows: float64 [n_rows, n_items], what is summed.
        function: sums [n_rows, m] to m values and slopes, see `_corrected`.
    """
    status = _status(ratings)
    if status is not Status.OK:
        return _make(statistic, ratings, status, UNDEFINED)
    rated = rows[:, (ratings.codes != MISSING).any(axis=1)]
    # A resample may hold no pair at all; it has no value, and the interval is that of the others.
    with np.errstate(divide="ignore", invalid="ignore"):
        value, slope = function(_total(rated))
        resampled, _ = function(resampled_means(rated) * rated.shape[1])
    if math.isnan(value[0]):
        return _make(statistic, ratings, Status.SINGLE_CATEGORY, UNDEFINED)
    return _make(statistic, ratings, status, _estimate(ratings, value[0], slope[0], resampled))


def _estimate(ratings: Ratings, value: float, slope: float, resampled: Floats) -> Estimate:
    equal, pairable = _item_rows(ratings)[:2]
    n = int(pairable.sum())
    if (equal[pairable > 0] == 1).all():
        # Resampling items that all agree shows no spread. Wilson's limit of the share of such items takes its place.
        return Estimate(float(value), float(value - (1 - proportion(np.ones(n)).low) * slope), float(value), n)
    return Estimate(float(value), *interval_of(resampled[np.isfinite(resampled)], value), n)


def _make(statistic: Statistic, ratings: Ratings, status: Status, estimate: Estimate) -> Coefficient:
    given = ratings.codes != MISSING
    return Coefficient(statistic, status, estimate, int(given.any(axis=0).sum()), int(given.sum()))


def _pair_kappas(
    ratings: Ratings, sums_of: Callable[[Floats], Floats]
) -> Iterator[tuple[list[tuple[int, int]], tuple[Floats, Floats]]]:
    """Compute Cohen's kappa and its slope for the pairs of each rater with the later ones: float64 [n_pairs, m] each.

    Args:
        ratings: the table.
        sums_of: rows [n_rows, n_items] to their sums over items or resamples of items, [n_rows, m].
    """
    codes = ratings.codes[(ratings.codes != MISSING).any(axis=1)]
    one_hot = (codes[:, :, None] == np.arange(len(ratings.categories))).astype(np.float64)
    q = len(ratings.categories)
    for a in range(len(ratings.raters) - 1):
        of_a, rows = range(a + 1, len(ratings.raters)), []
        for b in of_a:
            shared = ((codes[:, a] != MISSING) & (codes[:, b] != MISSING)).astype(np.float64)
            equal = shared * (codes[:, a] == codes[:, b])
            rows.append(np.vstack([equal, shared, one_hot[:, a].T * shared, one_hot[:, b].T * shared]))
        sums = sums_of(np.vstack(rows)).reshape(len(of_a), 2 + 2 * q, -1)
        with np.errstate(divide="ignore", invalid="ignore"):
            equal, shared = sums[:, 0], np.where(sums[:, 1] > 1.5, sums[:, 1], np.nan)
            chance = (sums[:, 2 : 2 + q] * sums[:, 2 + q :]).sum(axis=1) / shared**2
            yield [(a, b) for b in of_a], _corrected(equal / shared, 1 - chance)


def _nanmean(values: Floats) -> Floats:
    """Average over the first axis what is defined; NaN where nothing is."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(known, values, 0).sum(axis=0) / known.sum(axis=0)
    return mean
