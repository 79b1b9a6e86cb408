"""The nearest gallery images of each query, for a panel of candidates to be judged. They give no ranks.

faiss is fast and exact enough to propose candidates, and no more: it rounds scores in its own way, orders ties as it
comes across them, and says nothing of what lies beyond the k-th image. Ranks come from `circus_bench.ranking` alone.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.errors import CircusError
from circus_bench.ranking import ABSENT, Targets, check_embeddings, rank_targets

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def nearest(queries: Floats, gallery: Floats, *, k: int, device: str | None = None) -> tuple[Ints, Floats]:
    """Find the k gallery images of the greatest inner product with each query.

    With faiss installed (`pip install 'circus-bench[faiss]'`) it searches, without an index; else our own ranking does.

    Args:
        queries: float32 [n_queries, dim].
        gallery: float32 [n_gallery, dim], which may be memory-mapped.
        k: how many; at most the gallery's size.
        device: `cuda` searches on the GPU, which takes a faiss that was built for it.

    Returns:
        Gallery indices and scores by falling score, ties by gallery position: [n_queries, k]. Which of several images
        tied at the end is among them is up to faiss.

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
    check_embeddings(gallery, "gallery")  # faiss passes over NaN in silence
    score, index = _search(queries, gallery, k, device)
    order = np.lexsort((index, -score), axis=1)
    return np.take_along_axis(index, order, axis=1), np.take_along_axis(score, order, axis=1)


def _search(queries: Floats, gallery: Floats, k: int, device: str | None) -> tuple[Floats, Ints]:
    import faiss

    library: Any = faiss
    search = library.knn
    if device is not None:
        if not hasattr(library, "StandardGpuResources"):
            raise CircusError(f"this faiss was built without GPU support, so it cannot search on {device}")
        search = partial(library.knn_gpu, library.StandardGpuResources())
    score, index = search(queries, gallery, k, metric=library.METRIC_INNER_PRODUCT)
    return score, index
