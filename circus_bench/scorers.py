"""Scores of queries against a gallery, by numpy or torch, compared as if they had been computed exactly.

A matrix product in fp32 does not give equal vectors equal scores: the last bits depend on the place of a row in the
product, on the number of threads and on the machine. So it only decides between scores that lie further apart than its
rounding error. Those nearer are compared by their fp64 inner products, rounded to fp32. Comparisons, and with them
ranks, ties and the top-k, then depend on nothing but the two vectors: not on the order of the gallery, the cut into
blocks, the number of processes, or the device.

How large the rounding error is depends on the vectors. It can be as large as the number of terms times a rounding, and
comes near to it where all terms are alike (a collapsed encoder, binary codes). For vectors of real numbers the errors
cancel, and a bound that allows for the worst would put thousands of images in doubt. So the error is measured, on some
scores of every block and on every score that is asked for, and several times of what was found is allowed for.
"""

from __future__ import annotations

import hashlib
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    import torch

_PAIR_ELEMENTS = 2**17  # of the vectors multiplied at a time: they stay in the cache
_MANY_PAIRS = 2**16
_OBSERVED = 1024  # scores of a block
_TIMES_OBSERVED = 4
_COMPARED = 2**20  # scores at a time; fewer, and threads spend their time on taking turns
_MIN_SPAN = 1024  # of a thread

_WHOLE_PROCESS = threading.RLock()  # precision and threads of the libraries are settings of the whole process

T = TypeVar("T")
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Pairs = tuple[Ints, Ints]
"""Places in a block of scores: rows and columns, sorted by row, then column."""


class Backend(StrEnum):
    """What computes the matrix products."""

    NUMPY = "numpy"
    TORCH = "torch"


class Block(Protocol):
    """A block of scores as a back end computed it: queries by gallery."""

    def row(self, row: int) -> Floats:
        """All scores of a row: float32 [n_columns]."""
        ...

    def at(self, rows: Ints, columns: Ints) -> Floats:
        """Single scores: float32 [n]."""
        ...

    def around(self, rows: Ints, *, low: Floats, high: Floats) -> tuple[Ints, Ints, Ints]:
        """Sort the scores of a row into those above, within and below a range, for m ranges of each of n rows.

        Args:
            rows: int64 [n].
            low: float32 [n, m]; `high` likewise.
            high: the range's upper end, which belongs to it.

        Returns:
            How many scores are above: int64 [n, m]. The scores within: places of their ranges, counted row by row, and
            their columns, sorted by both.
        """
        ...

    def best(self, k: int, *, slack: Floats) -> Pairs:
        """Places in the first len(slack) rows with a score not lower than the k-th greatest of the row minus slack."""
        ...


class Scores:
    """A block of scores, compared exactly.

    Args:
        block: the scores as computed.
        exact: the scores at given rows and columns, float32 [n].
        rounding: float32 [n_rows], what a single rounding may change; see `rounding_of`.
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
        self._roundings = min(usual_roundings(terms), certain_roundings(terms))

    def at(self, rows: Ints, columns: Ints) -> Floats:
        """The exact scores at these places: float32 [n]."""
        exact = self._exact(rows, columns)
        if self._terms and len(rows):
            with np.errstate(invalid="ignore", over="ignore"):
                off = np.abs(self._block.at(rows, columns) - exact) / self._rounding[rows]
            allowed = _TIMES_OBSERVED * float(off.max())
            if allowed > self._roundings:  # false for NaN, too
                self._roundings = min(allowed, certain_roundings(self._terms))
        return exact

    def _doubt(self, rows: Ints) -> Floats:
        """How far a computed score of a row may lie from the exact one."""
        return self._rounding[rows] * np.float32(self._roundings)

    def counts(self, rows: Ints, own: Floats) -> tuple[Ints, Ints]:
        """How many scores of a row are > `own` and >= `own`: int64 [n, m] each.

        Args:
            rows: int64 [n].
            own: float32 [n, m], m scores of each of these rows that `at` gave.
        """
        doubt = self._doubt(rows)[:, None]
        above, place, column = self._block.around(rows, low=own - doubt, high=own + doubt)
        near, limit = self.at(rows[place // own.shape[1]], column), own.ravel()[place]
        greater, equal = (
            np.bincount(place[chosen], minlength=own.size).reshape(own.shape)
            for chosen in (near > limit, near == limit)
        )
        return above + greater, above + greater + equal

    def top(self, k: int, *, n_rows: int) -> tuple[Ints, Floats]:
        """Columns and scores of the k greatest of the first rows, falling, ties by column: [n_rows, k]."""
        if k == 0:
            return np.empty((n_rows, 0), np.int64), np.empty((n_rows, 0), np.float32)
        # The k-th greatest and its rivals may both be off, in opposite directions.
        row, column = self._block.best(k, slack=2 * self._doubt(np.arange(n_rows)))
        score = self.at(row, column)
        order = np.lexsort((column, -score, row))
        first = np.searchsorted(row, np.arange(n_rows))
        chosen = order[first[:, None] + np.arange(k)]
        return column[chosen], score[chosen]


class Scorer(Protocol):
    """Multiplies queries with a gallery that it holds."""

    def precision(self) -> AbstractContextManager[None]:
        """The context in which products are taken, in full fp32. One thread of the process at a time is in one."""
        ...

    def scores(self, queries: Floats) -> Scores:
        """The product with float32 [n, dim]; it may share memory with the next one."""
        ...


def scorer_of(gallery: Floats, *, backend: Backend, longest: float, device: str | None = None) -> Scorer:
    """Make the scorer of a gallery.

    Args:
        gallery: float32 [n_gallery, dim].
        backend: `numpy`, or `torch` on `device`.
        longest: length of its longest row; it bounds the rounding error of the products.
        device: a torch device; the CPU by default.
    """
    if backend is Backend.TORCH:
        return _TorchScorer(gallery, longest, device or "cpu")
    return _NumpyScorer(gallery, longest)


def given_scores(scores: Floats) -> Scores:
    """Scores that are there already, and exact as they are: float32 [n_queries, n_gallery], no NaN."""
    return Scores(
        _NumpyBlock(scores, _spans(scores.shape[1], _threads())),
        exact=lambda rows, columns: scores[rows, columns],
        rounding=np.zeros(len(scores), np.float32),
        terms=0,
    )


class PairProducts:
    """Inner products of single pairs of a query and a gallery vector: taken in fp64, rounded to fp32."""

    def __init__(self, gallery: Floats) -> None:
        self._gallery = np.ascontiguousarray(gallery)  # rows are copied one by one
        self._threads = _threads()
        self._first: Ints | None = None

    def __len__(self) -> int:
        return len(self._gallery)

    def of(self, queries: Floats) -> Callable[[Ints, Ints], Floats]:
        """The function from rows of `queries` and of the gallery to their products."""

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

        def multiply(span: slice) -> None:
            pairs = np.empty((2, step, queries.shape[1]), np.float32)
            for start in range(span.start, span.stop, step):
                part = slice(start, min(start + step, span.stop))
                left, right = pairs[:, : part.stop - start]
                np.take(queries, rows[part], axis=0, out=left, mode="clip")  # "raise" would take a copy first
                np.take(self._gallery, columns[part], axis=0, out=right, mode="clip")
                found[part] = np.einsum("ij,ij->i", left, right, dtype=np.float64)

        _in_threads(multiply, _spans(len(rows), self._threads))
        return found

    def _first_equal(self) -> Ints:
        """For each gallery row the first that is equal to it: int64 [n_gallery]."""
        if self._first is None:
            # By digest: the rows of a memory-mapped gallery do not fit into memory.
            digests = (hashlib.blake2b(row, digest_size=16).digest() for row in self._gallery)
            seen: dict[bytes, int] = {}
            first = (seen.setdefault(digest, position) for position, digest in enumerate(digests))
            self._first = np.fromiter(first, np.int64, len(self._gallery))
        return self._first


def rounding_of(queries: Floats, longest: float) -> Floats:
    """What a single rounding may change in a fp32 product of each query with rows of at most a length: [n_queries].

    The smallest normal number comes on top, for products below it are not rounded to the same relative error.
    """
    lengths: Floats = np.sqrt(np.einsum("ij,ij->i", queries, queries))
    return lengths * np.float32(longest * 2**-24) + np.finfo(np.float32).tiny


def usual_roundings(terms: int) -> float:
    """How many roundings a product of vectors of real numbers is off by, at most.

    The errors of a sum add up like a random walk, so they grow with the root of its length; on top comes what the first
    terms lose when vectors share a large common part. The factors are several times what BLAS libraries show on random
    and on anisotropic vectors (`tests/test_scorers.py`).
    """
    return 32 + math.sqrt(terms) / 2


def certain_roundings(terms: int) -> float:
    """How many roundings a product is off by at most, whatever the vectors and the order of summation.

    N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1; some more for what `rounding_of`
    itself is off by.
    """
    return 1.01 * terms + 1


class _NumpyScorer:
    """Each thread multiplies and compares columns of its own, one product after another by itself.

    The threads of a BLAS library would keep the cores busy for a while after each product, waiting for the next.
    """

    def __init__(self, gallery: Floats, longest: float) -> None:
        self._gallery = gallery
        self._longest = longest
        self._pairs = PairProducts(gallery)
        self._buffer = np.empty(0, np.float32)
        self._spans = _spans(len(gallery), _threads())

    @contextmanager
    def precision(self) -> Iterator[None]:
        with _WHOLE_PROCESS, _blas().limit(limits=1):
            yield

    def scores(self, queries: Floats) -> Scores:
        shape = (len(queries), len(self._gallery))
        if self._buffer.size < shape[0] * shape[1]:
            self._buffer = np.empty(shape[0] * shape[1], np.float32)
        block = self._buffer[: shape[0] * shape[1]].reshape(shape)

        def multiply(columns: slice) -> None:
            with np.errstate(invalid="ignore", over="ignore"):  # whoever asked checks what came out
                np.matmul(queries, self._gallery[columns].T, out=block[:, columns])

        _in_threads(multiply, self._spans)
        return _computed(_NumpyBlock(block, self._spans), self._pairs, queries, self._longest)


def _computed(block: Block, pairs: PairProducts, queries: Floats, longest: float) -> Scores:
    rounding = rounding_of(queries, longest)
    scores = Scores(block, exact=pairs.of(queries), rounding=rounding, terms=queries.shape[1])
    places = np.arange(_OBSERVED)
    scores.at(places % len(queries), places * len(pairs) // _OBSERVED)  # from these it learns its error
    return scores


class _NumpyBlock:
    def __init__(self, block: Floats, spans: list[slice]) -> None:
        self._block = block
        self._spans = spans

    def row(self, row: int) -> Floats:
        scores: Floats = self._block[row]
        return scores

    def at(self, rows: Ints, columns: Ints) -> Floats:
        return self._block[rows, columns]

    def around(self, rows: Ints, *, low: Floats, high: Floats) -> tuple[Ints, Ints, Ints]:
        m = low.shape[1]

        def compare(columns: slice) -> tuple[Ints, Ints, Ints]:
            scores = self._block[:, columns]
            width = scores.shape[1]
            step = max(1, _COMPARED // (m * width))
            above, within = np.empty(low.shape, np.int64), []
            for start in range(0, len(rows), step):
                part = slice(start, start + step)
                of_part = _rows(scores, rows[part])[:, None]
                over, inside = of_part > high[part, :, None], of_part >= low[part, :, None]
                above[part] = np.bitwise_count(np.packbits(over, axis=2)).sum(axis=2, dtype=np.int64)
                within.append(start * m * width + np.flatnonzero(np.not_equal(inside, over, out=inside)))
            place, column = np.divmod(_joined(within), width)
            return above, place, columns.start + column

        above, place, column = zip(*_in_threads(compare, self._spans), strict=True)
        order = np.argsort(_joined(place), kind="stable")
        return np.sum(above, axis=0), _joined(place)[order], _joined(column)[order]

    def best(self, k: int, *, slack: Floats) -> Pairs:
        columns = [_best_of_row(self._block[row], k, limit) for row, limit in enumerate(slack)]
        return np.repeat(np.arange(len(columns)), [len(of_row) for of_row in columns]), _joined(columns)


def _spans(length: int, threads: int) -> list[slice]:
    """Cut a length for threads, none of which gets only little."""
    cuts = np.linspace(0, length, max(1, min(threads, length // _MIN_SPAN)) + 1, dtype=int).tolist()
    return [slice(start, stop) for start, stop in pairwise(cuts)]


@cache
def _blas() -> ThreadpoolController:
    """The libraries that multiply for numpy; they were loaded with it."""
    return ThreadpoolController().select(user_api="blas")


def _threads() -> int:
    """How many threads the user, or the machine, allows to them."""
    with _WHOLE_PROCESS:
        return max((library["num_threads"] for library in _blas().info()), default=1)


def _in_threads(function: Callable[[slice], T], spans: list[slice]) -> list[T]:
    if len(spans) == 1:
        return [function(spans[0])]
    with ThreadPoolExecutor(len(spans)) as pool:
        return list(pool.map(function, spans))


def _rows(scores: Floats, rows: Ints) -> Floats:
    """Some rows; not as a copy where they follow each other."""
    if np.all(np.diff(rows) == 1):
        return scores[rows[0] : rows[-1] + 1]
    return scores[rows]


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _best_of_row(scores: Floats, k: int, slack: np.float32) -> Ints:
    """Columns of a row whose score is not lower than the k-th greatest minus the slack.

    The k-th greatest of the maxima of disjoint groups bounds the k-th greatest score from below, so that only the few
    scores above that bound need to be partitioned.
    """
    groups = 4 * k
    if len(scores) >= 4 * groups:
        whole = len(scores) // groups * groups
        maxima = scores[:whole].reshape(-1, groups).max(axis=0)
        candidates = np.flatnonzero(scores >= np.partition(maxima, groups - k)[groups - k] - slack)
    else:
        candidates = np.arange(len(scores))
    of_candidates = scores[candidates]
    kth = np.partition(of_candidates, len(candidates) - k)[len(candidates) - k]
    best: Ints = candidates[of_candidates >= kth - slack]
    return best


class _TorchScorer:
    def __init__(self, gallery: Floats, longest: float, device: str) -> None:
        self._device = device
        self._longest = longest
        self._pairs = PairProducts(gallery)
        self._gallery = _tensor(gallery).to(device)

    @contextmanager
    def precision(self) -> Iterator[None]:
        """Full fp32 products: no TF32 on GPUs, no bf16 on CPUs, whatever the process had chosen."""
        import torch

        with _WHOLE_PROCESS:
            chosen = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("highest")
            try:
                with torch.inference_mode():
                    yield
            finally:
                torch.set_float32_matmul_precision(chosen)

    def scores(self, queries: Floats) -> Scores:
        block = _tensor(queries).to(self._device) @ self._gallery.T
        return _computed(_TorchBlock(block), self._pairs, queries, self._longest)


def _tensor(vectors: Floats) -> torch.Tensor:
    """A tensor on the memory of an array, which may be a read-only map of a file: nothing is written to it."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(vectors))


class _TorchBlock:
    def __init__(self, block: torch.Tensor) -> None:
        self._block = block

    def row(self, row: int) -> Floats:
        scores: Floats = self._block[row].cpu().numpy()
        return scores

    def at(self, rows: Ints, columns: Ints) -> Floats:
        import torch

        scores: Floats = self._block[torch.from_numpy(rows), torch.from_numpy(columns)].cpu().numpy()
        return scores

    def around(self, rows: Ints, *, low: Floats, high: Floats) -> tuple[Ints, Ints, Ints]:
        import torch

        limits = torch.from_numpy(np.stack([low, high])[..., None]).to(self._block.device)
        where = torch.from_numpy(rows).to(self._block.device)
        step = max(1, len(self._block) // low.shape[1])  # comparing takes no more memory than the block itself
        above, places, columns = np.empty(low.shape, np.int64), [], []
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            of_part = self._block[where[part], None]
            over = of_part > limits[1, part]
            above[part] = over.count_nonzero(dim=2).cpu().numpy()
            within = (of_part >= limits[0, part]) & ~over
            place, column = within.flatten(0, 1).nonzero().T.cpu().numpy()
            places.append(start * low.shape[1] + place)
            columns.append(column)
        return above, _joined(places), _joined(columns)

    def best(self, k: int, *, slack: Floats) -> Pairs:
        import torch

        block = self._block[: len(slack)]
        limit = block.topk(k, dim=1).values[:, -1:] - torch.from_numpy(slack[:, None]).to(block.device)
        row, column = (block >= limit).nonzero().T.cpu().numpy()
        return row, column
