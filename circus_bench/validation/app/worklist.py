"""What a person has to do next, derived from the study and the log."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from circus_bench.validation.annotation_log import Access, JudgementStore, Kind, Person
from circus_bench.validation.annotations import Judgement, Role
from circus_bench.validation.hash_order import shuffled
from circus_bench.validation.study import Item, Study

_PACE_OVER = 30  # judgements that the pace is taken from


@dataclass(frozen=True, slots=True)
class Worklist:
    """A person's items and how far they have got.

    Attributes:
        items: all of them, in the order of showing; training items first.
        training: those of them that come with feedback and do not count.
        judged: those with a judgement, the one judged last at the end.
        later: those put off and not judged since, the one put off first at the front.
        pace: median seconds of a judgement; None before the first.
    """

    items: tuple[str, ...]
    training: frozenset[str]
    judged: tuple[str, ...]
    later: tuple[str, ...]
    pace: float | None

    @property
    def open(self) -> list[str]:
        """What is left to judge, in the order of showing: what was put off comes last."""
        behind = {*self.judged, *self.later}
        return [*(item for item in self.items if item not in behind), *self.later]

    @property
    def total(self) -> int:
        """The number of items that count."""
        return len(self.items) - len(self.training)

    @property
    def done(self) -> int:
        """The number of judged items that count."""
        return len([item for item in self.judged if item not in self.training])

    @property
    def minutes_left(self) -> int | None:
        """Whole minutes that the rest takes at this pace."""
        return None if self.pace is None else round(self.pace * (self.total - self.done) / 60)

    def before(self, item: str) -> str | None:
        """The item judged before this one; the one judged last, where this one is still to be judged."""
        place = self.judged.index(item) if item in self.judged else len(self.judged)
        return self.judged[place - 1] if place else None


class Desk:
    """Knows everybody's worklist.

    Args:
        study: the study.
        store: its judgements.
    """

    def __init__(self, study: Study, store: JudgementStore) -> None:
        self._study = study
        self._store = store
        self.items: Mapping[str, Item] = {item.id: item for item in study.items}
        self._raters: dict[str, set[str]] = {}
        for rater, items in study.assignments.items():
            for item in items:
                self._raters.setdefault(item, set()).add(rater)
        self._names = {item.id: opaque(study, "item", item.id) for item in study.items}
        self._by_name = {name: item for item, name in self._names.items()}

    def name(self, item: str) -> str:
        """An item's name in addresses and pages. It tells nothing: neither stratum nor place in the study."""
        return self._names[item]

    def named(self, name: str) -> str | None:
        """The item of this name."""
        return self._by_name.get(name)

    def worklist(self, person: Person) -> Worklist:
        """What a person has to do; empty for an owner."""
        trail = self._store.trail(person)
        judged = tuple(_in_last_order(step.item for step in trail if step.kind is Kind.JUDGEMENT))
        later = _in_last_order(step.item for step in trail if step.kind is Kind.LATER)
        items = self._items_of(person, judged)
        training = frozenset(item for item in items if self.items[item].training)
        seconds = [s.seconds for s in trail if s.kind is Kind.JUDGEMENT and s.item not in training][-_PACE_OVER:]
        return Worklist(
            items=items,
            training=training,
            judged=judged,
            later=tuple(item for item in later if item not in judged and item in items),
            pace=statistics.median(seconds) if seconds else None,
        )

    def voices(self, item: str) -> list[Judgement]:
        """The raters' judgements of an item for an adjudicator, in an order that hides who is who."""
        judged = {j.rater: j for j in self._store.by_item().get(item, ()) if j.role is Role.RATER}
        return [judged[rater] for rater in shuffled(judged, self._study.seed, "voices", item)]

    def _items_of(self, person: Person, judged: Sequence[str]) -> tuple[str, ...]:
        if person.access is Access.RATER:
            own = self._study.assignments.get(person.id, ())
            training = [item.id for item in self._study.items if item.training]
            return (*training, *(item for item in own if item not in training))
        if person.access is Access.ADJUDICATOR:
            return tuple(dict.fromkeys((*self.disputed(), *judged)))
        return ()

    def disputed(self) -> list[str]:
        """The items whose raters have all judged and do not agree on the label; check and training items never are."""
        found = []
        for item, judgements in self._store.by_item().items():
            labels = {j.rater: j.label for j in judgements if j.role is Role.RATER}
            known = self.items[item].known or self.items[item].training
            if not known and self._raters.get(item, set()) <= {*labels} and len({*labels.values()}) > 1:
                found.append(item)
        return shuffled(found, self._study.seed, "disputed")


def opaque(study: Study, *what: str) -> str:
    """A name for something of a study from which nothing can be told."""
    return hashlib.sha256("\0".join((study.name, str(study.seed), *what)).encode()).hexdigest()[:20]


def _in_last_order(items: Iterable[str]) -> list[str]:
    """Each item once, in the order of their last mentions."""
    return list(dict.fromkeys(reversed(list(items))))[::-1]
