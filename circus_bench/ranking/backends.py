"""Multiply queries with a gallery in numpy or torch; `circus_bench.ranking.exact` compares the scores."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from circus_bench.ranking.exact import BlockScores, ExactDot, Pairs, calibrated_scores
from circus_bench.ranking.threads import PROCESS_LOCK, allowed_threads, chunk_slices, numerical_libraries, parallel_map
from circus_bench.vectors import Floats, Ints

if TYPE_CHECKING:
    import torch

_COMPARED = 2**20  # scores at a time; fewer, and threads spend their time on taking turns


class Backend(StrEnum):
    """Library that computes the matrix products."""

    NUMPY = "numpy"
    TORCH = "torch"


class Scorer(Protocol):
    """Multiplier of queries with a gallery that it holds."""

    def full_fp32(self) -> AbstractContextManager[None]:
        """Enter the context in which products are taken in full fp32; one thread of the process at a time is in one."""
        ...

    def scores(self, queries: Floats) -> BlockScores:
        """Multiply float32 [n, dim] with the gallery; the result may share memory with the next one."""
        ...


def scorer_of(gallery: Floats, *, backend: Backend, max_norm: float, device: str | None = None) -> Scorer:
    """Create the scorer of a gallery.

    Args:
        gallery: float32 [n_gallery, dim].
        backend: `numpy`, or `torch` on `device`.
        max_norm: norm of its longest row; it bounds the rounding error of the products.
        device: a torch device; the CPU by default.
    """
    if backend is Backend.TORCH:
        return _TorchScorer(gallery, max_norm, device or "cpu")
    return _NumpyScorer(gallery, max_norm)


def given_scores(scores: Floats) -> BlockScores:
    """Wrap given scores, which are exact as they are: float32 [n_queries, n_gallery], no NaN."""
    return BlockScores(
        _NumpyBlock(scores, chunk_slices(scores.shape[1], allowed_threads())),
        exact=lambda rows, columns: scores[rows, columns],
        rounding=np.zeros(len(scores), np.float32),
        terms=0,
    )


class _NumpyScorer:
    """Multiplies and compares in numpy: each thread has columns of its own, one product after another.

    The threads of a BLAS library would keep the cores busy for a while after each product, waiting for the next.
    """

    def __init__(self, gallery: Floats, max_norm: float) -> None:
        self._gallery = gallery
        self._max_norm = max_norm
        self._pairs = ExactDot(gallery)
        self._buffer = np.empty(0, np.float32)
        self._chunks = chunk_slices(len(gallery), allowed_threads())

    @contextmanager
    def full_fp32(self) -> Iterator[None]:
        with PROCESS_LOCK, numerical_libraries().limit(limits=1):
            yield

    def scores(self, queries: Floats) -> BlockScores:
        shape = (len(queries), len(self._gallery))
        if self._buffer.size < shape[0] * shape[1]:
            self._buffer = np.empty(shape[0] * shape[1], np.float32)
        block = self._buffer[: shape[0] * shape[1]].reshape(shape)

        def multiply(columns: slice) -> None:
            with np.errstate(invalid="ignore", over="ignore"):  # whoever asked checks what came out
                np.matmul(queries, self._gallery[columns].T, out=block[:, columns])

        parallel_map(multiply, self._chunks)
        return calibrated_scores(_NumpyBlock(block, self._chunks), self._pairs, queries, self._max_norm)


class _NumpyBlock:
    def __init__(self, block: Floats, chunks: list[slice]) -> None:
        self._block = block
        self._chunks = chunks

    def row(self, row: int) -> Floats:
        scores: Floats = self._block[row]
        return scores

    def at(self, rows: Ints, columns: Ints) -> Floats:
        return self._block[rows, columns]

    def count_and_collect(self, rows: Ints, *, low: Floats, high: Floats) -> tuple[Ints, Ints, Ints]:
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

        above, place, column = zip(*parallel_map(compare, self._chunks), strict=True)
        order = np.argsort(_joined(place), kind="stable")
        return np.sum(above, axis=0), _joined(place)[order], _joined(column)[order]

    def best(self, k: int, *, slack: Floats) -> Pairs:
        columns = [_best_of_row(self._block[row], k, limit) for row, limit in enumerate(slack)]
        return np.repeat(np.arange(len(columns)), [len(of_row) for of_row in columns]), _joined(columns)


def _rows(scores: Floats, rows: Ints) -> Floats:
    """Select rows; not as a copy where they follow each other."""
    if np.all(np.diff(rows) == 1):
        return scores[rows[0] : rows[-1] + 1]
    return scores[rows]


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _best_of_row(scores: Floats, k: int, slack: np.float32) -> Ints:
    """Find the columns of a row whose score is not lower than the k-th greatest minus the slack.

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
    def __init__(self, gallery: Floats, max_norm: float, device: str) -> None:
        self._device = device
        self._max_norm = max_norm
        self._pairs = ExactDot(gallery)
        self._gallery = _tensor(gallery).to(device)

    @contextmanager
    def full_fp32(self) -> Iterator[None]:
        """Take full fp32 products: no TF32 on GPUs, no bf16 on CPUs, whatever the process had chosen."""
        import torch

        with PROCESS_LOCK:
            chosen = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("highest")
            try:
                with torch.inference_mode():
                    yield
            finally:
                torch.set_float32_matmul_precision(chosen)

    def scores(self, queries: Floats) -> BlockScores:
        block = _tensor(queries).to(self._device) @ self._gallery.T
        return calibrated_scores(_TorchBlock(block), self._pairs, queries, self._max_norm)


def _tensor(vectors: Floats) -> torch.Tensor:
    """Wrap an array, which may be a read-only map of a file, in a tensor: nothing is written to it."""
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

    def count_and_collect(self, rows: Ints, *, low: Floats, high: Floats) -> tuple[Ints, Ints, Ints]:
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
