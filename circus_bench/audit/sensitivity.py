"""How the labels change with the cut-off, the support asked for, and the models of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from circus_bench.audit.pool import Pool
from circus_bench.audit.statistics import Estimate, proportion
from circus_bench.metrics.shortcut import Label, ShortcutLabels

SWEPT_K = (1, 3, 5, 10, 15, 20, 50)


@dataclass(frozen=True)
class LabelShares:
    """The labels of one setting, summed up.

    Attributes:
        setting: what was set: a cut-off, a support, a model left out.
        counts: queries of each label.
        shares: share of each label, with its interval.
        changed: queries whose label differs from the audit's own.
    """

    setting: str
    counts: dict[Label, int]
    shares: dict[Label, Estimate]
    changed: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "setting": self.setting,
            "counts": {label.value: count for label, count in self.counts.items()},
            "shares": {label.value: share.to_dict() for label, share in self.shares.items()},
            "changed": self.changed,
        }


def shares(labels: ShortcutLabels, *, setting: str, against: ShortcutLabels | None = None) -> LabelShares:
    """Sum up labels.

    Args:
        labels: the labels.
        setting: what to call them.
        against: the labels that `changed` is counted against; none differ by default.
    """
    changed = 0 if against is None else int((labels.labels != against.labels).sum())
    estimates = {label: proportion(labels.labels == label.value) for label in Label}
    return LabelShares(setting, labels.counts(), estimates, changed)


def k_sweep(pool: Pool, *, own: ShortcutLabels, ks: Sequence[int] = SWEPT_K) -> list[LabelShares]:
    """Labels at every cut-off; `own` are the audit's labels."""
    return [
        shares(
            pool.label(k=k, min_unimodal=own.min_unimodal, min_multimodal=own.min_multimodal),
            setting=f"K = {k}",
            against=own,
        )
        for k in sorted({*ks, own.k})
    ]


def support_sweep(pool: Pool, *, own: ShortcutLabels) -> list[LabelShares]:
    """Labels when at least m models must succeed, under both kinds of condition alike, for m = 1 to the pool's size."""
    return [
        shares(pool.label(k=own.k, min_unimodal=m, min_multimodal=m), setting=f"m = {m}", against=own)
        for m in range(1, len(pool.models) + 1)
    ]


def leave_one_out(pool: Pool, *, own: ShortcutLabels) -> list[LabelShares]:
    """Labels of the pool without each of its models in turn; empty for a pool of one."""
    if len(pool.models) < 2:
        return []
    kept = [[model for model in pool.models if model != left_out] for left_out in pool.models]
    return [
        shares(
            pool.only(models).label(
                k=own.k,
                min_unimodal=min(own.min_unimodal, len(models)),
                min_multimodal=min(own.min_multimodal, len(models)),
            ),
            setting=f"without {left_out}",
            against=own,
        )
        for left_out, models in zip(pool.models, kept, strict=True)
    ]


def chance(null_pool: Pool | None, *, own: ShortcutLabels) -> Estimate | None:
    """Share of queries that the pool would call a shortcut if their targets were those of other queries."""
    if null_pool is None:
        return None
    null = null_pool.label(k=own.k, min_unimodal=own.min_unimodal, min_multimodal=own.min_multimodal)
    return proportion(np.equal(null.labels, Label.SHORTCUT.value))
