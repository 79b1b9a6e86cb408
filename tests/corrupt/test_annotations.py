"""Annotation files that break such tools: each is an error that names the file, the row, the key and the remedy."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from circus_bench.errors import BenchmarkError, FormatError
from circus_bench.sources import load_source
from circus_bench.sources.annotations import check_id_types, read_json, read_rows, read_text

ORIGIN = "the place of the file"
ROW: dict[str, Any] = {
    "id": 0,
    "reference_img_id": 1,
    "target_img_id": 2,
    "relative_caption": "is red",
    "shared_concept": "a car",
    "gt_img_ids": [2],
    "semantic_aspects": ["addition"],
}


@pytest.fixture
def circo(tmp_path: Path) -> Callable[[str | bytes], Path]:
    """`circo(text)`: a CIRCO folder of five gallery images whose `val.json` holds the text."""

    def make(content: str | bytes) -> Path:
        (tmp_path / "annotations").mkdir()
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / "annotations" / "val.json").write_bytes(data)
        (tmp_path / "coco_unlabeled2017_ids.txt").write_text("1\n2\n3\n4\n5\n")
        return tmp_path

    return make


def complaint(folder: Path) -> str:
    """What is said of a CIRCO folder, which must name the annotation file."""
    with pytest.raises(FormatError) as error:
        load_source("circo/val", folder)
    assert "val.json" in str(error.value)
    return str(error.value)


def changed(**changes: Any) -> str:
    """Two rows, the second changed."""
    return json.dumps([ROW, {**ROW, "id": 1, **changes}])


def test_a_sound_file_loads(circo):
    assert len(load_source("circo/val", circo(changed())).queries) == 2


def test_a_missing_folder_is_named_with_the_origin(tmp_path):
    with pytest.raises(FormatError, match=r"nowhere: no such folder; it must hold .*val\.json, from github"):
        load_source("circo/val", tmp_path / "nowhere")


def test_no_folder_at_all_says_what_it_must_hold():
    with pytest.raises(FormatError, match=r"no folder given: it must hold annotations/val\.json"):
        load_source("circo/val")


def test_a_missing_file_is_named_with_its_possible_places(tmp_path):
    with pytest.raises(FormatError, match=r"holds none of annotations/val\.json, val\.json; get it from github"):
        load_source("circo/val", tmp_path)


def test_bytes_that_are_not_utf8_are_named_by_offset_and_line(circo):
    # `[\n"` is 3 bytes; the e acute of Latin-1 is the fourth, at offset 3.
    assert "not UTF-8 at byte 3 (line 2: b'\\xe9'); save it as UTF-8" in complaint(circo(b'[\n"\xe9t\xe9"]'))


def test_utf16_is_named_by_its_mark(circo):
    assert "UTF-16 text (by its byte order mark), expected UTF-8" in complaint(circo(changed().encode("utf-16")))


def test_a_utf8_byte_order_mark_changes_nothing(circo):
    assert len(load_source("circo/val", circo(b"\xef\xbb\xbf" + changed().encode())).queries) == 2


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("[1,]", 1, 4), ("[1,\n]", 2, 1), ('{"a": 1,}', 1, 9), ('{"a": 1,\n}', 2, 1), ("[1,,2]", 1, 4)],
)
def test_a_trailing_comma_is_named_by_line_and_column(circo, text, line, column):
    said = complaint(circo(text))
    assert f"not JSON at line {line}, column {column} (a comma with nothing after it); mend the file" in said


def test_a_cut_off_file_is_named_by_line_and_column(circo):
    assert "not JSON at line 1, column 2 (Expecting value); mend the file, or get it again" in complaint(circo("["))


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_know_are_refused(circo, constant):
    assert f"holds {constant}, which is not JSON" in complaint(circo(f"[{constant}]"))


def test_a_key_twice_in_an_object_is_refused(circo):
    assert "an object has a key more than once (1: 'id')" in complaint(circo('[{"id": 1, "id": 2}]'))


def test_another_top_level_type_is_named(circo):
    assert "expected a list at the top level, found an object" in complaint(circo("{}"))


def test_a_file_without_rows_is_refused(circo):
    assert "holds no rows" in complaint(circo("[]"))


def test_a_row_that_is_no_object_is_named(circo):
    assert "row 2 is a list, expected an object" in complaint(circo(json.dumps([ROW, [1]])))


def test_a_missing_key_is_named_with_the_row_and_the_keys_it_has(circo):
    row = {key: value for key, value in ROW.items() if key != "relative_caption"}
    said = complaint(circo(json.dumps([ROW, {**row, "caption": "is red"}])))
    assert "row 2 lacks the key 'relative_caption' (it has 'id', 'reference_img_id'" in said
    assert "'caption'); mend the row, or get the file again from github.com/miccunifi/CIRCO" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"relative_caption": None}, "has null under 'relative_caption', expected a string (None)"),
        ({"relative_caption": 7}, "has a whole number under 'relative_caption', expected a string (7)"),
        ({"gt_img_ids": 2}, "has a whole number under 'gt_img_ids', expected a list (2)"),
        ({"gt_img_ids": [2, None]}, "has null under 'gt_img_ids', expected an id"),
        ({"id": True}, "has true or false under 'id', expected an id"),
        ({"id": 1.0}, "has a number under 'id', expected an id"),
        ({"semantic_aspects": [1]}, "has a whole number in the list under 'semantic_aspects', expected strings"),
        ({"target_img_id": 3}, "has a 'target_img_id' that is not among its 'gt_img_ids'"),
    ],
)
def test_a_value_of_another_type_is_named_with_its_row(circo, changes, said):
    assert f"row 2 {said}" in complaint(circo(changed(**changes)))


def test_an_empty_id_is_refused(circo):
    row = {**ROW, "id": ""}
    assert "row 1 has an empty id under 'id'" in complaint(circo(json.dumps([row])))


def test_ids_that_are_numbers_and_strings_are_named_by_their_rows(circo):
    said = complaint(circo(changed(id="1")))
    assert "the ids under 'id' are whole numbers in rows 1: 1 and strings in rows 1: 2" in said


def test_ids_of_one_kind_of_thing_are_compared_across_keys(circo):
    rows = [{**ROW, "reference_img_id": "1"}]
    said = complaint(circo(json.dumps(rows)))
    assert "'reference_img_id', 'target_img_id', 'gt_img_ids' are whole numbers in rows 1: 1 and strings" in said


def test_only_the_first_five_rows_of_a_kind_are_listed(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"id": str(n) if n else 0} for n in range(8)]))
    with pytest.raises(FormatError, match=r"whole numbers in rows 1: 1 and strings in rows 7: 2, 3, 4, 5, 6, \.\.\."):
        check_id_types(read_rows(path, origin=ORIGIN), "id", path=path)


def test_a_bad_line_of_json_lines_is_named_by_its_number(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 1,}\n')
    with pytest.raises(FormatError, match=r"rows\.jsonl: not JSON at line 3, column 9 \(a comma with nothing after"):
        read_rows(path, origin=ORIGIN)


def test_blank_lines_of_json_lines_are_passed_over(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\r\n\r\n{"a": 2}\r\n')
    assert [row["a"] for row in read_rows(path, origin=ORIGIN)] == [1, 2]


def test_csv_rows_of_another_length_are_named(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,text\n1,red\n2\n3,a,b\n")
    with pytest.raises(FormatError, match=r"not the fields of the header \(2: 2, 3\)"):
        read_rows(path, origin=ORIGIN)


def test_a_parquet_file_that_is_none_is_named(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 and then something else")
    with pytest.raises(FormatError, match=r"rows\.parquet: not a parquet file"):
        read_rows(path, origin=ORIGIN)


def test_gzipped_text_is_read(tmp_path):
    path = tmp_path / "ids.txt.gz"
    path.write_bytes(gzip.compress(b"1\n2\n", mtime=0))
    assert read_text(path, origin=ORIGIN) == "1\n2\n"


@pytest.mark.parametrize("data", [b"no gzip at all", gzip.compress(b"1\n2\n" * 99, mtime=0)[:-9]])
def test_damaged_gzip_is_named(tmp_path, data):
    path = tmp_path / "ids.txt.gz"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=rf"ids\.txt\.gz: cannot be read .*get it again from {ORIGIN}"):
        read_text(path, origin=ORIGIN)


def test_a_missing_file_is_named_with_its_origin(tmp_path):
    with pytest.raises(FormatError, match=rf"gone\.json: no such file; get it from {ORIGIN}"):
        read_json(tmp_path / "gone.json", list, origin=ORIGIN)


def test_a_gallery_line_that_is_no_id_is_named(circo):
    folder = circo(changed())
    (folder / "coco_unlabeled2017_ids.txt").write_text("1\n2.jpg\n")
    with pytest.raises(FormatError, match=r"ids\.txt: line 2 holds '2\.jpg', expected a COCO image id"):
        load_source("circo/val", folder)


def test_a_target_outside_the_gallery_is_named(circo):
    folder = circo(changed(gt_img_ids=[2, 99]))
    with pytest.raises(BenchmarkError, match=r"targets are not in the gallery \(1: '99'\)"):
        load_source("circo/val", folder)
