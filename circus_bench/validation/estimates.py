"""Estimate shares of valid queries from a stratified sample, weighted by inverse inclusion probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from circus_bench.audit.statistics import Estimate, combined, proportion
from circus_bench.validation.decisions import Decision


@dataclass(frozen=True, slots=True)
class ValidityShares:
    """Estimated shares of valid queries among those that a study was drawn from.

    Attributes:
        strata: stratum to its estimate; `n` is the number of decided items.
        overall: of all strata together, each with its size; undefined while a stratum has no decided item.
        sizes: stratum to the number of queries that it stands for (the sum of the weights of its items).
        undecided: stratum to the number of items left out because they are undecided.
    """

    strata: Mapping[str, Estimate]
    overall: Estimate
    sizes: Mapping[str, float]
    undecided: Mapping[str, int]


def validity_shares(decisions: Iterable[Decision]) -> ValidityShares:
    """Estimate the share of valid queries per stratum and overall, weighted by inverse inclusion probabilities.

    A stratum's share is that of its decided items (`circus_bench.audit.statistics.proportion`). The overall share is
    the mean over the strata, weighted by their sizes (`circus_bench.audit.statistics.combined`). As everywhere in the
    package, the queries are taken for a sample of possible ones: no interval shrinks to a point when all queries of a
    benchmark were judged. Undecided items are left out as if they were missing at random within their stratum.
    """
    by_stratum: dict[str, list[Decision]] = {}
    for decision in decisions:
        by_stratum.setdefault(decision.stratum, []).append(decision)
    names = sorted(by_stratum)
    strata = {name: _share(by_stratum[name]) for name in names}
    sizes = {name: math.fsum(decision.weight for decision in by_stratum[name]) for name in names}
    undecided = {name: sum(decision.valid is None for decision in by_stratum[name]) for name in names}
    return ValidityShares(strata, combined(list(strata.values()), list(sizes.values())), sizes, undecided)


def _share(decisions: Iterable[Decision]) -> Estimate:
    decided = [decision for decision in decisions if decision.valid is not None]
    return proportion(
        np.array([decision.valid for decision in decided], np.float64),
        np.array([decision.weight for decision in decided]),
    )
