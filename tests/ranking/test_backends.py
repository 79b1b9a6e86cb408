"""Scores are compared exactly: what a matrix product rounds differently from place to place decides nothing."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from circus_bench.ranking.backends import Backend, given_scores, scorer_of
from circus_bench.ranking.exact import rounding_of, typical_rounding
from circus_bench.ranking.ranker import Ranking, Targets, rank_targets

BACKENDS = pytest.mark.parametrize("backend", list(Backend))


def unit(seed: int, n: int, dim: int, *, common: float = 0.0) -> np.ndarray:
    """Random unit vectors; a common part makes them anisotropic, as those of language models are."""
    vectors = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32) + np.float32(common)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def ranked(queries: np.ndarray, gallery: np.ndarray, targets: np.ndarray, **options: object) -> Ranking:
    references = ((targets + 1) % len(gallery)).tolist()
    return rank_targets(
        queries, gallery, targets=Targets.of(targets[:, None].tolist(), references), top_k=20, **options
    )


def equal(a: Ranking, b: Ranking) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(Ranking))


@BACKENDS
@pytest.mark.parametrize("dim", [192, 1024, 4096])
@pytest.mark.parametrize("common", [0.0, 2.0])
def test_products_of_real_numbers_err_by_half_of_the_usual_at_most(backend: Backend, dim: int, common: float) -> None:
    queries, gallery = unit(0, 64, dim, common=common), unit(1, 2000, dim, common=common)
    exact = queries.astype(np.float64) @ gallery.astype(np.float64).T
    scores = scorer_of(gallery, backend=backend, max_norm=1.0).scores(queries)
    as_computed = np.stack([scores.row(row) for row in range(64)])
    assert np.abs(as_computed - exact).max() < (rounding_of(queries, 1.0) * typical_rounding(dim)).min() / 2


def two_level(seed: int, n: int, dim: int) -> np.ndarray:
    """Unit vectors whose components have two magnitudes, as codes of two bits have."""
    rng = np.random.default_rng(seed)
    vectors = rng.choice(np.array([-3, -1, 1, 3], np.float32), (n, dim))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def multi_hot(seed: int, n: int, dim: int) -> np.ndarray:
    """Unit vectors with half of their components 0 and the others alike."""
    vectors = np.random.default_rng(seed).integers(0, 2, (n, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@BACKENDS
@pytest.mark.parametrize("dim", [192, 256, 384, 512, 619, 640, 1024, 2048])
@pytest.mark.parametrize("make", [two_level, multi_hot])
def test_perfect_hits_tie_with_their_copies_where_errors_add_up(
    backend: Backend, dim: int, make: Callable[..., np.ndarray]
) -> None:
    queries = make(0, 500, dim)
    order = np.random.default_rng(1).permutation(1500)
    place = np.argsort(order)  # three copies of each image, scattered over the gallery
    found = ranked(queries, np.tile(queries, (3, 1))[order], place[:500], backend=backend)
    assert found.ties.tolist() == [2] * 500
    assert found.rank.tolist() == [3] * 500


@BACKENDS
@pytest.mark.parametrize("dim", [251, 306, 619, 1024])
def test_an_encoder_whose_components_are_all_alike_hits_nothing(backend: Backend, dim: int) -> None:
    vector = np.full((1, dim), 1, np.float32) / np.float32(np.sqrt(dim))
    found = ranked(np.repeat(vector, 200, axis=0), np.repeat(vector, 4097, axis=0), np.arange(200), backend=backend)
    assert set(found.rank.tolist()) == {4097}
    assert set(found.ties.tolist()) == {4096}
    assert set(found.null_rank.tolist()) == {4097}


def test_a_single_score_is_the_exact_product_rounded_once() -> None:
    queries, gallery = unit(0, 3, 50), unit(1, 4, 50)
    scores = scorer_of(gallery, backend=Backend.NUMPY, max_norm=1.0).scores(queries)
    for row in range(3):
        for column in range(4):
            products = (
                Fraction(float(a)) * Fraction(float(b)) for a, b in zip(queries[row], gallery[column], strict=True)
            )
            found = scores.at(np.array([row]), np.array([column]))[0]
            assert found == np.float32(float(sum(products)))


@BACKENDS
def test_equal_vectors_tie_wherever_they_stand(backend: Backend) -> None:
    gallery = unit(0, 701, 96)
    gallery[::10] = gallery[0]  # 71 equal vectors, at all positions within the tiles of a matrix product
    queries = unit(1, 150, 96)
    found = ranked(queries, gallery, np.arange(0, 701, 10)[np.arange(150) % 71], backend=backend)
    exact = queries.astype(np.float64) @ gallery[0].astype(np.float64)
    others = queries.astype(np.float64) @ np.delete(gallery, np.s_[::10], axis=0).astype(np.float64).T
    assert found.ties.tolist() == [70] * 150
    assert found.rank.tolist() == (71 + (others > exact[:, None]).sum(axis=1)).tolist()


@BACKENDS
def test_a_constant_encoder_hits_nothing(backend: Backend) -> None:
    gallery = np.repeat(unit(0, 1, 100), 900, axis=0)
    found = ranked(np.repeat(unit(1, 1, 100), 200, axis=0), gallery, np.arange(200), backend=backend)
    assert set(found.rank.tolist()) == {900}
    assert np.array_equal(found.top, np.tile(np.arange(20), (200, 1)))


def test_both_back_ends_give_the_same_ranking_to_the_last_bit() -> None:
    queries, gallery = unit(0, 300, 256, common=1.0), unit(1, 5000, 256, common=1.0)
    targets = np.random.default_rng(2).integers(0, 5000, 300)
    assert equal(*(ranked(queries, gallery, targets, backend=backend) for backend in Backend))


def test_the_order_of_the_gallery_changes_nothing() -> None:
    queries, gallery = unit(0, 200, 300), unit(1, 3001, 300)
    gallery[1000:1500] = gallery[:500]  # ties
    order = np.random.default_rng(3).permutation(3001)
    place = np.argsort(order)
    targets = np.random.default_rng(2).integers(0, 3001, 200)
    references = np.random.default_rng(4).integers(0, 3001, 200)
    a = rank_targets(queries, gallery, targets=Targets.of(targets[:, None].tolist(), references.tolist()))
    shuffled = Targets.of(place[targets][:, None].tolist(), place[references].tolist())
    b = rank_targets(queries, gallery[order], targets=shuffled)
    for name in ("rank", "ties", "reference"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name


_ELSEWHERE = """
import sys
sys.path.insert(0, sys.argv[1])
import test_backends as t, numpy as np
found = t.ranked(t.unit(0, 130, 192), t.unit(1, 4001, 192), np.arange(130))
sys.stdout.write(repr([found.rank.tolist(), found.top.tolist(), found.top_score.tolist()]))
"""


def test_the_number_of_threads_changes_nothing() -> None:
    def with_threads(number: str) -> str:
        environment = {**os.environ, "OMP_NUM_THREADS": number, "OPENBLAS_NUM_THREADS": number}
        command = [sys.executable, "-c", _ELSEWHERE, str(Path(__file__).parent)]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    one = with_threads("1")
    assert len(one) > 1000
    assert one == with_threads("2")


def test_given_scores_are_taken_as_they_are() -> None:
    scores = given_scores(np.array([[1, 2, 2, 3]], np.float32))
    greater, at_least = scores.counts(np.array([0, 0]), np.array([[2], [3]], np.float32))
    assert (greater.tolist(), at_least.tolist()) == ([[1], [0]], [[3], [1]])


@BACKENDS
def test_several_scores_of_rows_in_any_order_are_counted(backend: Backend) -> None:
    queries, gallery = unit(0, 40, 64), unit(1, 5000, 64)
    exact = queries.astype(np.float64) @ gallery.astype(np.float64).T
    rows, columns = np.array([7, 3, 3, 39, 0]), np.random.default_rng(2).integers(0, 5000, (5, 3))
    scorer = scorer_of(gallery, backend=backend, max_norm=1.0)
    with scorer.full_fp32():
        scores = scorer.scores(queries)
        own = scores.at(np.repeat(rows, 3), columns.ravel()).reshape(5, 3)
        greater, at_least = scores.counts(rows, own)
    expected = (exact[rows, None] > exact[rows[:, None], columns][..., None]).sum(axis=2)
    assert greater.tolist() == expected.tolist()
    assert at_least.tolist() == (greater + 1).tolist()
