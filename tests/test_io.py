"""Atomic, strict and reproducible files."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circus_bench.errors import FormatError
from circus_bench.io import (
    atomic_write,
    parse_as,
    read_json,
    read_parquet,
    sha256,
    slug,
    to_json,
    write_json,
    write_parquet,
    write_row_groups,
    write_text,
)

SCHEMA = pa.schema([("id", pa.string())])
# Surrogates are no text: UTF-8 has no bytes for them.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def interrupted_write(path: Path) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text("half of the new con")
        raise RuntimeError("power cut")


def test_a_failure_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="power cut"):
        interrupted_write(path)
    assert path.read_text() == "old"


def test_a_failure_in_the_middle_leaves_no_new_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="power cut"):
        interrupted_write(tmp_path / "file.txt")
    assert list(tmp_path.iterdir()) == []


def test_the_old_file_is_readable_while_the_new_one_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_no_temporary_file_remains(tmp_path: Path) -> None:
    write_text(tmp_path / "file.txt", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "folder" / "file.txt", "text")
    assert (tmp_path / "new" / "folder" / "file.txt").read_text() == "text"


def test_text_is_written_as_utf8(tmp_path: Path) -> None:
    write_text(tmp_path / "file.txt", "ça")
    # U+00E7 is c3 a7 in UTF-8, whatever the locale says.
    assert (tmp_path / "file.txt").read_bytes() == b"\xc3\xa7a"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_refuses_a_number_that_json_has_not(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"score": [value]})


def test_a_refused_json_file_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json(path, {"score": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"score": math.nan})
    assert read_json(path) == {"score": 1}


def test_json_does_not_depend_on_the_order_of_keys() -> None:
    assert to_json({"a": 1, "b": 2}) == to_json({"b": 2, "a": 1})


@given(content=st.dictionaries(TEXTS, JSON_VALUES, max_size=4))
def test_json_keeps_every_value(tmp_path_factory: pytest.TempPathFactory, content: dict[str, object]) -> None:
    path = tmp_path_factory.getbasetemp() / "every-value.json"
    write_json(path, content)
    assert read_json(path) == content


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "not UTF-8 JSON"),
        (b"", "not UTF-8 JSON"),
        (b'{"a": "\xff"}', "not UTF-8 JSON"),
        (b"[1, 2]", "expected a JSON object, found list"),
    ],
)
def test_a_file_that_holds_no_json_object_is_an_error_that_names_it(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "head.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=complaint) as raised:
        read_json(path)
    assert str(path) in str(raised.value)


def test_a_missing_json_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"absent\.json: no such file"):
        read_json(tmp_path / "absent.json")


def test_the_same_table_gives_the_same_parquet_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_parquet(tmp_path / name, pa.table({"id": ["a", "b"]}, schema=SCHEMA))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_every_table_becomes_one_row_group(tmp_path: Path) -> None:
    groups = [pa.table({"id": list(ids)}, schema=SCHEMA) for ids in ("ab", "cd", "e")]
    write_row_groups(tmp_path / "table", groups, schema=SCHEMA)
    assert pq.ParquetFile(tmp_path / "table").num_row_groups == 3
    assert read_parquet(tmp_path / "table", schema=SCHEMA)["id"].to_pylist() == list("abcde")


def test_the_same_row_groups_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_row_groups(tmp_path / name, [pa.table({"id": ["a"]}, schema=SCHEMA)] * 2, schema=SCHEMA)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_failure_between_row_groups_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    write_parquet(path, pa.table({"id": ["old"]}))

    def groups() -> Iterator[pa.Table]:
        yield pa.table({"id": ["new"]}, schema=SCHEMA)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_row_groups(path, groups(), schema=SCHEMA)
    assert [p.name for p in tmp_path.iterdir()] == ["table.parquet"]
    assert read_parquet(path, schema=SCHEMA)["id"].to_pylist() == ["old"]


def test_sha256_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    # The example of FIPS 180-2, appendix B.1.
    assert sha256(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_reading_keeps_only_the_columns_of_the_schema(tmp_path: Path) -> None:
    write_parquet(tmp_path / "table", pa.table({"more": [1], "id": ["a"]}))
    assert read_parquet(tmp_path / "table", schema=SCHEMA).column_names == ["id"]


def test_a_missing_column_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_parquet(tmp_path / "table", pa.table({"other": [1]}))
    with pytest.raises(FormatError, match=r"lacks the columns \['id'\]; found \['other'\]"):
        read_parquet(tmp_path / "table", schema=SCHEMA)


def test_a_column_of_another_type_is_an_error(tmp_path: Path) -> None:
    write_parquet(tmp_path / "table", pa.table({"id": [["a"]]}))
    with pytest.raises(FormatError, match="not of the expected schema"):
        read_parquet(tmp_path / "table", schema=SCHEMA)


def test_a_truncated_parquet_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    write_parquet(path, pa.table({"id": ["a"]}))
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(FormatError, match=r"table\.parquet: not a parquet file"):
        read_parquet(path, schema=SCHEMA)


def test_a_missing_parquet_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"absent\.parquet: no such file"):
        read_parquet(tmp_path / "absent.parquet", schema=SCHEMA)


@pytest.mark.parametrize("name", ["org/model", "../up", ".hidden", "a b:c", "..", "/absolute"])
def test_a_slug_is_one_visible_folder_name(name: str) -> None:
    made = slug(name)
    assert "/" not in made
    assert not made.startswith(".")


def test_written_json_ends_with_one_newline(tmp_path: Path) -> None:
    write_json(tmp_path / "file.json", {"a": 1})
    text = (tmp_path / "file.json").read_text()
    assert text.endswith("}\n")
    assert json.loads(text) == {"a": 1}


@dataclasses.dataclass(frozen=True)
class Inner:
    size: int
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner
    share: float


def test_plain_data_become_a_dataclass() -> None:
    content = {"inner": {"size": 3, "names": ["a", "b"]}, "share": 1, "more": None}
    assert parse_as(Outer, content, where="file.json") == Outer(Inner(3, ("a", "b")), 1.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"inner": {"size": 3}}, "file.json: share: Field required"),
        ({"inner": {"size": "3"}, "share": 0.5}, "file.json: inner.size: .*found '3'"),
        ({"inner": {"size": 3, "names": "ab"}, "share": True}, "inner.names: .*found 'ab'; share: .*found True"),
    ],
)
def test_plain_data_of_another_form_name_the_file_and_the_fields(content: dict[str, object], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_as(Outer, content, where="file.json")
