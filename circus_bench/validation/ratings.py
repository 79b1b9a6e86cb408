"""Ratings: a table of items by raters, taken from the blind judgements of a study; what agreement is computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from circus_bench.errors import CircusError, MismatchError, some
from circus_bench.validation.annotations import Judgement, Role, in_force
from circus_bench.validation.study import Item, Study

MISSING = -1
"""The code of a rater who has not judged an item. It is never counted as a category."""

FLAG_CATEGORIES = ("flagged", "not flagged")


@dataclass(frozen=True, eq=False, slots=True)
class Ratings:
    """Which category each rater put each item into.

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
            if len(set(values)) < len(values):
                raise CircusError(f"ratings: {what} are repeated ({some(v for v in values if values.count(v) > 1)})")
        if self.codes.size and not (self.codes.min() >= MISSING and self.codes.max() < len(self.categories)):
            raise CircusError(
                f"ratings: codes go from {self.codes.min()} to {self.codes.max()}, there are "
                f"{len(self.categories)} categories, and {MISSING} stands for a missing one"
            )

    @classmethod
    def of(cls, rows: Sequence[Sequence[str | None]], *, categories: Sequence[str] | None = None) -> Ratings:
        """Make a table from one row for each item, with one entry for each rater and None for a missing one.

        Args:
            rows: categories by name.
            categories: all that raters could choose; by default those that occur, sorted.

        Raises:
            CircusError: the rows differ in length, or hold a category that is not among `categories`.

        Example:
            >>> Ratings.of([["a", "b"], [None, "b"]]).codes.tolist()
            [[0, 1], [-1, 1]]
        """
        widths = {len(row) for row in rows}
        if len(widths) > 1:
            raise CircusError(
                f"ratings: rows of {sorted(widths)} entries; give one entry for each rater, None if missing"
            )
        present = {value for row in rows for value in row if value is not None}
        known = tuple(categories) if categories is not None else tuple(sorted(present))
        if present - set(known):
            raise CircusError(f"ratings: unknown categories ({some(sorted(present - set(known)))}), not among {known}")
        place: dict[str | None, int] = {None: MISSING, **{name: code for code, name in enumerate(known)}}
        codes = np.array([[place[value] for value in row] for row in rows], np.int16)
        width = widths.pop() if widths else 0
        items, raters = (f"item{i}" for i in range(len(rows))), (f"rater{i}" for i in range(width))
        return cls(tuple(items), tuple(raters), known, codes.reshape(len(rows), width))

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many raters put each item into each category: int64 [n_items, n_categories]."""
        counts: NDArray[np.int64] = (self.codes[:, :, None] == np.arange(len(self.categories))).sum(axis=1)
        return counts

    def against_rest(self, category: str) -> Ratings:
        """The same table with two categories: this one and any other.

        Raises:
            CircusError: there is no such category.
        """
        if category not in self.categories:
            raise CircusError(f"ratings: no category {category!r} among {self.categories}")
        other = self.codes != self.categories.index(category)
        codes = np.where(self.codes == MISSING, MISSING, other).astype(np.int16)
        return Ratings(self.items, self.raters, (category, f"not {category}"), codes)


def counted_items(study: Study) -> tuple[Item, ...]:
    """The items that are decided and counted: neither training nor check items, whose answers are known beforehand."""
    return tuple(item for item in study.items if not item.training and not item.known)


def blind_judgements(study: Study, judgements: Iterable[Judgement]) -> list[Judgement]:
    """The raters' judgements in force, training left out. Adjudicators have seen the others' and are left out, too.

    Raises:
        MismatchError: see `check_is_about`.
    """
    kept = in_force(judgements)
    check_is_about(study, kept)
    training = {item.id for item in study.items if item.training}
    return [judgement for judgement in kept if judgement.role is Role.RATER and judgement.item not in training]


def check_is_about(study: Study, judgements: Iterable[Judgement]) -> None:
    """Refuse judgements of another study or rubric.

    Raises:
        MismatchError: a judgement is about no item of the study, its label or a flag is not in the rubric, its label is
            not what its flags come to, or it names an alternative that the item's panel does not show.
    """
    panels, labels = {item.id: item.panel for item in study.items}, set(study.rubric.labels)
    flags = {step.id for step in study.rubric.steps}
    wrong: dict[str, dict[str, None]] = {"items": {}, "labels": {}, "flags": {}, "alternatives": {}}
    contradicting = []
    for judgement in judgements:
        if judgement.item not in panels:
            wrong["items"][judgement.item] = None
        if judgement.label not in labels:
            wrong["labels"][judgement.label] = None
        elif judgement.label != study.rubric.label_of(judgement.flags):
            contradicting.append(f"{judgement.item} by {judgement.rater}")
        wrong["flags"].update(dict.fromkeys(flag for flag in judgement.flags if flag not in flags))
        shown = panels.get(judgement.item, ())
        wrong["alternatives"].update(dict.fromkeys(image for image in judgement.alternatives if image not in shown))
    for what, names in wrong.items():
        if names:
            raise MismatchError(
                f"study {study.name!r}: judgements with unknown {what} ({some(names)}); "
                "take the study and the rubric that the judgements were made with"
            )
    if contradicting:
        raise MismatchError(
            f"study {study.name!r}: judgements whose label is not what their flags come to ({some(contradicting)})"
        )


def label_ratings(study: Study, judgements: Iterable[Judgement], *, items: Sequence[Item] | None = None) -> Ratings:
    """The label that each rater gave each item.

    Args:
        study: what was judged.
        judgements: the event log; the blind judgements in force are taken (`blind_judgements`).
        items: the rows; `counted_items` by default.

    Raises:
        MismatchError: the judgements are about another study.
    """
    return _table(study, judgements, study.rubric.labels, lambda judgement: judgement.label, items=items)


def flag_ratings(study: Study, judgements: Iterable[Judgement], step: str) -> Ratings:
    """Whether each rater flagged a step of the rubric; see `FLAG_CATEGORIES`. Rows and errors as `label_ratings`."""

    def category(judgement: Judgement) -> str:
        return FLAG_CATEGORIES[step not in judgement.flags]

    return _table(study, judgements, FLAG_CATEGORIES, category, items=None)


def _table(
    study: Study,
    judgements: Iterable[Judgement],
    categories: tuple[str, ...],
    category: Callable[[Judgement], str],
    *,
    items: Sequence[Item] | None,
) -> Ratings:
    ids = tuple(item.id for item in (counted_items(study) if items is None else items))
    row, code = {item: place for place, item in enumerate(ids)}, {name: place for place, name in enumerate(categories)}
    taken = [judgement for judgement in blind_judgements(study, judgements) if judgement.item in row]
    present = {judgement.rater for judgement in taken}
    # The study's order first, so that the same judgements in another order give the same table.
    raters = (*(r for r in study.assignments if r in present), *sorted(present - set(study.assignments)))
    column = {rater: place for place, rater in enumerate(raters)}
    codes = np.full((len(ids), len(raters)), MISSING, np.int16)
    for judgement in taken:
        codes[row[judgement.item], column[judgement.rater]] = code[category(judgement)]
    return Ratings(ids, raters, categories, codes)
