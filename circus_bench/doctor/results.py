"""Hold what checks return: a finding with its ids and its meaning, a count against the published one, a coverage."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """Weight of a finding: whether it speaks against using the benchmark as it is."""

    DEFECT = "defect"
    """Scores are wrong, or cannot be computed, until it is mended or allowed on purpose."""
    NOTE = "note"
    """Worth knowing when scores are read."""


@dataclass(frozen=True, slots=True)
class Result:
    """One thing that a check found.

    Attributes:
        check: its name, such as `reference_is_target`.
        severity: defect or note.
        ids: the queries or images concerned, as `meaning` says.
        meaning: one sentence: what it means and what to do.
        groups: the ids by group, where the check is about ids that belong together (duplicates); else empty.
    """

    check: str
    severity: Severity
    ids: tuple[str, ...]
    meaning: str
    groups: tuple[tuple[str, ...], ...] = ()

    @property
    def items(self) -> tuple[Any, ...]:
        """Items that are counted and listed: the groups where there are any, else the ids."""
        return self.groups or self.ids

    def to_dict(self) -> dict[str, Any]:
        """Return strict JSON."""
        groups = [list(group) for group in self.groups]
        return {**dataclasses.asdict(self), "ids": list(self.ids), "groups": groups, "count": len(self.items)}


def defect(check: str, ids: Iterable[str], meaning: str) -> Result | None:
    """Make a defect, or None when no id is concerned."""
    return _result(check, Severity.DEFECT, ids, meaning)


def note(check: str, ids: Iterable[str], meaning: str) -> Result | None:
    """Make a note, or None when no id is concerned."""
    return _result(check, Severity.NOTE, ids, meaning)


def note_of_groups(check: str, groups: Iterable[tuple[str, ...]], meaning: str) -> Result | None:
    """Make a note about groups of ids, or None when there is no group."""
    listed = tuple(groups)
    ids = tuple(dict.fromkeys(identifier for group in listed for identifier in group))
    return Result(check, Severity.NOTE, ids, meaning, listed) if listed else None


def _result(check: str, severity: Severity, ids: Iterable[str], meaning: str) -> Result | None:
    listed = tuple(ids)
    return Result(check, severity, listed, meaning) if listed else None


class Agreement(StrEnum):
    """Comparison of a count with the published one."""

    MATCH = "match"
    DIFFER = "differ"
    UNKNOWN = "unknown"
    """Nothing is published, or nothing that is known here."""


@dataclass(frozen=True, slots=True)
class Count:
    """A count of the benchmark, and what has been published about it.

    Attributes:
        what: what is counted, such as `queries`.
        found: the number here.
        published: the published number; None when unknown. Where sources disagree it is the one that matches, else
            the first.
        source: who published it; empty when unknown.
    """

    what: str
    found: int
    published: int | None = None
    source: str = ""

    @property
    def agreement(self) -> Agreement:
        """Match, differ or unknown."""
        if self.published is None:
            return Agreement.UNKNOWN
        return Agreement.MATCH if self.found == self.published else Agreement.DIFFER

    @property
    def differs(self) -> bool:
        """Tell whether another number has been published: the benchmark is not the one that papers report on."""
        return self.agreement is Agreement.DIFFER

    def to_dict(self) -> dict[str, Any]:
        """Return strict JSON."""
        return {**dataclasses.asdict(self), "agreement": self.agreement.value}


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of some things that have images that can be decoded.

    Attributes:
        what: `gallery`, `references`, `targets` (distinct images each) or `queries` (reference and every target).
        have: with images.
        total: all.
    """

    what: str
    have: int
    total: int

    @property
    def share(self) -> float | None:
        """`have` / `total`; None of nothing."""
        return self.have / self.total if self.total else None

    def to_dict(self) -> dict[str, Any]:
        """Return strict JSON."""
        return {**dataclasses.asdict(self), "share": self.share}
