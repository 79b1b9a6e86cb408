"""Studies and annotations that a test writes down, without sampling, app or store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from circus_bench.validation.annotations import Annotation
from circus_bench.validation.rubric import load_rubric
from circus_bench.validation.study import Item, Study

VALID, TEXT, REFERENCE, TARGET, BROAD = load_rubric().labels
FLAGS = {VALID: (), TEXT: ("text",), REFERENCE: ("reference",), TARGET: ("target",), BROAD: ("breadth",)}

PANEL = ("a", "b", "c")


def item(number: int, *, stratum: str = "made/unresolved", **fields: Any) -> Item:
    """Item `made::<number>`."""
    return Item(f"made::{number}", "made", str(number), stratum, **fields)


def study(items: int | Sequence[Item], *, raters: Sequence[str] = ("ann", "bob", "cy")) -> Study:
    """A study in which each rater has all items, in their order; a number of items have the panel `PANEL`."""
    items = [item(number, panel=PANEL) for number in range(items)] if isinstance(items, int) else items
    assignments = {rater: tuple(entry.id for entry in items) for rater in raters}
    return Study("made", load_rubric(), 0, tuple(items), assignments, {"made": "made"})


def judge(rater: str, number: int, label: str = VALID, **fields: Any) -> Annotation:
    """An annotation of `made::<number>`, with the flag that the label follows from."""
    return Annotation(f"made::{number}", rater, label, **{"flags": FLAGS.get(label, ()), **fields})


def judge_all(labels: Mapping[str, Sequence[str | None]], **fields: Any) -> list[Annotation]:
    """For each rater one label for each item from 0 on; None is a missing annotation. Item after item."""
    longest = max(map(len, labels.values()))
    return [
        judge(rater, number, given[number], **fields)
        for number in range(longest)
        for rater, given in labels.items()
        if number < len(given) and given[number] is not None
    ]
