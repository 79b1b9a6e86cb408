"""Check embedding vectors, and scale them to unit length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def unusable_rows(vectors: Floats) -> Ints:
    """Find the rows that cannot be scaled to unit length: NaN, infinite, zero, or too large to be squared.

    Args:
        vectors: float32 [n, dim].

    Returns:
        Row numbers: int64.
    """
    squares = np.einsum("ij,ij->i", vectors, vectors)
    return np.flatnonzero(~np.isfinite(squares) | (squares == 0))


def to_unit_length(vectors: Floats, *, out: Floats | None = None) -> Floats:
    """Scale each row to unit length, for cosine similarity: float32 [n, dim]; in place where `out` is `vectors`."""
    scaled: Floats = np.divide(vectors, np.linalg.norm(vectors, axis=1, keepdims=True), out=out)
    return scaled
