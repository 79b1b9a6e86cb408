"""Analyze the sensitivity of labels: to the cut-off, to the support asked for, and to the pool (leave-one-out)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from circus_bench.audit.statistics import Estimate, proportion
from circus_bench.labels.pool import Pool
from circus_bench.metrics.shortcut import Label, ShortcutLabels

SWEPT_K = (1, 3, 5, 10, 15, 20, 50)


@dataclass(frozen=True)
class LabelShares:
    """Count and share of each label.

    Attributes:
        counts: queries of each label.
        shares: share of each label, with its confidence interval.
        changed: queries whose label differs from the audit's own.
    """

    counts: dict[Label, int]
    shares: dict[Label, Estimate]
    changed: int

    @classmethod
    def of(cls, labels: ShortcutLabels, *, own: ShortcutLabels) -> LabelShares:
        """Count `labels`; `own` are the audit's labels."""
        estimates = {label: proportion(np.equal(labels.labels, label.value)) for label in Label}
        return cls(labels.counts(), estimates, int((labels.labels != own.labels).sum()))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> LabelShares:
        """Make label shares from their JSON."""
        shares = {label: Estimate.from_dict(content["shares"][label]) for label in Label}
        return cls(
            {label: content["counts"][label] for label in Label},
            {label: shares[label] for label in Label},
            content["changed"],
        )


def k_sweep(pool: Pool, *, own: ShortcutLabels, ks: Sequence[int] = SWEPT_K) -> dict[int, LabelShares]:
    """Label at every cut-off, the audit's own included."""
    return {
        k: LabelShares.of(
            pool.label(k=k, min_unimodal=own.min_unimodal, min_multimodal=own.min_multimodal),
            own=own,
        )
        for k in sorted({*ks, own.k})
    }


def support_sweep(pool: Pool, *, own: ShortcutLabels) -> dict[int, LabelShares]:
    """Label when at least m models must succeed, under both kinds of condition alike, for m = 1 to the pool's size."""
    return {
        m: LabelShares.of(pool.label(k=own.k, min_unimodal=m, min_multimodal=m), own=own)
        for m in range(1, len(pool.models) + 1)
    }


def leave_one_out(pool: Pool, *, own: ShortcutLabels) -> dict[str, LabelShares]:
    """Label by leave-one-out: with the pool less each of its models in turn; empty for a pool of one.

    A support threshold that the smaller pool cannot meet becomes all of its models.
    """
    found = {}
    for left_out in pool.models if len(pool.models) > 1 else ():
        smaller = pool.only([model for model in pool.models if model != left_out])
        thresholds = {name: min(getattr(own, name), len(smaller.models)) for name in ("min_unimodal", "min_multimodal")}
        found[left_out] = LabelShares.of(smaller.label(k=own.k, **thresholds), own=own)
    return found


def chance(null_pool: Pool | None, *, own: ShortcutLabels) -> Estimate | None:
    """Compute the share of queries that the pool would call a shortcut if their targets were those of other queries."""
    if null_pool is None:
        return None
    null = null_pool.label(k=own.k, min_unimodal=own.min_unimodal, min_multimodal=own.min_multimodal)
    return proportion(np.equal(null.labels, Label.SHORTCUT.value))
