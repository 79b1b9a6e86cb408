"""Retrieve the nearest gallery images of each query, as candidates to be judged; they give no ranks.

faiss is fast and exact enough to propose candidates, and no more: it rounds scores in its own way and orders ties as it
comes across them. What it proposes is scored exactly, so that the outcome is the same without it. Ranks come from
`circus_bench.ranking.ranker` alone.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

import numpy as np

from circus_bench.errors import CircusError
from circus_bench.ranking.exact import ExactDot, rounding_of, worst_case_rounding
from circus_bench.ranking.ranker import ABSENT, Targets, check_embeddings, max_row_norm, rank_targets
from circus_bench.vectors import Floats, Ints


def nearest(queries: Floats, gallery: Floats, *, k: int, device: str | None = None) -> tuple[Ints, Floats]:
    """Find the k gallery images of the greatest inner product with each query.

    With faiss installed (`pip install 'circus-bench[faiss]'`) it searches, without an index; else our own ranking does.

    Args:
        queries: float32 [n_queries, dim].
        gallery: float32 [n_gallery, dim], which may be memory-mapped.
        k: how many; at most the gallery's size.
        device: `cuda` searches on the GPU, which takes a faiss that was built for it.

    Returns:
        Gallery indices and exact scores by falling score, ties by gallery position: [n_queries, k].

    Raises:
        EmbeddingError: an embedding is not finite or has zero length.
        CircusError: the GPU was asked for, and faiss cannot use one.
    """
    check_embeddings(queries, "query")
    k = min(k, len(gallery))
    if importlib.util.find_spec("faiss") is None:
        if device is not None:
            raise CircusError(f"searching on {device} takes faiss: pip install 'circus-bench[faiss-gpu]'")
        any_target = Targets.of([[0]] * len(queries), [ABSENT] * len(queries))  # the top does not depend on it
        ranking = rank_targets(queries, gallery, targets=any_target, top_k=k)
        return ranking.top, ranking.top_score
    return _nearest_of_proposed(queries, gallery, k, device)


def _nearest_of_proposed(queries: Floats, gallery: Floats, k: int, device: str | None) -> tuple[Ints, Floats]:
    """Score exactly what faiss proposes, and let it propose more where the k-th may lie beyond."""
    products = ExactDot(gallery)
    norm = max_row_norm(gallery)  # refuses NaN, too, which faiss passes over in silence
    slack = 2 * worst_case_rounding(queries.shape[1]) * rounding_of(queries, norm)
    index, score = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
    open_ones, size = np.arange(len(queries)), k
    while len(open_ones):
        size = min(2 * size, len(gallery))
        proposed = _search(queries[open_ones], gallery, size, device)
        exact = products.of(queries)(np.repeat(open_ones, size), proposed.ravel()).reshape(proposed.shape)
        order = np.lexsort((proposed, -exact), axis=1)[:, :k]
        index[open_ones] = np.take_along_axis(proposed, order, axis=1)
        score[open_ones] = np.take_along_axis(exact, order, axis=1)
        # An image that was not proposed scores at most as much as the last one that was, but for rounding.
        may_lie_beyond = score[open_ones, -1] - exact.min(axis=1) <= slack[open_ones]
        open_ones = open_ones[may_lie_beyond] if size < len(gallery) else open_ones[:0]
    return index, score


def _search(queries: Floats, gallery: Floats, k: int, device: str | None) -> Ints:
    import faiss

    library: Any = faiss
    search = library.knn
    if device is not None:
        if not hasattr(library, "StandardGpuResources"):
            raise CircusError(f"this faiss was built without GPU support, so it cannot search on {device}")
        search = partial(library.knn_gpu, library.StandardGpuResources())
    _, index = search(queries, gallery, k, metric=library.METRIC_INNER_PRODUCT)
    found: Ints = index
    return found
