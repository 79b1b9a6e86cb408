"""Judgement: what one rater says of one item, as an event that is never changed.

A rater who changes their mind makes a new event of a higher version; the judgement in force is the last one. Event logs
travel as JSON lines, one event a line.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from circus_bench.errors import FormatError, some
from circus_bench.io import write_text

DATABASE_FILE, LOG_FILE = "judgements.sqlite", "judgements.jsonl"
"""Where the app, and where an import or a simulation, leave the judgements in a study's folder."""

_LISTS = ("flags", "reasons", "alternatives")
_KINDS = {**dict.fromkeys(("item", "rater", "label", "note", "event", "time"), str), "answers": dict, "version": int}


class Role(StrEnum):
    """In what role a judgement is made."""

    RATER = "rater"
    """Blind: has seen nobody else's judgement."""
    ADJUDICATOR = "adjudicator"
    """Decides after having seen the raters' judgements."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one rater says of one item.

    Attributes:
        item: id of the item (see `circus_bench.validation.study.Item`).
        rater: id of the rater.
        label: one of the rubric's labels.
        flags: ids of the rubric's steps that fail; empty for a valid query.
        reasons: `<step>.<reason>` ids.
        answers: follow-up id to the answer.
        alternatives: gallery ids of panel images that answer the query as well.
        note: free text.
        seconds: time that the item was on the screen.
        version: 1 for the first judgement of a rater on an item, then counted up.
        role: rater or adjudicator.
        event: unique id that the client gave, so that a repeated delivery is recognised.
        time: UTC, ISO 8601, when the server took it.
    """

    item: str
    rater: str
    label: str
    flags: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    answers: Mapping[str, bool] = field(default_factory=dict)
    alternatives: tuple[str, ...] = ()
    note: str = ""
    seconds: float = 0.0
    version: int = 1
    role: Role = Role.RATER
    event: str = ""
    time: str = ""


def in_force(judgements: Iterable[Judgement]) -> list[Judgement]:
    """The last version of each rater's judgement of each item in each role, in the order of first appearance."""
    last: dict[tuple[str, str, Role], Judgement] = {}
    for judgement in judgements:
        key = (judgement.item, judgement.rater, judgement.role)
        if key not in last or judgement.version > last[key].version:
            last[key] = judgement
    return list(last.values())


def judgement_of(row: Mapping[str, Any]) -> Judgement:
    """The judgement that `dataclasses.asdict` made a row of, also after a way through JSON.

    Raises:
        KeyError, TypeError, ValueError: the row is none.
    """
    lists = {name: tuple(row[name]) for name in _LISTS}
    judgement = Judgement(**{**row, **lists, "role": Role(row["role"])})
    wrong = [name for name, kind in _KINDS.items() if type(getattr(judgement, name)) is not kind]
    wrong += [name for name in _LISTS if isinstance(row[name], str) or not all(isinstance(n, str) for n in lists[name])]
    if wrong or not all(isinstance(answer, bool) for answer in judgement.answers.values()):
        raise TypeError(f"{', '.join(wrong) or 'answers'}: not of the type that a judgement has there")
    if not (judgement.item and judgement.rater and judgement.version >= 1):
        raise ValueError(f"item {judgement.item!r}, rater {judgement.rater!r}, version {judgement.version}")
    if not (math.isfinite(judgement.seconds) and judgement.seconds >= 0):
        raise ValueError(f"{judgement.seconds} seconds")
    return judgement


def to_lines(judgements: Iterable[Judgement]) -> str:
    """An event log as JSON lines."""
    return "".join(json.dumps(dataclasses.asdict(j), sort_keys=True, ensure_ascii=False) + "\n" for j in judgements)


def write_judgements(path: Path, judgements: Iterable[Judgement]) -> None:
    """Write an event log as JSON lines."""
    write_text(path, to_lines(judgements))


def read_judgements(path: Path) -> list[Judgement]:
    """Read an event log that `write_judgements` wrote. Of the same judgement twice, one is kept.

    Raises:
        FormatError: a line is no judgement (the message names it), or two have the same version and say different
            things.
    """
    found: dict[tuple[str, str, Role, int], Judgement] = {}
    others = []
    try:
        # Not `splitlines`: a note may hold a character, such as U+2028, that ends a line there but not in JSON lines.
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                judgement = _of_line(line, f"{path}, line {number}")
                key = (judgement.item, judgement.rater, judgement.role, judgement.version)
                if found.setdefault(key, judgement) != judgement:
                    others.append(f"{judgement.item} by {judgement.rater}, version {judgement.version}")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: cannot be read ({error})") from error
    if others:
        raise FormatError(f"{path}: holds different judgements of the same version ({some(others)}); keep one of each")
    return list(found.values())


def _of_line(line: str, where: str) -> Judgement:
    try:
        return judgement_of(json.loads(line))
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{where}: not a judgement ({error!r})") from error
