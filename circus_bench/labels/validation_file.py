"""Read and write the file of a human validation, which `circus-bench validate export` makes.

One file per benchmark, parquet or JSON; see docs/formats.md. It holds no labels of an audit: `Labels.with_validation`
adds its verdicts to those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench._typing import StrPath
from circus_bench.errors import FormatError
from circus_bench.io import open_parquet, read_json, read_parquet, write_json, write_parquet
from circus_bench.labels.labels import METADATA_KEY, Labels
from circus_bench.labels.provenance import Provenance
from circus_bench.labels.query_label import QueryLabel, RejectionReason

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
KIND = "validation"
"""Under the key `kind` of the file's head, so that readers can tell it from other files."""

_REQUIRED = ("human_audited", "human_valid", "stratum", "weight", *(reason.value for reason in RejectionReason))


def schema() -> pa.Schema:
    """Return the columns; `query` to the four reasons are those of a release."""
    import pyarrow as pa

    def pairs(name: str, value: str, kind: pa.DataType) -> pa.DataType:
        return pa.list_(pa.struct([(name, pa.string()), (value, kind)]))

    return pa.schema(
        [
            ("query", pa.string()),
            ("human_audited", pa.bool_()),
            ("human_valid", pa.bool_()),
            ("stratum", pa.string()),
            *((reason.value, pa.bool_()) for reason in RejectionReason),
            ("decision", pa.string()),
            ("raters", pa.int32()),
            ("votes", pairs("label", "raters", pa.int32())),
            ("posterior", pa.float64()),
            ("weight", pa.float64()),
            ("reasons", pairs("reason", "raters", pa.int32())),
            ("answers", pairs("question", "yes", pa.float64())),
            ("alternatives", pairs("image", "share", pa.float64())),
        ]
    )


def write_validation(path: StrPath, head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a validation file: JSON where the name ends in `.json`, else parquet.

    Args:
        path: the file.
        head: `benchmark`, `origin` (of `Provenance.to_dict`), and whatever else tells how the verdicts came about.
        rows: one per query, of `schema`.
    """
    import pyarrow as pa

    path = Path(path)
    about = {**head, "kind": KIND, "schema_version": SCHEMA_VERSION}
    if path.suffix == ".json":
        write_json(path, {**about, "queries": list(rows)})
        return
    table = pa.Table.from_pylist(list(rows), schema=schema())
    write_parquet(path, table.replace_schema_metadata({METADATA_KEY: json.dumps(about, sort_keys=True)}))


def read_validation(path: StrPath) -> Labels:
    """Read the human verdicts and votes of a validation file.

    Raises:
        FormatError: the file is none, or one of another schema version, or a row contradicts itself.
    """
    path = Path(path)
    if path.suffix == ".json":
        head = read_json(path)
        rows = head.pop("queries", None)
    else:
        table = read_parquet(path, schema=schema())
        head, rows = _head(path, table), table.to_pylist()
    if head.get("kind") != KIND or head.get("schema_version") != SCHEMA_VERSION:
        raise FormatError(
            f"{path}: {head.get('kind')!r} of schema version {head.get('schema_version')!r}, expected {KIND!r} of "
            f"version {SCHEMA_VERSION}"
        )
    try:
        by_query = {row["query"]: _query_label(row) for row in rows}
        return Labels(head["benchmark"], Provenance.from_dict(head["origin"]), by_query)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: not a validation file ({error!r}); see docs/formats.md") from error


def is_validation(path: StrPath) -> bool:
    """Tell whether a parquet file is a validation file.

    Raises:
        FormatError: it is no parquet file.
    """
    import pyarrow as pa

    return _head(Path(path), open_parquet(path, schema=pa.schema([])).schema_arrow).get("kind") == KIND


def _head(path: Path, holder: Any) -> dict[str, Any]:
    """Read the head in the metadata of a table or a schema; empty where there is none."""
    metadata = (getattr(holder, "schema", holder).metadata or {}).get(METADATA_KEY)
    try:
        content = json.loads(metadata) if metadata else {}
    except ValueError as error:
        raise FormatError(f"{path}: metadata that are not JSON ({error})") from error
    return content if isinstance(content, dict) else {}


def _query_label(row: Mapping[str, Any]) -> QueryLabel:
    return QueryLabel.from_row(row["query"], {**{name: row[name] for name in _REQUIRED}, "votes": row.get("votes")})
