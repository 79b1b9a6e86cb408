"""Read RMIR, reasoning-intensive retrieval by image and question, from files of a documented schema.

RMIR's own files could not be had: its layout, field names and license are unknown. This source therefore reads a schema
of our own, and a column mapping says which of the user's columns stand for which of its fields:

| field | column by default | content |
|---|---|---|
| `id` | `id` | query id |
| `image` | `image` | id of the input image |
| `text` | `text` | the question |
| `positives` | `positives` | list of image ids; in CSV a JSON list, or ids separated by white space |
| `category` | `category` | `functional`, `temporal` or `causal` |

Queries are JSON lines, a JSON list, CSV or parquet. The pool is such a file too (field `pool_id`, column `id` by
default), or a text file with one id per line. Further columns are kept in `Query.details`, where they are JSON-able.

One protocol, `rmir/test`: the whole shared pool, all positives, the input image left in it where the pool has it (what
RMIR does is unknown; this is M-BEIR's way). There is no instruction. `Query.group` is the category. Two averages are in
use and not the same: `micro`, over queries (RMIR's table), and `macro`, the plain mean of the three categories.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Defect, Protocol, Query, ReferencePolicy
from circus_bench.errors import BenchmarkError, FormatError
from circus_bench.sources.annotations import (
    AnnotationRow,
    SourceInfo,
    build_benchmark,
    check_choice,
    check_id_types,
    find_file,
    parse_json,
    read_rows,
    read_text,
)

INFO = SourceInfo(
    origin="github.com/amazon-science/rmir (named in the paper; its files could not be checked)",
    license="unknown",
    image_license="Visual Genome and Open Images terms",
    images_redistributable=False,
    citation='Li et al., "RMIR: A Benchmark Dataset for Reasoning-Intensive Multimodal Image Retrieval", CVPR 2026',
)
CATEGORIES = ("functional", "temporal", "causal")
COLUMNS: Mapping[str, str] = {
    "id": "id",
    "image": "image",
    "text": "text",
    "positives": "positives",
    "category": "category",
    "pool_id": "id",
}
SPLITS = ("test", "train")
PROTOCOLS = {
    f"rmir/{split}": Protocol(
        id=f"rmir/{split}",
        reference=ReferencePolicy.KEPT,
        gallery="the shared pool, the input image left in it where the pool has it",
        positives="all positives of the query",
        captions="the question, unchanged",
    )
    for split in SPLITS
}
_QUERY_SUFFIXES = (".jsonl", ".parquet", ".csv", ".json")
_POOL_PLACES = ("pool.txt", "pool.jsonl", "pool.parquet", "pool.csv", "pool.json")


def image_id(path: Path) -> str | None:
    """Return the name of an image file without its suffix."""
    return path.stem


def load(
    protocol: str,
    folder: StrPath | None,
    *,
    images: Mapping[str, bytes] | None = None,
    allow: Iterable[Defect] = (),
    queries: StrPath | None = None,
    pool: StrPath | None = None,
    columns: Mapping[str, str] | None = None,
) -> Benchmark:
    """Read RMIR.

    Args:
        protocol: `rmir/test` (benchmark `rmir`) or `rmir/train` (benchmark `rmir-train`); both search the same pool.
        folder: holds the files.
        images: image id to the bytes of its file; without them the benchmark has annotations only.
        allow: defects to allow.
        queries: the file of queries, relative to `folder`; the split's name with a known suffix by default.
        pool: the file of pool ids, likewise; `pool` with a known suffix by default.
        columns: field to column, for the fields whose column has another name than the default one.

    Raises:
        FormatError: a file is missing or does not follow the schema.
        BenchmarkError: the mapping names an unknown field, or the annotations contradict each other.
    """
    check_choice(protocol, PROTOCOLS, what="protocol of RMIR")
    unknown = sorted(set(columns or {}) - set(COLUMNS))
    if unknown:
        raise BenchmarkError(f"the column mapping names unknown fields {unknown}; known: {', '.join(COLUMNS)}")
    names = {**COLUMNS, **(columns or {})}
    split = protocol.partition("/")[2]
    places = [queries] if queries else [split + suffix for suffix in _QUERY_SUFFIXES]
    path = find_file(folder, *places, origin=INFO.origin)
    pool_path = find_file(folder, *([pool] if pool else _POOL_PLACES), origin=INFO.origin)
    rows = read_rows(path, origin=INFO.origin)
    check_id_types(rows, names["id"], path=path)
    check_id_types(rows, names["image"], names["positives"], path=path)
    made = [_query(row, names, path) for row in rows]
    return build_benchmark(
        "rmir" if split == "test" else f"rmir-{split}",
        PROTOCOLS[protocol],
        queries=made,
        gallery=_pool(pool_path, names["pool_id"]),
        images=images,
        allow=allow,
        info=INFO,
        files=[path, pool_path],
        folder=folder,
        split=split,
        counts={"rows": len(rows), **Counter(query.group for query in made)},
        columns=dict(names),
        averages={"micro": "mean over queries", "macro": "mean of the means of the three categories"},
    )


def _query(row: AnnotationRow, names: Mapping[str, str], path: Path) -> Query:
    category = row.get(names["category"], str)
    if category not in CATEGORIES:
        row.fail(f"has the category {category!r}, expected one of {', '.join(CATEGORIES)}")
    return Query(
        id=row.get_id(names["id"]),
        reference=row.get_id(names["image"]),
        text=row.get(names["text"], str),
        targets=_positives(row, names["positives"], path),
        group=category,
        details={"row": row.number, **_further(row, set(names.values()))},
    )


def _positives(row: AnnotationRow, column: str, path: Path) -> tuple[str, ...]:
    value = row[column]
    if isinstance(value, list):
        return row.get_ids(column)
    if not isinstance(value, str):
        row.fail(f"has {value!r} under {column!r}, expected a list of image ids")
    if value.strip().startswith("["):
        listed = parse_json(value, path=path, origin=INFO.origin, line=row.number + 1)
        return tuple(row.check_id(entry, column) for entry in listed)
    return tuple(value.split())


def _further(row: AnnotationRow, used: set[str]) -> dict[str, Any]:
    """Collect the columns that no field stands for, as far as JSON can hold them."""
    kept = {}
    for key in row.keys() - used - {"row"}:
        try:
            json.dumps(row[key], allow_nan=False)
        except (TypeError, ValueError):
            continue
        kept[key] = row[key]
    return kept


def _pool(path: Path, column: str) -> tuple[str, ...]:
    if path.suffix == ".txt":
        ids = tuple(line.strip() for line in read_text(path, origin=INFO.origin).split("\n") if line.strip())
        if not ids:
            raise FormatError(f"{path}: holds no image id")
        return ids
    rows = read_rows(path, origin=INFO.origin)
    check_id_types(rows, column, path=path)
    return tuple(row.get_id(column) for row in rows)
