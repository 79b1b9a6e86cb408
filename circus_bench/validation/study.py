"""Study: which items are judged by whom, fixed before the first judgement and never shown to raters as a whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from circus_bench.errors import FormatError
from circus_bench.files import read_json, write_json
from circus_bench.validation.rubric import FollowUp, Rubric, Step

SCHEMA_VERSION = 1
STUDY_FILE = "study.json"


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
    """

    name: str
    rubric: Rubric
    seed: int
    items: tuple[Item, ...]
    assignments: Mapping[str, tuple[str, ...]]
    benchmarks: Mapping[str, str]

    def save(self, folder: Path) -> None:
        """Write `study.json`."""
        content = {**dataclasses.asdict(self), "schema_version": SCHEMA_VERSION}
        for step in content["rubric"]["steps"]:
            step["reasons"] = list(step["reasons"].items())  # the file's objects are sorted, reasons have their order
        write_json(folder / STUDY_FILE, content)

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
            content["assignments"] = {rater: tuple(ids) for rater, ids in content["assignments"].items()}
            return cls(**content)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path}: not a study ({error!r})") from error
