"""Exact ranks in the whole gallery, and the top-k, in one streamed pass.

A rank is found by counting, never by sorting: it does not depend on ids, on the order of the gallery or on k. The score
of a target is read from the same matrix product as the scores of its competitors, for the last bits of two products
differ. Ties count against the model; see "Definitions" in docs/definitions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from circus_bench.errors import CircusError, EmbeddingError, some

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

UNREACHABLE = 0
"""The rank of a target that is not in the gallery."""

ABSENT = -1
"""The gallery index of an image that is not in the gallery."""

DEFAULT_MEMORY = 512 * 2**20
_MIN_ROWS = 64  # the bits of a matrix product change with the row count only below this
_MAX_ROWS = 1024  # beyond this the product gains no more speed


class Backend(StrEnum):
    """What computes the matrix products."""

    NUMPY = "numpy"
    TORCH = "torch"


class ReferencePlace(IntEnum):
    """Where a query's reference stands relative to one target.

    `ABOVE` and `TIED` references are counted in the target's rank; `TIED` ones are also among its ties.
    """

    ABSENT = 0
    BELOW = 1
    TIED = 2
    ABOVE = 3
    IS_TARGET = 4


@dataclass(frozen=True)
class Targets:
    """What is to be ranked: one row per pair of a query and a gallery image, grouped by query.

    Attributes:
        offsets: int64 [n_queries + 1]; the rows of query i are offsets[i] to offsets[i + 1].
        index: int64 [n_rows], gallery index of the target, `ABSENT` when it is not in the gallery.
        reference: int64 [n_queries], gallery index of the reference image or `ABSENT`.
        null: int64 [n_rows], gallery index of another query's target, or `ABSENT`; see `null_targets`.
    """

    offsets: Ints
    index: Ints
    reference: Ints
    null: Ints

    @classmethod
    def of(cls, targets: Sequence[Sequence[int]], references: Sequence[int], *, seed: int = 0) -> Targets:
        """Make the rows from one list of gallery indices per query, and draw the null targets."""
        offsets = np.cumsum([0, *(len(row) for row in targets)], dtype=np.int64)
        index = np.array([target for row in targets for target in row], np.int64)
        reference = np.array(references, np.int64)
        return cls(offsets, index, reference, null_targets(offsets, index, reference, seed=seed))

    @property
    def query(self) -> Ints:
        """int64 [n_rows], the query that each row belongs to."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


@dataclass(frozen=True)
class Ranking:
    """The outcome for every row of `Targets`, and the top of the gallery for every query.

    Attributes:
        rank: int64 [n_rows], 1-based, reference kept, ties against the target; `UNREACHABLE` if not in the gallery.
        ties: int64 [n_rows], gallery images other than targets of the query with exactly the target's score.
        reference: int8 [n_rows], `ReferencePlace` relative to the target.
        null_rank: int64 [n_rows], rank of the null target among all other images; `UNREACHABLE` without one.
        null_reference: int8 [n_rows], `ReferencePlace` relative to the null target.
        top: int64 [n_queries, k], gallery indices by falling score, ties by gallery position.
        top_score: float32 [n_queries, k].
    """

    rank: Ints
    ties: Ints
    reference: NDArray[np.int8]
    null_rank: Ints
    null_reference: NDArray[np.int8]
    top: Ints
    top_score: Floats


def rank_targets(
    queries: Floats,
    gallery: Floats,
    *,
    targets: Targets,
    top_k: int = 0,
    backend: Backend = Backend.NUMPY,
    device: str | None = None,
    memory: int = DEFAULT_MEMORY,
    advance: Callable[[int], object] = lambda _: None,
) -> Ranking:
    """Rank every target in the whole gallery by fp32 inner product (cosine when the rows are of unit length).

    Args:
        queries: float32 [n_queries, dim].
        gallery: float32 [n_gallery, dim]; a memory-mapped array is read once per block of queries.
        targets: the rows to rank; the same number of queries.
        top_k: how many gallery images to return per query; at most the gallery's size.
        backend: `numpy`, or `torch` on `device`.
        device: a torch device such as `cuda`; the gallery must fit on it.
        memory: bytes that the block of scores may take.
        advance: called with the number of queries done, for a progress bar.

    Raises:
        EmbeddingError: an embedding is not finite or has zero length, or the shapes do not fit.
        CircusError: the memory does not hold the scores of the smallest block.
    """
    check_embeddings(queries, "query")
    check_embeddings(gallery, "gallery")
    if queries.shape[1] != gallery.shape[1] or len(queries) != len(targets.reference):
        raise EmbeddingError(
            f"query embeddings {queries.shape} do not fit gallery embeddings {gallery.shape} "
            f"and {len(targets.reference)} queries"
        )
    if len(targets.index) and targets.index.max() >= len(gallery):
        raise CircusError(f"a target has gallery index {targets.index.max()} in a gallery of {len(gallery)}")
    top_k = min(top_k, len(gallery))
    blocks = _blocks(len(queries), len(gallery), memory)
    scorer = _TorchScorer(gallery, device or "cpu") if backend is Backend.TORCH else _NumpyScorer(gallery)
    parts = []
    with scorer.precision():
        for start, stop in blocks:
            scores = scorer.scores(_padded(queries[start:stop]))
            parts.append(_rank_block(scores, targets, start, stop, top_k=top_k))
            advance(stop - start)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Ranking(**joined)


def null_targets(offsets: Ints, index: Ints, reference: Ints, *, seed: int = 0) -> Ints:
    """Give each row the target of another query, by a seeded derangement of the rows.

    Ranked under this query such a target shows the chance level of this model on this gallery, hubs included. A query
    gets as many null targets as it has targets, all different, none of them a target or the reference of its own.

    Returns:
        int64 [n_rows]; `ABSENT` where no partner was found (a single query, say).
    """
    rng = np.random.default_rng(seed)
    n_rows = len(index)
    query = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    own = [{*index[start:stop].tolist(), int(reference[q])} for q, (start, stop) in enumerate(pairwise(offsets))]
    donor = index[rng.permutation(n_rows)]

    def fits(row: int, candidate: int) -> bool:
        q = query[row]
        others = (donor[other] for other in range(offsets[q], offsets[q + 1]) if other != row)
        return candidate != ABSENT and candidate not in own[q] and all(candidate != other for other in others)

    for row in range(n_rows):
        if fits(row, int(donor[row])):
            continue
        for partner in rng.permutation(n_rows)[:200]:
            if fits(row, int(donor[partner])) and fits(int(partner), int(donor[row])):
                donor[row], donor[partner] = donor[partner], donor[row]
                break
    unfit = [row for row in range(n_rows) if not fits(row, int(donor[row]))]
    donor[unfit] = ABSENT
    return donor


def check_embeddings(embeddings: Floats, kind: str) -> None:
    """Refuse embeddings that cannot be ranked.

    A NaN compares false with everything, so a target with one would be counted as rank 1.

    Raises:
        EmbeddingError: not a float32 matrix, or a row holds NaN or infinity or has zero length.
    """
    if embeddings.ndim != 2 or embeddings.dtype != np.float32 or 0 in embeddings.shape:
        raise EmbeddingError(
            f"{kind} embeddings must be a non-empty float32 matrix, found {embeddings.dtype} {embeddings.shape}"
        )
    bad = unusable_rows(embeddings)
    if len(bad):
        raise EmbeddingError(f"{kind} embeddings are NaN, infinite or of zero length in rows {some(bad.tolist())}")


def unusable_rows(embeddings: Floats) -> Ints:
    """Rows of a float32 matrix that cannot be scaled to unit length: NaN, infinite, zero, or too large to square."""
    squares = np.einsum("ij,ij->i", embeddings, embeddings)
    return np.flatnonzero(~np.isfinite(squares) | (squares == 0))


class _Scores(Protocol):
    """A block of scores: queries by gallery."""

    def at(self, rows: Ints, columns: Ints) -> Floats: ...

    def counts(self, rows: Ints, thresholds: Floats) -> tuple[Ints, Ints]:
        """How many scores of a row are greater than its threshold, and how many at least as great."""
        ...

    def top(self, k: int) -> tuple[Ints, Floats]: ...


def _rank_block(scores: _Scores, targets: Targets, start: int, stop: int, *, top_k: int) -> dict[str, NDArray[Any]]:
    rows = slice(targets.offsets[start], targets.offsets[stop])
    query = targets.query[rows] - start
    index, null = targets.index[rows], targets.null[rows]
    reference = targets.reference[start:stop][query]

    # An absent image is looked up at column 0 and its outcome discarded, which keeps the arrays rectangular.
    own = scores.at(query, np.maximum(index, 0))
    other = scores.at(query, np.maximum(null, 0))
    of_reference = scores.at(query, np.maximum(reference, 0))
    greater, at_least = scores.counts(np.tile(query, 2), np.concatenate([own, other]))
    n = len(query)

    reachable = index != ABSENT
    before, after = _tied_siblings(query, own, reachable)
    ties = at_least[:n] - greater[:n] - 1 - before - after
    rank = 1 + greater[:n] + ties + before

    place = _places(of_reference, own, reference, index)
    # A tied reference that is another target of the query is not among the ties; it counts if it comes first.
    sibling = _reference_rows(targets)[query + start]
    tied_sibling = (place == ReferencePlace.TIED) & (sibling != ABSENT)
    first = sibling < np.arange(rows.start, rows.stop)
    place[tied_sibling & first] = ReferencePlace.ABOVE
    place[tied_sibling & ~first] = ReferencePlace.BELOW
    place[~reachable] = ReferencePlace.ABSENT

    null_place = _places(of_reference, other, reference, null)
    null_place[null == ABSENT] = ReferencePlace.ABSENT
    top, top_score = scores.top(top_k)
    return {
        "rank": np.where(reachable, rank, UNREACHABLE),
        "ties": np.where(reachable, ties, 0),
        "reference": place,
        "null_rank": np.where(null != ABSENT, at_least[n:], UNREACHABLE),
        "null_reference": null_place,
        "top": top[: stop - start],
        "top_score": top_score[: stop - start],
    }


def _tied_siblings(query: Ints, own: Floats, reachable: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """How many other targets of the same query have exactly a row's score, before it and after it."""
    before, after = np.zeros(len(query), np.int64), np.zeros(len(query), np.int64)
    lag = 1
    while lag < len(query) and np.any(query[lag:] == query[:-lag]):
        tied = (query[lag:] == query[:-lag]) & (own[lag:] == own[:-lag]) & reachable[lag:] & reachable[:-lag]
        before[lag:] += tied
        after[:-lag] += tied
        lag += 1
    return before, after


def _places(of_reference: Floats, of_image: Floats, reference: Ints, image: Ints) -> NDArray[np.int8]:
    place = np.full(len(of_image), ReferencePlace.BELOW, np.int8)
    place[of_reference == of_image] = ReferencePlace.TIED
    place[of_reference > of_image] = ReferencePlace.ABOVE
    place[reference == image] = ReferencePlace.IS_TARGET
    place[reference == ABSENT] = ReferencePlace.ABSENT
    return place


def _reference_rows(targets: Targets) -> Ints:
    """For each query the row in which its reference is one of its own targets, or `ABSENT`: int64 [n_queries]."""
    rows = np.full(len(targets.reference), ABSENT, np.int64)
    hits = np.flatnonzero((targets.index == targets.reference[targets.query]) & (targets.index != ABSENT))
    rows[targets.query[hits]] = hits
    return rows


def _blocks(n_queries: int, n_gallery: int, memory: int) -> list[tuple[int, int]]:
    rows = min(memory // (4 * n_gallery), _MAX_ROWS)
    if rows < _MIN_ROWS:
        raise CircusError(
            f"{memory / 2**20:.0f} MiB do not hold {_MIN_ROWS} rows of {n_gallery:,} scores; "
            f"allow at least {_MIN_ROWS * 4 * n_gallery / 2**20:.0f} MiB"
        )
    count = -(-n_queries // rows)
    bounds = np.linspace(0, n_queries, count + 1).round().astype(int).tolist()
    return list(pairwise(bounds))


def _padded(queries: Floats) -> Floats:
    """At least `_MIN_ROWS` rows, so that a small block gives the same bits as a large one."""
    missing = _MIN_ROWS - len(queries)
    if missing <= 0:
        return queries
    return np.concatenate([queries, np.zeros((missing, queries.shape[1]), np.float32)])


class _NumpyScorer:
    def __init__(self, gallery: Floats) -> None:
        self._gallery = gallery
        self._buffer = np.empty(0, np.float32)

    @contextmanager
    def precision(self) -> Iterator[None]:
        yield

    def scores(self, queries: Floats) -> _NumpyScores:
        shape = (len(queries), len(self._gallery))
        if self._buffer.size < shape[0] * shape[1]:
            self._buffer = np.empty(shape[0] * shape[1], np.float32)
        block = self._buffer[: shape[0] * shape[1]].reshape(shape)
        np.matmul(queries, self._gallery.T, out=block)
        return _NumpyScores(block)


class _NumpyScores:
    def __init__(self, block: Floats) -> None:
        self._block = block

    def at(self, rows: Ints, columns: Ints) -> Floats:
        return self._block[rows, columns]

    def counts(self, rows: Ints, thresholds: Floats) -> tuple[Ints, Ints]:
        greater, at_least = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        # Row by row: a row of scores stays in the cache for all its thresholds.
        for position in np.argsort(rows, kind="stable"):
            scores, threshold = self._block[rows[position]], thresholds[position]
            greater[position] = np.count_nonzero(scores > threshold)
            at_least[position] = np.count_nonzero(scores >= threshold)
        return greater, at_least

    def top(self, k: int) -> tuple[Ints, Floats]:
        top = np.array([_top_of_row(row, k) for row in self._block], np.int64).reshape(len(self._block), k)
        return top, np.take_along_axis(self._block, top, axis=1)


def _top_of_row(scores: Floats, k: int) -> Ints:
    """Indices of the k greatest scores, falling; ties by index.

    The k-th greatest of the maxima of disjoint groups bounds the k-th greatest score from below, so that only the few
    scores above that bound need sorting.
    """
    groups = 4 * k
    if k == 0 or len(scores) < 4 * groups:
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

    def counts(self, rows: Ints, thresholds: Floats) -> tuple[Ints, Ints]:
        import torch

        greater, at_least = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        # The n-th threshold of every row at once, for n = 0, 1, ...: most rows have only two.
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        nth = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
        for n in range(int(nth.max(initial=-1)) + 1):
            chosen = order[nth == n]
            block = self._block[torch.from_numpy(rows[chosen]).to(self._block.device)]
            limits = torch.from_numpy(thresholds[chosen]).to(self._block.device)[:, None]
            greater[chosen] = (block > limits).sum(dim=1).cpu().numpy()
            at_least[chosen] = (block >= limits).sum(dim=1).cpu().numpy()
        return greater, at_least

    def top(self, k: int) -> tuple[Ints, Floats]:
        if k == 0:
            empty = len(self._block), 0
            return np.empty(empty, np.int64), np.empty(empty, np.float32)
        score, index = (part.cpu().numpy() for part in self._block.topk(k, dim=1))
        order = np.lexsort((index, -score), axis=1)
        top = np.take_along_axis(index, order, axis=1)
        # topk chooses freely among scores tied at its end; those rows are settled by the rule.
        crowded = (self._block >= self._block.new_tensor(score[:, -1:])).sum(dim=1).cpu().numpy() > k
        for row in np.flatnonzero(crowded):
            top[row] = _top_of_row(self._block[row].cpu().numpy(), k)
        return top, np.take_along_axis(score, order, axis=1)
