"""Read annotation files strictly, with errors that name the file, the row, the key and the remedy.

- Text is UTF-8, plain or in a `.gz` file. A UTF-8 byte order mark is accepted and dropped: it changes nothing. Files in
  UTF-16 or another encoding are an error that says so.
- JSON is strict: no NaN, no trailing comma, no key twice in an object (the first value would be lost silently).
- Ids are strings or whole numbers in the files and strings in a benchmark. Within one column they must be of one kind:
  `12` in one row and `"012"` in another cannot be told apart from a mistake.

Rows are counted from 1 in messages, as an editor counts lines; the row numbers in `Query.details` count from 0.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Defect, Gallery, Protocol, Query
from circus_bench.errors import BenchmarkError, FormatError, duplicates, format_ids
from circus_bench.io import sha256

T = TypeVar("T")

_KINDS = (str, int, float, bool, list, dict, type(None))
_WORDS = ("a string", "a whole number", "a number", "true or false", "a list", "an object", "null")
_TYPE_NAMES = dict(zip(_KINDS, _WORDS, strict=True))
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def find_file(folder: StrPath | None, *places: StrPath, origin: str) -> Path:
    """Return the first of several places in a folder where there is a file; the official layout comes first.

    Raises:
        FormatError: there is no folder, or no file at any of the places; names `origin`, where it can be had.
    """
    if folder is None or not Path(folder).is_dir():
        wrong = "no folder given:" if folder is None else f"{folder}: no such folder;"
        raise FormatError(f"{wrong} it must hold {places[0]}, from {origin}")
    found = next((path for path in (Path(folder, place) for place in places) if path.is_file()), None)
    if found is None:
        raise FormatError(f"{folder}: holds none of {', '.join(map(str, places))}; get it from {origin}")
    return found


def read_text(path: StrPath, *, origin: str) -> str:
    """Read a UTF-8 text file, uncompressed or `.gz`, without its byte order mark.

    Raises:
        FormatError: the file is missing, damaged or not UTF-8.
    """
    path = Path(path)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file; get it from {origin}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{path}: cannot be read ({error}); get it again from {origin}") from error
    if data.startswith(_UTF16_MARKS):
        raise FormatError(f"{path}: UTF-16 text (by its byte order mark), expected UTF-8; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FormatError(
            f"{path}: not UTF-8 at byte {error.start:,} (line {line:,}: {data[error.start : error.end]!r}); "
            f"save it as UTF-8, or get it again from {origin}"
        ) from error


def parse_json(text: str, *, path: StrPath, origin: str, line: int | None = None) -> Any:
    """Parse strict JSON, of a whole file or (JSON lines) of one `line` of it.

    Raises:
        FormatError: the text is not JSON, or an object has a key twice.
    """

    def fail(what: str, error: Exception | None = None) -> NoReturn:
        raise FormatError(f"{path}: {what}; mend the file, or get it again from {origin}") from error

    place = f"line {line:,}: " if line else ""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if repeated := duplicates(key for key, _ in pairs):
            fail(f"{place}an object has a key more than once ({format_ids(repeated)})")
        return dict(pairs)

    def constant(name: str) -> NoReturn:
        fail(f"{place}holds {name}, which is not JSON")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=constant)
    except json.JSONDecodeError as error:
        comma = text[: error.pos].rstrip().endswith(",") and text[error.pos :].lstrip()[:1] in {"]", "}", ","}
        what = "a comma with nothing after it" if comma or "trailing comma" in error.msg else error.msg
        fail(f"not JSON at line {line or error.lineno:,}, column {error.colno:,} ({what})", error)


def read_json(path: StrPath, kind: type[T], *, origin: str) -> T:
    """Read a JSON file whose outermost value is of one kind.

    Raises:
        FormatError: the file cannot be read, or holds a value of another kind.
    """
    content = parse_json(read_text(path, origin=origin), path=path, origin=origin)
    if not isinstance(content, kind):
        raise FormatError(
            f"{path}: expected {_TYPE_NAMES[kind]} at the top level, found {_name(content)}; "
            f"is it another file of {origin}?"
        )
    return content


class AnnotationRow:
    """One row of an annotation file, with typed access to its values.

    Args:
        content: the row: an object.
        path: its file.
        number: its place among the rows, from 0.
        origin: where the file can be had.
        aliases: other names of a key, by the name the reader uses; the first that a row has counts.

    Raises:
        FormatError: the content is no object.
    """

    __slots__ = ("_aliases", "_content", "_origin", "_path", "number")

    def __init__(
        self,
        content: Any,
        *,
        path: StrPath,
        number: int,
        origin: str,
        aliases: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.number = number
        self._path, self._origin, self._aliases = path, origin, aliases or {}
        if not isinstance(content, dict):
            self._content: dict[str, Any] = {}
            self.fail(f"is {_name(content)}, expected an object")
        self._content = content

    def fail(self, what: str) -> NoReturn:
        """Raise a FormatError; `what` continues the sentence "row N ..."."""
        raise FormatError(
            f"{self._path}: row {self.number + 1:,} {what}; mend the row, or get the file again from {self._origin}"
        )

    def __contains__(self, key: str) -> bool:
        return self._name_of(key) is not None

    def __getitem__(self, key: str) -> Any:
        name = self._name_of(key)
        if name is None:
            wanted = " or ".join(repr(name) for name in self._names(key))
            self.fail(f"lacks the key {wanted} (it has {', '.join(map(repr, self._content)) or 'no key'})")
        return self._content[name]

    def keys(self) -> set[str]:
        """Return the keys of the row, as they are in the file."""
        return set(self._content)

    def get(self, key: str, kind: type[T]) -> T:
        """Return the value of a key, of the kind wanted."""
        value = self[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.fail(
                f"has {_name(value)} under {self._name_of(key)!r}, expected {_TYPE_NAMES[kind]} ({_short(value)})"
            )
        return value

    def get_id(self, key: str) -> str:
        """Return the id under a key, a string or a whole number, as a string."""
        return self.check_id(self[key], key)

    def get_ids(self, key: str) -> tuple[str, ...]:
        """Return the list of ids under a key, as strings."""
        return tuple(self.check_id(value, key) for value in self.get(key, list))

    def get_strings(self, key: str) -> tuple[str, ...]:
        """Return the list of strings under a key."""
        values = self.get(key, list)
        for value in values:
            if not isinstance(value, str):
                self.fail(f"has {_name(value)} in the list under {self._name_of(key)!r}, expected strings")
        return tuple(values)

    def check_id(self, value: Any, key: str) -> str:
        """Return a value found under a key as a string; it must be an id: a non-empty string or a whole number."""
        if isinstance(value, bool) or not isinstance(value, str | int):
            self.fail(f"has {_name(value)} under {key!r}, expected an id: a string or a whole number ({_short(value)})")
        if value == "":
            self.fail(f"has an empty id under {key!r}")
        return str(value)

    def _names(self, key: str) -> tuple[str, ...]:
        return (key, *self._aliases.get(key, ()))

    def _name_of(self, key: str) -> str | None:
        return next((name for name in self._names(key) if name in self._content), None)


def wrap_rows(
    contents: Iterable[Any], *, path: StrPath, origin: str, aliases: Mapping[str, Sequence[str]] | None = None
) -> list[AnnotationRow]:
    """Wrap the rows of a file.

    Raises:
        FormatError: a row is no object, or there is none.
    """
    rows = [
        AnnotationRow(c, path=path, number=number, origin=origin, aliases=aliases) for number, c in enumerate(contents)
    ]
    if not rows:
        raise FormatError(f"{path}: holds no rows; get it again from {origin}")
    return rows


def read_rows(path: StrPath, *, origin: str, aliases: Mapping[str, Sequence[str]] | None = None) -> list[AnnotationRow]:
    """Read rows from a JSON list, JSON lines (`.jsonl`), a CSV or a parquet file, by the file name's end.

    In CSV every value is a string. Blank lines of JSON lines are passed over.

    Raises:
        FormatError: the file cannot be read, or a row is no object.
    """
    return wrap_rows(read_records(path, origin=origin), path=path, origin=origin, aliases=aliases)


def read_records(path: StrPath, *, origin: str, lines: bool = False) -> list[Any]:
    """Read what `read_rows` makes rows of; with `lines` a `.json` file is taken for JSON lines, too.

    Errors are as there, but for rows that are no objects.
    """
    path = Path(path)
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix == ".parquet":
        return list(_read_parquet(path, origin))
    if suffix == ".csv":
        return list(_read_csv(path, origin))
    if suffix == ".jsonl" or lines:
        numbered = enumerate(read_text(path, origin=origin).split("\n"), start=1)
        return [parse_json(text, path=path, origin=origin, line=line) for line, text in numbered if text.strip()]
    return list(read_json(path, list, origin=origin))


def check_id_types(rows: Sequence[AnnotationRow], *keys: str, path: StrPath) -> None:
    """Refuse ids, or lists of ids, of the same things under `keys` that are numbers in some rows, strings in others.

    Raises:
        FormatError: both kinds occur; the first rows of each are named.
    """
    places: dict[str, dict[int, None]] = {"whole numbers": {}, "strings": {}}
    for row in rows:
        for value in (row[key] for key in keys if key in row):
            for entry in value if isinstance(value, list) else [value]:
                if isinstance(entry, str | int):
                    places["strings" if isinstance(entry, str) else "whole numbers"][row.number + 1] = None
    if all(places.values()):
        found = " and ".join(f"{kind} in rows {format_ids(numbers)}" for kind, numbers in places.items())
        raise FormatError(
            f"{path}: the ids under {', '.join(map(repr, keys))} are {found}. Write them all in one way: "
            f"12 and '12' may or may not be the same thing"
        )


@dataclasses.dataclass(frozen=True)
class SourceInfo:
    """Provenance of annotations, and what may be done with them.

    Attributes:
        origin: where the files can be had, in words.
        license: of the annotations.
        image_license: of the images.
        images_redistributable: whether a release may contain the pixels; False where the license forbids it.
        citation: how to cite the benchmark.
    """

    origin: str
    license: str
    image_license: str
    images_redistributable: bool
    citation: str


def protocols_by_id(*protocols: Protocol) -> dict[str, Protocol]:
    """Index protocols by their ids."""
    return {protocol.id: protocol for protocol in protocols}


def build_benchmark(
    name: str,
    protocol: Protocol,
    *,
    queries: Iterable[Query],
    gallery: Iterable[str],
    images: Mapping[str, bytes] | None,
    allow: Iterable[Defect],
    info: SourceInfo,
    files: Iterable[Path],
    folder: StrPath | None,
    split: str,
    counts: Mapping[str, int],
    **facts: Any,
) -> Benchmark:
    """Build the benchmark that a source has read, its provenance in `Benchmark.source`.

    That is: what is known of the source (`info`), the benchmark's own name of the split, the files with their digests
    (names relative to `folder`), `counts` with those of queries and targets, and JSON-able `facts`.

    Raises:
        BenchmarkError: the annotations contradict each other.
    """
    queries = tuple(queries)

    def relative(path: Path) -> str:
        return path.relative_to(folder).as_posix() if folder and path.is_relative_to(folder) else path.name

    source = {
        **dataclasses.asdict(info),
        "split": split,
        "files": {relative(path): sha256(path) for path in dict.fromkeys(files)},
        "counts": {**counts, "queries": len(queries), "targets": sum(len(query.targets) for query in queries)},
        **facts,
    }
    return Benchmark(
        name=name,
        protocol=protocol,
        queries=queries,
        gallery=Gallery(tuple(gallery), images),
        source=source,
        allow=frozenset(allow),
    )


def check_choice(value: str, known: Iterable[str], *, what: str) -> str:
    """Return an option's value, which must be one of the known ones.

    Raises:
        BenchmarkError: it is not.
    """
    known = tuple(known)
    if value not in known:
        raise BenchmarkError(f"unknown {what} {value!r}; known: {', '.join(known)}")
    return value


def group_rows(items: Iterable[T], key: Callable[[T], Any]) -> list[list[T]]:
    """Group items with equal keys, groups and members in the order of first appearance."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _read_csv(path: Path, origin: str) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(read_text(path, origin=origin), newline=""), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise FormatError(f"{path}: not CSV at line {reader.line_num:,} ({error}); mend the line") from error
    uneven = [number for number, row in enumerate(rows, start=1) if None in row or None in row.values()]
    if uneven:
        raise FormatError(
            f"{path}: rows have not the fields of the header ({format_ids(uneven)}); mend them, or get it from {origin}"
        )
    return rows


def _read_parquet(path: Path, origin: str) -> list[dict[str, Any]]:
    import pyarrow as pa

    from circus_bench.io import open_parquet

    try:
        rows: list[dict[str, Any]] = open_parquet(path, schema=pa.schema([])).read().to_pylist()
    except pa.ArrowException as error:
        raise FormatError(f"{path}: damaged ({error}); get it again from {origin}") from error
    return rows


def _name(value: Any) -> str:
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def _short(value: Any) -> str:
    return repr(value)[:60]
