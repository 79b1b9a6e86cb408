"""Compute the composition gap of one model on one benchmark, as an `evaluate` module."""

from __future__ import annotations

import math
from typing import Any

import datasets
import evaluate

from circus_bench.errors import FormatError
from circus_bench.metrics.comp_gap import comp_gap
from circus_bench.metrics.hub_modules import CIRCUS_CITATION
from circus_bench.metrics.ndcg import ndcg
from circus_bench.metrics.ranks import Ranks, none_to_inf

_DESCRIPTION = """\
CompGap = 1 - max(I, T) / MM: how much of a model's score on composed image retrieval needs both parts of the query. MM,
T and I are the mean full-gallery nDCG with both parts, with the modification text alone and with the reference image
alone. 1 means that neither part alone retrieves anything, 0 that one part alone does as well as both; it is negative
when one part alone does better, and undefined (None, never 0) when MM is 0.
"""

_INPUTS = """
Args:
    multimodal: per query, the list of the ranks of its targets in the whole gallery, counted from 1. None (or inf) is a
        target that is never retrieved, because it is not in the gallery; it counts in the ideal.
    text_only: the same for the same queries and targets, with the modification text alone.
    image_only: the same, with the reference image alone.

Returns:
    comp_gap: at most 1; None when it is undefined.
    ndcg_multimodal, ndcg_text_only, ndcg_image_only: means over the queries; None when there is no query.
    n_queries: the number of queries.
    status: "ok", or why the gap is undefined.

Example:
    One query with one target, at rank 1 with both parts: nDCG 1, against 1 / log2(1 + 3) = 1/2 with the text alone.

    >>> from circus_bench.metrics import load_metric
    >>> metric = load_metric("comp_gap")
    >>> found = metric.compute(multimodal=[[1]], text_only=[[3]], image_only=[[15]])
    >>> found["comp_gap"], found["status"]
    (0.5, 'ok')
"""


class CompGap(evaluate.Metric):  # type: ignore[misc]
    """See `circus_bench.metrics.comp_gap`, which also takes nDCG values."""

    def _info(self) -> Any:
        ranks = datasets.List(datasets.Value("float64"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=CIRCUS_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"multimodal": ranks, "text_only": ranks, "image_only": ranks}),
            homepage="https://arxiv.org/abs/2605.14787",
            reference_urls=["https://arxiv.org/abs/2605.14787"],
        )

    def _compute(
        self,
        multimodal: list[list[float | None]],
        text_only: list[list[float | None]],
        image_only: list[list[float | None]],
    ) -> dict[str, Any]:
        given = {"multimodal": multimodal, "text_only": text_only, "image_only": image_only}
        ranks = {condition: Ranks.of(none_to_inf(lists)) for condition, lists in given.items()}
        counts = [condition.counts.tolist() for condition in ranks.values()]
        if not counts[0] == counts[1] == counts[2]:
            raise FormatError("a query has as many targets, and as many ranks, under one condition as under another")
        scores = {condition: ndcg(of_targets) for condition, of_targets in ranks.items()}
        gap = comp_gap(scores["multimodal"], scores["text_only"], scores["image_only"])
        n_queries = len(multimodal)
        status = "undefined: multimodal nDCG is 0" if n_queries else "undefined: no queries"
        return {
            "comp_gap": None if math.isnan(gap) else gap,
            **{f"ndcg_{name}": float(values.mean()) if n_queries else None for name, values in scores.items()},
            "n_queries": n_queries,
            "status": status if math.isnan(gap) else "ok",
        }
