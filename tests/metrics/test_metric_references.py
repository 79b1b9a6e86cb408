"""Agreement with trec_eval, scikit-learn and torchmetrics on tie-free data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import pytrec_eval
import torch
from numpy.typing import NDArray
from sklearn.metrics import ndcg_score
from torchmetrics.functional import retrieval as torch_retrieval

from circus_bench.metrics import Ranks, average_precision, hit_rate, ndcg, recall, reciprocal_rank

N_QUERIES, N_GALLERY, K = 60, 200, 10


@dataclass(frozen=True)
class Data:
    """Scores of all gallery images and the targets, and the ranks that follow from them.

    Attributes:
        scores: float32 [n_queries, n_gallery], without ties within a row.
        relevant: bool [n_queries, n_gallery].
        ranks: the ranks of the targets, found by counting.
    """

    scores: NDArray[np.float32]
    relevant: NDArray[np.bool_]
    ranks: Ranks


@pytest.fixture(scope="module")
def data() -> Data:
    rng = np.random.default_rng(7)
    # Whole numbers survive a cast to float32, which pytrec_eval applies; a permutation has no ties.
    scores = np.array([rng.permutation(N_GALLERY) for _ in range(N_QUERIES)], np.float32)
    relevant = np.zeros((N_QUERIES, N_GALLERY), bool)
    lists = []
    for query in range(N_QUERIES):
        # Up to 14 targets, as in CIRCO, so that some queries have more than K; the first queries have one, as in CIRR.
        n_targets = 1 if query < 10 else int(rng.integers(1, 15))
        # Half of the targets are drawn from the top of the ranking, or few would be found within K.
        top = rng.choice(np.argsort(-scores[query])[:20], n_targets // 2, replace=False)
        relevant[query, top] = True
        rest = np.flatnonzero(~relevant[query])
        relevant[query, rng.choice(rest, n_targets - len(top), replace=False)] = True
        lists.append([1 + int((scores[query] > score).sum()) for score in scores[query, relevant[query]]])
    assert max(map(len, lists)) > K
    return Data(scores, relevant, Ranks.of(lists))


def trec(data: Data, measure: str, *, unreachable: int = 0) -> NDArray[np.float64]:
    """Run trec_eval; `unreachable` targets a query are judged relevant but not in the run."""
    qrels = {
        str(query): {
            **{f"d{image}": 1 for image in np.flatnonzero(row)},
            **{f"absent{i}": 1 for i in range(unreachable)},
        }
        for query, row in enumerate(data.relevant)
    }
    run = {str(q): {f"d{image}": float(s) for image, s in enumerate(row)} for q, row in enumerate(data.scores)}
    result = pytrec_eval.RelevanceEvaluator(qrels, {measure}).evaluate(run)
    key = measure.replace(".", "_")
    return np.array([result[str(query)][key] for query in range(len(data.scores))])


def with_unreachable(ranks: Ranks, n_more: int) -> Ranks:
    rows = np.split(ranks.values, ranks.offsets[1:-1])
    return Ranks.of([[*row, *[np.inf] * n_more] for row in rows])


def test_trec_eval_agrees(data: Data) -> None:
    np.testing.assert_allclose(ndcg(data.ranks), trec(data, "ndcg"), rtol=1e-12)
    np.testing.assert_allclose(ndcg(data.ranks, k=K), trec(data, f"ndcg_cut.{K}"), rtol=1e-12)
    np.testing.assert_allclose(recall(data.ranks, K), trec(data, f"recall.{K}"), rtol=1e-12)
    np.testing.assert_allclose(hit_rate(data.ranks, K), trec(data, f"success.{K}"), rtol=1e-12)
    np.testing.assert_allclose(reciprocal_rank(data.ranks), trec(data, "recip_rank"), rtol=1e-12)


def test_trec_eval_agrees_on_average_precision_up_to_its_denominator(data: Data) -> None:
    # map_cut divides by the number of targets, ours by at most K.
    scale = data.ranks.counts / np.minimum(data.ranks.counts, K)
    assert (scale > 1).any()
    np.testing.assert_allclose(average_precision(data.ranks, K), trec(data, f"map_cut.{K}") * scale, rtol=1e-12)
    np.testing.assert_allclose(average_precision(data.ranks, N_GALLERY), trec(data, "map"), rtol=1e-12)


def test_trec_eval_agrees_on_targets_outside_the_gallery(data: Data) -> None:
    ranks = with_unreachable(data.ranks, 2)
    np.testing.assert_allclose(ndcg(ranks), trec(data, "ndcg", unreachable=2), rtol=1e-12)
    np.testing.assert_allclose(recall(ranks, K), trec(data, f"recall.{K}", unreachable=2), rtol=1e-12)
    np.testing.assert_allclose(average_precision(ranks, N_GALLERY), trec(data, "map", unreachable=2), rtol=1e-12)


@pytest.mark.parametrize("k", [None, 1, K])
def test_scikit_learn_agrees_on_ndcg(data: Data, k: int | None) -> None:
    expected = [ndcg_score([row], [scores], k=k) for row, scores in zip(data.relevant, data.scores, strict=True)]
    np.testing.assert_allclose(ndcg(data.ranks, k=k), expected, rtol=1e-12)


def test_torchmetrics_agrees(data: Data) -> None:
    pairs = list(zip(torch.from_numpy(data.scores), torch.from_numpy(data.relevant), strict=True))
    reference = {
        "ndcg": [torch_retrieval.retrieval_normalized_dcg(s, r.long()) for s, r in pairs],
        "recall": [torch_retrieval.retrieval_recall(s, r, top_k=K) for s, r in pairs],
        "hit_rate": [torch_retrieval.retrieval_hit_rate(s, r, top_k=K) for s, r in pairs],
        "reciprocal_rank": [torch_retrieval.retrieval_reciprocal_rank(s, r) for s, r in pairs],
    }
    ours = {
        "ndcg": ndcg(data.ranks),
        "recall": recall(data.ranks, K),
        "hit_rate": hit_rate(data.ranks, K),
        "reciprocal_rank": reciprocal_rank(data.ranks),
    }
    for name, values in ours.items():
        # torchmetrics computes in float32, and takes discounts as differences of their cumulative sum (up to 35 here).
        np.testing.assert_allclose(values, np.array(reference[name], np.float64), atol=1e-5, err_msg=name)
