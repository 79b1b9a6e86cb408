"""The audit itself: labels, sensitivity and scores of a pool, gathered in one object that reports are made from."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from circus_bench._version import __version__
from circus_bench.audit.scores import Scores, pool_comp_gap, score_run
from circus_bench.audit.sensitivity import LabelShares, chance, k_sweep, leave_one_out, support_sweep
from circus_bench.audit.statistics import Estimate
from circus_bench.benchmark import Benchmark
from circus_bench.errors import CircusError
from circus_bench.labels.label_table import Subset, save_labels, valid_mask
from circus_bench.labels.pool import Pool, check_same_queries
from circus_bench.metrics.shortcut import Label, ShortcutLabels
from circus_bench.runs.run import Run, check_matches


@dataclass(frozen=True)
class Audit:
    """The outcome of a shortcut audit.

    Attributes:
        about: what was audited: benchmark, protocol, fingerprint; or the file of published minima.
        pool: the best ranks that the labels come from.
        labels: label and evidence of every query.
        summary: the labels, summed up.
        chance: share of queries that the pool would call a shortcut by chance; None where it cannot be told.
        k_sweep: labels by cut-off.
        support_sweep: labels by the number of models that must agree.
        leave_one_out: labels of smaller pools, by the model left out.
        scores: of every model on every subset; empty for published minima, which hold no per-model ranks.
        comp_gap: the pool's mean CompGap on every subset.
        runs: the Runs of the pool; empty for published minima.
    """

    about: Mapping[str, Any]
    pool: Pool
    labels: ShortcutLabels
    summary: LabelShares
    chance: Estimate | None
    k_sweep: dict[int, LabelShares]
    support_sweep: dict[int, LabelShares]
    leave_one_out: dict[str, LabelShares]
    scores: list[Scores] = dataclasses.field(default_factory=list)
    comp_gap: dict[Subset, Estimate] = dataclasses.field(default_factory=dict)
    runs: tuple[Run, ...] = ()

    def label_of(self, query: str) -> Label:
        """The label of a query.

        Raises:
            CircusError: the audit has no query of that id.
        """
        if query not in self.pool.queries:
            raise CircusError(f"the audit has no query {query!r}")
        return Label(self.labels.labels[self.pool.queries.index(query)])

    def by_group(self, benchmark: Benchmark) -> dict[str, dict[str, int]]:
        """Queries of each label (shortcuts by their detail) in each of the benchmark's query groups.

        Raises:
            MismatchError: the benchmark has other queries.
        """
        check_same_queries(self.pool, benchmark)
        names = np.where(self.labels.details != "", np.char.add("shortcut: ", self.labels.details), self.labels.labels)
        name_of = dict(zip(self.pool.queries, names.tolist(), strict=True))
        table: dict[str, Counter[str]] = {}
        for query in benchmark.queries:
            table.setdefault(query.group, Counter())[name_of[query.id]] += 1
        return {group: dict(row) for group, row in table.items()}

    def with_validated(self, valid: Collection[str], *, how: str) -> Audit:
        """Add the scores on the subset V.

        Args:
            valid: ids of the shortcut-free queries that a human validation found valid.
            how: how they were found valid, in a sentence for readers of the report.

        Raises:
            MismatchError: a valid query is not among the shortcut-free ones.
            CircusError: the audit has no Runs to score.
        """
        if not self.runs:
            raise CircusError("published minima hold no per-model ranks, so nothing can be scored on V; audit Runs")
        mask = valid_mask(self.pool.queries, self.labels.shortcut_free, valid)
        scores = [score_run(run, subset=Subset.V, chosen=mask, k=self.labels.k) for run in self.runs]
        return dataclasses.replace(
            self,
            about={**self.about, "validation": how},
            scores=[*self.scores, *scores],
            comp_gap={**self.comp_gap, Subset.V: pool_comp_gap(self.runs, mask)},
        )

    def save_labels(self, path: Path) -> None:
        """Write the label table; see `circus_bench.labels.label_table.save_labels`."""
        save_labels(path, self.pool, self.labels, origin=dict(self.about))

    def to_dict(self) -> dict[str, Any]:
        """Everything but the per-query labels, for strict JSON."""
        return {
            "package_version": __version__,
            "about": dict(self.about),
            "pool": list(self.pool.models),
            "k": self.labels.k,
            "min_unimodal": self.labels.min_unimodal,
            "min_multimodal": self.labels.min_multimodal,
            "n_queries": len(self.pool.queries),
            "labels": self.summary.to_dict()["counts"],
            "shares": self.summary.to_dict()["shares"],
            "shortcuts": {detail.value: count for detail, count in self.labels.detail_counts().items()},
            "chance": self.chance.to_dict() if self.chance else None,
            "k_sweep": {str(k): entry.to_dict() for k, entry in self.k_sweep.items()},
            "support_sweep": {str(m): entry.to_dict() for m, entry in self.support_sweep.items()},
            "leave_one_out": {model: entry.to_dict() for model, entry in self.leave_one_out.items()},
            "scores": [entry.to_dict() for entry in self.scores],
            "comp_gap": {subset.value: gap.to_dict() for subset, gap in self.comp_gap.items()},
        }


def audit_runs(runs: Sequence[Run], *, k: int = 10, min_unimodal: int = 1, min_multimodal: int = 1) -> Audit:
    """Audit a benchmark with the Runs of a pool of models, under the protocol's reference policy.

    Args:
        runs: one a model, all on the same benchmark and protocol.
        k: the rank up to which a query counts as solved.
        min_unimodal: models that must solve a query from one modality for it to be a shortcut.
        min_multimodal: models that must solve it from both for it to be composition_required.

    Raises:
        MismatchError: the Runs do not belong together.
        CircusError: there is no Run, or a threshold makes no sense for this pool.
    """
    pool = Pool.of_runs(runs)
    labels = pool.label(k=k, min_unimodal=min_unimodal, min_multimodal=min_multimodal)
    first = runs[0].manifest
    about = {
        "benchmark": first.benchmark,
        "protocol": dict(first.protocol),
        "fingerprint": dataclasses.asdict(first.fingerprint),
        "n_gallery": first.n_gallery,
    }
    masks = {Subset.FULL: np.ones(len(pool.queries), bool), Subset.SF: labels.shortcut_free}
    return dataclasses.replace(
        _audit(pool, labels, about),
        chance=chance(Pool.of_null_ranks(runs), own=labels),
        scores=[score_run(run, subset=subset, chosen=mask, k=k) for subset, mask in masks.items() for run in runs],
        comp_gap={subset: pool_comp_gap(runs, mask) for subset, mask in masks.items()},
        runs=tuple(runs),
    )


def audit_best_ranks(path: Path, *, k: int = 10) -> Audit:
    """Label published minima over a pool; see `Pool.of_best_ranks` for the file.

    Raises:
        FormatError: the file does not hold what is needed.
    """
    pool = Pool.of_best_ranks(path)
    return _audit(pool, pool.label(k=k), {"best_ranks": path.name})


def check_audit_matches(audit: Audit, benchmark: Benchmark) -> None:
    """Refuse a benchmark that the audit's Runs were not made on.

    Raises:
        MismatchError: the fingerprints differ.
    """
    for run in audit.runs:
        check_matches(run, benchmark)


def _audit(pool: Pool, labels: ShortcutLabels, about: Mapping[str, Any]) -> Audit:
    return Audit(
        about=about,
        pool=pool,
        labels=labels,
        summary=LabelShares.of(labels, own=labels),
        chance=None,
        k_sweep=k_sweep(pool, own=labels),
        support_sweep=support_sweep(pool, own=labels),
        leave_one_out=leave_one_out(pool, own=labels),
    )
