"""The event log as JSON lines: what comes back, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from support.judged import TEXT, judge

from circus_bench.errors import FormatError
from circus_bench.validation.annotations import latest, read_annotations, write_annotations


def test_a_note_with_line_separators_comes_back(tmp_path: Path) -> None:
    # U+0085, U+2028 and U+2029 end a line for Python's `splitlines`, not for JSON lines.
    log = [judge("ann", 0, note="a\u0085b\u2028c\u2029d\ne"), judge("bob", 0)]
    write_annotations(tmp_path / "log.jsonl", log)
    assert read_annotations(tmp_path / "log.jsonl") == log


@pytest.mark.parametrize(
    "changes",
    [
        {"item": 5},
        {"rater": ""},
        {"version": 0},
        {"version": "2"},
        {"version": True},
        {"flags": "text"},
        {"flags": [["text"]]},
        {"alternatives": None},
        {"answers": None},
        {"answers": {"text_alone": 1}},
        {"seconds": -1},
        {"seconds": float("nan")},
        {"seconds": "x"},
        {"role": "king"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_a_line_that_is_no_annotation_is_named(changes: dict[str, Any], tmp_path: Path) -> None:
    lines = [json.dumps(dataclasses.asdict(judge("ann", 0)) | more) for more in ({}, changes)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    with pytest.raises(FormatError, match=r"log\.jsonl, line 2: not an annotation"):
        read_annotations(tmp_path / "log.jsonl")


def test_two_different_annotations_of_one_version_are_refused(tmp_path: Path) -> None:
    write_annotations(tmp_path / "log.jsonl", [judge("ann", 0), judge("ann", 0, TEXT)])
    with pytest.raises(FormatError, match="made::0 by ann, version 1"):
        read_annotations(tmp_path / "log.jsonl")


def test_logs_put_together_give_each_annotation_once(tmp_path: Path) -> None:
    write_annotations(tmp_path / "log.jsonl", [judge("ann", 0), judge("ann", 0, TEXT, version=2), judge("ann", 0)])
    assert read_annotations(tmp_path / "log.jsonl") == [judge("ann", 0), judge("ann", 0, TEXT, version=2)]


def test_the_last_version_is_the_latest_though_versions_are_missing() -> None:
    log = [judge("ann", 0, TEXT, version=4), judge("ann", 0, version=2)]
    assert latest(log) == log[:1]
