"""Read published scores and what is known about them from `published_scores.json`, which docs/formats.md describes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.benchmark import Condition, ReferencePolicy
from circus_bench.errors import FormatError, MismatchError
from circus_bench.io import read_json
from circus_bench.labels.labels import Subset
from circus_bench.metrics.shortcut import Label

PUBLISHED_SCORES = Path(__file__).parent / "published_scores.json"
"""Scores that papers print; docs/formats.md describes the file."""

SCHEMA_VERSION = 1
EITHER_UNIMODAL = "either_unimodal"
COMP_GAP = "comp_gap"
NO_WHOLE_COUNT = "no-whole-count"
"""The caveat of a published hit rate that no whole number of hits gives; it is found by arithmetic, not listed."""

RATES = (*(condition.value for condition in Condition), EITHER_UNIMODAL)
"""Quantities that are hit rates."""
_LABELS = tuple(label.value for label in Label)
_LABEL_K = 10  # the cut-off of the published labels


class Effect(StrEnum):
    """Effect of a caveat on a published number."""

    CANNOT_MATCH = "cannot_match"
    """Nobody can compute it from what is public."""
    MAY_DIFFER = "may_differ"
    """Something that is known or not stated may move it."""


@dataclass(frozen=True, slots=True)
class Caveat:
    """Reason why a published number may not be found again.

    Attributes:
        id: a short name.
        effect: what follows from it.
        what: the fact.
        why: the evidence for it, or what is not stated.
        source: where the fact is from.
        benchmarks: what it is about; likewise subsets, models and quantities. Everything when empty.
        subsets: see `benchmarks`.
        models: see `benchmarks`.
        quantities: see `benchmarks`.
        attached: `declared` where these lists say what it is about, `computed` where arithmetic does.
    """

    id: str
    effect: Effect
    what: str
    why: str
    source: str
    benchmarks: tuple[str, ...] = ()
    subsets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    quantities: tuple[str, ...] = ()
    attached: str = "declared"

    def concerns(self, benchmark: str, value: PublishedValue) -> bool:
        """Tell whether it is declared to be about a published value."""
        pairs = (
            (self.benchmarks, benchmark),
            (self.subsets, value.subset.value),
            (self.models, value.model),
            (self.quantities, value.quantity),
        )
        return self.attached == "declared" and all(not listed or name in listed for listed, name in pairs)


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """A published number.

    Attributes:
        model: the paper's name of the model; "" for a number about the whole pool.
        subset: the queries it is taken over.
        quantity: a condition or `either_unimodal` for a hit rate, `comp_gap`, or a label for its share of the queries.
        k: cut-off of a hit rate or a label.
        value: a share from 0 to 1, or a gap.
        half_unit: half a unit of its last printed digit; 0 for an exact count.
    """

    model: str
    subset: Subset
    quantity: str
    k: int
    value: float
    half_unit: float

    @property
    def name(self) -> str:
        """Name of the number, such as `multimodal hit_rate@10`."""
        return f"{self.quantity} hit_rate@{self.k}" if self.quantity in RATES else self.quantity

    @property
    def is_gap(self) -> bool:
        """Tell whether it is a gap rather than a share."""
        return self.quantity == COMP_GAP

    @property
    def digits(self) -> int:
        """Digits after the point that it was printed with, as a gap or in per cent; 2 for an exact count."""
        if not self.half_unit:
            return 2
        return round(-math.log10(2 * self.half_unit)) - (0 if self.is_gap else 2)

    def is_share_of(self, n: int) -> bool:
        """Tell whether some whole number of n queries rounds to it."""
        nearest = round(self.value * n)
        return abs(nearest / n - self.value) <= self.half_unit + 1e-9


@dataclass(frozen=True)
class PublishedBenchmark:
    """Published numbers of a benchmark.

    Attributes:
        name: its name.
        protocol: id of the protocol that the numbers hold under.
        reference: its reference policy; None when unknown.
        instruction: the instruction given to the models; None when unknown.
        n_gallery: images in the gallery.
        subsets: queries in each subset.
        values: the numbers.
    """

    name: str
    protocol: str
    reference: ReferencePolicy | None
    instruction: str | None
    n_gallery: int
    subsets: Mapping[Subset, int]
    values: tuple[PublishedValue, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """Paper names of the models, in the paper's order."""
        return tuple(dict.fromkeys(value.model for value in self.values if value.model))


@dataclass(frozen=True)
class PublishedScores:
    """Published numbers and what is known about them.

    Attributes:
        sources: the publications.
        ids: paper name of a model to the ids that it goes by.
        benchmarks: what is published, by benchmark.
        caveats: why numbers may not be found again.
    """

    sources: tuple[str, ...]
    ids: Mapping[str, tuple[str, ...]]
    benchmarks: Mapping[str, PublishedBenchmark]
    caveats: tuple[Caveat, ...]

    @classmethod
    def load(cls, path: StrPath = PUBLISHED_SCORES) -> PublishedScores:
        """Read a file of published scores.

        Raises:
            FormatError: it does not follow the schema.
        """
        content = read_json(path)
        if content.get("schema_version") != SCHEMA_VERSION:
            raise FormatError(f"{path}: schema version {content.get('schema_version')!r}, expected {SCHEMA_VERSION}")
        try:
            scores = cls(
                sources=tuple(content["sources"]),
                ids={name: tuple(ids) for name, ids in content["models"].items()},
                benchmarks={name: _benchmark(name, of) for name, of in content["benchmarks"].items()},
                caveats=tuple(_caveat(entry) for entry in content["caveats"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"{path}: {error!r}; see docs/formats.md") from error
        nameless = {model for of in scores.benchmarks.values() for model in of.models} - scores.ids.keys()
        if nameless or NO_WHOLE_COUNT not in {caveat.id for caveat in scores.caveats}:
            raise FormatError(f"{path}: models without ids {sorted(nameless)}, or no caveat {NO_WHOLE_COUNT!r}")
        return scores

    def of_protocol(self, protocol: str) -> PublishedBenchmark:
        """Find what is published under a protocol.

        Raises:
            MismatchError: nothing is.
        """
        for benchmark in self.benchmarks.values():
            if benchmark.protocol == protocol:
                return benchmark
        known = ", ".join(benchmark.protocol for benchmark in self.benchmarks.values())
        raise MismatchError(f"no scores are published under the protocol {protocol}; there are some under {known}")


def _benchmark(name: str, of: Mapping[str, Any]) -> PublishedBenchmark:
    subsets = {Subset(subset): n for subset, n in of["subsets"].items()}
    return PublishedBenchmark(
        name=name,
        protocol=of["protocol"],
        reference=ReferencePolicy(of["reference"]) if of["reference"] else None,
        instruction=of["instruction"],
        n_gallery=of["n_gallery"],
        subsets=subsets,
        values=tuple(_values(of, subsets[Subset.FULL])),
    )


def _values(of: Mapping[str, Any], n_queries: int) -> Iterator[PublishedValue]:
    for table in of["hit_rate"]:
        half_unit = 0.5 * 10.0 ** -(table["decimals"] + 2)  # printed in per cent
        unknown = {*table["columns"]}.difference(RATES)
        if unknown:
            raise ValueError(f"unknown columns {sorted(unknown)}")
        for model, row in table["rows"].items():
            for quantity, number in zip(table["columns"], row, strict=True):
                yield PublishedValue(model, Subset(table["subset"]), quantity, table["k"], number / 100, half_unit)
    gaps = dict(of["comp_gap"] or {})
    half_unit = 0.5 * 10.0 ** -gaps.pop("decimals", 0)
    for subset, number in gaps.items():
        yield PublishedValue("", Subset(subset), COMP_GAP, _LABEL_K, number, half_unit)
    for label, count in (of["labels"] or {}).items():
        yield PublishedValue("", Subset.FULL, Label(label).value, _LABEL_K, count / n_queries, 0.0)


def _caveat(entry: Mapping[str, Any]) -> Caveat:
    lists = {name: tuple(entry.get(name, ())) for name in ("benchmarks", "subsets", "models", "quantities")}
    unknown = {*lists["quantities"]}.difference((*RATES, COMP_GAP, *_LABELS))
    if unknown:
        raise ValueError(f"unknown quantities {sorted(unknown)}")
    return Caveat(**{**entry, **lists, "effect": Effect(entry["effect"])})
