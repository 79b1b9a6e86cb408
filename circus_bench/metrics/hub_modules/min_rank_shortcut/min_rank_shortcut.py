"""Label a benchmark's queries by min-rank over a pool of models, as an `evaluate` module."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from circus_bench.metrics._checks import numbers
from circus_bench.metrics.hub_modules import CIRCUS_CITATION
from circus_bench.metrics.ranks import none_to_inf
from circus_bench.metrics.shortcut import min_rank_labels

_DESCRIPTION = """\
Labels the queries of a composed image retrieval benchmark by the best ranks that a pool of models reaches. A query is a
shortcut if a model retrieves a target among the first K from the modification text alone or from the reference image
alone; else composition_required if a model does from both together; else unresolved. The last two make up the
shortcut-free queries. The result describes the benchmark and the pool, not one model.
"""

_INPUTS = """
Args:
    best_multimodal: per query, one rank per model of the pool, in the same order throughout: the rank of the query's
        best target, counted from 1. None (or inf) is a query none of whose targets is retrieved.
    best_text_only: the same with the modification text alone.
    best_image_only: the same with the reference image alone.
    k: the rank up to which a query counts as solved (default 10).
    min_unimodal: models needed for a shortcut (default 1).
    min_multimodal: models needed for composition_required (default 1).
    return_labels: whether to return the label of each query as well (default False).

Returns:
    shortcut, composition_required, unresolved, shortcut_free: numbers of queries.
    shortcut_text_only, shortcut_image_only, shortcut_both: numbers of shortcut queries by modality.
    shortcut_share, composition_required_share, unresolved_share, shortcut_free_share: shares of all queries.
    n_queries, n_models, k: what the numbers rest on.
    labels, details: one per query, if asked for; the detail is "" for a query that is no shortcut.

Example:
    Two models, three queries.

    >>> from circus_bench.metrics import load_metric
    >>> metric = load_metric("min_rank_shortcut")
    >>> found = metric.compute(
    ...     best_multimodal=[[1, 2], [4, 30], [90, 80]],
    ...     best_text_only=[[7, 9], [55, 70], [60, 70]],
    ...     best_image_only=[[99, 41], [41, 40], [50, None]],
    ...     return_labels=True,
    ... )
    >>> found["shortcut"], found["composition_required"], found["unresolved"]
    (1, 1, 1)
    >>> found["labels"]
    ['shortcut', 'composition_required', 'unresolved']
"""


class MinRankShortcut(evaluate.Metric):  # type: ignore[misc]
    """See `circus_bench.metrics.shortcut`."""

    def _info(self) -> Any:
        ranks = datasets.List(datasets.Value("float64"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=CIRCUS_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"best_multimodal": ranks, "best_text_only": ranks, "best_image_only": ranks}),
            homepage="https://arxiv.org/abs/2605.14787",
            reference_urls=["https://arxiv.org/abs/2605.14787"],
        )

    def _compute(
        self,
        best_multimodal: list[list[float | None]],
        best_text_only: list[list[float | None]],
        best_image_only: list[list[float | None]],
        *,
        k: int = 10,
        min_unimodal: int = 1,
        min_multimodal: int = 1,
        return_labels: bool = False,
    ) -> dict[str, Any]:
        found = min_rank_labels(
            numbers(none_to_inf(best_multimodal), "best_multimodal").T,
            numbers(none_to_inf(best_text_only), "best_text_only").T,
            numbers(none_to_inf(best_image_only), "best_image_only").T,
            k=k,
            min_unimodal=min_unimodal,
            min_multimodal=min_multimodal,
        )
        n_queries = len(found.labels)
        counts = {label.value: count for label, count in found.counts().items()}
        counts["shortcut_free"] = int(found.shortcut_free.sum())
        result: dict[str, Any] = {
            **counts,
            **{f"shortcut_{detail}": count for detail, count in found.detail_counts().items()},
            **{f"{name}_share": count / n_queries for name, count in counts.items()},
            "n_queries": n_queries,
            "n_models": len(best_multimodal[0]),
            "k": found.k,
        }
        if return_labels:
            result |= {"labels": found.labels.tolist(), "details": found.details.tolist()}
        return result
