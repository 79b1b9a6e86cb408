"""Ratings: the table of items by raters that inter-annotator agreement is computed from, out of blind annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from circus_bench.errors import CircusError, duplicates, format_ids
from circus_bench.validation.annotations import Annotation, AnnotatorRole, check_fit, latest
from circus_bench.validation.study import Item, Study

MISSING = -1
"""The code of a rater who has not judged an item. It is never counted as a category."""

FLAG_CATEGORIES = ("flagged", "not flagged")


@dataclass(frozen=True, eq=False, slots=True)
class Ratings:
    """Category that each rater put each item into.

    Attributes:
        items: ids.
        raters: ids.
        categories: all that raters could choose, also those that nobody chose.
        codes: int [n_items, n_raters], positions in `categories`, `MISSING` where a rater has not judged an item.

    Raises:
        CircusError: the parts do not fit, an id or a category is repeated, or a code is no position.
    """

    items: tuple[str, ...]
    raters: tuple[str, ...]
    categories: tuple[str, ...]
    codes: NDArray[np.int16]

    def __post_init__(self) -> None:
        shape = (len(self.items), len(self.raters))
        if self.codes.shape != shape:
            raise CircusError(
                f"ratings of {shape[0]:,} items by {shape[1]:,} raters need that shape: {self.codes.shape}"
            )
        for what, values in (("items", self.items), ("raters", self.raters), ("categories", self.categories)):
            if duplicates(values):
                raise CircusError(f"ratings: {what} are repeated ({format_ids(duplicates(values))})")
        if self.codes.size and not (self.codes.min() >= MISSING and self.codes.max() < len(self.categories)):
            raise CircusError(
                f"ratings: codes go from {self.codes.min()} to {self.codes.max()}, there are "
                f"{len(self.categories)} categories, and {MISSING} stands for a missing one"
            )

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[str | None]], *, categories: Sequence[str] | None = None) -> Ratings:
        """Make a table from one row per item, with one entry per rater and None for a missing one.

        Args:
            rows: categories by name.
            categories: all that raters could choose; by default those that occur, sorted.

        Raises:
            CircusError: the rows differ in length, or hold a category that is not among `categories`.

        Example:
            >>> Ratings.from_rows([["a", "b"], [None, "b"]]).codes.tolist()
            [[0, 1], [-1, 1]]
        """
        widths = {len(row) for row in rows}
        if len(widths) > 1:
            raise CircusError(f"ratings: rows of {sorted(widths)} entries; give one entry per rater, None if missing")
        present = {value for row in rows for value in row if value is not None}
        known = tuple(categories) if categories is not None else tuple(sorted(present))
        if present - set(known):
            raise CircusError(
                f"ratings: unknown categories ({format_ids(sorted(present - set(known)))}), not among {known}"
            )
        place: dict[str | None, int] = {None: MISSING, **{name: code for code, name in enumerate(known)}}
        codes = np.array([[place[value] for value in row] for row in rows], np.int16)
        width = widths.pop() if widths else 0
        items, raters = (f"item{i}" for i in range(len(rows))), (f"rater{i}" for i in range(width))
        return cls(tuple(items), tuple(raters), known, codes.reshape(len(rows), width))

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of raters who put each item into each category: int64 [n_items, n_categories]."""
        counts: NDArray[np.int64] = (self.codes[:, :, None] == np.arange(len(self.categories))).sum(axis=1)
        return counts

    def one_vs_rest(self, category: str) -> Ratings:
        """Reduce the table to two categories: this one and any other.

        Raises:
            CircusError: there is no such category.
        """
        if category not in self.categories:
            raise CircusError(f"ratings: no category {category!r} among {self.categories}")
        other = self.codes != self.categories.index(category)
        codes = np.where(self.codes == MISSING, MISSING, other).astype(np.int16)
        return Ratings(self.items, self.raters, (category, f"not {category}"), codes)


def counted_items(study: Study) -> tuple[Item, ...]:
    """Select the items that are decided and counted: neither training nor check items, which have a gold label."""
    return tuple(item for item in study.items if not item.training and not item.known)


def blind_annotations(study: Study, annotations: Iterable[Annotation]) -> list[Annotation]:
    """Select the raters' latest annotations, without training items and adjudicators, who have seen the others'.

    Raises:
        MismatchError: see `circus_bench.validation.annotations.check_fit`.
    """
    kept = latest(annotations)
    check_fit(study, kept)
    return [a for a in kept if a.role is AnnotatorRole.RATER and not study.item_by_id[a.item].training]


def label_ratings(study: Study, annotations: Iterable[Annotation], *, items: Sequence[Item] | None = None) -> Ratings:
    """Tabulate the label that each rater gave each item.

    Args:
        study: the study.
        annotations: the event log, of which `blind_annotations` are taken.
        items: the rows; `counted_items` by default.

    Raises:
        MismatchError: the annotations are about another study.
    """
    return _table(study, annotations, study.rubric.labels, lambda annotation: annotation.label, items=items)


def flag_ratings(study: Study, annotations: Iterable[Annotation], step: str) -> Ratings:
    """Tabulate who flagged a step of the rubric, see `FLAG_CATEGORIES`. Rows and errors as `label_ratings`."""

    def category(annotation: Annotation) -> str:
        return FLAG_CATEGORIES[step not in annotation.flags]

    return _table(study, annotations, FLAG_CATEGORIES, category, items=None)


def _table(
    study: Study,
    annotations: Iterable[Annotation],
    categories: tuple[str, ...],
    category: Callable[[Annotation], str],
    *,
    items: Sequence[Item] | None,
) -> Ratings:
    ids = tuple(item.id for item in (counted_items(study) if items is None else items))
    row, code = {item: place for place, item in enumerate(ids)}, {name: place for place, name in enumerate(categories)}
    taken = [annotation for annotation in blind_annotations(study, annotations) if annotation.item in row]
    present = {annotation.rater for annotation in taken}
    # The study's order first, so that the same annotations in another order give the same table.
    raters = (*(r for r in study.assignments if r in present), *sorted(present - set(study.assignments)))
    column = {rater: place for place, rater in enumerate(raters)}
    codes = np.full((len(ids), len(raters)), MISSING, np.int16)
    for annotation in taken:
        codes[row[annotation.item], column[annotation.rater]] = code[category(annotation)]
    return Ratings(ids, raters, categories, codes)
