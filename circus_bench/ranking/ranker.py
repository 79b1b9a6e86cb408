"""Compute exact full-gallery ranks, and the top-k, in one streamed pass.

A rank is found by counting, never by sorting: it does not depend on ids, on the order of the gallery or on k. Scores
are compared exactly (see `circus_bench.ranking.exact`). Ties count against the model; see docs/definitions.md. It is
our own code because retrieval evaluation libraries (trec_eval, ranx) rank the documents listed in a run and break ties
by id, and vector search libraries return the top-k alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.distributed import SINGLE_PROCESS, DistributedJob
from circus_bench.errors import CircusError, EmbeddingError, format_ids
from circus_bench.ranking.backends import Backend, Scorer, given_scores, scorer_of
from circus_bench.ranking.exact import BlockScores
from circus_bench.vectors import Floats, Ints, unusable_rows

UNREACHABLE = 0
"""The rank of a target that is not in the gallery."""

ABSENT = -1
"""The gallery index of an image that is not in the gallery."""

DEFAULT_MEMORY = 512 * 2**20
_MIN_ROWS = 64  # a product of fewer rows hardly takes less time
_MAX_ROWS = 1024  # beyond this the product gains no more speed
_ROW_STEP = 32  # a product of 221 rows takes longer than one of 224


class ReferencePosition(IntEnum):
    """Position of a query's reference relative to one target, by score.

    `ABOVE` and `TIED` references are counted in the target's rank; `TIED` ones are also among its ties.
    """

    ABSENT = 0
    BELOW = 1
    TIED = 2
    ABOVE = 3
    IS_TARGET = 4


@dataclass(frozen=True)
class Targets:
    """Pairs of a query and a gallery image to be ranked, one per row, grouped by query.

    Attributes:
        offsets: int64 [n_queries + 1]; the rows of query i are offsets[i] to offsets[i + 1].
        index: int64 [n_rows], gallery index of the target, `ABSENT` when it is not in the gallery.
        reference: int64 [n_queries], gallery index of the reference image or `ABSENT`.
        null: int64 [n_rows], gallery index of another query's target, or `ABSENT`; see `null_targets`.
        subset_offsets: int64 [n_queries + 1]; the subset of query i is subset_index[subset_offsets[i] to ...[i + 1]].
        subset_index: int64, gallery indices of the images of each query's subset (CIRR's image set), or `ABSENT`.
    """

    offsets: Ints
    index: Ints
    reference: Ints
    null: Ints
    subset_offsets: Ints
    subset_index: Ints

    @classmethod
    def of(
        cls,
        targets: Sequence[Sequence[int]],
        references: Sequence[int],
        *,
        subsets: Sequence[Sequence[int]] | None = None,
        seed: int = 0,
    ) -> Targets:
        """Build the rows from one list of gallery indices per query, and draw the null targets.

        Args:
            targets: gallery indices of the targets of each query.
            references: gallery index of the reference of each query.
            subsets: gallery indices of the subset of each query; none by default.
            seed: of the null targets.
        """
        offsets, index = _flat(targets)
        reference = np.array(references, np.int64)
        subset_offsets, subset_index = _flat(subsets if subsets is not None else [()] * len(targets))
        null = null_targets(offsets, index, reference, seed=seed)
        return cls(offsets, index, reference, null, subset_offsets, subset_index)

    @property
    def query(self) -> Ints:
        """int64 [n_rows], the query that each row belongs to."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def __repr__(self) -> str:
        """Name the counts rather than each row."""
        return f"Targets({len(self.reference):,} queries, {len(self.index):,} rows)"


@dataclass(frozen=True)
class Ranking:
    """Ranks for every row of `Targets`, and the top of the gallery for every query.

    Attributes:
        rank: int64 [n_rows], 1-based, reference kept, ties against the target; `UNREACHABLE` if not in the gallery.
        ties: int64 [n_rows], gallery images other than targets of the query with exactly the target's score.
        reference: int8 [n_rows], `ReferencePosition` relative to the target.
        null_rank: int64 [n_rows], rank of the null target among all other images; `UNREACHABLE` without one.
        null_reference: int8 [n_rows], `ReferencePosition` relative to the null target.
        subset_rank: int64 [n_rows], rank among the query's subset without its reference, ties against the target;
            `UNREACHABLE` without a subset.
        top: int64 [n_queries, k], gallery indices by falling score, ties by gallery position.
        top_score: float32 [n_queries, k].
        subset_top: int64 [n_queries, size of the largest subset], gallery indices of each query's subset by falling
            score, ties in listed order, its reference left out; filled up with `ABSENT`.
    """

    rank: Ints
    ties: Ints
    reference: NDArray[np.int8]
    null_rank: Ints
    null_reference: NDArray[np.int8]
    subset_rank: Ints
    top: Ints
    top_score: Floats
    subset_top: Ints

    def __repr__(self) -> str:
        """Name the counts rather than each row."""
        return f"Ranking({len(self.rank):,} rows, top {self.top_score.shape[1]} of {len(self.top_score):,} queries)"


class Ranker:
    """Ranker of targets in one gallery by inner product (cosine when the rows are of unit length).

    It keeps between calls what takes long to set up: the gallery on its device, and the memory of the scores.

    Args:
        gallery: float32 [n_gallery, dim]; a memory-mapped array is read once per block of queries.
        backend: `numpy`, or `torch` on `device`.
        device: a torch device such as `cuda`; the gallery must fit on it.
        memory: bytes that the block of scores may take.
        max_norm: norm of the longest gallery row, 1 for unit vectors; a pass over the gallery finds it when None.
        job: the processes that share the blocks of queries; every one has to call `rank`, and gets the whole.

    Raises:
        EmbeddingError: the gallery is not a non-empty float32 matrix.
    """

    def __init__(
        self,
        gallery: Floats,
        *,
        backend: Backend = Backend.NUMPY,
        device: str | None = None,
        memory: int = DEFAULT_MEMORY,
        max_norm: float | None = None,
        job: DistributedJob = SINGLE_PROCESS,
    ) -> None:
        _check_shape(gallery, "gallery embedding")
        self._gallery = np.ascontiguousarray(gallery)  # its rows are read one by one
        self._backend = backend
        self._device = device
        self._memory = memory
        self._max_norm = max_norm
        self._job = job

    @cached_property
    def _scorer(self) -> Scorer:
        max_norm = self._max_norm or max_row_norm(self._gallery)
        return scorer_of(self._gallery, backend=self._backend, max_norm=max_norm, device=self._device)

    def rank(
        self, queries: Floats, *, targets: Targets, top_k: int = 0, advance: Callable[[int], object] = lambda _: None
    ) -> Ranking:
        """Rank every target in the whole gallery.

        Args:
            queries: float32 [n_queries, dim].
            targets: the rows to rank; the same number of queries.
            top_k: how many gallery images to return per query; at most the gallery's size.
            advance: called with the number of queries done by this process, for a progress bar.

        Raises:
            EmbeddingError: an embedding is not finite or has zero length, or the shapes do not fit.
            CircusError: an index is not in the gallery, a query lists a target twice, the memory does not hold the
                scores of the smallest block, or another process failed.
        """
        gallery, job = self._gallery, self._job
        check_embeddings(queries, "query")
        _check_targets(targets, len(gallery), top_k)
        if queries.shape[1] != gallery.shape[1] or len(queries) != len(targets.reference):
            raise EmbeddingError(
                f"query embeddings {queries.shape} do not fit gallery embeddings {gallery.shape} "
                f"and {len(targets.reference)} queries"
            )
        top_k = min(top_k, len(gallery))
        blocks = _blocks(len(queries), len(gallery), self._memory)

        def rank_share() -> list[dict[str, NDArray[Any]]]:
            parts: list[dict[str, NDArray[Any]]] = []
            own = job.share(blocks)
            if not own:
                return parts
            with self._scorer.full_fp32():
                for start, stop in own:
                    scores = self._scorer.scores(_padded(queries[start:stop]))
                    _check_gallery(gallery, scores.row(stop - start))
                    parts.append(_rank_block(scores, targets, start, stop, top_k=top_k))
                    advance(stop - start)
            return parts

        shares = job.run_on_all("ranking", rank_share)
        parts = [shares[block % job.count][block // job.count] for block in range(len(blocks))]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return Ranking(**joined)


def rank_targets(
    queries: Floats,
    gallery: Floats,
    *,
    targets: Targets,
    top_k: int = 0,
    backend: Backend = Backend.NUMPY,
    device: str | None = None,
    memory: int = DEFAULT_MEMORY,
) -> Ranking:
    """Rank every target in the whole gallery; see `Ranker`, which serves several sets of queries."""
    ranker = Ranker(gallery, backend=backend, device=device, memory=memory)
    return ranker.rank(queries, targets=targets, top_k=top_k)


def rank_scores(scores: Floats, *, targets: Targets, top_k: int = 0) -> Ranking:
    """Rank every target by scores that are already there: of late interaction, of a reranker, of a fusion.

    Args:
        scores: float32 [n_queries, n_gallery]. An image without a score (NaN or -inf) ranks below every target.
        targets: the rows to rank; the same number of queries.
        top_k: as in `Ranker.rank`.

    Raises:
        EmbeddingError: the score of a target is not finite, or the shape does not fit.
        CircusError: an index is not in the gallery, or a query lists a target twice.
    """
    _check_shape(scores, "score")
    if len(scores) != len(targets.reference):
        raise EmbeddingError(f"scores {scores.shape} do not fit {len(targets.reference)} queries")
    _check_targets(targets, scores.shape[1], top_k)
    own = scores[targets.query, targets.index]
    unscored = targets.query[(targets.index != ABSENT) & ~np.isfinite(own)]
    if len(unscored):
        raise EmbeddingError(f"targets without a finite score in the rows {format_ids(unscored.tolist())}")
    if np.isnan(scores).any():
        scores = np.where(np.isnan(scores), np.float32(-np.inf), scores)
    return Ranking(**_rank_block(given_scores(scores), targets, 0, len(scores), top_k=min(top_k, scores.shape[1])))


def null_targets(offsets: Ints, index: Ints, reference: Ints, *, seed: int = 0) -> Ints:
    """Draw for each row the target of another query, by a seeded derangement of the rows.

    Its rank under this query, the null rank, shows the chance level of the model on the gallery, hubs included. A query
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
    _check_shape(embeddings, f"{kind} embedding")
    _refuse(unusable_rows(embeddings), kind)


def max_row_norm(gallery: Floats) -> float:
    """Compute the norm of the longest row, and refuse rows that cannot be ranked.

    Raises:
        EmbeddingError: see `check_embeddings`.
    """
    check_embeddings(gallery, "gallery")
    return math.sqrt(np.einsum("ij,ij->i", gallery, gallery).max())


def _check_shape(embeddings: Floats, kind: str) -> None:
    if embeddings.ndim != 2 or embeddings.dtype != np.float32 or 0 in embeddings.shape:
        raise EmbeddingError(f"{kind}s must be a non-empty float32 matrix, found {embeddings.dtype} {embeddings.shape}")


def _refuse(bad: Ints, kind: str) -> None:
    if len(bad):
        raise EmbeddingError(
            f"{kind} embeddings are NaN, infinite or of zero length in rows {format_ids(bad.tolist())}"
        )


def _check_targets(targets: Targets, n_gallery: int, top_k: int) -> None:
    if top_k < 0:
        raise CircusError(f"top_k is {top_k}")
    for what in ("index", "reference", "null", "subset_index"):
        given = getattr(targets, what)
        outside = given[(given < ABSENT) | (given >= n_gallery)]
        if len(outside):
            raise CircusError(f"Targets.{what} has gallery index {outside[0]} in a gallery of {n_gallery}")
    pairs = (targets.query * n_gallery + targets.index)[targets.index != ABSENT]
    if len(np.unique(pairs)) < len(pairs):
        raise CircusError("a query lists a target twice")


def _check_gallery(gallery: Floats, probed: Floats) -> None:
    """Refuse a gallery that cannot be ranked, judging by its products with the check row of a block.

    A row that is not finite has no finite product, and one of zero length the product 0. A pass over the gallery of its
    own would cost as much time as ranking a hundred queries.
    """
    suspects = np.flatnonzero(~np.isfinite(probed) | (probed == 0))
    _refuse(suspects[unusable_rows(gallery[suspects])] if len(suspects) else suspects, "gallery")


def _rank_block(scores: BlockScores, targets: Targets, start: int, stop: int, *, top_k: int) -> dict[str, NDArray[Any]]:
    rows = slice(targets.offsets[start], targets.offsets[stop])
    query = targets.query[rows] - start
    index, null = targets.index[rows], targets.null[rows]
    reference = targets.reference[start:stop][query]

    # An absent image is looked up at column 0 and its outcome discarded, which keeps the arrays rectangular.
    own = scores.at(query, np.maximum(index, 0))
    other = scores.at(query, np.maximum(null, 0))
    of_reference = scores.at(query, np.maximum(reference, 0))
    (greater, _), (at_least, null_at_least) = (
        counts.T for counts in scores.counts(query, np.stack([own, other], axis=1))
    )

    reachable = index != ABSENT
    before, after = _tied_siblings(query, own, reachable)
    ties = at_least - greater - 1 - before - after
    rank = 1 + greater + ties + before

    place = _places(of_reference, own, reference, index)
    # A tied reference that is another target of the query is not among the ties; it counts if it comes first.
    sibling = _reference_rows(targets)[query + start]
    tied_sibling = (place == ReferencePosition.TIED) & (sibling != ABSENT)
    first = sibling < np.arange(rows.start, rows.stop)
    place[tied_sibling & first] = ReferencePosition.ABOVE
    place[tied_sibling & ~first] = ReferencePosition.BELOW
    place[~reachable] = ReferencePosition.ABSENT

    null_place = _places(of_reference, other, reference, null)
    null_place[null == ABSENT] = ReferencePosition.ABSENT
    top, top_score = scores.top(top_k, n_rows=stop - start)
    return {
        "rank": np.where(reachable, rank, UNREACHABLE),
        "ties": np.where(reachable, ties, 0),
        "reference": place,
        "null_rank": np.where(null != ABSENT, null_at_least, UNREACHABLE),
        "null_reference": null_place,
        "subset_rank": _subset_ranks(scores, targets, rows, query, own),
        "top": top,
        "top_score": top_score,
        "subset_top": _subset_top(scores, targets, start, stop),
    }


def _flat(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Flatten a list of lists to offsets and values."""
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return offsets, np.array([value for row in lists for value in row], np.int64)


def _subset_ranks(scores: BlockScores, targets: Targets, rows: slice, query: Ints, own: Floats) -> Ints:
    """Rank each row's target among its query's subset; `query` counts from the first query of the block."""
    of_query = targets.query[rows]
    sizes = np.diff(targets.subset_offsets)[of_query]
    row = np.repeat(np.arange(len(of_query)), sizes)
    within = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    member = targets.subset_index[targets.subset_offsets[of_query][row] + within]
    competes = (member != ABSENT) & (member != targets.index[rows][row]) & (member != targets.reference[of_query][row])
    ahead = competes & (scores.at(query[row], np.maximum(member, 0)) >= own[row])
    rank = 1 + np.bincount(row[ahead], minlength=len(of_query))
    return np.where((sizes > 0) & (targets.index[rows] != ABSENT), rank, UNREACHABLE)


def _subset_top(scores: BlockScores, targets: Targets, start: int, stop: int) -> Ints:
    """Sort each query's subset by falling score, without its reference."""
    largest = int(np.diff(targets.subset_offsets).max(initial=0))
    top = np.full((stop - start, largest), ABSENT, np.int64)
    for query in range(start, stop) if largest else ():
        members = targets.subset_index[targets.subset_offsets[query] : targets.subset_offsets[query + 1]]
        members = members[(members != ABSENT) & (members != targets.reference[query])]
        of_members = scores.at(np.full(len(members), query - start), members)
        top[query - start, : len(members)] = members[np.argsort(-of_members, kind="stable")]
    return top


def _tied_siblings(query: Ints, own: Floats, reachable: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Count the other targets of the same query with exactly a row's score, before it and after it."""
    before, after = np.zeros(len(query), np.int64), np.zeros(len(query), np.int64)
    lag = 1
    while lag < len(query) and np.any(query[lag:] == query[:-lag]):
        tied = (query[lag:] == query[:-lag]) & (own[lag:] == own[:-lag]) & reachable[lag:] & reachable[:-lag]
        before[lag:] += tied
        after[:-lag] += tied
        lag += 1
    return before, after


def _places(of_reference: Floats, of_image: Floats, reference: Ints, image: Ints) -> NDArray[np.int8]:
    place = np.full(len(of_image), ReferencePosition.BELOW, np.int8)
    place[of_reference == of_image] = ReferencePosition.TIED
    place[of_reference > of_image] = ReferencePosition.ABOVE
    place[reference == image] = ReferencePosition.IS_TARGET
    place[reference == ABSENT] = ReferencePosition.ABSENT
    return place


def _reference_rows(targets: Targets) -> Ints:
    """Find for each query the row in which its reference is one of its own targets, or `ABSENT`: int64 [n_queries]."""
    rows = np.full(len(targets.reference), ABSENT, np.int64)
    hits = np.flatnonzero((targets.index == targets.reference[targets.query]) & (targets.index != ABSENT))
    rows[targets.query[hits]] = hits
    return rows


def block_rows(n_gallery: int, memory: int) -> int:
    """Compute the number of rows of scores in memory at a time.

    Raises:
        CircusError: the memory does not hold the scores of the smallest block.
    """
    rows = min(memory // (4 * n_gallery), _MAX_ROWS) // _ROW_STEP * _ROW_STEP
    if rows < _MIN_ROWS:
        raise CircusError(
            f"{memory / 2**20:.0f} MiB do not hold {_MIN_ROWS} rows of {n_gallery:,} scores; "
            f"allow at least {_MIN_ROWS * 4 * n_gallery / 2**20:.0f} MiB"
        )
    return rows


def _blocks(n_queries: int, n_gallery: int, memory: int) -> list[tuple[int, int]]:
    """Cut the queries so that blocks, with their check row, need no padding but in the last one."""
    count = -(-n_queries // (block_rows(n_gallery, memory) - 1))
    size = -(-(n_queries + count) // (count * _ROW_STEP)) * _ROW_STEP - 1
    return list(pairwise([*range(0, n_queries, size), n_queries]))


def _padded(queries: Floats) -> Floats:
    """Append the check row to a block's queries.

    Zero rows fill a block up to `_MIN_ROWS`, and beyond to a multiple of `_ROW_STEP`.
    """
    check = np.random.default_rng(0).standard_normal((1, queries.shape[1]), np.float32)
    used = len(queries) + 1
    fill = np.zeros((max(_MIN_ROWS - used, -used % _ROW_STEP), queries.shape[1]), np.float32)
    return np.concatenate([queries, check, fill])
