"""Rubric: the questions that raters answer, as data.

A rubric is a cascade of steps, each a question whose "no" rejects the query under a label. An annotation flags every
step that fails; its label is the most severe of them, or the rubric's valid label when none fails. Follow-up questions
are asked of valid queries only.

Example:
    >>> rubric = load_rubric()
    >>> [step.id for step in rubric.steps], rubric.label_of({"breadth", "target"}), rubric.label_of(set())
    (['text', 'reference', 'target', 'breadth'], 'INVALID_TARGET_IMAGE', 'VALIDATED')
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.errors import FormatError, format_ids

CIRCUS_RUBRIC = Path(__file__).parent / "rubrics" / "circus.toml"


@dataclass(frozen=True, slots=True)
class RubricStep:
    """Question of the cascade.

    Attributes:
        id: short name; annotations flag it.
        question: asked so that "yes" is good.
        label: the label of a query that fails here.
        title: what a failure means, for buttons.
        key: the key that flags it.
        severity: of the steps that fail, the one of highest severity gives the label.
        reasons: reason id to wording; may be empty.
    """

    id: str
    question: str
    label: str
    title: str
    key: str
    severity: int
    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Yes-or-no question about a valid query.

    Attributes:
        id: short name.
        question: its wording.
        key: the key that answers yes.
    """

    id: str
    question: str
    key: str


@dataclass(frozen=True, slots=True)
class Rubric:
    """Questions that raters are asked.

    Attributes:
        id: its name.
        version: raised with every change of a question.
        title: its heading.
        intro: what raters see and judge, the first words of their instructions.
        valid: the label of a query that passes every step.
        valid_title: its wording, for buttons.
        breadth: from this many other answers on, a query is too broad.
        seconds: the time that an annotation usually takes.
        steps: the cascade, in the order of asking.
        follow_ups: asked of valid queries.

    Raises:
        FormatError: a part is missing or of the wrong type, a key is not a single character, or a label, an id, a key
            or a severity is repeated.
    """

    id: str
    version: int
    title: str
    intro: str
    valid: str
    valid_title: str
    breadth: int
    seconds: int
    steps: tuple[RubricStep, ...]
    follow_ups: tuple[FollowUp, ...]

    def __post_init__(self) -> None:
        asked: tuple[RubricStep | FollowUp, ...] = (*self.steps, *self.follow_ups)
        _check_types(self)
        for part in asked:
            _check_types(part)
        # Agreement is reported by "label", by each label and by each step, so that none may be called like another.
        names = ["label", *self.labels, *(part.id for part in asked)]
        distinct: dict[str, Sequence[object]] = {
            "labels and ids": names,
            "keys": [part.key for part in asked],
            "severities": [step.severity for step in self.steps],
        }
        for what, values in distinct.items():
            if len(set(values)) < len(values) or not self.steps:
                raise FormatError(f"rubric {self.id!r}: {what} are missing or repeated: {values}")
        long = [part.key for part in asked if len(part.key) > 1]
        if long:
            raise FormatError(f"rubric {self.id!r}: keys are single characters, found {format_ids(long)}")
        if min(self.breadth, self.seconds) < 1:
            raise FormatError(
                f"rubric {self.id!r}: breadth {self.breadth} and seconds {self.seconds} must be 1 or more"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The valid label, then the labels of the steps in their order."""
        return (self.valid, *(step.label for step in self.steps))

    def label_of(self, flags: Collection[str]) -> str:
        """Derive the label of a query that fails the steps with these ids."""
        failed = [step for step in self.steps if step.id in flags]
        return max(failed, key=lambda step: step.severity).label if failed else self.valid


def load_rubric(path: StrPath = CIRCUS_RUBRIC, *, breadth: int | None = None) -> Rubric:
    """Read a rubric from a TOML file laid out like `rubrics/circus.toml`.

    Args:
        path: the file; the rubric of the CIRCUS audit by default.
        breadth: another threshold of breadth than the file's.

    Raises:
        FormatError: the file is not TOML, lacks a field, or repeats a label, an id, a key or a severity.
    """
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        content["breadth"] = breadth or content["breadth"]
        return _rubric(content)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FormatError(f"{path}: not a TOML file ({error})") from error
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: not a rubric ({error!r}); compare {CIRCUS_RUBRIC.name}") from error


def _rubric(content: Mapping[str, Any]) -> Rubric:
    def filled(text: str) -> str:
        return text.format(breadth=content["breadth"])

    steps = tuple(
        RubricStep(**{**step, "question": filled(step["question"]), "title": filled(step["title"])})
        for step in content["step"]
    )
    follow_ups = tuple(FollowUp(**entry) for entry in content.get("follow_up", ()))
    head = {name: value for name, value in content.items() if name not in {"step", "follow_up"}}
    return Rubric(**head, steps=steps, follow_ups=follow_ups)


def _check_types(part: Rubric | RubricStep | FollowUp) -> None:
    """Check the types of the fields that are a text, which must not be blank, or a whole number."""
    kinds = {"str": str, "int": int}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if field.type in kinds and (type(value) is not kinds[str(field.type)] or not str(value).strip()):
            raise FormatError(f"{type(part).__name__} {part.id!r}: {field.name} is {value!r}, expected {field.type}")
