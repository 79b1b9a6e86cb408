"""Collect the best rank of every query per model and condition, which an audit labels from."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Condition, ReferencePolicy
from circus_bench.errors import CircusError, FormatError, MismatchError, duplicates, format_ids
from circus_bench.metrics.ranks import Ranks
from circus_bench.metrics.shortcut import ShortcutLabels, min_rank_labels
from circus_bench.runs.run import Run, check_comparable

Floats = NDArray[np.float64]

PUBLISHED_POOL = "published pool minimum"
"""The name under which published minima over a pool stand in for its models."""

_QUERY_COLUMN = "query_idx"
_RANK_COLUMN = "best_rank_{}"


@dataclass(frozen=True, repr=False)
class Pool:
    """Best ranks (over each query's targets) of the models of an audit.

    Attributes:
        models: model names.
        queries: query ids.
        best: for each condition float64 [n_models, n_queries]; inf where no target can be retrieved.
    """

    models: tuple[str, ...]
    queries: tuple[str, ...]
    best: Mapping[Condition, Floats]

    def __repr__(self) -> str:
        """Name the models and the number of queries rather than each rank."""
        return f"Pool({len(self.queries):,} queries, models: {', '.join(self.models)})"

    @classmethod
    def of_runs(cls, runs: Sequence[Run], *, reference: ReferencePolicy | None = None) -> Pool:
        """Take the best ranks from Runs of one benchmark.

        Args:
            runs: one per model.
            reference: the reference policy; the protocol's by default.

        Raises:
            CircusError: there is no Run.
            MismatchError: the Runs differ in benchmark or protocol, or two are of one model.
        """
        if not runs:
            raise CircusError("an audit needs at least one Run")
        check_comparable(runs)
        best = {
            condition: np.stack([run.ranks(condition, reference=reference).first() for run in runs])
            for condition in Condition
        }
        return cls(tuple(run.manifest.model.name for run in runs), runs[0].queries, best)

    @classmethod
    def of_null_ranks(cls, runs: Sequence[Run]) -> Pool | None:
        """Take the pool's null ranks in place of its ranks: what it would find by chance. None where a Run has none."""
        nulls: dict[Condition, list[Ranks]] = {condition: [] for condition in Condition}
        for run in runs:
            for condition in Condition:
                ranks = run.null_ranks(condition)
                if ranks is None:
                    return None
                nulls[condition].append(ranks)
        best = {condition: np.stack([ranks.first() for ranks in column]) for condition, column in nulls.items()}
        return cls(tuple(run.manifest.model.name for run in runs), runs[0].queries, best)

    @classmethod
    def of_best_ranks(cls, path: StrPath) -> Pool:
        """Read published minima over a pool: a CSV with `query_idx` and `best_rank_<condition>` columns.

        The pool then counts as one model; which of its models found what is not in such a file.

        Raises:
            FormatError: the file, a column or a rank is missing, or a rank is no number of at least 1.
        """
        path = Path(path)
        columns = {condition: _RANK_COLUMN.format(condition.value) for condition in Condition}
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.DictReader(file)
                names = reader.fieldnames or ()
                rows = list(reader)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise FormatError(f"{path}: {error}") from error
        missing = [name for name in (_QUERY_COLUMN, *columns.values()) if name not in names]
        if missing or not rows:
            raise FormatError(f"{path}: {'no rows' if not missing else f'lacks the columns {missing}'}")
        queries = tuple(row[_QUERY_COLUMN] for row in rows)
        if repeated := duplicates(queries):
            raise FormatError(f"{path}: {_QUERY_COLUMN} repeats ({format_ids(repeated)})")
        best = {condition: _column(path, rows, name)[None] for condition, name in columns.items()}
        return cls((PUBLISHED_POOL,), queries, best)

    def only(self, models: Sequence[str]) -> Pool:
        """Restrict the pool to some of the models."""
        rows = [self.models.index(model) for model in models]
        return Pool(tuple(models), self.queries, {condition: ranks[rows] for condition, ranks in self.best.items()})

    def label(self, *, k: int = 10, min_unimodal: int = 1, min_multimodal: int = 1) -> ShortcutLabels:
        """Label every query at cut-off k by minimum rank; see `circus_bench.metrics.shortcut.min_rank_labels`."""
        return min_rank_labels(
            self.best[Condition.MULTIMODAL],
            self.best[Condition.TEXT_ONLY],
            self.best[Condition.IMAGE_ONLY],
            k=k,
            min_unimodal=min_unimodal,
            min_multimodal=min_multimodal,
        )


def check_same_queries(pool: Pool, benchmark: Benchmark) -> None:
    """Refuse a benchmark whose queries are not those of the pool, in whatever order.

    Raises:
        MismatchError: names the queries that only one of them has.
    """
    different = {*pool.queries} ^ {query.id for query in benchmark.queries}
    if different:
        raise MismatchError(
            f"the pool and {benchmark.name!r} do not have the same queries ({format_ids(sorted(different))})"
        )


def _column(path: Path, rows: Sequence[Mapping[str, str]], name: str) -> Floats:
    bad = [row[_QUERY_COLUMN] for row in rows if not (row[name] or "").isdecimal() or int(row[name]) < 1]
    if bad:
        raise FormatError(f"{path}: {name} holds no whole number of at least 1 for the queries {format_ids(bad)}")
    return np.array([float(row[name]) for row in rows])
