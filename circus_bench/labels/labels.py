"""Verdicts: what is known of each query, from an audit and from human validation, and the subsets that follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from circus_bench.benchmark import Benchmark, Condition, Fingerprint, Gallery, Query, ReferencePolicy
from circus_bench.errors import CircusError, FormatError, MismatchError, some
from circus_bench.io import read_json, read_parquet
from circus_bench.labels.label_table import LabelTable, Subset
from circus_bench.metrics.shortcut import Label, Shortcut

PUBLISHED = ("cirr", "fashioniq", "circo", "lasco")
"""The benchmarks whose published verdicts the package holds."""


class Reason(StrEnum):
    """Why an annotator rejects a query; several may hold."""

    INVALID_TEXT = "invalid_text"
    INVALID_REFERENCE_IMAGE = "invalid_reference_image"
    INVALID_TARGET_IMAGE = "invalid_target_image"
    QUERY_TOO_BROAD = "query_too_broad"


class Keys(StrEnum):
    """What the query ids of verdicts are."""

    ID = "id"
    """The benchmark's own query ids."""
    POSITION = "position"
    """0-based positions in the benchmark's list of queries, which must be complete."""


def _none_known() -> dict[Condition, int | None]:
    return dict.fromkeys(Condition)


@dataclass(frozen=True)
class Verdict:
    """What is known of one query.

    Attributes:
        query: its id.
        label: the pool's label; None when unknown.
        detail: which modality is the shortcut; "" for a query that is none, and where it is unknown.
        best_rank: best rank over the pool, from 1; None when unknown, or when no model retrieves a target.
        support: number of models with a hit; None when unknown.
        support_unimodal: number of models with a hit from the text alone or the image alone; None when unknown.
        audited: whether a human looked at the query, as far as known.
        valid: the human's decision; None when unknown.
        stratum: the label under which the query was drawn for the human; None when it was not, or when unknown.
        reasons: why it was rejected; empty for a valid query, and where the reasons are unknown.
        weight: how many queries it stands for, the inverse of the probability with which it was drawn for the human;
            None when unknown.

    Raises:
        FormatError: the parts contradict each other.
    """

    query: str
    label: Label | None = None
    detail: Shortcut | Literal[""] = ""
    best_rank: Mapping[Condition, int | None] = field(default_factory=_none_known)
    support: Mapping[Condition, int | None] = field(default_factory=_none_known)
    support_unimodal: int | None = None
    audited: bool = False
    valid: bool | None = None
    stratum: Label | None = None
    reasons: tuple[Reason, ...] = ()
    weight: float | None = None

    def __post_init__(self) -> None:
        supports = (*self.support.values(), self.support_unimodal)
        for wrong, what in (
            (self.detail and self.label is not Label.SHORTCUT, f"{self.label} has the shortcut {self.detail!r}"),
            (any(r is not None and r < 1 for r in self.best_rank.values()), f"ranks below 1: {dict(self.best_rank)}"),
            (any(s is not None and s < 0 for s in supports), f"negative support: {supports}"),
            (self.valid is not None and not self.audited, "a human's decision, but no human audit"),
            (self.valid and self.reasons, f"valid, but rejected for {[str(reason) for reason in self.reasons]}"),
            (self.weight is not None and not self.weight >= 1, f"stands for {self.weight} queries"),
            (self.stratum is Label.SHORTCUT, "shortcuts are not drawn for validation"),
            (
                self.stratum and self.label and self.stratum is not self.label,
                f"{self.label}, but drawn as {self.stratum}",
            ),
        ):
            if wrong:
                raise FormatError(f"query {self.query!r}: {what}")

    def merged(self, other: Verdict) -> Verdict:
        """Add what another verdict on the query knows.

        Raises:
            MismatchError: both know a thing and disagree.
        """
        values: dict[str, Any] = {"query": self.query, "audited": self.audited or other.audited}
        for name in ("label", "detail", "support_unimodal", "valid", "stratum", "reasons", "weight"):
            values[name] = self._either(name, getattr(self, name), getattr(other, name))
        for name in ("best_rank", "support"):
            a, b = getattr(self, name), getattr(other, name)
            values[name] = {c: self._either(f"{name} {c}", a.get(c), b.get(c)) for c in Condition}
        return Verdict(**values)

    def _either(self, what: str, a: Any, b: Any) -> Any:
        unknown = (None, "", ())
        if a not in unknown and b not in unknown and a != b:
            raise MismatchError(f"query {self.query!r}: {what} is {a!r} in one and {b!r} in the other")
        return b if a in unknown else a


@dataclass(frozen=True)
class Origin:
    """Where verdicts come from, as far as known.

    Attributes:
        source: the project or the file.
        paper: the publication.
        licence: an SPDX id, or what is known of it.
        citation: how to cite the source.
        k: the cut-off of the labels.
        pool: names of the models that gave the labels.
        protocols: ids of the protocols that the labels hold for; any when empty.
        reference: the reference policy that they hold for; any when None.
        n_queries: queries of the benchmark that the verdicts are about.
        keys: what the query ids are.
        fingerprint: of the benchmark that was audited.
    """

    source: str = ""
    paper: str = ""
    licence: str = ""
    citation: str = ""
    k: int | None = None
    pool: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    reference: ReferencePolicy | None = None
    n_queries: int | None = None
    keys: Keys = Keys.ID
    fingerprint: Fingerprint | None = None

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Origin:
        """The origin that `dataclasses.asdict` made JSON of.

        Raises:
            KeyError, TypeError, ValueError: the content is none.
        """
        lists = {name: tuple(content[name]) for name in ("pool", "protocols")}
        return cls(
            **{
                **content,
                **lists,
                "reference": ReferencePolicy(content["reference"]) if content["reference"] else None,
                "keys": Keys(content["keys"]),
                "fingerprint": Fingerprint(**content["fingerprint"]) if content["fingerprint"] else None,
            }
        )


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on a benchmark's queries.

    Attributes:
        benchmark: its name; empty when the source does not tell.
        origin: where they come from.
        verdicts: query id to verdict.
    """

    benchmark: str
    origin: Origin
    verdicts: Mapping[str, Verdict]

    @classmethod
    def of_labels(cls, path: Path) -> Verdicts:
        """Take the labels and the evidence of an audit; see `circus_bench.labels.label_table.save_labels`.

        Raises:
            FormatError: the file is no label table, or one of another schema version.
        """
        import pyarrow as pa

        table = LabelTable.load(path)
        about = table.origin
        names = [f"{kind}_{condition}" for kind in ("best_rank", "support") for condition in Condition]
        integers = pa.schema([(name, pa.int32()) for name in (*names, "support_unimodal")])
        evidence = read_parquet(path, schema=pa.schema([("detail", pa.string()), *integers])).to_pylist()
        verdicts = {
            query: Verdict(
                query,
                Label(label),
                Shortcut(row["detail"]) if row["detail"] else "",
                best_rank={condition: row[f"best_rank_{condition}"] for condition in Condition},
                support={condition: row[f"support_{condition}"] for condition in Condition},
                support_unimodal=row["support_unimodal"],
            )
            for query, label, row in zip(table.queries, table.labels.tolist(), evidence, strict=True)
        }
        protocol = about.get("protocol", {})
        origin = Origin(
            source=f"an audit with circus-bench ({path.name})",
            k=about.get("k"),
            pool=tuple(about.get("pool", ())),
            protocols=(protocol["id"],) if "id" in protocol else (),
            reference=ReferencePolicy(protocol["reference"]) if "reference" in protocol else None,
            n_queries=len(verdicts),
            fingerprint=Fingerprint(**about["fingerprint"]) if about.get("fingerprint") else None,
        )
        return cls(about.get("benchmark") or "", origin, verdicts)

    def select(self, benchmark: Benchmark, subset: Subset) -> tuple[Query, ...]:
        """The queries of a subset, in the benchmark's order.

        Args:
            benchmark: the benchmark that the verdicts are about.
            subset: `full`, `sf` or `v`.

        Raises:
            MismatchError: the verdicts are about another benchmark or protocol; a verdict finds no query; or, for `sf`,
                a query has no label.
            CircusError: for `v`, no human verdict is known.
        """
        self._check_is_about(benchmark)
        chosen = self.mask([query.id for query in benchmark.queries], subset)
        return tuple(query for query, taken in zip(benchmark.queries, chosen.tolist(), strict=True) if taken)

    def joined(self, benchmark: Benchmark) -> dict[str, Verdict]:
        """The verdicts under the benchmark's own query ids, in its order; queries without a verdict are left out.

        Raises:
            MismatchError: the verdicts are about another benchmark or protocol, or a verdict finds no query.
        """
        self._check_is_about(benchmark)
        places = self._places([query.id for query in benchmark.queries])
        ids = sorted(places, key=lambda key: places[key])
        names = {key: benchmark.queries[places[key]].id for key in ids}
        return {names[key]: dataclasses.replace(self.verdicts[key], query=names[key]) for key in ids}

    def mask(self, queries: Sequence[str], subset: Subset) -> NDArray[np.bool_]:
        """Which queries of a list of ids (a Run's, say) belong to a subset: bool [n_queries]. Errors as `select`."""
        places = self._places(queries)
        if subset is Subset.FULL:
            return np.ones(len(queries), bool)
        if subset is Subset.SF:
            return self._shortcut_free(queries, places)
        if not any(verdict.valid is not None for verdict in self.verdicts.values()):
            raise CircusError(
                f"{self._name()}: no query has a human verdict, so {Subset.V.value!r} is not known; "
                "merge the verdicts with those of a validation, or take the published ones"
            )
        chosen = np.zeros(len(queries), bool)
        chosen[[places[key] for key, verdict in self.verdicts.items() if verdict.valid]] = True
        return chosen

    def valid_among(self, queries: Sequence[str]) -> tuple[str, ...]:
        """The ids of a list that belong to `v`. Errors as `select`."""
        return tuple(np.array(queries)[self.mask(queries, Subset.V)].tolist())

    def weights_of(self, queries: Sequence[str]) -> NDArray[np.float64]:
        """How many queries each of a list stands for, 1 where unknown: float64 [n_queries]. Errors as `select`."""
        weights = np.ones(len(queries))
        for key, place in self._places(queries).items():
            weight = self.verdicts[key].weight
            weights[place] = 1 if weight is None else weight
        return weights

    def merged(self, other: Verdicts) -> Verdicts:
        """Add what other verdicts on the benchmark know: the labels of an audit, say, and a human validation.

        Raises:
            MismatchError: they are about different benchmarks, or disagree on a query.
        """
        a, b = self, other
        if (a.benchmark and b.benchmark and a.benchmark != b.benchmark) or a.origin.keys is not b.origin.keys:
            raise MismatchError(
                f"the verdicts are about {a.benchmark!r} (queries by {a.origin.keys}) and {b.benchmark!r} (by "
                f"{b.origin.keys}); merge verdicts on one benchmark"
            )
        known = {
            spec.name: getattr(a.origin, spec.name) or getattr(b.origin, spec.name)
            for spec in dataclasses.fields(Origin)
        }
        merged, disagreeing = dict(a.verdicts), []
        for query, verdict in b.verdicts.items():
            try:
                merged[query] = merged[query].merged(verdict) if query in merged else verdict
            except CircusError as error:
                disagreeing.append(error)
        if disagreeing:
            raise MismatchError(
                f"{self._name()}: the verdicts disagree on {len(disagreeing):,} queries, such as: {disagreeing[0]}; "
                "they come from different audits or validations and cannot be merged"
            )
        return Verdicts(a.benchmark or b.benchmark, Origin(**known), merged)

    def _name(self) -> str:
        return f"verdicts on {self.benchmark or 'an unnamed benchmark'} ({self.origin.source or 'source unknown'})"

    def _check_is_about(self, benchmark: Benchmark) -> None:
        origin, protocol = self.origin, benchmark.protocol
        if self.benchmark and self.benchmark != benchmark.name:
            raise MismatchError(f"{self._name()} were asked about the benchmark {benchmark.name!r}")
        if origin.protocols and protocol.id not in origin.protocols:
            raise MismatchError(
                f"{self._name()} hold for the protocol {' or '.join(origin.protocols)}, not for {protocol.id}"
            )
        if origin.reference and origin.reference is not protocol.reference:
            raise MismatchError(f"{self._name()} hold with the reference {origin.reference}, not {protocol.reference}")
        if origin.fingerprint:
            # The images are left out: what is joined are ids, and an image folder would be decoded for it.
            bare = dataclasses.replace(benchmark, gallery=Gallery(benchmark.gallery.ids))
            if not origin.fingerprint.matches(bare.fingerprint):
                raise MismatchError(
                    f"{self._name()} were made on another version of {benchmark.name!r} (fingerprints differ)"
                )

    def _places(self, queries: Sequence[str]) -> dict[str, int]:
        """Position of each verdict's query."""
        origin = self.origin
        if origin.keys is Keys.POSITION:
            if len(queries) != origin.n_queries:
                raise MismatchError(
                    f"{self._name()} count positions in a list of {origin.n_queries or 0:,} queries, the benchmark has "
                    f"{len(queries):,}: load the complete annotation file, in its own order"
                )
            position = {str(place): place for place in range(len(queries))}
        else:
            position = {query: place for place, query in enumerate(queries)}
        lost = [key for key in self.verdicts if key not in position]
        if lost:
            raise MismatchError(
                f"{self._name()}: {len(lost):,} of {len(self.verdicts):,} verdicts find no query ({some(lost)}) among "
                f"the {len(queries):,} of the benchmark; load all its queries under the protocol of the verdicts"
            )
        return {key: position[key] for key in self.verdicts}

    def _shortcut_free(self, queries: Sequence[str], places: Mapping[str, int]) -> NDArray[np.bool_]:
        labelled = np.zeros(len(queries), bool)
        chosen = np.zeros(len(queries), bool)
        for key, verdict in self.verdicts.items():
            labelled[places[key]] = verdict.label is not None
            chosen[places[key]] = verdict.label in (Label.COMPOSITION_REQUIRED, Label.UNRESOLVED)
        if not labelled.all():
            bare = [queries[place] for place in np.flatnonzero(~labelled).tolist()]
            raise MismatchError(
                f"{self._name()}: queries without a label ({some(bare)}), so {Subset.SF.value!r} is not known; "
                "take the labels of an audit of the whole benchmark"
            )
        return chosen


def published(name: str) -> Verdicts:
    """The verdicts that the CIRCUS project released on a benchmark; see published/README.md for sources and licences.

    CIRR and CIRCO have all labels and the complete human validation of their shortcut-free queries. Of FashionIQ and
    LaSCo the validated queries alone are known: there is `v`, but no `sf`.

    Args:
        name: `cirr`, `fashioniq`, `circo` or `lasco`. Query ids are 0-based indices: of the M-BEIR query list for CIRR
            and FashionIQ, of the annotation for CIRCO, and of the list of validation triplets for LaSCo.

    Raises:
        CircusError: there are none for this name.

    Example:
        >>> len([v for v in published("circo").verdicts.values() if v.valid])
        42
    """
    from circus_bench.labels.published.packing import unpack

    if name not in PUBLISHED:
        raise CircusError(f"no verdicts are published for {name!r}; there are some for {', '.join(PUBLISHED)}")
    path = Path(__file__).parent / "published" / f"{name}.json"
    return unpack(read_json(path), where=path)
