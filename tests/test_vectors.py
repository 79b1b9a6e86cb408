"""Checks and scaling of embedding vectors."""

from __future__ import annotations

import numpy as np

from circus_bench.vectors import to_unit_length, unusable_rows


def test_rows_without_a_direction_are_found() -> None:
    # The square of 1e30 is not a fp32 number, nor is that of 1e-30 above 0.
    vectors = np.array([[3, 4], [0, 0], [np.nan, 1], [np.inf, 1], [1e30, 0], [1e-30, 0], [0, -1]], np.float32)
    assert unusable_rows(vectors).tolist() == [1, 2, 3, 4, 5]


def test_rows_are_scaled_to_unit_length() -> None:
    vectors = np.array([[3, 4], [0, -2]], np.float32)
    scaled = to_unit_length(vectors)
    assert scaled.dtype == np.float32
    assert np.allclose(scaled, [[0.6, 0.8], [0, -1]])
    assert vectors[0, 0] == 3
    assert to_unit_length(vectors, out=vectors) is vectors
    assert np.array_equal(vectors, scaled)
