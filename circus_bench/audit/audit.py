"""Audit a benchmark for shortcuts: labels, sensitivity and scores of a pool of models, to be saved and reported."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from circus_bench._typing import StrPath
from circus_bench._version import __version__
from circus_bench.audit.scores import Scores, pool_comp_gap, score_run
from circus_bench.audit.sensitivity import LabelShares, chance, k_sweep, leave_one_out, support_sweep
from circus_bench.audit.statistics import Estimate
from circus_bench.benchmark import Benchmark, Condition
from circus_bench.errors import CircusError, FormatError
from circus_bench.io import read_json, slug, to_plain, write_json
from circus_bench.labels.label_bar import render_label_bar
from circus_bench.labels.labels import Labels, Subset, valid_mask
from circus_bench.labels.pool import Pool, check_same_queries
from circus_bench.metrics.shortcut import Label, ShortcutLabels
from circus_bench.notebook import facts_table
from circus_bench.runs.run import Run, check_matches

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SCHEMA_VERSION = 1
AUDIT_FILE, LABELS_FILE = "audit.json", "labels.parquet"


@dataclass(frozen=True, repr=False)
class Audit:
    """The outcome of a shortcut audit.

    Attributes:
        about: what was audited: benchmark, protocol, fingerprint; or the file of published minima.
        pool: the best ranks that the labels come from.
        shortcut_labels: label and evidence of every query, as arrays; `labels` is the table.
        summary: count and share of each label.
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
    shortcut_labels: ShortcutLabels
    summary: LabelShares
    chance: Estimate | None
    k_sweep: dict[int, LabelShares]
    support_sweep: dict[int, LabelShares]
    leave_one_out: dict[str, LabelShares]
    scores: list[Scores] = dataclasses.field(default_factory=list)
    comp_gap: dict[Subset, Estimate] = dataclasses.field(default_factory=dict)
    runs: tuple[Run, ...] = ()

    @cached_property
    def labels(self) -> Labels:
        """The labels of the queries, with their evidence."""
        return Labels.of_pool(self.pool, self.shortcut_labels, self.about)

    def label_of(self, query: str) -> Label:
        """Return the label of a query.

        Raises:
            CircusError: the audit has no query of that id.
        """
        if query not in self.pool.queries:
            raise CircusError(f"the audit has no query {query!r}")
        return Label(self.shortcut_labels.labels[self.pool.queries.index(query)])

    def by_group(self, benchmark: Benchmark) -> dict[str, dict[str, int]]:
        """Count the queries of each label (shortcuts by their detail) in each of the benchmark's query groups.

        Raises:
            MismatchError: the benchmark has other queries.
        """
        check_same_queries(self.pool, benchmark)
        details = self.shortcut_labels.details
        names = np.where(details != "", np.char.add("shortcut: ", details), self.shortcut_labels.labels)
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
        mask = valid_mask(self.pool.queries, self.shortcut_labels.shortcut_free, valid)
        scores = [score_run(run, subset=Subset.V, chosen=mask, k=self.shortcut_labels.k) for run in self.runs]
        return dataclasses.replace(
            self,
            about={**self.about, "validation": how},
            scores=[*self.scores, *scores],
            comp_gap={**self.comp_gap, Subset.V: pool_comp_gap(self.runs, mask)},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the per-query labels, for strict JSON."""
        summary = to_plain(self.summary)
        return {
            "package_version": __version__,
            "about": dict(self.about),
            "pool": list(self.pool.models),
            "k": self.shortcut_labels.k,
            "min_unimodal": self.shortcut_labels.min_unimodal,
            "min_multimodal": self.shortcut_labels.min_multimodal,
            "n_queries": len(self.pool.queries),
            "labels": summary["counts"],
            "shares": summary["shares"],
            "shortcuts": to_plain(self.shortcut_labels.detail_counts()),
            **{
                name: to_plain(getattr(self, name))
                for name in ("chance", "k_sweep", "support_sweep", "leave_one_out", "scores", "comp_gap")
            },
        }

    def save(self, folder: StrPath) -> None:
        """Write the audit with its label table and Runs into a folder; the same audit gives the same bytes.

        See docs/formats.md. The Runs are copied into it, so that the folder can be moved and reported from.
        """
        folder = Path(folder)
        names = [f"runs/{place:02d}-{slug(run.manifest.model.name)}" for place, run in enumerate(self.runs)]
        for name, run in zip(names, self.runs, strict=True):
            run.save(folder / name)
        self.labels.save(folder / LABELS_FILE)
        # This file comes last: a folder without it was not written to the end.
        write_json(folder / AUDIT_FILE, {**self.to_dict(), "schema_version": SCHEMA_VERSION, "runs": names})

    @classmethod
    def load(cls, folder: StrPath) -> Audit:
        """Read an audit that `save` wrote.

        Raises:
            FormatError: files are missing, of another schema version, or do not belong together.
        """
        folder = Path(folder)
        path = folder / AUDIT_FILE
        content = read_json(path)
        if content.get("schema_version") != SCHEMA_VERSION:
            raise FormatError(f"{path}: schema version {content.get('schema_version')!r}, expected {SCHEMA_VERSION}")
        table = Labels.load(folder / LABELS_FILE)
        try:
            runs = tuple(Run.load(folder / name) for name in content["runs"])
            pool = Pool.of_runs(runs) if runs else _pool_of_minima(table)
            settings = {name: content[name] for name in ("k", "min_unimodal", "min_multimodal")}
            k_sweep, support_sweep = (_sweep_from_dict(content[name]) for name in ("k_sweep", "support_sweep"))
            left_out, gaps = content["leave_one_out"], content["comp_gap"]
            loaded = cls(
                about=content["about"],
                pool=pool,
                shortcut_labels=pool.label(**settings),
                summary=k_sweep[settings["k"]],
                chance=Estimate.from_dict(content["chance"]) if content["chance"] else None,
                k_sweep=k_sweep,
                support_sweep=support_sweep,
                leave_one_out={m: LabelShares.from_dict(left_out[m]) for m in pool.models if m in left_out},
                scores=[Scores.from_dict(entry) for entry in content["scores"]],
                comp_gap={subset: Estimate.from_dict(gaps[subset]) for subset in Subset if subset in gaps},
                runs=runs,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path}: {error!r}; see docs/formats.md") from error
        if loaded.labels.by_query != table.by_query:
            raise FormatError(f"{folder}: {LABELS_FILE} does not hold the labels of this audit; save it again")
        return loaded

    @overload
    def plot(self, name: None = None) -> dict[str, Figure]: ...

    @overload
    def plot(self, name: str) -> Figure: ...

    def plot(self, name: str | None = None) -> Figure | dict[str, Figure]:
        """Draw the figures of the report with matplotlib.

        Args:
            name: `k_sweep`, the share of each label against the cut-off; or `hit_rate_full`, `hit_rate_sf` or
                `hit_rate_v`, the hit rate of each model under the three conditions on that subset.

        Returns:
            The figure; without a name all that there are, by name.

        Raises:
            CircusError: the audit has no figure of that name.
        """
        from circus_bench.audit.figures import SUBSET_NAMES, draw_hit_rates, draw_k_sweep, hit_rate_limit

        k = self.shortcut_labels.k
        of_subset = {
            f"hit_rate_{subset}": [entry for entry in self.scores if entry.subset == subset and entry.n_queries]
            for subset in SUBSET_NAMES
        }
        names = ["k_sweep", *(each for each, scores in of_subset.items() if scores)]
        if name is None:
            return {each: self.plot(each) for each in names}
        if name not in names:
            raise CircusError(f"this audit has no figure {name!r}; it has {', '.join(names)}")
        if name == "k_sweep":
            return draw_k_sweep(self.k_sweep, k=k)
        return draw_hit_rates(of_subset[name], k=k, limit=hit_rate_limit(self.scores, k=k))

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per query: label, detail, best ranks, support, and the models that hit."""
        table = self.labels.to_pandas()
        return table.filter(regex="^(query|label|detail|best_rank_.*|support_.*|models_.*)$")

    def __repr__(self) -> str:
        """Name the counts rather than each query."""
        shares = ", ".join(f"{label} {100 * share.value:.1f} %" for label, share in self.summary.shares.items())
        return f"Audit({self._title()}, K = {self.shortcut_labels.k}: {shares})"

    def _repr_html_(self) -> str:
        """Show the label bar, shares with confidence intervals, chance and CompGap in a notebook."""
        facts: dict[str, object] = {
            label.replace("_", " "): f"{self.summary.counts[label]:,} ({_interval(share, scale=100)} %)"
            for label, share in self.summary.shares.items()
        }
        if self.chance:
            facts["shortcut, by chance"] = _interval(self.chance, scale=100) + " %"
        for subset, gap in self.comp_gap.items():
            facts[f"CompGap on {subset}"] = _interval(gap, digits=3)
        facts["K"] = self.shortcut_labels.k
        facts["pool"] = ", ".join(self.pool.models)[:500]
        return facts_table(f"Audit of {self._title()}", facts, below=render_label_bar(self.summary.counts))

    def _title(self) -> str:
        name = self.about.get("benchmark") or self.about.get("best_ranks")
        protocol = self.about.get("protocol", {}).get("id")
        under = f" under {protocol}" if protocol else ""
        return f"{name!r}{under}, {len(self.pool.queries):,} queries, {len(self.pool.models):,} models"


def audit_runs(runs: Sequence[Run], *, k: int = 10, min_unimodal: int = 1, min_multimodal: int = 1) -> Audit:
    """Audit a benchmark with the Runs of a pool of models, under the protocol's reference policy.

    Args:
        runs: one per model, all on the same benchmark and protocol.
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


def audit_best_ranks(path: StrPath, *, k: int = 10) -> Audit:
    """Label published minima over a pool; see `Pool.of_best_ranks` for the file.

    Raises:
        FormatError: the file does not hold what is needed.
    """
    pool = Pool.of_best_ranks(path)
    return _audit(pool, pool.label(k=k), {"best_ranks": Path(path).name})


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
        shortcut_labels=labels,
        summary=LabelShares.of(labels, own=labels),
        chance=None,
        k_sweep=k_sweep(pool, own=labels),
        support_sweep=support_sweep(pool, own=labels),
        leave_one_out=leave_one_out(pool, own=labels),
    )


def _pool_of_minima(labels: Labels) -> Pool:
    """Take published minima over a pool back from the label table that was made of them."""
    best = {
        condition: np.array([[label.best_rank[condition] or np.inf for label in labels.by_query.values()]])
        for condition in Condition
    }
    return Pool(labels.provenance.pool, tuple(labels.by_query), best)


def _sweep_from_dict(content: Mapping[str, Any]) -> dict[int, LabelShares]:
    return {int(setting): LabelShares.from_dict(content[setting]) for setting in sorted(content, key=int)}


def _interval(found: Estimate, *, scale: int = 1, digits: int = 1) -> str:
    value, low, high = (f"{scale * number:.{digits}f}" for number in (found.value, found.low, found.high))
    return "undefined" if math.isnan(found.value) else f"{value} [{low}, {high}]"
