"""Label queries by min-rank: shortcut if any model of the pool solves them from one modality alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from circus_bench.errors import CircusError, FormatError, format_ids
from circus_bench.metrics._checks import numbers, positive_int
from circus_bench.metrics.ranks import Floats, Ints

Strings = NDArray[np.str_]
Bools = NDArray[np.bool_]


class Label(StrEnum):
    """Label of a query by the ranks of the pool."""

    SHORTCUT = "shortcut"
    """Enough models retrieve a target from the text alone or from the image alone."""
    COMPOSITION_REQUIRED = "composition_required"
    """No shortcut, and enough models retrieve a target from both together."""
    UNRESOLVED = "unresolved"
    """Neither."""


class Shortcut(StrEnum):
    """Modality that is the shortcut."""

    TEXT_ONLY = "text_only"
    IMAGE_ONLY = "image_only"
    BOTH = "both"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShortcutLabels:
    """Labels of n_queries queries, and the evidence for them.

    Attributes:
        labels: str [n_queries], values of `Label`.
        details: str [n_queries], values of `Shortcut`; "" for a query that is no shortcut.
        best_multimodal: float64 [n_queries], best rank over the models; inf when no model retrieves a target.
        best_text_only: the same for the text alone.
        best_image_only: the same for the image alone.
        support_multimodal: int64 [n_queries], number of models with a rank of at most `k`.
        support_text_only: the same for the text alone.
        support_image_only: the same for the image alone.
        support_unimodal: number of models with a rank of at most `k` for the text alone or the image alone.
        k: the cut-off.
        min_unimodal: the support that made a query a shortcut.
        min_multimodal: the support that made a query composition_required.
    """

    labels: Strings
    details: Strings
    best_multimodal: Floats
    best_text_only: Floats
    best_image_only: Floats
    support_multimodal: Ints
    support_text_only: Ints
    support_image_only: Ints
    support_unimodal: Ints
    k: int
    min_unimodal: int
    min_multimodal: int

    @property
    def shortcut_free(self) -> Bools:
        """Mask of the SF subset, composition_required and unresolved: bool [n_queries]."""
        return np.not_equal(self.labels, Label.SHORTCUT.value)

    def __repr__(self) -> str:
        """Name the counts rather than each query."""
        counts = ", ".join(f"{label} {count:,}" for label, count in self.counts().items())
        return f"ShortcutLabels({len(self.labels):,} queries, K = {self.k}: {counts})"

    def counts(self) -> dict[Label, int]:
        """Return the number of queries of each label, in the order of `Label`."""
        return {label: int((self.labels == label.value).sum()) for label in Label}

    def detail_counts(self) -> dict[Shortcut, int]:
        """Return the number of shortcut queries of each kind, in the order of `Shortcut`."""
        return {detail: int((self.details == detail.value).sum()) for detail in Shortcut}


def min_rank_labels(
    multimodal: ArrayLike,
    text_only: ArrayLike,
    image_only: ArrayLike,
    *,
    k: int = 10,
    min_unimodal: int = 1,
    min_multimodal: int = 1,
) -> ShortcutLabels:
    """Label queries by the best ranks that a pool of models reaches, after CIRCUS (arXiv 2605.14787).

    A query is a shortcut if at least `min_unimodal` models have min(text, image) <= k; else composition_required if at
    least `min_multimodal` models have multimodal <= k; else unresolved. With the defaults of 1 these are conditions on
    the minimum rank over the pool, which gave the label its name.

    The detail of a shortcut says under which single conditions any model has a hit: one model's text hit and another's
    image hit make `both`. With `min_unimodal` > 1 the detail is still read from all hits, so neither modality alone
    need have `min_unimodal` models behind it; the support counts tell.

    Args:
        multimodal: float [n_models, n_queries], rank of the query's best target; inf when it is never retrieved.
        text_only: the same with the reference image blacked out.
        image_only: the same without the modification text.
        k: the rank up to which a query counts as solved.
        min_unimodal: models needed for a shortcut, 1 to n_models.
        min_multimodal: models needed for composition_required, 1 to n_models.

    Raises:
        FormatError: the arrays differ in shape, are not two-dimensional, hold no model, or hold NaN or ranks below 1.
        CircusError: `k`, `min_unimodal` or `min_multimodal` is no whole number of at least 1, or more models are asked
            for than there are.

    Example:
        Two models, three queries.

        >>> found = min_rank_labels(
        ...     [[1, 4, 90], [2, 30, 80]],
        ...     [[7, 55, 60], [9, 70, 70]],
        ...     [[99, 41, 50], [3, 40, 60]],
        ... )
        >>> found.labels.tolist(), found.details.tolist()
        (['shortcut', 'composition_required', 'unresolved'], ['both', '', ''])
        >>> found.support_text_only.tolist(), found.support_image_only.tolist()
        ([2, 0, 0], [1, 0, 0])
    """
    both = _best_ranks(multimodal, "multimodal")
    text = _best_ranks(text_only, "text_only")
    image = _best_ranks(image_only, "image_only")
    if not both.shape == text.shape == image.shape:
        raise FormatError(
            "the conditions must cover the same models and queries, found the shapes "
            f"multimodal {both.shape}, text_only {text.shape}, image_only {image.shape}"
        )
    k = positive_int(k, "k")
    min_unimodal = _support(min_unimodal, "min_unimodal", len(both))
    min_multimodal = _support(min_multimodal, "min_multimodal", len(both))

    support_unimodal = (np.minimum(text, image) <= k).sum(axis=0)
    support_multimodal, support_text, support_image = ((ranks <= k).sum(axis=0) for ranks in (both, text, image))
    labels = np.select(
        [support_unimodal >= min_unimodal, support_multimodal >= min_multimodal],
        [Label.SHORTCUT.value, Label.COMPOSITION_REQUIRED.value],
        Label.UNRESOLVED.value,
    )
    is_shortcut = labels == Label.SHORTCUT.value
    details = np.select(
        [is_shortcut & (support_image == 0), is_shortcut & (support_text == 0), is_shortcut],
        [Shortcut.TEXT_ONLY.value, Shortcut.IMAGE_ONLY.value, Shortcut.BOTH.value],
        "",
    )
    return ShortcutLabels(
        labels=labels,
        details=details,
        best_multimodal=both.min(axis=0),
        best_text_only=text.min(axis=0),
        best_image_only=image.min(axis=0),
        support_multimodal=support_multimodal,
        support_text_only=support_text,
        support_image_only=support_image,
        support_unimodal=support_unimodal,
        k=k,
        min_unimodal=min_unimodal,
        min_multimodal=min_multimodal,
    )


def _best_ranks(values: ArrayLike, name: str) -> Floats:
    ranks = numbers(values, name)
    if ranks.ndim != 2 or not len(ranks):
        raise FormatError(f"{name}: expected best ranks of the shape [n_models, n_queries], found {ranks.shape}")
    wrong = ~(ranks >= 1)  # NaN compares false, so it is caught as well
    if wrong.any():
        queries = np.flatnonzero(wrong.any(axis=0)).tolist()
        raise FormatError(
            f"{name}: ranks below 1 or NaN, such as {ranks[wrong][0]} (query indices {format_ids(queries)}); "
            "ranks count from 1, and math.inf is a target that is never retrieved"
        )
    return ranks


def _support(value: int, name: str, n_models: int) -> int:
    number = positive_int(value, name)
    if number > n_models:
        raise CircusError(f"{name} is {number}, but the pool has {n_models} models")
    return number
