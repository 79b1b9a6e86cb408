"""Load labels and human verdicts from files of any known format, told by the columns, not by the file's name.

Known are our own `labels.parquet` and validation files, and the formats of the CIRCUS project: trace CSV and trace JSON
lines, the index lists of validated queries, the aggregated audit, the list of validated queries, the Hub dataset with
its 28 columns, and Croissant descriptions of files in one of these formats. Texts, image names and annotators' notes
are not read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

from circus_bench._typing import StrPath
from circus_bench.benchmark import Condition
from circus_bench.errors import FormatError, format_ids
from circus_bench.io import open_parquet, sha256
from circus_bench.labels.labels import Labels
from circus_bench.labels.provenance import Provenance
from circus_bench.labels.published import PUBLISHED
from circus_bench.labels.query_label import QueryLabel, RejectionReason
from circus_bench.labels.validation_file import KIND, is_validation, read_validation
from circus_bench.metrics.shortcut import Label, Shortcut
from circus_bench.sources.annotations import AnnotationRow, check_id_types, read_json, read_rows, wrap_rows

_SOURCE = "the CIRCUS project, or whoever made it"
_LABELS = {
    "shortcut_solvable": Label.SHORTCUT,
    "shortcut": Label.SHORTCUT,
    "composition_required": Label.COMPOSITION_REQUIRED,
    "solved": Label.COMPOSITION_REQUIRED,
    "unresolved": Label.UNRESOLVED,
    "unsolved": Label.UNRESOLVED,
}
_DETAILS = {
    "text_only": Shortcut.TEXT_ONLY,
    "image_only": Shortcut.IMAGE_ONLY,
    "both_unimodal": Shortcut.BOTH,
    "both": Shortcut.BOTH,
}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_UNKNOWN = {"", "none", "null", "nan"}
_ALIASES = {"support_multimodal": ("support_multimodal_at10",)}


@dataclass(frozen=True)
class _Schema:
    """A format: the column (keys joined by dots) of each part of a label, and those that must be there, else all."""

    name: str
    columns: Mapping[str, str]
    core: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        return self.core or tuple(self.columns.values())

    def fits(self, row: AnnotationRow) -> bool:
        return all(_holds(row, column) for column in self.required)


def _by_condition(kind: str, pattern: str) -> dict[str, str]:
    return {f"{kind}.{condition}": pattern.format(condition) for condition in Condition}


RELEASED_REASONS = {
    RejectionReason.INVALID_TEXT: "invalid_text_query",
    RejectionReason.INVALID_REFERENCE_IMAGE: "invalid_image_query",
    RejectionReason.INVALID_TARGET_IMAGE: "invalid_target_image",
    RejectionReason.QUERY_TOO_BROAD: "query_too_broad",
}
_RELEASED_HUMAN = {"query": "query_idx", "dataset": "dataset", "stratum": "hidden_category", "valid": "validated"}
_TRACE = {
    "label": "aggregate_label",
    "detail": "aggregate_detail_label",
    **_by_condition("best_rank", "rank_{}"),
    **_by_condition("support", "support_{}"),
    "support_unimodal": "support_either_unimodal",
}
_AGGREGATED = {
    "label": "aggregation.label",
    "detail": "aggregation.detail_label",
    **_by_condition("best_rank", "ranks.{}"),
    **_by_condition("support", "aggregation.retriever_support_at_k.{}"),
    "support_unimodal": "aggregation.retriever_support_at_k.either_unimodal",
}

_SCHEMAS = (  # the first that fits counts, so those that ask for more come first
    _Schema(
        "the Hub dataset with 28 columns",
        {
            "query": "query_index",
            "dataset": "dataset",
            "label": "audit_category",
            "detail": "shortcut_type",
            "best_rank.multimodal": "best_multimodal_rank",
            "best_rank.text_only": "best_text_rank",
            "best_rank.image_only": "best_image_rank",
            "k": "audit_k",
            "audited": "human_audited",
            "valid": "human_valid",
            "stratum": "validation_stratum",
            **{f"reason.{reason}": reason.value for reason in RejectionReason},
        },
    ),
    _Schema(
        "validated queries, nested (all_validated_queries.jsonl)",
        {
            **_RELEASED_HUMAN,
            **_AGGREGATED,
            **{f"reason.{reason}": f"reasons.{column.upper()}" for reason, column in RELEASED_REASONS.items()},
        },
        core=("dataset", "query_idx", "hidden_category", "validated", "reasons", "aggregation", "ranks"),
    ),
    _Schema(
        "validated queries, flat (a Croissant export)",
        {
            **_RELEASED_HUMAN,
            **_TRACE,
            **{f"reason.{reason}": column for reason, column in RELEASED_REASONS.items()},
        },
    ),
    _Schema("trace CSV or JSON lines", {"query": "query_idx", **_TRACE}),
    _Schema(
        "aggregated audit JSON",
        {"query": "query_idx", **_AGGREGATED},
        core=("query_idx", "aggregation", "ranks"),
    ),
    _Schema(
        "label CSV with the pool's best ranks",
        {
            "query": "query_idx",
            "label": "label",
            **_by_condition("best_rank", "best_rank_{}"),
            **_by_condition("support", "support_{}"),
            "support_unimodal": "support_either_unimodal",
        },
        core=("query_idx", "label", "best_rank_multimodal", "best_rank_text_only", "best_rank_image_only"),
    ),
)
_OWN = ("query", "label", "detail")
_INDEX = ("dataset", "hidden_category", "query_indices")


def load_labels(path: StrPath, *, benchmark: str | None = None) -> Labels:
    """Load labels, human verdicts or both from a file of any known format.

    Args:
        path: CSV, JSON lines, JSON (`.json`), parquet, or a Croissant description with its data files beside it.
        benchmark: the benchmark wanted, needed where a file holds several; and its name where a file tells none.

    Raises:
        FormatError: the file fits no known format (the columns found and those expected are named), a row is damaged or
            contradicts itself, a query occurs twice, or the file holds several benchmarks and none was asked for.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        import pyarrow as pa

        if is_validation(path):
            return read_validation(path)
        if set(_OWN) <= set(open_parquet(path, schema=pa.schema([])).schema_arrow.names):
            return Labels.load(path)
    if path.suffix != ".json":
        return _of_rows(path, read_rows(path, origin=_SOURCE, aliases=_ALIASES), benchmark)
    content: Any = read_json(path, object, origin=_SOURCE)
    if isinstance(content, dict) and "recordSet" in content:
        return _of_croissant(path, content, benchmark)
    if isinstance(content, dict) and content.get("kind") == KIND:
        return read_validation(path)
    if isinstance(content, dict) and "query_indices" in content:
        return _of_index(path, wrap_rows([content], path=path, origin=_SOURCE)[0], benchmark)
    if isinstance(content, dict):
        content = content.get("samples", [content])  # the aggregated audit has its rows there, beside settings
    return _of_rows(path, wrap_rows(content, path=path, origin=_SOURCE), benchmark)


def _of_rows(path: Path, rows: Sequence[AnnotationRow], benchmark: str | None) -> Labels:
    schema = next((schema for schema in _SCHEMAS if schema.fits(rows[0])), None)
    if schema is None:
        _refuse(rows[0])
    check_id_types(rows, schema.columns["query"], path=path)
    name, rows = _of_one_benchmark(path, rows, schema.columns.get("dataset"), benchmark)
    by_query: dict[str, QueryLabel] = {}
    for row in rows:
        label = _query_label(row, schema.columns)
        if label.query in by_query:
            row.fail(f"is the second of query {label.query!r}")
        by_query[label.query] = label
    cuts = {_value(row, schema.columns["k"], _whole) for row in rows} - {None} if "k" in schema.columns else set()
    if len(cuts) > 1:
        raise FormatError(
            f"{path}: labels of several cut-offs ({format_ids(sorted(cuts))}); they cannot be used together"
        )
    return Labels(name, _provenance(path, name, k=next(iter(cuts), None)), by_query)


def _of_index(path: Path, content: AnnotationRow, benchmark: str | None) -> Labels:
    for key in _INDEX:
        content[key]
    name, _ = _of_one_benchmark(path, [content], "dataset", benchmark)
    stratum = _value(content, "hidden_category", released_label)
    if stratum in (None, Label.SHORTCUT):
        content.fail(f"has {content['hidden_category']!r} under 'hidden_category', expected a shortcut-free label")
    if content["selection_value"] is not True if "selection_value" in content else False:
        content.fail(
            f"lists the queries with validated = {content['selection_value']!r}, expected the valid ones (true)"
        )
    queries = content.get_ids("query_indices")
    by_query = {query: QueryLabel(query, stratum, audited=True, valid=True, stratum=stratum) for query in queries}
    if len(by_query) < len(queries):
        content.fail(f"lists {len(queries) - len(by_query):,} queries more than once")
    return Labels(name, _provenance(path, name), by_query)


def _of_one_benchmark(
    path: Path, rows: Sequence[AnnotationRow], column: str | None, wanted: str | None
) -> tuple[str, Sequence[AnnotationRow]]:
    """Return the name of the benchmark, and the rows about it."""
    if column is None or not _holds(rows[0], column):
        return wanted or "", rows
    names = [row.get(column, str).lower() for row in rows]
    found = sorted(set(names))
    if wanted is None and len(found) > 1:
        raise FormatError(f"{path}: labels of several benchmarks ({', '.join(found)}); say which one is wanted")
    if wanted is not None and wanted not in found:
        raise FormatError(f"{path}: no label of {wanted!r}, only of {', '.join(found)}")
    name = wanted or found[0]
    return name, [row for row, of_row in zip(rows, names, strict=True) if of_row == name]


def _provenance(path: Path, name: str, *, k: int | None = None) -> Provenance:
    """Tell what is known of released files of a benchmark: their query ids and licenses are those of the project."""
    known = PUBLISHED.get(name, Provenance())
    return dataclasses.replace(known, source=path.name, k=k or known.k)


def _query_label(row: AnnotationRow, columns: Mapping[str, str]) -> QueryLabel:
    def value(name: str, convert: Callable[[Any], Any]) -> Any:
        return _value(row, columns[name], convert) if name in columns else None

    query = row.get_id(columns["query"])
    label = value("label", released_label)
    valid = value("valid", _boolean)
    audited = value("audited", _boolean)
    stratum = value("stratum", released_label)
    detail: Shortcut | Literal[""] = ""
    if label is Label.SHORTCUT:
        # The released files repeat the label as the detail of a query that is no shortcut.
        detail = value("detail", _detail) or ""
    try:
        return QueryLabel(
            query,
            label,
            detail,
            best_rank={condition: value(f"best_rank.{condition}", _whole) for condition in Condition},
            support={condition: value(f"support.{condition}", _whole) for condition in Condition},
            support_unimodal=value("support_unimodal", _whole),
            audited=bool(audited) or (audited is None and valid is not None),
            valid=valid,
            stratum=stratum,
            reasons=tuple(reason for reason in RejectionReason if value(f"reason.{reason}", _boolean)),
        )
    except FormatError as error:
        row.fail(f"contradicts itself: {error}")


def _value(row: AnnotationRow, column: str, convert: Callable[[Any], Any]) -> Any:
    """Convert a value; None where the column is missing or the cell empty."""
    value = _at(row, column)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str) and value.strip().lower() in _UNKNOWN:
        return None
    try:
        return convert(value)
    except ValueError as error:
        row.fail(f"has {value!r} under {column!r}, expected {error}")


def _holds(row: AnnotationRow, column: str) -> bool:
    return column.partition(".")[0] in row


def _at(row: AnnotationRow, column: str) -> Any:
    first, *rest = column.split(".")
    if first not in row:
        return None
    value = row[first]
    for key in rest:
        if value is None:
            return None
        if not isinstance(value, dict):
            row.fail(f"has {value!r} under {first!r}, expected an object with {'.'.join(rest)!r}")
        value = value.get(key)
    return value


def released_label(value: Any) -> Label:
    """Return the label behind one of the names that the released files have for it.

    Raises:
        ValueError: it is none of them; the message lists them.
    """
    if value not in _LABELS:
        raise ValueError(f"one of {', '.join(_LABELS)}")
    return _LABELS[value]


def _detail(value: Any) -> Shortcut:
    if value not in _DETAILS:
        raise ValueError(f"one of {', '.join(_DETAILS)}")
    return _DETAILS[value]


def _whole(value: Any) -> int:
    """Convert a whole number; tables with empty cells hold them as `12.0`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not number.is_integer():
        raise ValueError("a whole number")
    return int(number)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.strip().lower() not in _BOOLEANS:
        raise ValueError("true or false")
    return _BOOLEANS[value.strip().lower()]


def _refuse(row: AnnotationRow) -> NoReturn:
    expected = "; ".join(f"{schema.name}: {', '.join(schema.required)}" for schema in _SCHEMAS)
    missing = next(column for schema in _SCHEMAS for column in schema.required if not _holds(row, column))
    try:
        row[missing]
    except FormatError as error:  # it names the file and the columns found
        raise FormatError(
            f"{error}. No known format fits. Expected one of: {expected}; validated indices: {', '.join(_INDEX)}; "
            f"labels of an audit: {', '.join(_OWN)}; or a Croissant description of one of them"
        ) from None
    raise AssertionError(missing)


def _of_croissant(path: Path, content: Mapping[str, Any], benchmark: str | None) -> Labels:
    """Read the record sets that fit a known format, from the data files they name, and put them together."""
    # A trace has no column with the benchmark's name; the project's descriptions are called CIRCUS-CIRCO and so on.
    title = str(content.get("name", "")).lower()
    benchmark = benchmark or next((name for name in PUBLISHED if title.endswith(name)), None)
    files: dict[Path, None] = {}
    found = []
    try:
        for record_set in content["recordSet"]:
            columns = _columns(record_set)
            found.append(f"{record_set.get('@id')}: {', '.join(columns)}")
            head = AnnotationRow(dict.fromkeys(columns), path=path, number=0, origin=_SOURCE)
            if any(schema.fits(head) for schema in _SCHEMAS):
                for identifier in dict.fromkeys(columns.values()):
                    files.update(dict.fromkeys(_files(path, content, identifier)))
    except (AttributeError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: not the Croissant that its @context promises ({error!r})") from error
    if not files:
        expected = "; ".join(f"{schema.name}: {', '.join(schema.required)}" for schema in _SCHEMAS)
        raise FormatError(f"{path}: no record set fits. Found {'; '.join(found)}. Expected one of: {expected}")
    parts = [_of_rows(file, read_rows(file, origin=_SOURCE), benchmark) for file in files]
    merged = reduce(Labels.merge, parts)
    return dataclasses.replace(merged, provenance=dataclasses.replace(merged.provenance, source=path.name))


def _columns(record_set: Mapping[str, Any]) -> dict[str, str]:
    """Return column name to the id of the file or file set that holds it."""
    columns = {}
    for field in record_set.get("field", ()):
        source = field.get("source", {})
        holder = source.get("fileObject") or source.get("fileSet")
        if holder and "column" in source.get("extract", {}):
            columns[source["extract"]["column"]] = holder["@id"]
    return columns


def _files(path: Path, content: Mapping[str, Any], identifier: str) -> list[Path]:
    """Find the local files of a Croissant file object or file set: in or below the folder of the description."""
    resource = next((entry for entry in content["distribution"] if entry["@id"] == identifier), None)
    if resource is None:
        raise FormatError(f"{path}: no distribution entry {identifier!r}")
    includes = resource.get("includes")
    if includes is None:
        # Where the address is one on the web, a local copy of the release has the file under the end of its path.
        steps = PurePosixPath(urlsplit(resource["contentUrl"]).path).parts
        patterns = ["/".join(steps[start:]) for start in range(len(steps)) if steps[start] != "/"]
    else:
        patterns = [includes] if isinstance(includes, str) else includes
    if any(pattern.startswith("/") or ".." in PurePosixPath(pattern).parts for pattern in patterns):
        raise FormatError(f"{path}: {identifier!r} points outside the folder of the description ({patterns[0]})")
    if includes is not None:
        files = sorted(file for pattern in patterns for file in path.parent.glob(pattern))
    else:
        files = [path.parent / pattern for pattern in patterns if (path.parent / pattern).is_file()][:1]
    if not files:
        raise FormatError(
            f"{path}: the data of {identifier!r} are not beside it; get {resource.get('contentUrl') or patterns} and "
            f"put it into {path.parent} as {patterns[-1]}"
        )
    if includes is None and resource.get("sha256", sha256(files[0])) != sha256(files[0]):
        raise FormatError(f"{files[0]}: not the file that {path.name} describes (SHA-256 differs); get it again")
    return files
