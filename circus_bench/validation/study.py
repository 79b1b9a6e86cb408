"""Study: the items to annotate, and the raters of each; fixed before the first annotation and blind to raters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from circus_bench._typing import StrPath
from circus_bench.errors import FormatError, MismatchError, duplicates, format_ids
from circus_bench.io import read_json, to_json, write_json
from circus_bench.validation.annotations import DATABASE_FILE
from circus_bench.validation.rubric import FollowUp, Rubric, RubricStep

SCHEMA_VERSION = 1
STUDY_FILE = "study.json"


@dataclass(frozen=True, slots=True)
class Item:
    """A query to annotate.

    Attributes:
        id: `<benchmark>::<query id>`.
        benchmark: name of the query's benchmark.
        query: its id there.
        stratum: what it was drawn from, such as `cirr/unresolved`; never shown.
        inclusion: probability with which it was drawn from its stratum; its inverse weights estimates.
        panel: gallery ids of the candidates shown, the targets among them.
        known: the gold label of a check or training item, which a careful rater gives; empty otherwise.
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

    @property
    def is_check(self) -> bool:
        """Tell whether it is a check item, whose gold label shows how careful raters are, and which is not counted."""
        return bool(self.known) and not self.training


@dataclass(frozen=True)
class Study:
    """A human validation study.

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
            "items that occur twice": duplicates(ids),
            "items assigned twice to a rater": duplicates(assigned),
            "assigned items that are not there": sorted({item for _, item in assigned} - {*ids}),
            "items drawn with no probability": [item.id for item in self.items if not 0 < item.inclusion <= 1],
            "known answers that are no label": [item.id for item in self.items if item.known not in labels],
        }
        for what, which in wrong.items():
            if which:
                raise FormatError(f"study {self.name!r}: {what} ({format_ids(which)})")

    @cached_property
    def item_by_id(self) -> Mapping[str, Item]:
        """Item id to the item."""
        return {item.id: item for item in self.items}

    def save(self, folder: StrPath) -> None:
        """Write `study.json`.

        Raises:
            MismatchError: the folder has the app's database, which belongs to another study and needs that one.
        """
        folder = Path(folder)
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
    def load(cls, folder: StrPath) -> Study:
        """Read a study that `save` wrote.

        Raises:
            FormatError: there is none, or one of another schema version.
        """
        path = Path(folder) / STUDY_FILE
        content = read_json(path)
        if content.pop("schema_version", None) != SCHEMA_VERSION:
            raise FormatError(f"{path}: not a study of schema version {SCHEMA_VERSION}")
        try:
            rubric = content["rubric"]
            rubric["steps"] = tuple(
                RubricStep(**{**step, "reasons": dict(step["reasons"])}) for step in rubric["steps"]
            )
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
