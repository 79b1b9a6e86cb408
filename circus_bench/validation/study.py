"""Study: which items are judged by whom, fixed before the first judgement and never shown to raters as a whole."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from circus_bench.errors import FormatError, MismatchError, some
from circus_bench.io import read_json, to_json, write_json
from circus_bench.validation.annotations import DATABASE_FILE
from circus_bench.validation.rubric import FollowUp, Rubric, Step

SCHEMA_VERSION = 1
STUDY_FILE = "study.json"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Item:
    """A query to be judged.

    Attributes:
        id: `<benchmark>::<query id>`.
        benchmark: name of the query's benchmark.
        query: its id there.
        stratum: what it was drawn from, such as `cirr/unresolved`; never shown.
        inclusion: probability with which it was drawn from its stratum; its inverse weights estimates.
        panel: gallery ids of the candidates shown, the targets among them.
        known: the label that a careful rater gives, for check and training items; empty otherwise.
        training: shown with feedback before the study, and not counted.
    """

    id: str
    benchmark: str
    query: str
    stratum: str
    inclusion: float = 1.0
    panel: tuple[str, ...] = ()
    known: str = ""
    training: bool = False


@dataclass(frozen=True, slots=True)
class Study:
    """A study.

    Attributes:
        name: its name.
        rubric: the questions.
        seed: of the sampling, the assignment and the order of panels.
        items: all items, training and check items among them.
        assignments: rater id to the ids of their items, in the order of showing.
        benchmarks: benchmark name to its folder, relative to the study's folder or absolute.

    Raises:
        FormatError: the parts contradict each other: an item occurs twice, is assigned twice to one rater or not there,
            was drawn with no probability, or has a known answer that is no label of the rubric.
    """

    name: str
    rubric: Rubric
    seed: int
    items: tuple[Item, ...]
    assignments: Mapping[str, tuple[str, ...]]
    benchmarks: Mapping[str, str]

    def __post_init__(self) -> None:
        ids, labels = [item.id for item in self.items], {"", *self.rubric.labels}
        assigned = [(rater, item) for rater, items in self.assignments.items() for item in items]
        wrong: dict[str, Sequence[object]] = {
            "items that occur twice": _repeated(ids),
            "items assigned twice to a rater": _repeated(assigned),
            "assigned items that are not there": sorted({item for _, item in assigned} - {*ids}),
            "items drawn with no probability": [item.id for item in self.items if not 0 < item.inclusion <= 1],
            "known answers that are no label": [item.id for item in self.items if item.known not in labels],
        }
        for what, which in wrong.items():
            if which:
                raise FormatError(f"study {self.name!r}: {what} ({some(which)})")

    def save(self, folder: Path) -> None:
        """Write `study.json`.

        Raises:
            MismatchError: the folder has the app's database, which belongs to another study and needs that one.
        """
        path = folder / STUDY_FILE
        content = {**dataclasses.asdict(self), "schema_version": SCHEMA_VERSION}
        for step in content["rubric"]["steps"]:
            step["reasons"] = list(step["reasons"].items())  # the file's objects are sorted, reasons have their order
        held = (folder / DATABASE_FILE).is_file() and path.is_file()
        if held and path.read_text(encoding="utf-8").strip() != to_json(content):
            raise MismatchError(
                f"{folder}: {DATABASE_FILE} belongs to the study that is there; save {self.name!r} in another folder"
            )
        write_json(path, content)

    @classmethod
    def load(cls, folder: Path) -> Study:
        """Read a study that `save` wrote.

        Raises:
            FormatError: there is none, or one of another schema version.
        """
        path = folder / STUDY_FILE
        content = read_json(path)
        if content.pop("schema_version", None) != SCHEMA_VERSION:
            raise FormatError(f"{path}: not a study of schema version {SCHEMA_VERSION}")
        try:
            rubric = content["rubric"]
            rubric["steps"] = tuple(Step(**{**step, "reasons": dict(step["reasons"])}) for step in rubric["steps"])
            rubric["follow_ups"] = tuple(FollowUp(**entry) for entry in rubric["follow_ups"])
            content["rubric"] = Rubric(**rubric)
            content["items"] = tuple(Item(**{**item, "panel": tuple(item["panel"])}) for item in content["items"])
            content["benchmarks"] = dict(content["benchmarks"])
            content["assignments"] = {rater: tuple(ids) for rater, ids in content["assignments"].items()}
            return cls(**content)
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path}: not a study ({error!r})") from error


def _repeated(values: Iterable[_T]) -> list[_T]:
    return [value for value, count in Counter(values).items() if count > 1]
