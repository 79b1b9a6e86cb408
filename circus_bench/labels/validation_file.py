"""The file of a human validation, which `circus-bench validate export` writes: its columns, and its verdicts.

One file a benchmark, parquet or JSON; see docs/formats.md. It holds no labels of an audit: `with_validation` adds its
verdicts to those.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench.errors import FormatError, MismatchError
from circus_bench.io import read_json, read_parquet, write_json, write_parquet
from circus_bench.labels.labels import Origin, Reason, Verdict, Verdicts
from circus_bench.metrics.shortcut import Label

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
KIND = "validation"
"""Under the key `kind` of the file's head, so that readers can tell it from other files."""

_METADATA = b"circus_bench"


def schema() -> pa.Schema:
    """The columns; `query`, `human_audited`, `human_valid`, `stratum` and the four reasons are those of a release."""
    import pyarrow as pa

    def pairs(name: str, value: str, kind: pa.DataType) -> pa.DataType:
        return pa.list_(pa.struct([(name, pa.string()), (value, kind)]))

    return pa.schema(
        [
            ("query", pa.string()),
            ("human_audited", pa.bool_()),
            ("human_valid", pa.bool_()),
            ("stratum", pa.string()),
            *((reason.value, pa.bool_()) for reason in Reason),
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


def write_validation(path: Path, head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a validation file: JSON where the name ends in `.json`, else parquet.

    Args:
        path: the file.
        head: `benchmark`, `origin` (of `dataclasses.asdict`), and whatever else tells how the verdicts came about.
        rows: one a query, of `schema`.
    """
    import pyarrow as pa

    about = {**head, "kind": KIND, "schema_version": SCHEMA_VERSION}
    if path.suffix == ".json":
        write_json(path, {**about, "queries": list(rows)})
        return
    table = pa.Table.from_pylist(list(rows), schema=schema())
    write_parquet(path, table.replace_schema_metadata({_METADATA: json.dumps(about, sort_keys=True)}))


def read_validation(path: Path) -> Verdicts:
    """Read the verdicts of a validation file.

    Raises:
        FormatError: the file is none, or one of another schema version, or a row contradicts itself.
    """
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
        verdicts = {row["query"]: _verdict(row) for row in rows}
        return Verdicts(head["benchmark"], Origin.from_dict(head["origin"]), verdicts)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: not a validation file ({error!r}); see docs/formats.md") from error


def is_validation(path: Path) -> bool:
    """Whether a parquet file is a validation file.

    Raises:
        FormatError: it is no parquet file.
    """
    import pyarrow as pa

    from circus_bench.io import open_parquet

    return _head(path, open_parquet(path, schema=pa.schema([])).schema_arrow).get("kind") == KIND


def with_validation(labels: Verdicts, validation: Verdicts) -> Verdicts:
    """The labels of an audit with the human verdicts of a validation, in the place of those that were there.

    Raises:
        MismatchError: they are about different benchmarks or versions of one, or a query was drawn under another label.
    """
    a, b = labels.origin.fingerprint, validation.origin.fingerprint
    if a and b and not a.matches(b):
        raise MismatchError(
            f"the labels ({labels.origin.source}) and the validation ({validation.origin.source}) were made on "
            f"different versions of {labels.benchmark!r} (fingerprints differ)"
        )
    bare = {
        query: dataclasses.replace(verdict, audited=False, valid=None, stratum=None, reasons=(), weight=None)
        for query, verdict in labels.verdicts.items()
    }
    return dataclasses.replace(labels, verdicts=bare).merged(validation)


def _head(path: Path, holder: Any) -> dict[str, Any]:
    """The head in the metadata of a table or a schema; empty where there is none."""
    metadata = (getattr(holder, "schema", holder).metadata or {}).get(_METADATA)
    try:
        content = json.loads(metadata) if metadata else {}
    except ValueError as error:
        raise FormatError(f"{path}: metadata that are not JSON ({error})") from error
    return content if isinstance(content, dict) else {}


def _verdict(row: Mapping[str, Any]) -> Verdict:
    return Verdict(
        row["query"],
        audited=row["human_audited"],
        valid=row["human_valid"],
        stratum=Label(row["stratum"]) if row["stratum"] else None,
        reasons=tuple(reason for reason in Reason if row[reason.value]),
        weight=row["weight"],
    )
