"""Blocks of scores by numpy or torch: fp32 products of queries and a gallery, and what ranking asks of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

_LONG_ROW = 2**16
_MAX_THREADS = 8

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Backend(StrEnum):
    """What computes the matrix products."""

    NUMPY = "numpy"
    TORCH = "torch"


class Scores(Protocol):
    """A block of scores: queries by gallery."""

    def at(self, rows: Ints, columns: Ints) -> Floats:
        """The scores at these places: float32 [n]."""
        ...

    def counts(self, rows: Ints, own: Floats, null: Floats) -> tuple[Ints, Ints, Ints]:
        """How many scores of a row are > `own`, >= `own` and >= `null`: int64 [n] each."""
        ...

    def row(self, row: int) -> Floats:
        """All scores of a row: float32 [n_columns]."""
        ...

    def top(self, k: int) -> tuple[Ints, Floats]:
        """Columns and scores of the k greatest of every row, falling, ties by column: [n_rows, k]."""
        ...


class Scorer(Protocol):
    """Multiplies queries with a gallery that it holds."""

    def precision(self) -> AbstractContextManager[None]:
        """The context in which products are taken in full fp32."""
        ...

    def scores(self, queries: Floats) -> Scores:
        """The product with float32 [n, dim]; it may share memory with the next one."""
        ...


def scorer_of(gallery: Floats, *, backend: Backend, device: str | None = None) -> Scorer:
    """Make the scorer of a gallery.

    Args:
        gallery: float32 [n_gallery, dim].
        backend: `numpy`, or `torch` on `device`.
        device: a torch device; the CPU by default.
    """
    return _TorchScorer(gallery, device or "cpu") if backend is Backend.TORCH else _NumpyScorer(gallery)


class _NumpyScorer:
    def __init__(self, gallery: Floats) -> None:
        self._gallery = gallery
        self._buffer = np.empty(0, np.float32)

    def precision(self) -> AbstractContextManager[None]:
        return nullcontext()

    def scores(self, queries: Floats) -> NumpyScores:
        shape = (len(queries), len(self._gallery))
        if self._buffer.size < shape[0] * shape[1]:
            self._buffer = np.empty(shape[0] * shape[1], np.float32)
        block = self._buffer[: shape[0] * shape[1]].reshape(shape)
        with np.errstate(invalid="ignore", over="ignore"):  # whoever asked checks what came out
            np.matmul(queries, self._gallery.T, out=block)
        return NumpyScores(block)


class NumpyScores(Scores):
    """Scores in a float32 matrix [n_queries, n_gallery]."""

    def __init__(self, block: Floats) -> None:
        self._block = block

    def at(self, rows: Ints, columns: Ints) -> Floats:
        """See `Scores.at`."""
        return self._block[rows, columns]

    def counts(self, rows: Ints, own: Floats, null: Floats) -> tuple[Ints, Ints, Ints]:
        """See `Scores.counts`."""
        found = np.empty((3, len(rows)), np.int64)

        def count(positions: Ints) -> None:
            hits = np.empty(self._block.shape[1], bool)
            # All counts of a row follow each other, while its scores are in the cache.
            for position in positions.tolist():
                scores, threshold = self._block[rows[position]], own[position]
                found[0, position] = np.count_nonzero(np.greater(scores, threshold, out=hits))
                found[1, position] = np.count_nonzero(np.greater_equal(scores, threshold, out=hits))
                found[2, position] = np.count_nonzero(np.greater_equal(scores, null[position], out=hits))

        # numpy lets other threads run while it compares; short rows would spend that time taking turns.
        threads = min(_MAX_THREADS, len(os.sched_getaffinity(0))) if self._block.shape[1] >= _LONG_ROW else 1
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(count, np.array_split(np.arange(len(rows)), threads)))
        return found[0], found[1], found[2]

    def row(self, row: int) -> Floats:
        """See `Scores.row`."""
        scores: Floats = self._block[row]
        return scores

    def top(self, k: int) -> tuple[Ints, Floats]:
        """See `Scores.top`."""
        if k == 0:
            return _no_top(len(self._block))
        top = np.array([_top_of_row(row, k) for row in self._block])
        return top, np.take_along_axis(self._block, top, axis=1)


def _no_top(rows: int) -> tuple[Ints, Floats]:
    return np.empty((rows, 0), np.int64), np.empty((rows, 0), np.float32)


def _top_of_row(scores: Floats, k: int) -> Ints:
    """Indices of the k greatest scores, falling; ties by index.

    The k-th greatest of the maxima of disjoint groups bounds the k-th greatest score from below, so that only the few
    scores above that bound need sorting.
    """
    groups = 4 * k
    if len(scores) < 4 * groups:
        return np.argsort(-scores, kind="stable")[:k]
    whole = len(scores) // groups * groups
    maxima = scores[:whole].reshape(-1, groups).max(axis=0)
    bound = np.partition(maxima, groups - k)[groups - k]
    candidates = np.flatnonzero(scores >= bound)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]


class _TorchScorer:
    def __init__(self, gallery: Floats, device: str) -> None:
        import torch

        self._device = device
        self._gallery = torch.from_numpy(np.ascontiguousarray(gallery)).to(device)

    @contextmanager
    def precision(self) -> Iterator[None]:
        """Full fp32 products: no TF32 on GPUs, no bf16 on CPUs, whatever the process had chosen."""
        import torch

        chosen = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.inference_mode():
                yield
        finally:
            torch.set_float32_matmul_precision(chosen)

    def scores(self, queries: Floats) -> _TorchScores:
        import torch

        return _TorchScores(torch.from_numpy(np.ascontiguousarray(queries)).to(self._device) @ self._gallery.T)


class _TorchScores:
    def __init__(self, block: torch.Tensor) -> None:
        self._block = block

    def at(self, rows: Ints, columns: Ints) -> Floats:
        import torch

        device = self._block.device
        found = self._block[torch.from_numpy(rows).to(device), torch.from_numpy(columns).to(device)]
        return found.cpu().numpy()

    def counts(self, rows: Ints, own: Floats, null: Floats) -> tuple[Ints, Ints, Ints]:
        import torch

        found = np.empty((3, len(rows)), np.int64)
        # The n-th thresholds of every row at once, for n = 0, 1, ...: most rows have only one.
        order = np.argsort(rows, kind="stable")
        nth = np.arange(len(rows)) - np.searchsorted(rows[order], rows[order])
        for n in range(int(nth.max(initial=-1)) + 1):
            chosen = order[nth == n]
            limits = np.zeros((2, len(self._block), 1), np.float32)  # rows without an n-th threshold count in vain
            limits[:, rows[chosen], 0] = own[chosen], null[chosen]
            of_own, of_null = torch.from_numpy(limits).to(self._block.device)
            hits = (self._block > of_own, self._block >= of_own, self._block >= of_null)
            for counts, hit in zip(found, hits, strict=True):
                counts[chosen] = hit.count_nonzero(dim=1).cpu().numpy()[rows[chosen]]
        return found[0], found[1], found[2]

    def row(self, row: int) -> Floats:
        scores: Floats = self._block[row].cpu().numpy()
        return scores

    def top(self, k: int) -> tuple[Ints, Floats]:
        if k == 0:
            return _no_top(len(self._block))
        score, index = (part.cpu().numpy() for part in self._block.topk(k, dim=1))
        order = np.lexsort((index, -score), axis=1)
        top = np.take_along_axis(index, order, axis=1)
        # topk chooses freely among scores tied at its end; those rows are settled by the rule.
        crowded = (self._block >= self._block.new_tensor(score[:, -1:])).sum(dim=1).cpu().numpy() > k
        for row in np.flatnonzero(crowded):
            top[row] = _top_of_row(self._block[row].cpu().numpy(), k)
        return top, np.take_along_axis(score, order, axis=1)
