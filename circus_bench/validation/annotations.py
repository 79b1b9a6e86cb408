"""Annotation of an item by a rater, as an event that is never changed; files and routes call it a judgement.

A rater who changes their mind adds an event of a higher version, and the latest version counts. Event logs travel as
JSON lines, one event per line.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from circus_bench._typing import StrPath
from circus_bench.errors import FormatError, MismatchError, format_ids
from circus_bench.io import write_text

if TYPE_CHECKING:
    from circus_bench.validation.study import Study

DATABASE_FILE, LOG_FILE = "judgements.sqlite", "judgements.jsonl"
"""Files of a study's folder: the app's database, and the log that an import or a simulation writes."""

_LISTS = ("flags", "reasons", "alternatives")
_KINDS = {**dict.fromkeys(("item", "rater", "label", "note", "event", "time"), str), "answers": dict, "version": int}


class AnnotatorRole(StrEnum):
    """Role in which an annotation is made."""

    RATER = "rater"
    """Blind: has seen nobody else's annotation."""
    ADJUDICATOR = "adjudicator"
    """Resolves disagreements after having seen the raters' annotations."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """Answers of one rater to the rubric's questions about one item.

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
        version: 1 for the first annotation of a rater on an item, then counted up.
        role: rater or adjudicator.
        event: unique id that the client gave, so that a repeated delivery is recognized.
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
    role: AnnotatorRole = AnnotatorRole.RATER
    event: str = ""
    time: str = ""

    @property
    def key(self) -> tuple[str, str, AnnotatorRole]:
        """Item, rater and role: what all versions of an annotation share."""
        return (self.item, self.rater, self.role)


def latest(annotations: Iterable[Annotation]) -> list[Annotation]:
    """Select the latest version of each rater's annotation per item and role, in the order of first appearance."""
    found: dict[tuple[str, str, AnnotatorRole], Annotation] = {}
    for annotation in annotations:
        if annotation.version > found.setdefault(annotation.key, annotation).version:
            found[annotation.key] = annotation
    return list(found.values())


def find_misfits(study: Study, annotation: Annotation) -> Iterator[tuple[str, list[str], str]]:
    """Compare an annotation with the items, the rubric and the candidate panels of its study.

    Yields:
        For each field that the study does not provide for: a phrase for it, the values concerned, and a sentence.
    """
    rubric, item = study.rubric, study.item_by_id.get(annotation.item)
    if item is None:
        yield "unknown items", [annotation.item], f"not an item of the study {study.name!r}"
    flagged = [step for step in rubric.steps if step.id in annotation.flags]
    allowed: dict[str, tuple[Collection[str], set[str]]] = {
        "flags": (annotation.flags, {step.id for step in rubric.steps}),
        "reasons": (annotation.reasons, {f"{step.id}.{reason}" for step in flagged for reason in step.reasons}),
        "answers": (annotation.answers, set() if flagged else {entry.id for entry in rubric.follow_ups}),
        "alternatives": (annotation.alternatives, set(item.panel) if item else set()),
    }
    for name, (given, known) in allowed.items():
        unknown = [value for value in given if value not in known]
        if unknown:
            yield (
                f"unknown {name}",
                unknown,
                f"{name} are unknown ({format_ids(unknown)}; known are {format_ids(sorted(known))})",
            )
    expected = rubric.label_of(annotation.flags)
    if annotation.label != expected:
        sentence = f"its flags make the label {expected!r}, not {annotation.label!r}"
        if annotation.label in rubric.labels:
            yield "labels that are not what their flags come to", [f"{annotation.item} by {annotation.rater}"], sentence
        else:
            yield "unknown labels", [annotation.label], sentence


def check_fit(study: Study, annotations: Iterable[Annotation]) -> None:
    """Refuse annotations of another study or rubric.

    Raises:
        MismatchError: an annotation holds what the study does not provide for; see `find_misfits`.
    """
    wrong: dict[str, dict[str, None]] = {}
    for annotation in annotations:
        for what, values, _ in find_misfits(study, annotation):
            wrong.setdefault(what, {}).update(dict.fromkeys(values))
    if wrong:
        listed = " and ".join(f"{what} ({format_ids(values)})" for what, values in wrong.items())
        raise MismatchError(
            f"study {study.name!r}: annotations with {listed}; take the study and the rubric that they were made with"
        )


def parse_annotation(line: str) -> Annotation:
    """Parse a line of an event log.

    Raises:
        KeyError, TypeError, ValueError: it is no annotation.
    """
    row = json.loads(line)
    lists = {name: tuple(row[name]) for name in _LISTS}
    annotation = Annotation(**{**row, **lists, "role": AnnotatorRole(row["role"])})
    wrong = [name for name, kind in _KINDS.items() if type(getattr(annotation, name)) is not kind]
    wrong += [name for name in _LISTS if isinstance(row[name], str) or not all(isinstance(n, str) for n in lists[name])]
    if wrong or not all(isinstance(answer, bool) for answer in annotation.answers.values()):
        raise TypeError(f"{', '.join(wrong) or 'answers'}: not of the type that an annotation has there")
    if not (annotation.item and annotation.rater and annotation.version >= 1):
        raise ValueError(f"item {annotation.item!r}, rater {annotation.rater!r}, version {annotation.version}")
    if not (math.isfinite(annotation.seconds) and annotation.seconds >= 0):
        raise ValueError(f"{annotation.seconds} seconds")
    return annotation


def to_line(annotation: Annotation) -> str:
    """Render an annotation as `parse_annotation` reads it."""
    return json.dumps(dataclasses.asdict(annotation), sort_keys=True, ensure_ascii=False)


def to_lines(annotations: Iterable[Annotation]) -> str:
    """Render an event log as JSON lines."""
    return "".join(to_line(annotation) + "\n" for annotation in annotations)


def write_annotations(path: StrPath, annotations: Iterable[Annotation]) -> None:
    """Write an event log as JSON lines."""
    write_text(Path(path), to_lines(annotations))


def read_annotations(path: StrPath) -> list[Annotation]:
    """Read an event log that `write_annotations` wrote. Of the same annotation twice, one is kept.

    Raises:
        FormatError: a line is no annotation (the message names it), or two have the same version and say different
            things.
    """
    found: dict[tuple[object, ...], Annotation] = {}
    others = []
    try:
        # Not `splitlines`: a note may hold a character, such as U+2028, that ends a line there but not in JSON lines.
        with Path(path).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    annotation = parse_annotation(line)
                except (KeyError, TypeError, ValueError) as error:
                    raise FormatError(f"{path}, line {number}: not an annotation ({error!r})") from error
                if found.setdefault((*annotation.key, annotation.version), annotation) != annotation:
                    others.append(f"{annotation.item} by {annotation.rater}, version {annotation.version}")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: cannot be read ({error})") from error
    if others:
        raise FormatError(
            f"{path}: holds different annotations of the same version ({format_ids(others)}); keep one of each"
        )
    return list(found.values())
