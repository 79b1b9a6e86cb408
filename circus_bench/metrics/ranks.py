"""Hold the ranks of each query's targets, the input of every metric."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from circus_bench.errors import FormatError, format_ids
from circus_bench.metrics._checks import numbers

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """Ranks of the targets, as many per query as it has targets: ragged rows in compressed form.

    A rank counts from 1; `math.inf` stands for a target that is never retrieved, because it is not in the gallery. It
    stays in every denominator. Fractional ranks (expected ranks under ties) are allowed. Both arrays are copied, and
    read-only.

    Attributes:
        values: float64 [n_rows], the ranks, grouped by query, in any order within a query.
        offsets: int64 [n_queries + 1]; the ranks of query i are values[offsets[i]:offsets[i + 1]].

    Raises:
        FormatError: a rank is below 1 or NaN, a query has no target, or the arrays do not fit together.

    Example:
        >>> ranks = Ranks.of([[3], [12, 1, math.inf]])
        >>> ranks.values.tolist(), ranks.offsets.tolist()
        ([3.0, 12.0, 1.0, inf], [0, 1, 4])
        >>> ranks.first().tolist()
        [3.0, 1.0]
    """

    values: Floats
    offsets: Ints

    def __post_init__(self) -> None:
        values = numbers(self.values, "ranks")
        offsets = np.array(self.offsets)
        if values.ndim != 1 or offsets.ndim != 1 or offsets.dtype.kind not in "iu":
            raise FormatError(
                "ranks: expected one-dimensional values and integer offsets, "
                f"found shapes {values.shape} and {offsets.shape} of {offsets.dtype}"
            )
        offsets = offsets.astype(np.int64)
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
            raise FormatError(
                f"ranks: offsets must rise from 0 to the number of ranks ({len(values)}), found {offsets.tolist()[:8]}"
            )
        empty = np.flatnonzero(np.diff(offsets) == 0)
        if len(empty):
            raise FormatError(
                f"queries without a target (indices {format_ids(empty.tolist())}); "
                "leave them out, or give math.inf for a target that is not in the gallery"
            )
        wrong = ~(values >= 1)  # NaN compares false, so it is caught as well
        if wrong.any():
            queries = np.unique(np.searchsorted(offsets, np.flatnonzero(wrong), side="right") - 1)
            raise FormatError(
                f"ranks below 1 or NaN, such as {values[wrong][0]} (query indices {format_ids(queries.tolist())}); "
                "ranks count from 1, and math.inf is a target that is never retrieved"
            )
        values.flags.writeable = False
        offsets.flags.writeable = False
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "offsets", offsets)

    @classmethod
    def of(cls, lists: Iterable[Sequence[float] | Floats | Ints]) -> Ranks:
        """Build ranks from one list of target ranks per query.

        Raises:
            FormatError: see the class; also when a query's ranks are no list, or no numbers.
        """
        rows = list(lists)
        try:
            offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        except TypeError:
            bare = [index for index, row in enumerate(rows) if not hasattr(row, "__len__")]
            raise FormatError(f"expected a list of ranks per query (query indices {format_ids(bare)})") from None
        flat: list[float] = list(chain.from_iterable(rows))
        return cls(numbers(flat, "ranks"), offsets)

    def __eq__(self, other: object) -> bool:
        """Tell whether both hold the same ranks in the same order."""
        if not isinstance(other, Ranks):
            return NotImplemented
        return np.array_equal(self.values, other.values) and np.array_equal(self.offsets, other.offsets)

    def __repr__(self) -> str:
        """Name the counts rather than each rank."""
        return f"Ranks({self.n_queries:,} queries, {len(self.values):,} targets)"

    __hash__ = None  # type: ignore[assignment]  # equal content cannot hash equal cheaply

    @property
    def n_queries(self) -> int:
        """Number of queries; it may be 0."""
        return len(self.offsets) - 1

    @property
    def counts(self) -> Ints:
        """int64 [n_queries], the number of targets of each query, unreachable ones included; at least 1."""
        return np.diff(self.offsets)

    @property
    def positions(self) -> Ints:
        """int64 [n_rows], 1 to the number of targets within each query: the ranks of a perfect ranking."""
        return np.arange(1, len(self.values) + 1) - np.repeat(self.offsets[:-1], self.counts)

    def first(self) -> Floats:
        """Find the rank of each query's best target, inf when none is retrieved: float64 [n_queries]."""
        return np.minimum.reduceat(self.values, self.offsets[:-1])

    def sums(self, rows: Floats) -> Floats:
        """Sum float64 [n_rows] over the rows of each query: float64 [n_queries]."""
        return np.add.reduceat(rows, self.offsets[:-1])

    def ordered(self) -> Floats:
        """Sort the ranks in rising order within each query: float64 [n_rows].

        Raises:
            FormatError: two targets of a query share a finite rank, or more targets lie at or before a rank than it
                has places. A rank table by `circus_bench.ranking.ranker` has neither: targets tied with each other get
                consecutive ranks. Such ranks would score above a perfect ranking.

        Example:
            >>> Ranks.of([[4, 2], [5, 5]]).ordered()
            Traceback (most recent call last):
            ...
            circus_bench.errors.FormatError: two targets cannot share a rank (query indices 1: 1)
        """
        query = np.repeat(np.arange(self.n_queries), self.counts)
        ranks = self.values[np.lexsort((self.values, query))]
        shared = ranks < self.positions
        shared[1:] |= np.isfinite(ranks[1:]) & (ranks[1:] == ranks[:-1]) & (query[1:] == query[:-1])
        if shared.any():
            raise FormatError(
                f"two targets cannot share a rank (query indices {format_ids(np.unique(query[shared]).tolist())})"
            )
        return ranks


def none_to_inf(lists: Iterable[Sequence[float | None] | None]) -> list[list[float]]:
    """Read None (JSON's and Arrow's null) as `math.inf`, for neither format writes infinity portably.

    Args:
        lists: ranks per query; None within a list is a target that is never retrieved.

    Raises:
        FormatError: None stands in place of a whole list.

    Example:
        >>> none_to_inf([[3], [None, 1]])
        [[3], [inf, 1]]
    """
    rows = list(lists)
    missing = [index for index, row in enumerate(rows) if row is None]
    if missing:
        raise FormatError(f"queries have None in place of a list of ranks (indices {format_ids(missing)})")
    return [[math.inf if rank is None else rank for rank in row or ()] for row in rows]
