"""Derive what a person has to do next from the study and the annotation log."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from circus_bench.validation.annotation_log import Access, AnnotationLog, EventKind, Person
from circus_bench.validation.annotations import Annotation, AnnotatorRole
from circus_bench.validation.hash_order import hash_shuffle
from circus_bench.validation.ratings import counted_items
from circus_bench.validation.study import Study

_PACE_OVER = 30  # annotations that the pace is taken from


@dataclass(frozen=True, slots=True)
class Worklist:
    """Items of a person, and their progress.

    Attributes:
        items: all of them, in the order of showing; training items first.
        training: those of them that come with feedback and do not count.
        judged: those with an annotation, the one judged last at the end.
        later: those put off and not judged since, the one put off first at the front.
        pace: median seconds of an annotation; None before the first.
    """

    items: tuple[str, ...]
    training: frozenset[str]
    judged: tuple[str, ...]
    later: tuple[str, ...]
    pace: float | None

    @property
    def open(self) -> list[str]:
        """Items left to judge, in the order of showing: what was put off comes last."""
        behind = {*self.judged, *self.later}
        return [*(item for item in self.items if item not in behind), *self.later]

    @property
    def total(self) -> int:
        """Number of items that count."""
        return len(self.items) - len(self.training)

    @property
    def done(self) -> int:
        """Number of judged items that count."""
        return len([item for item in self.judged if item not in self.training])

    @property
    def minutes_left(self) -> int | None:
        """Whole minutes that the rest takes at this pace."""
        return None if self.pace is None else round(self.pace * (self.total - self.done) / 60)

    def before(self, item: str) -> str | None:
        """Find the item judged before this one; the one judged last, where this one is still to be judged."""
        place = self.judged.index(item) if item in self.judged else len(self.judged)
        return self.judged[place - 1] if place else None


class Worklists:
    """Worklists of all people of a study.

    Args:
        study: the study.
        log: its annotations.
    """

    def __init__(self, study: Study, log: AnnotationLog) -> None:
        self._study = study
        self._log = log
        self._raters: dict[str, set[str]] = {}
        for rater, items in study.assignments.items():
            for item in items:
                self._raters.setdefault(item, set()).add(rater)
        self._names = {item.id: opaque_name(study, "item", item.id) for item in study.items}
        self._by_name = {name: item for item, name in self._names.items()}

    def name(self, item: str) -> str:
        """Name an item in addresses and pages. The name tells nothing: neither stratum nor place in the study."""
        return self._names[item]

    def named(self, name: str) -> str | None:
        """Find the item of this name."""
        return self._by_name.get(name)

    def of(self, person: Person) -> Worklist:
        """Derive the worklist of a person; empty for an owner."""
        trail = self._log.trail(person)
        judged = tuple(_in_last_order(step.item for step in trail if step.kind is EventKind.ANNOTATION))
        later = _in_last_order(step.item for step in trail if step.kind is EventKind.LATER)
        items = self._items_of(person, judged)
        training = frozenset(item for item in items if self._study.item_by_id[item].training)
        seconds = [s.seconds for s in trail if s.kind is EventKind.ANNOTATION and s.item not in training][-_PACE_OVER:]
        return Worklist(
            items=items,
            training=training,
            judged=judged,
            later=tuple(item for item in later if item not in judged and item in items),
            pace=statistics.median(seconds) if seconds else None,
        )

    def voices(self, item: str) -> list[Annotation]:
        """List the raters' annotations of an item for an adjudicator, in an order that hides who is who."""
        judged = {j.rater: j for j in self._log.by_item().get(item, ()) if j.role is AnnotatorRole.RATER}
        return [judged[rater] for rater in hash_shuffle(judged, self._study.seed, "voices", item)]

    def _items_of(self, person: Person, judged: Sequence[str]) -> tuple[str, ...]:
        if person.access is Access.RATER:
            own = self._study.assignments.get(person.id, ())
            training = [item.id for item in self._study.items if item.training]
            return (*training, *(item for item in own if item not in training))
        if person.access is Access.ADJUDICATOR:
            return tuple(dict.fromkeys((*self.disputed(), *judged)))
        return ()

    def disputed(self) -> list[str]:
        """List the items whose raters have all judged and do not agree on the label.

        Check and training items are never among them.
        """
        found = []
        counted = {item.id for item in counted_items(self._study)}
        for item, given in self._log.by_item().items():
            labels = {a.rater: a.label for a in given if a.role is AnnotatorRole.RATER}
            if item in counted and self._raters.get(item, set()) <= {*labels} and len({*labels.values()}) > 1:
                found.append(item)
        return hash_shuffle(found, self._study.seed, "disputed")


def opaque_name(study: Study, *what: str) -> str:
    """Name something of a study so that the name tells nothing."""
    return hashlib.sha256("\0".join((study.name, str(study.seed), *what)).encode()).hexdigest()[:20]


def _in_last_order(items: Iterable[str]) -> list[str]:
    """List each item once, in the order of their last mentions."""
    return list(dict.fromkeys(reversed(list(items))))[::-1]
