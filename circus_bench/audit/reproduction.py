"""Reproduce published scores: compare measured ones with them, and say what is known to keep them apart.

The published numbers and the caveats are data, see `circus_bench.audit.published_scores`. What was not
measured is listed, and never counts as agreement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.audit.published_scores import (
    COMP_GAP,
    EITHER_UNIMODAL,
    NO_WHOLE_COUNT,
    RATES,
    Caveat,
    PublishedBenchmark,
    PublishedScores,
    PublishedValue,
)
from circus_bench.audit.scores import pool_comp_gap
from circus_bench.audit.statistics import Estimate, proportion
from circus_bench.benchmark import Condition
from circus_bench.errors import CircusError, MismatchError
from circus_bench.labels.labels import Subset
from circus_bench.labels.pool import Pool
from circus_bench.metrics.hit_rate import hit_rate
from circus_bench.runs.run import Run, check_comparable

Mask = NDArray[np.bool_]


class Outcome(StrEnum):
    """Comparison of a measured number with the published one."""

    SAME = "same"
    """It rounds to the published number."""
    WITHIN = "within"
    """The published number lies within the measured interval, which is that of another draw of queries. On the same
    queries an exact reproduction is `same`."""
    OUTSIDE = "outside"
    """It does not."""
    UNDEFINED = "undefined"
    """The measured number is undefined."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A measured number beside the published one.

    Attributes:
        published: the published number.
        measured: ours, with its interval.
        caveats: ids of the caveats that concern the published number.
    """

    published: PublishedValue
    measured: Estimate
    caveats: tuple[str, ...]

    @property
    def difference(self) -> float:
        """Measured minus published."""
        return self.measured.value - self.published.value

    @property
    def outcome(self) -> Outcome:
        """See `Outcome`. The rounding of the published number is allowed for."""
        slack = self.published.half_unit + 1e-9
        if math.isnan(self.measured.value):
            return Outcome.UNDEFINED
        if abs(self.difference) <= slack:
            return Outcome.SAME
        inside = self.measured.low - slack <= self.published.value <= self.measured.high + slack
        return Outcome.WITHIN if inside else Outcome.OUTSIDE

    def to_dict(self) -> dict[str, Any]:
        """Return strict JSON."""
        difference = self.difference
        return {
            "model": self.published.model or None,
            "subset": self.published.subset.value,
            "quantity": self.published.name,
            "measured": self.measured.to_dict(),
            "published": self.published.value,
            "difference": None if math.isnan(difference) else difference,
            "outcome": self.outcome.value,
            "caveats": list(self.caveats),
        }


@dataclass(frozen=True)
class Reproduction:
    """Measured and published scores of one benchmark, compared.

    Attributes:
        benchmark: its name.
        protocol: id of the protocol.
        comparisons: what could be compared.
        not_compared: what is published and was not measured, or measured and not published, in words.
        warnings: ways in which the Runs may not be of what was published.
        caveats: those that a comparison names.
    """

    benchmark: str
    protocol: str
    comparisons: tuple[Comparison, ...]
    not_compared: tuple[str, ...]
    warnings: tuple[str, ...]
    caveats: tuple[Caveat, ...]


def by_protocol(runs: Sequence[Run]) -> list[list[Run]]:
    """Group Runs by protocol, in the order in which the protocols first occur."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.manifest.protocol["id"], []).append(run)
    return list(groups.values())


def reproduce(
    runs: Sequence[Run], *, published: PublishedScores, masks: Mapping[Subset, Mask] | None = None
) -> Reproduction:
    """Compare Runs on one benchmark with what is published about it.

    Numbers about the whole pool (CompGap, label counts) are compared when all its models have Runs.

    Args:
        runs: one per model, all on one benchmark and protocol.
        published: the published numbers.
        masks: the queries of `sf` and `v`, bool [n_queries] each, as far as known.

    Raises:
        MismatchError: the Runs do not belong together, nothing is published under their protocol, or they are on
            other queries.
        CircusError: there is no Run, or none of a published model.
    """
    if not runs:
        raise CircusError("there is no Run to compare")
    check_comparable(runs)
    about = published.of_protocol(runs[0].manifest.protocol["id"])
    _check_same_benchmark(runs[0], about)
    named = _by_paper_name(runs, about, published)
    known = {Subset.FULL: np.ones(len(runs[0].queries), bool), **(masks or {})}
    whole_pool = len(named) == len(about.models)
    comparisons = tuple(
        Comparison(value, estimate, _caveats_of(value, about, published))
        for value in about.values
        if value.subset in known
        for estimate in _measured(value, named, known[value.subset], whole_pool=whole_pool)
    )
    mentioned = {caveat for comparison in comparisons for caveat in comparison.caveats}
    return Reproduction(
        benchmark=about.name,
        protocol=about.protocol,
        comparisons=comparisons,
        not_compared=tuple(_not_compared(runs, about, named=named, known=known)),
        warnings=tuple(_warnings(runs, about, known)),
        caveats=tuple(caveat for caveat in published.caveats if caveat.id in mentioned),
    )


def _check_same_benchmark(run: Run, about: PublishedBenchmark) -> None:
    if about.reference not in (None, run.policy):
        raise MismatchError(
            f"the published scores of {about.name} hold with the reference {about.reference}, the Runs with it "
            f"{run.policy}; the two cannot be compared"
        )
    if len(run.queries) != about.subsets[Subset.FULL]:
        raise MismatchError(
            f"the published scores of {about.name} are about {about.subsets[Subset.FULL]:,} queries, the Runs about "
            f"{len(run.queries):,}; run the whole benchmark, and its subsets are taken from that"
        )


def _by_paper_name(runs: Sequence[Run], about: PublishedBenchmark, published: PublishedScores) -> dict[str, Run]:
    """Find the Runs of published models, in the paper's order."""
    of_id = {run.manifest.model.name: run for run in runs}
    named: dict[str, Run] = {}
    for model in about.models:
        found = [model_id for model_id in published.ids[model] if model_id in of_id]
        if len(found) > 1:
            raise MismatchError(f"{' and '.join(found)} are one model, {model}; give one Run of it")
        if found:
            named[model] = of_id[found[0]]
    if not named:
        ids = ", ".join(model_id for model in about.models for model_id in published.ids[model][:1])
        raise CircusError(f"no scores on {about.name} are published for {', '.join(of_id)}; there are some for {ids}")
    return named


def _measured(value: PublishedValue, named: Mapping[str, Run], chosen: Mask, *, whole_pool: bool) -> Iterator[Estimate]:
    """Compute our number for a published one; nothing where the Runs do not give it."""
    if value.quantity in RATES:
        if value.model in named:
            run = named[value.model]
            unimodal = (Condition.TEXT_ONLY, Condition.IMAGE_ONLY)
            either = value.quantity == EITHER_UNIMODAL
            conditions = unimodal if either else (Condition(value.quantity),)
            hits = np.max([hit_rate(run.ranks(condition), value.k) for condition in conditions], axis=0)
            yield proportion(hits[chosen])
    elif whole_pool and value.quantity == COMP_GAP:
        yield pool_comp_gap(list(named.values()), chosen)
    elif whole_pool:
        labels = Pool.of_runs(list(named.values())).label(k=value.k).labels
        yield proportion((labels == value.quantity)[chosen])


def _caveats_of(value: PublishedValue, about: PublishedBenchmark, published: PublishedScores) -> tuple[str, ...]:
    found = [caveat.id for caveat in published.caveats if caveat.concerns(about.name, value)]
    if value.quantity in RATES and not value.is_share_of(about.subsets[value.subset]):
        found.append(NO_WHOLE_COUNT)
    return tuple(found)


def _not_compared(
    runs: Sequence[Run],
    about: PublishedBenchmark,
    *,
    named: Mapping[str, Run],
    known: Mapping[Subset, Mask],
) -> Iterator[str]:
    missing = [model for model in about.models if model not in named]
    if missing:
        yield f"published, but without a Run: {', '.join(missing)}"
        if any(not value.model for value in about.values):
            yield f"CompGap and label counts of the pool: they need Runs of all {len(about.models)} models"
    matched = {run.manifest.model.name for run in named.values()}
    others = [run.manifest.model.name for run in runs if run.manifest.model.name not in matched]
    if others:
        yield f"measured, but not published: {', '.join(others)}"
    for subset in about.subsets:
        if subset not in known:
            yield f"everything on {subset}: its queries are not known; give the labels of an audit or a dataset folder"


def _warnings(runs: Sequence[Run], about: PublishedBenchmark, known: Mapping[Subset, Mask]) -> Iterator[str]:
    first = runs[0].manifest
    if first.n_gallery != about.n_gallery:
        yield f"the Runs rank {first.n_gallery:,} images, the published ones {about.n_gallery:,}"
    if about.instruction not in (None, first.protocol["instruction"]):
        yield f"the Runs' instruction is {first.protocol['instruction']!r}, the published one {about.instruction!r}"
    for subset, chosen in known.items():
        n, expected = int(chosen.sum()), about.subsets.get(subset)
        if expected is not None and n != expected:
            yield f"{subset} has {n:,} queries here and {expected:,} in the publication"
    for run in runs:
        if run.manifest.alarms:
            alarms = ", ".join(run.manifest.alarms)
            yield f"the Run of {run.manifest.model.name} has alarms and is not to be trusted: {alarms}"
