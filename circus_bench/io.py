"""Read and write files: atomically, and so that the same content gives the same bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from circus_bench._typing import StrPath
from circus_bench.errors import FormatError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

T = TypeVar("T")


@contextmanager
def atomic_write(path: StrPath) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it over `path` when the block succeeds.

    A reader sees the old file or the whole new one, never a part of it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: StrPath, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: StrPath, content: Mapping[str, Any]) -> None:
    """Write strict JSON (no NaN) with sorted keys."""
    write_text(path, to_json(content) + "\n")


def to_json(content: Any) -> str:
    """Render strict JSON with sorted keys; NaN and infinity are a ValueError."""
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)


def to_plain(value: Any) -> Any:
    """Convert dataclasses, also nested ones, to plain dicts for strict JSON; a `to_dict` method has precedence."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    return [to_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def read_json(path: StrPath) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        FormatError: the file is missing, is not JSON, or holds no object.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FormatError(f"{path}: not UTF-8 JSON ({error})") from error
    if not isinstance(content, dict):
        raise FormatError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def parse_as(kind: type[T], content: Any, *, where: StrPath) -> T:
    """Build a dataclass, or another type that pydantic knows, from JSON content; every value has to be of its type.

    Args:
        kind: the type; keys that it does not have are ignored.
        content: as `read_json` gives it.
        where: file, and place in it, for messages.

    Raises:
        FormatError: names the fields that are missing or of another type.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}, found {e['input']!r:.100}" for e in error.errors()]
        raise FormatError(f"{where}: {'; '.join(wrong)}; see docs/formats.md") from error


def write_parquet(path: StrPath, table: pa.Table) -> None:
    """Write a parquet file whose bytes follow from the table alone."""
    write_row_groups(path, [table], schema=table.schema)


def write_row_groups(path: StrPath, groups: Iterable[pa.Table], *, schema: pa.Schema) -> None:
    """Write a parquet file of one row group per table; only one of them needs to be in memory at a time."""
    import pyarrow.parquet as pq

    with atomic_write(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for group in groups:
            writer.write_table(group)


def sha256(path: StrPath) -> str:
    """Hash the bytes of a file with SHA-256; returns the hex digest."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_parquet(path: StrPath, *, schema: pa.Schema) -> pq.ParquetFile:
    """Open a parquet file that has at least the columns of `schema`; nothing is read yet.

    Raises:
        FormatError: the file is missing, unreadable, or lacks a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path, memory_map=True)
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(f"{path}: not a parquet file ({error})") from error
    missing = [name for name in schema.names if name not in file.schema_arrow.names]
    if missing:
        raise FormatError(f"{path}: lacks the columns {missing}; found {file.schema_arrow.names}")
    return file


def read_parquet(path: StrPath, *, schema: pa.Schema) -> pa.Table:
    """Read the columns of `schema` from a parquet file, cast to its types. The file's own metadata are kept.

    Raises:
        FormatError: the file is missing, unreadable, or lacks a column.
    """
    import pyarrow as pa

    file = open_parquet(path, schema=schema)
    try:
        return file.read(columns=schema.names).cast(schema).replace_schema_metadata(file.schema_arrow.metadata)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OSError) as error:
        raise FormatError(f"{path}: not of the expected schema ({error})") from error


def slug(name: str) -> str:
    """Turn a model or benchmark name into a folder name.

    Example:
        >>> slug("Qwen/Qwen3-VL-Embedding-2B")
        'Qwen__Qwen3-VL-Embedding-2B'
    """
    return "".join(c if c.isalnum() or c in "-_." else "__" if c == "/" else "-" for c in name).lstrip(".")
