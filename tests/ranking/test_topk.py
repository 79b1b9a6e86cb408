"""The nearest images, by faiss or by our own ranking."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from circus_bench.errors import CircusError, EmbeddingError
from circus_bench.ranking.topk import nearest


@pytest.fixture(params=["faiss", "own ranking"])
def _search(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "own ranking":
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "faiss" else find(name))
    else:
        pytest.importorskip("faiss", reason="needs the extra faiss")


pytestmark = pytest.mark.usefixtures("_search")


def test_the_nearest_are_those_of_a_full_sort() -> None:
    # Small integers, whose products are exact in fp32; the positions break the ties.
    rng = np.random.default_rng(0)
    queries, gallery = (rng.integers(1, 9, (n, 6)).astype(np.float32) for n in (30, 200))
    scores = queries @ gallery.T
    index, score = nearest(queries, gallery, k=200)
    expected = np.argsort(-scores, axis=1, kind="stable")
    assert np.array_equal(index, expected)
    assert np.array_equal(score, np.take_along_axis(scores, expected, axis=1))


def test_of_images_tied_at_the_end_the_first_of_the_gallery_are_taken() -> None:
    # All 300 images are alike but the last, which is the nearest. Three of the equal ones follow it.
    gallery = np.ones((300, 2), np.float32)
    gallery[-1] = 2
    index, score = nearest(np.ones((2, 2), np.float32), gallery, k=4)
    assert index.tolist() == [[299, 0, 1, 2]] * 2
    assert score.tolist() == [[4, 2, 2, 2]] * 2


def test_scores_are_rounded_once() -> None:
    rng = np.random.default_rng(0)
    queries, gallery = (rng.standard_normal((n, 96)).astype(np.float32) for n in (20, 500))
    exact = (queries.astype(np.float64) @ gallery.T.astype(np.float64)).astype(np.float32)
    index, score = nearest(queries, gallery, k=10)
    expected = np.argsort(-exact, axis=1, kind="stable")[:, :10]
    assert np.array_equal(index, expected)
    assert np.array_equal(score, np.take_along_axis(exact, expected, axis=1))


def test_no_more_than_the_gallery_is_found() -> None:
    index, _ = nearest(np.ones((1, 2), np.float32), np.array([[1, 0], [1, 1]], np.float32), k=50)
    assert index.tolist() == [[1, 0]]


@pytest.mark.parametrize("side", [0, 1])
def test_vectors_that_are_not_finite_are_refused(side: int) -> None:
    vectors = [np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)]
    vectors[side][1, 0] = np.nan
    with pytest.raises(EmbeddingError, match="rows 1: 1"):
        nearest(*vectors, k=1)


def test_without_a_faiss_for_the_gpu_the_gpu_is_refused() -> None:
    if hasattr(pytest.importorskip("faiss"), "StandardGpuResources") and importlib.util.find_spec("faiss"):
        pytest.skip("this faiss has GPU support")
    with pytest.raises(CircusError, match="cuda"):
        nearest(np.ones((1, 2), np.float32), np.ones((2, 2), np.float32), k=1, device="cuda")
