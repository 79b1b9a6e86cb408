"""Damage files as disks, downloads and editors do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def rewrite_column(path: Path, column: str, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change the values of one column of a parquet file."""
    table = pq.read_table(path)
    position = table.schema.get_field_index(column)
    field = table.schema.field(position)
    changed = pa.array(change(table[column].to_pylist()), field.type)
    pq.write_table(table.set_column(position, field, changed), path)


def rewrite_json(path: Path, **changes: Any) -> None:
    """Change entries of a JSON object."""
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")


def drop_column(path: Path, column: str) -> None:
    """Take a column out of a parquet file, which keeps one column at least."""
    table = pq.read_table(path).drop_columns([column])
    pq.write_table(table.append_column("other", pa.nulls(len(table), pa.string())), path)


def drop_rows(path: Path, *, keep: int) -> None:
    """Keep the first rows of a parquet file alone."""
    pq.write_table(pq.read_table(path).slice(0, keep), path)


def truncate(path: Path) -> None:
    """Cut the last bytes off a file."""
    path.write_bytes(path.read_bytes()[:-10])


def spoil_pages(path: Path) -> None:
    """Overwrite what a parquet file holds between its first bytes and its footer, which stays as it is."""
    data = bytearray(path.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little") + 8
    data[4:-footer] = b"\xff" * (len(data) - 4 - footer)
    path.write_bytes(bytes(data))
