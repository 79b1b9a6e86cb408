"""`study.json` and rubrics: what they must not contain, and what must not be written over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.judged import item, study

from circus_bench.errors import FormatError, MismatchError
from circus_bench.validation.rubric import CIRCUS_RUBRIC, load_rubric
from circus_bench.validation.study import Study


def test_a_study_comes_back(tmp_path: Path) -> None:
    study(3).save(tmp_path)
    assert Study.load(tmp_path) == study(3)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda of: of["items"].append(of["items"][0]), "items that occur twice"),
        (lambda of: of["assignments"]["ann"].append("made::0"), "items assigned twice to a rater"),
        (lambda of: of["assignments"]["ann"].append("made::9"), "assigned items that are not there"),
        (lambda of: of["items"][0].update(inclusion=0), "items drawn with no probability"),
        (lambda of: of["items"][0].update(known="NOPE"), "known answers that are no label"),
        (lambda of: of.update(assignments=[]), "not a study"),
        (lambda of: of["rubric"].update(steps=[]), "missing or repeated"),
        (lambda of: of.pop("rubric"), "not a study"),
    ],
    ids=[
        "item-twice",
        "assigned-twice",
        "assigned-nowhere",
        "inclusion-0",
        "unknown-answer",
        "assignments-a-list",
        "no-steps",
        "no-rubric",
    ],
)
def test_a_study_that_contradicts_itself_is_refused(
    change: Callable[[dict[str, Any]], object], why: str, tmp_path: Path
) -> None:
    study(2).save(tmp_path)
    content = json.loads((tmp_path / "study.json").read_text())
    change(content)
    (tmp_path / "study.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=rf"study\.json: .*{why}"):
        Study.load(tmp_path)


def test_the_study_of_a_database_is_not_written_over(tmp_path: Path) -> None:
    study(2).save(tmp_path)
    (tmp_path / "judgements.sqlite").touch()
    study(2).save(tmp_path)
    with pytest.raises(MismatchError, match="save 'made' in another folder"):
        study(3).save(tmp_path)
    assert Study.load(tmp_path) == study(2)


def test_without_a_database_a_study_is_replaced(tmp_path: Path) -> None:
    study(2).save(tmp_path)
    study([item(7)]).save(tmp_path)
    assert [entry.query for entry in Study.load(tmp_path).items] == ["7"]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('id = "circus"', 'id = "circus"\nid = "again"', "not a TOML file"),
        ('key = "1"', 'key = "2"', "keys are missing or repeated"),
        ('key = "1"', 'key = "10"', "keys are single characters"),
        ('key = "1"', "key = 1", "key is 1, expected str"),
        ("severity = 4", "severity = 3", "severities are missing or repeated"),
        ("severity = 4", 'severity = "4"', "severity is '4', expected int"),
        ('id = "text"', 'id = "reference"', "labels and ids are missing or repeated"),
        ('id = "text"', 'id = "label"', "labels and ids are missing or repeated"),
        ('id = "text"', 'id = " "', "id is ' ', expected str"),
        ('question = "', 'question = "{0}', "not a rubric"),
        ("breadth = 10", "breadth = -3", "breadth -3"),
        ("breadth = 10", "", "not a rubric"),
    ],
)
def test_a_rubric_that_contradicts_itself_is_refused(before: str, after: str, why: str, tmp_path: Path) -> None:
    text = CIRCUS_RUBRIC.read_text(encoding="utf-8")
    assert before in text
    (tmp_path / "mine.toml").write_text(text.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(FormatError, match=rf"mine\.toml: .*{why}"):
        load_rubric(tmp_path / "mine.toml")
