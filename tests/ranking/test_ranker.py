"""Ranks are exact, whatever the ties, the order of the gallery and the back end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from threadpoolctl import threadpool_info

from circus_bench.errors import CircusError, EmbeddingError
from circus_bench.ranking.backends import Backend
from circus_bench.ranking.ranker import (
    ABSENT,
    UNREACHABLE,
    Ranker,
    Ranking,
    ReferencePosition,
    Targets,
    check_embeddings,
    null_targets,
    rank_scores,
    rank_targets,
)

BACKENDS = pytest.mark.parametrize("backend", list(Backend))


def axis(*scores: float) -> np.ndarray:
    """A gallery that gives these scores to the query [1, 0]; the second component keeps every vector non-zero."""
    return np.array([[score, 1] for score in scores], np.float32)


QUERY = np.array([[1, 0]], np.float32)


def rank_one(gallery: np.ndarray, targets: list[int], reference: int = ABSENT, **options: object) -> Ranking:
    return rank_targets(QUERY, gallery, targets=Targets.of([targets], [reference]), **options)


@BACKENDS
def test_the_best_image_has_rank_one(backend: Backend) -> None:
    assert rank_one(axis(1, 3, 2), [1], backend=backend).rank.tolist() == [1]


@BACKENDS
def test_ties_count_against_the_target(backend: Backend) -> None:
    # Scores 2 5 2 2 1: one image is better, two tie with the target, so its rank is 1 + 1 + 2.
    found = rank_one(axis(2, 5, 2, 2, 1), [0], backend=backend)
    assert (found.rank.tolist(), found.ties.tolist()) == ([4], [2])


@BACKENDS
def test_tied_targets_of_one_query_take_consecutive_ranks_in_their_listed_order(backend: Backend) -> None:
    # Targets 3 and 0 score 2 like the non-target 4; the better image 1 comes first. Each target has 1 better and 1 tied
    # non-target before it: 3, listed first, is at 3, and 0 at 4. The other target is not among the ties.
    found = rank_one(axis(2, 5, 1, 2, 2), [3, 0], backend=backend)
    assert (found.rank.tolist(), found.ties.tolist()) == ([3, 4], [1, 1])


@BACKENDS
def test_a_constant_gallery_puts_every_target_last(backend: Backend) -> None:
    assert rank_one(axis(*[1] * 7), [0], backend=backend).rank.tolist() == [7]


@BACKENDS
@pytest.mark.parametrize(
    ("reference_score", "place"),
    [(1, ReferencePosition.BELOW), (2, ReferencePosition.TIED), (3, ReferencePosition.ABOVE)],
)
def test_the_place_of_the_reference_is_recorded(
    backend: Backend, reference_score: int, place: ReferencePosition
) -> None:
    assert rank_one(axis(2, reference_score, 0), [0], 1, backend=backend).reference.tolist() == [place]


@BACKENDS
def test_a_reference_outside_the_gallery_is_absent(backend: Backend) -> None:
    assert rank_one(axis(2, 1), [0], ABSENT, backend=backend).reference.tolist() == [ReferencePosition.ABSENT]


@BACKENDS
def test_a_reference_that_is_the_target_is_recorded_as_such(backend: Backend) -> None:
    found = rank_one(axis(2, 2, 1), [0], 0, backend=backend)
    assert (found.rank.tolist(), found.reference.tolist()) == ([2], [ReferencePosition.IS_TARGET])


@BACKENDS
def test_a_reference_that_is_an_earlier_tied_target_counts_in_the_rank_but_not_among_the_ties(backend: Backend) -> None:
    # Targets 0 and 1 tie, 0 is also the reference: the rank 2 of target 1 counts it, and without it would be 1.
    found = rank_one(axis(2, 2, 1), [0, 1], 0, backend=backend)
    assert found.rank.tolist() == [1, 2]
    assert found.ties.tolist() == [0, 0]
    assert found.reference.tolist() == [ReferencePosition.IS_TARGET, ReferencePosition.ABOVE]


@BACKENDS
def test_a_reference_that_is_a_later_tied_target_does_not_count(backend: Backend) -> None:
    found = rank_one(axis(2, 2, 1), [1, 0], 0, backend=backend)
    assert found.rank.tolist() == [1, 2]
    assert found.reference.tolist() == [ReferencePosition.BELOW, ReferencePosition.IS_TARGET]


@BACKENDS
def test_a_target_outside_the_gallery_is_unreachable_and_does_not_disturb_the_others(backend: Backend) -> None:
    found = rank_one(axis(1, 3, 2), [ABSENT, 2], backend=backend)
    assert (found.rank.tolist(), found.ties.tolist()) == ([UNREACHABLE, 2], [0, 0])


@BACKENDS
def test_the_top_is_sorted_by_score_then_by_position(backend: Backend) -> None:
    found = rank_one(axis(2, 5, 2, 7, 2), [0], top_k=4, backend=backend)
    assert found.top.tolist() == [[3, 1, 0, 2]]
    assert found.top_score.tolist() == [[7, 5, 2, 2]]


@BACKENDS
def test_the_top_of_a_large_gallery_is_that_of_a_full_sort(backend: Backend) -> None:
    # Few distinct scores, so that ties straddle the end of the top; 5,000 images take the path that prunes.
    rng = np.random.default_rng(0)
    gallery = rng.integers(-2, 3, (5000, 4)).astype(np.float32)
    gallery[:, 0] += gallery.any(axis=1) == 0
    queries = rng.integers(1, 3, (70, 4)).astype(np.float32)
    found = rank_targets(queries, gallery, targets=Targets.of([[0]] * 70, [ABSENT] * 70), top_k=20, backend=backend)
    assert np.array_equal(found.top, np.argsort(-(queries @ gallery.T), axis=1, kind="stable")[:, :20])


@BACKENDS
def test_a_top_longer_than_the_gallery_is_the_gallery(backend: Backend) -> None:
    assert rank_one(axis(1, 2), [0], top_k=50, backend=backend).top.tolist() == [[1, 0]]


@BACKENDS
def test_a_gallery_of_one_ranks_its_image_first(backend: Backend) -> None:
    assert rank_one(axis(1), [0], backend=backend).rank.tolist() == [1]


@BACKENDS
def test_no_queries_is_an_error(backend: Backend) -> None:
    with pytest.raises(EmbeddingError, match="non-empty"):
        rank_targets(np.empty((0, 2), np.float32), axis(1), targets=Targets.of([], []), backend=backend)


def brute_force(queries: np.ndarray, gallery: np.ndarray, targets: list[list[int]]) -> list[int]:
    """The definition, written out: no blocks, no counting by thresholds."""
    ranks = []
    for query, of_query in zip(queries.tolist(), targets, strict=True):
        scores = [sum(a * b for a, b in zip(query, image, strict=True)) for image in gallery.tolist()]
        for position, target in enumerate(of_query):
            better = sum(score > scores[target] for score in scores)
            tied = sum(score == scores[target] for i, score in enumerate(scores) if i not in of_query)
            before = sum(scores[sibling] == scores[target] for sibling in of_query[:position])
            ranks.append(1 + better + tied + before)
    return ranks


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, list[list[int]], list[int]]:
    """Small integer embeddings, whose products are exact in fp32 and full of ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_queries, n_gallery, dim = draw(st.integers(1, 6)), draw(st.integers(1, 30)), draw(st.integers(1, 3))
    queries, gallery = (rng.integers(1, 4, (n, dim)).astype(np.float32) for n in (n_queries, n_gallery))
    targets = [rng.permutation(n_gallery)[: rng.integers(1, 5)].tolist() for _ in range(n_queries)]
    references = rng.integers(-1, n_gallery, n_queries).tolist()
    return queries, gallery, targets, references


@BACKENDS
@given(problem=problems())
def test_ranks_follow_the_definition(
    backend: Backend, problem: tuple[np.ndarray, np.ndarray, list[list[int]], list[int]]
) -> None:
    queries, gallery, targets, references = problem
    found = rank_targets(queries, gallery, targets=Targets.of(targets, references), backend=backend)
    assert found.rank.tolist() == brute_force(queries, gallery, targets)


@given(problem=problems())
def test_removing_the_reference_gives_the_ranks_of_the_gallery_without_it(
    problem: tuple[np.ndarray, np.ndarray, list[list[int]], list[int]],
) -> None:
    queries, gallery, targets, references = problem
    found = rank_targets(queries, gallery, targets=Targets.of(targets, references))
    row = 0
    for query, of_query, reference in zip(queries, targets, references, strict=True):
        kept = [i for i in range(len(gallery)) if i != reference]
        for target in of_query:
            if target == reference:
                assert found.reference[row] == ReferencePosition.IS_TARGET
            else:
                counted = found.reference[row] in {ReferencePosition.TIED, ReferencePosition.ABOVE}
                siblings = [kept.index(other) for other in of_query if other != reference]
                expected = brute_force(query[None], gallery[kept], [siblings])
                assert found.rank[row] - counted == expected[siblings.index(kept.index(target))]
                assert found.ties[row] - (found.reference[row] == ReferencePosition.TIED) >= 0
            row += 1


@given(problem=problems(), seed=st.integers(0, 1000))
def test_ranks_do_not_depend_on_the_order_of_the_gallery(
    problem: tuple[np.ndarray, np.ndarray, list[list[int]], list[int]], seed: int
) -> None:
    queries, gallery, targets, references = problem
    order = np.random.default_rng(seed).permutation(len(gallery))
    place = np.argsort(order)
    moved = Targets.of(
        [[int(place[t]) for t in of_query] for of_query in targets],
        [int(place[r]) if r != ABSENT else ABSENT for r in references],
    )
    first = rank_targets(queries, gallery, targets=Targets.of(targets, references))
    second = rank_targets(queries, gallery[order], targets=moved)
    for name in ("rank", "ties", "reference"):
        assert np.array_equal(getattr(first, name), getattr(second, name))


@given(problem=problems())
def test_back_ends_agree_exactly_on_representable_scores(
    problem: tuple[np.ndarray, np.ndarray, list[list[int]], list[int]],
) -> None:
    queries, gallery, targets, references = problem
    rows = Targets.of(targets, references)
    by_numpy, by_torch = (rank_targets(queries, gallery, targets=rows, top_k=5, backend=backend) for backend in Backend)
    for field in fields(Ranking):
        assert np.array_equal(getattr(by_numpy, field.name), getattr(by_torch, field.name)), field.name


def test_back_ends_agree_on_ranks_whose_margin_exceeds_rounding() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((2300, 256)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries, gallery = vectors[:300], vectors[300:]
    targets = Targets.of(rng.integers(0, 2000, (300, 1)).tolist(), [ABSENT] * 300)
    by_numpy, by_torch = (rank_targets(queries, gallery, targets=targets, backend=backend) for backend in Backend)
    exact = queries.astype(np.float64) @ gallery.T.astype(np.float64)
    own = np.take_along_axis(exact, targets.index[:, None], axis=1)
    others = np.where(np.arange(2000) == targets.index[:, None], np.inf, exact)
    # A product of 256 terms of unit vectors errs by less than 256 eps = 3e-5.
    clear = (np.abs(others - own) > 3e-5).all(axis=1)
    expected = (exact > own).sum(axis=1) + 1
    assert clear.sum() > 50
    assert np.array_equal(by_numpy.rank[clear], expected[clear])
    assert np.array_equal(by_torch.rank[clear], expected[clear])


@BACKENDS
def test_small_memory_cuts_the_queries_into_blocks_without_changing_anything(backend: Backend) -> None:
    rng = np.random.default_rng(1)
    queries, gallery = (rng.standard_normal((n, 32)).astype(np.float32) for n in (500, 300))
    targets = Targets.of([rng.permutation(300)[:3].tolist() for _ in range(500)], rng.integers(0, 300, 500).tolist())
    whole = rank_targets(queries, gallery, targets=targets, top_k=10, backend=backend)
    done: list[int] = []
    ranker = Ranker(gallery, backend=backend, memory=64 * 4 * 300)
    cut = ranker.rank(queries, targets=targets, top_k=10, advance=done.append)
    assert len(done) == 8  # 500 queries, at most 64 a block
    assert sum(done) == 500
    for field in fields(Ranking):
        assert np.array_equal(getattr(whole, field.name), getattr(cut, field.name)), field.name


@BACKENDS
def test_a_ranker_ranks_one_set_of_queries_after_another(backend: Backend) -> None:
    rng = np.random.default_rng(1)
    gallery = rng.standard_normal((3000, 32)).astype(np.float32)
    ranker = Ranker(gallery, backend=backend)
    for n in (70, 300, 5):
        queries = rng.standard_normal((n, 32)).astype(np.float32)
        targets = Targets.of([[i] for i in range(n)], [ABSENT] * n)
        again = ranker.rank(queries, targets=targets, top_k=10)
        once = rank_targets(queries, gallery, targets=targets, top_k=10, backend=backend)
        for field in fields(Ranking):
            assert np.array_equal(getattr(again, field.name), getattr(once, field.name)), field.name


def test_too_little_memory_is_an_error_that_says_how_much_is_needed() -> None:
    with pytest.raises(CircusError, match="allow at least"):
        rank_one(axis(*range(1, 2000)), [0], memory=1000)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["query", "gallery"])
def test_embeddings_that_are_not_finite_are_refused(value: float, side: str) -> None:
    queries, gallery = QUERY.copy(), axis(1, 2, 3)
    (queries if side == "query" else gallery)[-1, 0] = value
    with pytest.raises(EmbeddingError, match=rf"{side} embeddings are NaN.*rows 1: {0 if side == 'query' else 2}"):
        rank_targets(queries, gallery, targets=Targets.of([[0]], [ABSENT]))


def test_embeddings_of_zero_length_are_refused() -> None:
    with pytest.raises(EmbeddingError, match="zero length"):
        check_embeddings(np.zeros((2, 3), np.float32), "query")


def test_embeddings_of_another_dtype_are_refused() -> None:
    with pytest.raises(EmbeddingError, match="float32"):
        check_embeddings(np.ones((2, 3), np.float16), "query")


def test_embeddings_of_different_dimensions_are_refused() -> None:
    with pytest.raises(EmbeddingError, match="do not fit"):
        rank_targets(np.ones((1, 3), np.float32), axis(1), targets=Targets.of([[0]], [ABSENT]))


def test_a_target_index_beyond_the_gallery_is_refused() -> None:
    with pytest.raises(CircusError, match="gallery index 5"):
        rank_one(axis(1, 2), [5])


def test_the_numpy_back_end_restores_the_threads_of_numerical_libraries() -> None:
    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    before = threads()
    rank_one(axis(1, 2), [0])
    assert threads() == before
    assert before != []


def test_the_torch_back_end_restores_the_precision_it_found() -> None:
    import torch

    torch.set_float32_matmul_precision("medium")
    try:
        rank_one(axis(1, 2), [0], backend=Backend.TORCH)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_null_targets_are_another_query_s_and_none_of_the_query_s_own() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.permutation(40)[: rng.integers(1, 6)].tolist() for _ in range(60)]
    references = rng.integers(0, 40, 60).tolist()
    targets = Targets.of(rows, references, seed=3)
    for query, own in enumerate(rows):
        null = targets.null[targets.offsets[query] : targets.offsets[query + 1]].tolist()
        assert len(set(null)) == len(own)
        assert not {*null} & {*own, references[query]}
        assert ABSENT not in null


def test_null_targets_use_every_target_once() -> None:
    targets = Targets.of([[i] for i in range(50)], [ABSENT] * 50)
    assert sorted(targets.null.tolist()) == list(range(50))


def test_null_targets_follow_from_the_seed() -> None:
    def drawn(seed: int) -> list[int]:
        return Targets.of([[i] for i in range(50)], [ABSENT] * 50, seed=seed).null.tolist()

    assert drawn(1) == drawn(1) != drawn(2)


def test_a_single_query_has_no_null_target() -> None:
    found = rank_one(axis(1, 2), [0])
    assert (found.null_rank.tolist(), found.null_reference.tolist()) == ([UNREACHABLE], [ReferencePosition.ABSENT])


def test_queries_that_share_their_only_target_have_no_null_target() -> None:
    assert null_targets(np.array([0, 1, 2]), np.array([4, 4]), np.array([ABSENT, ABSENT])).tolist() == [ABSENT] * 2


@BACKENDS
def test_the_null_rank_is_the_rank_of_the_other_query_s_target(backend: Backend) -> None:
    # Two queries, so each gets the other's target. Scores under the first query: 5 1 3; its null target is image 2.
    # The second query [0, 1] scores every image 1: its null target, image 0, is tied with all three.
    queries = np.array([[1, 0], [0, 1]], np.float32)
    found = rank_targets(queries, axis(5, 1, 3), targets=Targets.of([[0], [2]], [ABSENT, ABSENT]), backend=backend)
    assert found.null_rank.tolist() == [2, 3]


@BACKENDS
def test_the_subset_rank_counts_only_the_subset_and_never_the_reference(backend: Backend) -> None:
    # Scores 2 9 3 2 8; the subset of the query is {0, 2, 3, 4}, its reference 4. Of the rest, image 2 beats the target
    # 0 and image 3 ties with it: subset rank 3. Image 1, the best of all, is not in the subset.
    targets = Targets.of([[0]], [4], subsets=[[0, 2, 3, 4]])
    found = rank_targets(QUERY, axis(2, 9, 3, 2, 8), targets=targets, backend=backend)
    assert (found.rank.tolist(), found.subset_rank.tolist()) == ([5], [3])


@BACKENDS
def test_a_query_without_a_subset_has_no_subset_rank(backend: Backend) -> None:
    targets = Targets.of([[0], [1]], [ABSENT, ABSENT], subsets=[[], [0, 1, ABSENT]])
    found = rank_targets(np.repeat(QUERY, 2, axis=0), axis(2, 1, 3), targets=targets, backend=backend)
    assert found.subset_rank.tolist() == [UNREACHABLE, 2]


def test_a_random_ranker_scores_the_chance_level_on_subsets() -> None:
    # Five images compete in a subset of six without its reference, so that chance is 1/5, not 1/6. Every query has six
    # images of its own, so that the queries are independent.
    rng = np.random.default_rng(0)
    n = 2500
    queries, gallery = (rng.standard_normal((count, 8)).astype(np.float32) for count in (n, 6 * n))
    subsets = np.arange(6 * n).reshape(n, 6).tolist()
    targets = Targets.of([[s[1]] for s in subsets], [s[0] for s in subsets], subsets=subsets)
    first = (rank_targets(queries, gallery, targets=targets).subset_rank == 1).mean()
    # Three standard errors of a share of 0.2 over 2,500 queries: 3 sqrt(0.16 / 2500) = 0.024; 1/6 lies outside.
    assert abs(first - 0.2) < 0.024


def test_ranks_from_given_scores_are_those_of_the_embeddings() -> None:
    rng = np.random.default_rng(0)
    queries, gallery = (rng.integers(1, 9, (n, 3)).astype(np.float32) for n in (20, 70_000))
    targets = Targets.of(rng.integers(0, 70_000, (20, 2)).tolist(), rng.integers(0, 70_000, 20).tolist())
    given = rank_scores(queries @ gallery.T, targets=targets, top_k=5)
    ranked = rank_targets(queries, gallery, targets=targets, top_k=5)
    for field in fields(Ranking):
        assert np.array_equal(getattr(given, field.name), getattr(ranked, field.name)), field.name


def test_images_without_a_score_rank_below_every_target() -> None:
    scores = np.array([[np.nan, 1, -np.inf, 2]], np.float32)
    assert rank_scores(scores, targets=Targets.of([[1]], [ABSENT])).rank.tolist() == [2]


def test_a_target_without_a_score_is_refused() -> None:
    with pytest.raises(EmbeddingError, match="without a finite score in the rows 1: 0"):
        rank_scores(np.array([[np.nan, 1]], np.float32), targets=Targets.of([[0]], [ABSENT]))


@BACKENDS
def test_a_ranker_is_shared_by_threads(backend: Backend) -> None:
    rng = np.random.default_rng(1)
    gallery = rng.standard_normal((3000, 32)).astype(np.float32)
    sets = [rng.standard_normal((n, 32)).astype(np.float32) for n in (70, 300, 5, 200)]
    targets = [Targets.of([[i] for i in range(len(queries))], [ABSENT] * len(queries)) for queries in sets]
    before = threadpool_info()
    one, another = Ranker(gallery, backend=backend), Ranker(gallery, backend=backend)
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(ranker.rank, queries, targets=rows, top_k=3)
            for queries, rows in zip(sets * 4, targets * 4, strict=True)
            for ranker in (one, another)
        ]
        found = [job.result() for job in jobs]
    expected = [
        rank_targets(queries, gallery, targets=rows, top_k=3) for queries, rows in zip(sets, targets, strict=True)
    ]
    for place, ranking in enumerate(found):
        assert np.array_equal(ranking.rank, expected[place // 2 % 4].rank)
        assert np.array_equal(ranking.top, expected[place // 2 % 4].top)
    assert threadpool_info() == before


@BACKENDS
def test_any_memory_layout_of_the_gallery_will_do(backend: Backend) -> None:
    # So many near scores that the gallery's equal rows are looked for.
    gallery = np.asfortranarray(np.repeat(axis(1), 1000, axis=0))
    targets = Targets.of([[i] for i in range(100)], [ABSENT] * 100)
    found = rank_targets(np.repeat(QUERY, 100, axis=0), gallery, targets=targets, backend=backend)
    assert set(found.rank.tolist()) == {1000}


@pytest.mark.parametrize(
    ("targets", "reference", "subset", "said"),
    [
        ([3], 0, [], "index has gallery index 3"),
        ([-2], 0, [], "index has gallery index -2"),
        ([0], 3, [], "reference has gallery index 3"),
        ([0], 1, [1, 7], "subset_index has gallery index 7"),
        ([0, 0], 1, [], "a target twice"),
    ],
)
def test_what_is_not_in_the_gallery_is_refused(
    targets: list[int], reference: int, subset: list[int], said: str
) -> None:
    rows = Targets.of([targets], [reference], subsets=[subset])
    with pytest.raises(CircusError, match=said):
        rank_targets(QUERY, axis(1, 2, 3), targets=rows)
    with pytest.raises(CircusError, match=said):
        rank_scores(np.array([[1, 2, 3]], np.float32), targets=rows)


def test_a_negative_top_k_is_refused() -> None:
    with pytest.raises(CircusError, match="top_k is -1"):
        rank_one(axis(1, 2), [0], top_k=-1)


@pytest.mark.parametrize("size", [1e20, 1e-30])
def test_a_gallery_row_that_cannot_be_squared_is_refused(size: float) -> None:
    gallery = np.full((70, 5), size, np.float32)
    with pytest.raises(EmbeddingError, match="gallery embeddings"):
        rank_one(np.concatenate([axis(1, 2), gallery[:, :2]]), [0])


@BACKENDS
def test_tiny_vectors_are_ranked_as_exactly_as_others(backend: Backend) -> None:
    rng = np.random.default_rng(0)
    gallery = (rng.integers(1, 5, (300, 8)) * 2.0**-66).astype(np.float32)
    targets = Targets.of([[i] for i in range(300)], [ABSENT] * 300)
    small = rank_targets(gallery, gallery, targets=targets, backend=backend)
    large = rank_targets(gallery * np.float32(2**66), gallery * np.float32(2**66), targets=targets, backend=backend)
    assert small.ties.min() >= 0
    assert small.rank.min() >= 1
    assert np.mean(small.rank == large.rank) > 0.5  # below the normal numbers exact products differ by more than a bit
