"""The label table: one row a query, with the evidence, as a parquet file."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.benchmark import Condition, Fingerprint
from circus_bench.errors import CircusError, FormatError, MismatchError, some
from circus_bench.io import read_parquet, write_parquet
from circus_bench.labels.pool import Pool
from circus_bench.metrics.shortcut import Label, ShortcutLabels
from circus_bench.runs.run import Run

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
_METADATA = b"circus_bench"


class Subset(StrEnum):
    """The part of a benchmark that a score is taken over."""

    FULL = "full"
    SF = "sf"
    """Shortcut-free: composition_required and unresolved."""
    V = "v"
    """Validated: the shortcut-free queries that a human found valid."""


@dataclass(frozen=True)
class LabelTable:
    """The labels of a benchmark's queries, as a file keeps them.

    Attributes:
        queries: query ids.
        labels: `Label` values [n_queries].
        origin: benchmark, protocol, fingerprint, pool, k and support thresholds that gave the labels.
    """

    queries: tuple[str, ...]
    labels: NDArray[np.str_]
    origin: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> LabelTable:
        """Read a table that `save_labels` wrote.

        Raises:
            FormatError: the file is no label table, or one of another schema version.
        """
        table = read_parquet(path, schema=_core_schema())
        metadata = (table.schema.metadata or {}).get(_METADATA)
        origin = json.loads(metadata) if metadata else {}
        if origin.get("schema_version") != SCHEMA_VERSION:
            raise FormatError(
                f"{path}: label table of schema version {origin.get('schema_version')!r}, expected {SCHEMA_VERSION}"
            )
        labels = table["label"].to_pylist()
        unknown = sorted({*labels} - {label.value for label in Label})
        if unknown:
            raise FormatError(f"{path}: unknown labels {unknown}")
        return cls(tuple(table["query"].to_pylist()), np.array(labels), origin)

    def mask_of(self, run: Run, subset: Subset, *, valid: Collection[str] | None = None) -> NDArray[np.bool_]:
        """Which queries of a Run belong to a subset: bool [n_queries].

        Args:
            run: a Run on the benchmark that was audited.
            subset: the subset.
            valid: ids of the queries that a human found valid, which labels do not tell; needed for `v`.

        Raises:
            MismatchError: the labels are about another benchmark, or another version of it; or a valid query is not
                among its shortcut-free ones.
            CircusError: `v` was asked for without the valid queries.
        """
        fingerprint, protocol = self.origin.get("fingerprint"), self.origin.get("protocol", {})
        if (
            self.queries != run.queries
            or protocol != run.manifest.protocol
            or not fingerprint
            or not run.manifest.fingerprint.matches(Fingerprint(**fingerprint))
        ):
            raise MismatchError(
                f"the labels are about {len(self.queries):,} queries of {self.origin.get('benchmark')!r} under "
                f"{protocol.get('id')} (reference {protocol.get('reference')}), the Run of {run.manifest.model.name} "
                f"about {len(run.queries):,} queries of {run.manifest.benchmark!r} under {run.manifest.protocol['id']} "
                f"(reference {run.policy}); use the labels of an audit of that very benchmark"
            )
        if subset is Subset.FULL:
            return np.ones(len(run.queries), bool)
        shortcut_free: NDArray[np.bool_] = self.labels != Label.SHORTCUT.value
        if subset is Subset.SF:
            return shortcut_free
        if valid is None:
            raise CircusError(
                f"{Subset.V.value!r} needs human verdicts, and labels hold none: give the ids of the valid queries, or "
                f"take the subset from circus_bench.labels.labels"
            )
        return valid_mask(self.queries, shortcut_free, valid)


def valid_mask(queries: Sequence[str], shortcut_free: NDArray[np.bool_], valid: Collection[str]) -> NDArray[np.bool_]:
    """Which queries belong to `v`: bool [n_queries].

    Args:
        queries: their ids.
        shortcut_free: bool [n_queries], those in `sf`.
        valid: ids of the queries that a human found valid.

    Raises:
        MismatchError: a valid query is not among the shortcut-free ones.
    """
    outside = set(valid).difference(np.array(queries)[shortcut_free].tolist())
    if outside:
        raise MismatchError(
            f"queries found valid are not among the shortcut-free ones of these labels ({some(sorted(outside))}); "
            f"take labels and verdicts of one audit"
        )
    return np.isin(queries, list(valid))


def save_labels(path: Path, pool: Pool, labels: ShortcutLabels, *, origin: dict[str, Any]) -> None:
    """Write the labels of a pool with their evidence: best ranks, support, and the models that hit.

    Args:
        path: the parquet file.
        pool: the pool that gave the labels.
        labels: its labels.
        origin: what was audited (benchmark, protocol, fingerprint), JSON-able; kept in the file's metadata.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {"query": list(pool.queries), "label": labels.labels, "detail": labels.details}
    for condition in Condition:
        best = getattr(labels, f"best_{condition}")
        columns[f"best_rank_{condition}"] = pa.array(best, pa.float64(), mask=np.isinf(best)).cast(pa.int32())
        columns[f"support_{condition}"] = pa.array(getattr(labels, f"support_{condition}"), pa.int32())
        hits = pool.best[condition] <= labels.k
        models = [[pool.models[m] for m in np.flatnonzero(of_query)] for of_query in hits.T]
        columns[f"models_{condition}"] = pa.array(models, pa.list_(pa.string()))
    columns["support_unimodal"] = pa.array(labels.support_unimodal, pa.int32())
    about = {
        **origin,
        "schema_version": SCHEMA_VERSION,
        "pool": list(pool.models),
        "k": labels.k,
        "min_unimodal": labels.min_unimodal,
        "min_multimodal": labels.min_multimodal,
    }
    table = pa.table(columns).replace_schema_metadata({_METADATA: json.dumps(about, sort_keys=True)})
    write_parquet(path, table)


def _core_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("query", pa.string()), ("label", pa.string()), ("detail", pa.string())])
