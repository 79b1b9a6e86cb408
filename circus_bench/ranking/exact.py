"""Compare scores of queries against a gallery as if they had been computed exactly.

A matrix product in fp32 does not give equal vectors equal scores: the last bits depend on the place of a row in the
product, on the number of threads and on the machine. So it only decides between scores that lie further apart than its
rounding error. Those nearer are compared by their fp64 inner products, rounded to fp32. Comparisons, and with them
ranks, ties and the top-k, then depend on nothing but the two vectors: not on the order of the gallery, the cut into
blocks, the number of processes, or the device.

How large the rounding error is depends on the vectors. It can be as large as the number of terms times a rounding, and
comes near to it where all terms are alike (a collapsed encoder, binary codes). For vectors of real numbers the errors
cancel, and a bound for the worst case would leave thousands of images undecided. So the error is measured, on some
scores of every block and on every score that is asked for, and several times of what was found is allowed for.

This is code of our own because no library compares scores exactly: BLAS and torch round as they like, and vector search
libraries such as faiss return neighbors, not ranks.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from circus_bench.ranking.threads import allowed_threads, chunk_slices, parallel_map
from circus_bench.vectors import Floats, Ints

_PAIR_ELEMENTS = 2**17  # of the vectors multiplied at a time: they stay in the cache
_MANY_PAIRS = 2**16
_OBSERVED = 1024  # scores per block
_TIMES_OBSERVED = 4

Pairs = tuple[Ints, Ints]
"""Places in a block of scores: rows and columns, sorted by row, then column."""


class Block(Protocol):
    """Block of scores as a back end computed it: queries by gallery."""

    def row(self, row: int) -> Floats:
        """Return all scores of a row: float32 [n_columns]."""
        ...

    def at(self, rows: Ints, columns: Ints) -> Floats:
        """Return single scores: float32 [n]."""
        ...

    def count_and_collect(self, rows: Ints, *, low: Floats, high: Floats) -> tuple[Ints, Ints, Ints]:
        """Count the scores above a range and collect those within it, for m ranges of each of n rows.

        Args:
            rows: int64 [n].
            low: float32 [n, m]; `high` likewise.
            high: the range's upper end, which belongs to it.

        Returns:
            Counts of the scores above: int64 [n, m]. The scores within: places of their ranges, counted row by row,
            and their columns, sorted by both.
        """
        ...

    def best(self, k: int, *, slack: Floats) -> Pairs:
        """Find the scores of the first len(slack) rows not lower than the k-th greatest of the row minus slack."""
        ...


class BlockScores:
    """Block of scores, compared exactly.

    Args:
        block: the scores as computed.
        exact: the scores at given rows and columns, float32 [n].
        rounding: float32 [n_rows], the error of a single rounding; see `rounding_of`.
        terms: of the sums; 0 where scores are not computed, but given.

    Attributes:
        row: see `Block.row`; these scores are as computed.
    """

    def __init__(self, block: Block, *, exact: Callable[[Ints, Ints], Floats], rounding: Floats, terms: int) -> None:
        self.row = block.row
        self._block = block
        self._exact = exact
        self._rounding = rounding
        self._terms = terms
        self._roundings = min(typical_rounding(terms), worst_case_rounding(terms))

    def at(self, rows: Ints, columns: Ints) -> Floats:
        """Return the exact scores at these places: float32 [n]."""
        exact = self._exact(rows, columns)
        if self._terms and len(rows):
            with np.errstate(invalid="ignore", over="ignore"):
                off = np.abs(self._block.at(rows, columns) - exact) / self._rounding[rows]
            allowed = _TIMES_OBSERVED * float(off.max())
            if allowed > self._roundings:  # false for NaN, too
                self._roundings = min(allowed, worst_case_rounding(self._terms))
        return exact

    def _error_bound(self, rows: Ints) -> Floats:
        """Bound the distance of a computed score of a row from the exact one."""
        return self._rounding[rows] * np.float32(self._roundings)

    def counts(self, rows: Ints, own: Floats) -> tuple[Ints, Ints]:
        """Count the scores of a row that are > `own` and >= `own`: int64 [n, m] each.

        Args:
            rows: int64 [n].
            own: float32 [n, m], m scores of each of these rows that `at` gave.
        """
        error_bound = self._error_bound(rows)[:, None]
        above, place, column = self._block.count_and_collect(rows, low=own - error_bound, high=own + error_bound)
        near, limit = self.at(rows[place // own.shape[1]], column), own.ravel()[place]
        greater, equal = (
            np.bincount(place[chosen], minlength=own.size).reshape(own.shape)
            for chosen in (near > limit, near == limit)
        )
        return above + greater, above + greater + equal

    def top(self, k: int, *, n_rows: int) -> tuple[Ints, Floats]:
        """Return columns and scores of the k greatest of the first rows, falling, ties by column: [n_rows, k]."""
        if k == 0:
            return np.empty((n_rows, 0), np.int64), np.empty((n_rows, 0), np.float32)
        # The k-th greatest and its rivals may both be off, in opposite directions.
        row, column = self._block.best(k, slack=2 * self._error_bound(np.arange(n_rows)))
        score = self.at(row, column)
        order = np.lexsort((column, -score, row))
        first = np.searchsorted(row, np.arange(n_rows))
        chosen = order[first[:, None] + np.arange(k)]
        return column[chosen], score[chosen]


class ExactDot:
    """Exact inner products of single pairs of a query and a gallery vector: taken in fp64, rounded to fp32."""

    def __init__(self, gallery: Floats) -> None:
        self._gallery = np.ascontiguousarray(gallery)  # rows are copied one by one
        self._threads = allowed_threads()
        self._first: Ints | None = None

    def __len__(self) -> int:
        return len(self._gallery)

    def of(self, queries: Floats) -> Callable[[Ints, Ints], Floats]:
        """Return the function from rows of `queries` and of the gallery to their products."""

        def products(rows: Ints, columns: Ints) -> Floats:
            if len(rows) < _MANY_PAIRS:
                return self._products(queries, rows, columns)
            # So many near pairs come from equal vectors, of a collapsed encoder say: multiply each vector once.
            pairs = rows * len(self._gallery) + self._first_equal()[columns]
            unique, inverse = np.unique(pairs, return_inverse=True)
            return self._products(queries, *np.divmod(unique, len(self._gallery)))[inverse]

        return products

    def _products(self, queries: Floats, rows: Ints, columns: Ints) -> Floats:
        found = np.empty(len(rows), np.float32)
        step = max(1, _PAIR_ELEMENTS // queries.shape[1])

        def multiply(chunk: slice) -> None:
            pairs = np.empty((2, step, queries.shape[1]), np.float32)
            for start in range(chunk.start, chunk.stop, step):
                part = slice(start, min(start + step, chunk.stop))
                left, right = pairs[:, : part.stop - start]
                np.take(queries, rows[part], axis=0, out=left, mode="clip")  # "raise" would take a copy first
                np.take(self._gallery, columns[part], axis=0, out=right, mode="clip")
                found[part] = np.einsum("ij,ij->i", left, right, dtype=np.float64)

        parallel_map(multiply, chunk_slices(len(rows), self._threads))
        return found

    def _first_equal(self) -> Ints:
        """Find for each gallery row the first that is equal to it: int64 [n_gallery]."""
        if self._first is None:
            # By digest: the rows of a memory-mapped gallery do not fit into memory.
            digests = (hashlib.blake2b(row, digest_size=16).digest() for row in self._gallery)
            seen: dict[bytes, int] = {}
            first = (seen.setdefault(digest, position) for position, digest in enumerate(digests))
            self._first = np.fromiter(first, np.int64, len(self._gallery))
        return self._first


def rounding_of(queries: Floats, max_norm: float) -> Floats:
    """Bound the error of a single rounding in fp32 products of each query with rows of at most a norm: [n_queries].

    The smallest normal number is added, for products below it are not rounded to the same relative error.
    """
    lengths: Floats = np.sqrt(np.einsum("ij,ij->i", queries, queries))
    return lengths * np.float32(max_norm * 2**-24) + np.finfo(np.float32).tiny


def typical_rounding(terms: int) -> float:
    """Bound the error of a product of vectors of real numbers, in roundings.

    The errors of a sum add up like a random walk, so they grow with the root of its length; added is what the first
    terms lose when vectors share a large common part. The factors are several times what BLAS libraries show on random
    and on anisotropic vectors (`tests/ranking/test_backends.py`).
    """
    return 32 + math.sqrt(terms) / 2


def worst_case_rounding(terms: int) -> float:
    """Bound the error of a product in roundings, whatever the vectors and the order of summation.

    N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1; some more for what `rounding_of`
    itself is off by.
    """
    return 1.01 * terms + 1


def calibrated_scores(block: Block, pairs: ExactDot, queries: Floats, max_norm: float) -> BlockScores:
    """Wrap the scores that a back end computed, and measure their rounding error."""
    rounding = rounding_of(queries, max_norm)
    scores = BlockScores(block, exact=pairs.of(queries), rounding=rounding, terms=queries.shape[1])
    places = np.arange(_OBSERVED)
    scores.at(places % len(queries), places * len(pairs) // _OBSERVED)  # from these it learns its error
    return scores
