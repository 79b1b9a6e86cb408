"""Hold the labels of a benchmark's queries: label, evidence, human verdict and weight, and the subsets that follow.

`Labels` is the one label table of the package: of an audit, of a human validation, as released, or of a dataset folder.
`circus_bench.labels.formats.load_labels` reads them from any file.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Condition, Fingerprint, Gallery, Query, ReferencePolicy
from circus_bench.errors import CircusError, FormatError, MismatchError, format_ids
from circus_bench.io import open_parquet, read_parquet, write_parquet
from circus_bench.labels.label_bar import render_label_bar
from circus_bench.labels.pool import Pool
from circus_bench.labels.provenance import IdScheme, Provenance
from circus_bench.labels.query_label import QueryLabel
from circus_bench.metrics.shortcut import Label, Shortcut, ShortcutLabels
from circus_bench.notebook import facts_table
from circus_bench.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
METADATA_KEY = b"circus_bench"
"""Parquet metadata key under which our tables keep their head, as JSON."""

_AUDIT_SOURCE = "an audit with circus-bench"


class Subset(StrEnum):
    """The part of a benchmark that a score is taken over."""

    FULL = "full"
    SF = "sf"
    """Shortcut-free: composition_required and unresolved."""
    V = "v"
    """Validated: the shortcut-free queries that a human found valid."""


@dataclass(frozen=True, repr=False)
class Labels:
    """The labels of a benchmark's queries.

    Attributes:
        benchmark: its name; empty when the source does not tell.
        provenance: where the labels come from.
        by_query: query id to label.
    """

    benchmark: str
    provenance: Provenance
    by_query: Mapping[str, QueryLabel]

    @classmethod
    def of_pool(cls, pool: Pool, labels: ShortcutLabels, about: Mapping[str, Any]) -> Labels:
        """Take the labels of a pool with their evidence: best ranks, support, and the models that hit.

        Args:
            pool: the pool that gave the labels.
            labels: its labels.
            about: what was audited (benchmark, protocol, fingerprint), JSON-able.
        """
        best = {condition: getattr(labels, f"best_{condition}").tolist() for condition in Condition}
        support = {condition: getattr(labels, f"support_{condition}").tolist() for condition in Condition}
        hits = {condition: (pool.best[condition] <= labels.k).T for condition in Condition}
        rows = {
            query: QueryLabel(
                query,
                Label(label),
                Shortcut(detail) if detail else "",
                best_rank={c: None if np.isinf(ranks[i]) else int(ranks[i]) for c, ranks in best.items()},
                support={c: counts[i] for c, counts in support.items()},
                support_unimodal=int(labels.support_unimodal[i]),
                models={c: tuple(pool.models[m] for m in np.flatnonzero(of[i])) for c, of in hits.items()},
            )
            for i, (query, label, detail) in enumerate(
                zip(pool.queries, labels.labels.tolist(), labels.details.tolist(), strict=True)
            )
        }
        settings = {name: getattr(labels, name) for name in ("k", "min_unimodal", "min_multimodal")}
        return cls._of_audit({**about, **settings, "pool": pool.models}, rows, source=_AUDIT_SOURCE)

    @classmethod
    def load(cls, path: StrPath) -> Labels:
        """Read the label table of an audit that `save` wrote.

        Raises:
            FormatError: the file is no label table, or one of another schema version.
        """
        import pyarrow as pa

        path = Path(path)
        words, integers = pa.string(), pa.int32()
        core = pa.schema([("query", words), ("label", words), ("detail", words)])
        about = json.loads((open_parquet(path, schema=core).schema_arrow.metadata or {}).get(METADATA_KEY, "{}"))
        if about.get("schema_version") != SCHEMA_VERSION:
            raise FormatError(
                f"{path}: label table of schema version {about.get('schema_version')!r}, expected {SCHEMA_VERSION}"
            )
        for condition in Condition:
            core = core.append(pa.field(f"best_rank_{condition}", integers))
            core = core.append(pa.field(f"support_{condition}", integers))
            core = core.append(pa.field(f"models_{condition}", pa.list_(words)))
        rows = read_parquet(path, schema=core.append(pa.field("support_unimodal", integers))).to_pylist()
        unknown = {row["label"] for row in rows} - {label.value for label in Label}
        if unknown:
            raise FormatError(f"{path}: unknown labels {sorted(unknown, key=str)}")
        found = {row["query"]: QueryLabel.from_row(row["query"], row) for row in rows}
        return cls._of_audit(about, found, source=f"{_AUDIT_SOURCE} ({path.name})")

    @classmethod
    def _of_audit(cls, about: Mapping[str, Any], by_query: Mapping[str, QueryLabel], *, source: str) -> Labels:
        protocol = about.get("protocol", {})
        settings = ("schema_version", "pool", "k", "min_unimodal", "min_multimodal")
        provenance = Provenance(
            source=source,
            k=about.get("k"),
            pool=tuple(about.get("pool", ())),
            protocols=(protocol["id"],) if "id" in protocol else (),
            reference=ReferencePolicy(protocol["reference"]) if "reference" in protocol else None,
            n_queries=len(by_query),
            fingerprint=Fingerprint(**about["fingerprint"]) if about.get("fingerprint") else None,
            min_unimodal=about.get("min_unimodal"),
            min_multimodal=about.get("min_multimodal"),
            audited={name: value for name, value in about.items() if name not in settings},
        )
        return cls(about.get("benchmark") or "", provenance, by_query)

    def save(self, path: StrPath) -> None:
        """Write the label table of an audit, `labels.parquet`; see docs/formats.md.

        Raises:
            CircusError: these are not the labels of an audit, or hold human verdicts, which the format does not keep.
        """
        import pyarrow as pa

        rows, provenance = list(self.by_query.values()), self.provenance
        if not provenance.audited or any(row.audited or row.label is None for row in rows):
            raise CircusError(
                f"{self._name()}: {path} would hold the labels of an audit alone, not human verdicts; write a dataset "
                "folder, or the labels before a validation was added"
            )
        columns: dict[str, Any] = {
            "query": list(self.by_query),
            "label": [row.label for row in rows],
            "detail": [str(row.detail) for row in rows],
        }
        for condition in Condition:
            columns[f"best_rank_{condition}"] = pa.array([row.best_rank[condition] for row in rows], pa.int32())
            columns[f"support_{condition}"] = pa.array([row.support[condition] for row in rows], pa.int32())
            models = [list(row.models[condition]) for row in rows]
            columns[f"models_{condition}"] = pa.array(models, pa.list_(pa.string()))
        columns["support_unimodal"] = pa.array([row.support_unimodal for row in rows], pa.int32())
        settings = {name: getattr(provenance, name) for name in ("k", "min_unimodal", "min_multimodal")}
        about = {**provenance.audited, **settings, "pool": list(provenance.pool), "schema_version": SCHEMA_VERSION}
        table = pa.table(columns).replace_schema_metadata({METADATA_KEY: json.dumps(about, sort_keys=True)})
        write_parquet(path, table)

    def check_matches(self, other: Run | Benchmark) -> None:
        """Refuse a Run or a benchmark that the labels are not about.

        Raises:
            MismatchError: name, protocol, reference policy, fingerprint or queries differ.
        """
        if isinstance(other, Run):
            if self.provenance.audited:
                self._check_audited(other)
            protocol = other.manifest.protocol
            self._check_about(other.manifest.benchmark, protocol["id"], other.policy)
            fingerprint = other.manifest.fingerprint
        else:
            self._check_about(other.name, other.protocol.id, other.protocol.reference)
            if not self.provenance.fingerprint:
                return
            # The images are left out: what is joined are ids, and an image folder would be decoded for it.
            fingerprint = dataclasses.replace(other, gallery=Gallery(other.gallery.ids)).fingerprint
        if self.provenance.fingerprint and not self.provenance.fingerprint.matches(fingerprint):
            raise MismatchError(
                f"{self._name()} were made on another version of {self.benchmark!r} (fingerprints differ)"
            )

    def _check_audited(self, run: Run) -> None:
        audited, fingerprint = self.provenance.audited, self.provenance.fingerprint
        protocol, manifest = audited.get("protocol", {}), run.manifest
        if (
            {*self.by_query} != {*run.queries}
            or protocol != manifest.protocol
            or not fingerprint
            or not manifest.fingerprint.matches(fingerprint)
        ):
            raise MismatchError(
                f"the labels are about {len(self.by_query):,} queries of {audited.get('benchmark')!r} under "
                f"{protocol.get('id')} (reference {protocol.get('reference')}), the Run of {manifest.model.name} "
                f"about {len(run.queries):,} queries of {manifest.benchmark!r} under {manifest.protocol['id']} "
                f"(reference {run.policy}); use the labels of an audit of that very benchmark"
            )

    def _check_about(self, benchmark: str, protocol: str, reference: ReferencePolicy) -> None:
        known = self.provenance
        if self.benchmark and self.benchmark != benchmark:
            raise MismatchError(f"{self._name()} were asked about the benchmark {benchmark!r}")
        if known.protocols and protocol not in known.protocols:
            raise MismatchError(
                f"{self._name()} hold for the protocol {' or '.join(known.protocols)}, not for {protocol}"
            )
        if known.reference and known.reference is not reference:
            raise MismatchError(f"{self._name()} hold with the reference {known.reference}, not {reference}")

    def select(self, benchmark: Benchmark, subset: Subset) -> tuple[Query, ...]:
        """Select the queries of a subset, in the benchmark's order.

        Args:
            benchmark: the benchmark that the labels are about.
            subset: `full`, `sf` or `v`.

        Raises:
            MismatchError: the labels are about another benchmark or protocol; a label finds no query; or, for `sf`,
                a query has no label.
            CircusError: for `v`, no human verdict is known.
        """
        self.check_matches(benchmark)
        chosen = self.mask([query.id for query in benchmark.queries], subset)
        return tuple(query for query, taken in zip(benchmark.queries, chosen.tolist(), strict=True) if taken)

    def align(self, benchmark: Benchmark) -> dict[str, QueryLabel]:
        """Key the labels by the benchmark's own query ids, in its order; queries without a label are left out.

        Raises:
            MismatchError: the labels are about another benchmark or protocol, or a label finds no query.
        """
        self.check_matches(benchmark)
        positions = self._positions([query.id for query in benchmark.queries])
        ids = sorted(positions, key=lambda key: positions[key])
        names = {key: benchmark.queries[positions[key]].id for key in ids}
        return {names[key]: dataclasses.replace(self.by_query[key], query=names[key]) for key in ids}

    def mask(
        self, queries: Run | Sequence[str], subset: Subset, *, validation: Labels | None = None
    ) -> NDArray[np.bool_]:
        """Return which queries belong to a subset: bool [n_queries]. Labels are joined by query id.

        Args:
            queries: a Run that the labels are about, which is checked, or a list of query ids.
            subset: the subset.
            validation: labels whose human verdicts give `v`, where these hold none; the valid queries must be
                shortcut-free here.

        Raises:
            MismatchError, CircusError: as `select`; or a valid query is a shortcut.
        """
        if isinstance(queries, Run):
            for labels in (self, *((validation,) if validation else ())):
                labels.check_matches(queries)
            queries = queries.queries
        positions = self._positions(queries)
        if subset is Subset.FULL:
            return np.ones(len(queries), bool)
        if subset is Subset.SF:
            return self._shortcut_free(queries, positions)
        if validation is not None:
            valid = np.array(queries)[validation.mask(queries, Subset.V)]
            return valid_mask(queries, self._shortcut_free(queries, positions), valid.tolist())
        if not any(label.valid is not None for label in self.by_query.values()):
            raise CircusError(
                f"{self._name()}: no query has a human verdict, so {Subset.V.value!r} is not known; "
                "merge the labels with those of a validation, or take the published ones"
            )
        chosen = np.zeros(len(queries), bool)
        chosen[[positions[key] for key, label in self.by_query.items() if label.valid]] = True
        return chosen

    def weights(self, queries: Sequence[str]) -> NDArray[np.float64]:
        """Return how many queries each stands for, 1 where unknown: float64 [n_queries]. Errors as `select`."""
        weights = np.ones(len(queries))
        for key, position in self._positions(queries).items():
            weight = self.by_query[key].weight
            weights[position] = 1 if weight is None else weight
        return weights

    def merge(self, other: Labels) -> Labels:
        """Add what other labels of the benchmark know: the labels of an audit, say, and a human validation.

        Raises:
            MismatchError: they are about different benchmarks, or disagree on a query.
        """
        a, b = self, other
        schemes = a.provenance.id_scheme, b.provenance.id_scheme
        if (a.benchmark and b.benchmark and a.benchmark != b.benchmark) or schemes[0] is not schemes[1]:
            raise MismatchError(
                f"the labels are about {a.benchmark!r} (queries by {schemes[0]}) and {b.benchmark!r} (by "
                f"{schemes[1]}); merge labels of one benchmark"
            )
        known = {
            spec.name: getattr(a.provenance, spec.name) or getattr(b.provenance, spec.name)
            for spec in dataclasses.fields(Provenance)
        }
        merged, disagreeing = dict(a.by_query), []
        for query, label in b.by_query.items():
            try:
                merged[query] = merged[query].merge(label) if query in merged else label
            except CircusError as error:
                disagreeing.append(error)
        if disagreeing:
            raise MismatchError(
                f"{self._name()}: the labels disagree on {len(disagreeing):,} queries, such as: {disagreeing[0]}; "
                "they come from different audits or validations and cannot be merged"
            )
        return Labels(a.benchmark or b.benchmark, Provenance(**known), merged)

    def with_validation(self, validation: Labels) -> Labels:
        """Take the human verdicts of a validation in the place of those that were there.

        Raises:
            MismatchError: they are about different benchmarks or versions of one, or a query was drawn under another
                label.
        """
        a, b = self.provenance, validation.provenance
        if a.fingerprint and b.fingerprint and not a.fingerprint.matches(b.fingerprint):
            raise MismatchError(
                f"the labels ({a.source}) and the validation ({b.source}) were made on different versions of "
                f"{self.benchmark!r} (fingerprints differ)"
            )
        bare = {
            query: dataclasses.replace(
                label, audited=False, valid=None, stratum=None, reasons=(), weight=None, votes=None
            )
            for query, label in self.by_query.items()
        }
        return dataclasses.replace(self, by_query=bare).merge(validation)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per query: label, detail, best ranks, support, the models that hit, and the human verdict."""
        import pandas as pd

        rows = [
            {
                "query": query,
                **label.to_row(),
                "weight": label.weight,
                "votes": label.votes,
                **{f"models_{condition}": label.models.get(condition) for condition in Condition},
            }
            for query, label in self.by_query.items()
        ]
        return pd.DataFrame(rows).convert_dtypes()

    def counts(self) -> dict[str, int]:
        """Count the queries of each label, those without one, and those that a human found valid or rejected."""
        labels = Counter(label.label for label in self.by_query.values())
        verdicts = Counter(label.valid for label in self.by_query.values())
        found = {label.value: labels[label] for label in Label} | {"no label": labels[None]}
        found |= {"human: valid": verdicts[True], "human: rejected": verdicts[False]}
        return {name: count for name, count in found.items() if count}

    def __repr__(self) -> str:
        """Name the counts rather than each query."""
        counts = ", ".join(f"{name} {count:,}" for name, count in self.counts().items())
        return f"Labels({self.benchmark!r}, {len(self.by_query):,} queries: {counts})"

    def _repr_html_(self) -> str:
        """Show the label bar and the counts in a notebook."""
        known = self.provenance
        found = {"source": known.source, "K": known.k, "models": len(known.pool), "license": known.license}
        facts: dict[str, object] = {name: fact for name, fact in found.items() if fact}
        counts = self.counts()
        bar = render_label_bar({label: counts.get(label.value, 0) for label in Label})
        title = f"Labels of {self.benchmark or 'an unnamed benchmark'}: {len(self.by_query):,} queries"
        return facts_table(title, {**facts, **counts}, below=bar)

    def _name(self) -> str:
        return f"labels of {self.benchmark or 'an unnamed benchmark'} ({self.provenance.source or 'source unknown'})"

    def _positions(self, queries: Sequence[str]) -> dict[str, int]:
        """Return the position of each label's query."""
        known = self.provenance
        if known.id_scheme is IdScheme.POSITION:
            if len(queries) != known.n_queries:
                raise MismatchError(
                    f"{self._name()} count positions in a list of {known.n_queries or 0:,} queries, the benchmark has "
                    f"{len(queries):,}: load the complete annotation file, in its own order"
                )
            position = {str(place): place for place in range(len(queries))}
        else:
            position = {query: place for place, query in enumerate(queries)}
        lost = [key for key in self.by_query if key not in position]
        if lost:
            raise MismatchError(
                f"{self._name()}: {len(lost):,} of {len(self.by_query):,} labels find no query ({format_ids(lost)}) "
                f"among the {len(queries):,} of the benchmark; load all its queries under the protocol of the labels"
            )
        return {key: position[key] for key in self.by_query}

    def _shortcut_free(self, queries: Sequence[str], positions: Mapping[str, int]) -> NDArray[np.bool_]:
        labeled = np.zeros(len(queries), bool)
        chosen = np.zeros(len(queries), bool)
        for key, label in self.by_query.items():
            labeled[positions[key]] = label.label is not None
            chosen[positions[key]] = label.label in (Label.COMPOSITION_REQUIRED, Label.UNRESOLVED)
        if not labeled.all():
            bare = [queries[position] for position in np.flatnonzero(~labeled).tolist()]
            raise MismatchError(
                f"{self._name()}: queries without a label ({format_ids(bare)}), so {Subset.SF.value!r} is not known; "
                "take the labels of an audit of the whole benchmark"
            )
        return chosen


def valid_mask(queries: Sequence[str], shortcut_free: NDArray[np.bool_], valid: Collection[str]) -> NDArray[np.bool_]:
    """Return which queries belong to `v`: bool [n_queries].

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
            "queries found valid are not among the shortcut-free ones of these labels "
            f"({format_ids(sorted(outside))}); take labels and verdicts of one audit"
        )
    return np.isin(queries, list(valid))
