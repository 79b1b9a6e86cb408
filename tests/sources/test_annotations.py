"""Test the readers of sound annotation files; tests/corrupt/test_annotations.py has the rest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from circus_bench.benchmark import Protocol, Query, ReferencePolicy
from circus_bench.errors import BenchmarkError
from circus_bench.images import ImageFiles
from circus_bench.sources.annotations import (
    AnnotationRow,
    SourceInfo,
    build_benchmark,
    check_choice,
    check_id_types,
    find_file,
    group_rows,
    parse_json,
    read_rows,
)

INFO = SourceInfo("somewhere", "MIT", "none", images_redistributable=False, citation="Someone")
ROWS = [{"id": "a", "text": "is red"}, {"id": "b", "text": 'ça, "va"'}]


def row(**content: object) -> AnnotationRow:
    return AnnotationRow(content, path=Path("rows.json"), number=0, origin="somewhere")


def test_the_first_place_that_exists_is_taken(tmp_path):
    for place in ("second/x.json", "third.json"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("[]")
    assert find_file(tmp_path, "first.json", "second/x.json", "third.json", origin="o") == tmp_path / "second/x.json"


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows.csv", "rows.parquet"])
def test_all_forms_of_a_table_give_the_same_rows(tmp_path, name):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        text = {
            "rows.json": json.dumps(ROWS),
            "rows.jsonl": "\n".join(map(json.dumps, ROWS)),
            "rows.csv": 'id,text\na,is red\nb,"ça, ""va"""\n',
        }[name]
        path.write_text(text, encoding="utf-8")
    rows = read_rows(path, origin="somewhere")
    assert [{"id": r.get_id("id"), "text": r.get("text", str)} for r in rows] == ROWS
    assert [r.number for r in rows] == [0, 1]


def test_ids_are_made_strings_and_never_cast_otherwise():
    assert row(x=12).get_id("x") == "12"
    assert row(x="0012").get_id("x") == "0012"
    assert row(x=[1, 2]).get_ids("x") == ("1", "2")


def test_an_alias_stands_for_a_key():
    aliased = AnnotationRow({"query_id": 1}, path=Path("x"), number=0, origin="o", aliases={"qid": ("query_id",)})
    assert "qid" in aliased
    assert aliased.get_id("qid") == "1"


def test_ids_of_one_kind_pass(tmp_path):
    check_id_types([row(x=1, y=[2]), row(x=3)], "x", "y", path=tmp_path)


def test_text_may_hold_any_unicode(tmp_path):
    assert parse_json('"\\u00e9 é"', path=tmp_path, origin="o") == "é é"


def test_groups_keep_the_order_of_first_appearance():
    assert group_rows(["b1", "a1", "b2"], lambda item: item[0]) == [["b1", "b2"], ["a1"]]


def test_an_unknown_choice_lists_the_known_ones():
    with pytest.raises(BenchmarkError, match="unknown color 'red'; known: blue, green"):
        check_choice("red", ("blue", "green"), what="color")


def test_provenance_names_files_by_their_place_and_content(tmp_path):
    (tmp_path / "captions").mkdir()
    file = tmp_path / "captions" / "val.json"
    file.write_bytes(b"[]")
    benchmark = build_benchmark(
        "one",
        Protocol("one/val", ReferencePolicy.KEPT),
        queries=[Query("q", "a", "is red", ("b",))],
        gallery=["a", "b"],
        images=None,
        allow=(),
        info=INFO,
        files=[file, file],
        folder=str(tmp_path),
        split="val",
        counts={"rows": 2},
        category="x",
    )
    source = benchmark.source
    assert source["files"] == {"captions/val.json": hashlib.sha256(b"[]").hexdigest()}
    assert (source["origin"], source["license"], source["split"], source["category"]) == (
        "somewhere",
        "MIT",
        "val",
        "x",
    )
    assert source["counts"] == {"rows": 2, "queries": 1, "targets": 1}


def test_image_files_go_by_a_rule_that_may_pass_files_over(tmp_path):
    for name in ("x-1.png", "x-2.jpg", "thumbnail.png", "x-3.txt"):
        (tmp_path / name).write_bytes(name.encode())
    images = ImageFiles.folder(tmp_path, image_id=lambda p: p.stem[2:] if p.stem.startswith("x-") else None)
    assert dict(images) == {"1": b"x-1.png", "2": b"x-2.jpg"}
