"""Compute recall and hit rate at K from the ranks of each query's targets, as an `evaluate` module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import datasets
import evaluate

from circus_bench.metrics.hit_rate import hit_rate
from circus_bench.metrics.ranks import Ranks, none_to_inf
from circus_bench.metrics.recall import recall

_DESCRIPTION = """\
Recall@K and hit rate@K from the ranks of each query's targets in the whole gallery. recall_at_K is the mean share of a
query's targets with a rank of at most K; hit_rate_at_K is the share of queries with at least one such target, which
papers on composed image retrieval call Recall@K. They are equal when every query has one target.
"""

_CITATION = """\
@book{manning2008introduction,
  title     = {Introduction to Information Retrieval},
  author    = {Manning, Christopher D. and Raghavan, Prabhakar and Sch{\\"u}tze, Hinrich},
  publisher = {Cambridge University Press},
  year      = {2008}
}
"""

_INPUTS = """
Args:
    predictions: per query, the list of the ranks of its targets, counted from 1. None (or inf) is a target that is
        never retrieved, because it is not in the gallery; it stays in the denominator.
    k: one cut-off, or several (default 1, 5, 10 and 50).

Returns:
    recall_at_<k>: for each cut-off, mean over the queries; None when there is no query.
    hit_rate_at_<k>: likewise.
    n_queries: the number of queries, the denominator of both.
    n_relevant: the number of targets of all queries.
    status: "ok", or why the values are undefined.

Example:
    >>> from circus_bench.metrics import load_metric
    >>> metric = load_metric("recall_at_k")
    >>> metric.compute(predictions=[[3], [12, 1], [None]], k=10)
    {'recall_at_10': 0.5, 'hit_rate_at_10': 0.6666666666666666, 'n_queries': 3, 'n_relevant': 4, 'status': 'ok'}
"""


class RecallAtK(evaluate.Metric):  # type: ignore[misc]
    """See `circus_bench.metrics.recall` and `circus_bench.metrics.hit_rate`."""

    def _info(self) -> Any:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": datasets.List(datasets.Value("float64"))}),
        )

    def _compute(
        self, predictions: list[list[float | None]], *, k: int | Sequence[int] = (1, 5, 10, 50)
    ) -> dict[str, Any]:
        ranks = Ranks.of(none_to_inf(predictions))
        result: dict[str, Any] = {}
        for cutoff in k if isinstance(k, Sequence) else [k]:
            for name, metric in (("recall", recall), ("hit_rate", hit_rate)):
                values = metric(ranks, cutoff)
                result[f"{name}_at_{cutoff}"] = float(values.mean()) if ranks.n_queries else None
        return {
            **result,
            "n_queries": ranks.n_queries,
            "n_relevant": len(ranks.values),
            "status": "ok" if ranks.n_queries else "undefined: no queries",
        }
