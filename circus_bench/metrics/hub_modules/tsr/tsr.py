"""Compute the test-set reliability of judged candidate lists, as an `evaluate` module."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from circus_bench.metrics.tsr import Verdict, tsr

_DESCRIPTION = """\
Test-set reliability (TSR) of the ranked candidate lists that the queries of a retrieval test set were judged on. For a
list of K candidates, neg(i) is the share of judges that call candidate i negative, 0 if fewer than half do; TSR is the
mean over i of the mean of neg(i), ..., neg(K). A list that ends in sure negatives makes a missed positive beyond K
unlikely. The value of a test set is the mean over its lists.
"""

_CITATION = """\
@inproceedings{li2026rmir,
  title     = {{RMIR}: A Benchmark Dataset for Reasoning-Intensive Multimodal Image Retrieval},
  author    = {Li, Yijiang and Kotian, Kunal and Marjaninejad, Ali and Friedenberg, Meir and Pavani, Kaushik and
               Dasgupta, Sunny},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)},
  year      = {2026}
}
"""

_INPUTS = """
Args:
    predictions: per candidate list, its candidates from best to worst, each as the list of its verdicts, one per judge:
        "negative", "positive" or "abstain". A judge that abstains stays in the denominator.
    return_values: whether to return the TSR of each list as well (default False).

Returns:
    tsr: mean over the lists; None when there is no list.
    n_lists: the number of lists.
    k_min, k_max: the lengths of the shortest and the longest list. Lists of different length do not compare: appended
        negatives raise the value.
    n_verdicts, n_abstain: the number of verdicts, and of abstentions among them.
    status: "ok", or why the value is undefined.
    values: one per list, if asked for.

Example:
    One judge; a positive first, then three negatives: (3/4 + 1 + 1 + 1) / 4.

    >>> from circus_bench.metrics import load_metric
    >>> metric = load_metric("tsr")
    >>> metric.compute(predictions=[[["positive"], ["negative"], ["negative"], ["negative"]]])["tsr"]
    0.9375
"""


class Tsr(evaluate.Metric):  # type: ignore[misc]
    """See `circus_bench.metrics.tsr`."""

    def _info(self) -> Any:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": datasets.List(datasets.List(datasets.Value("string")))}),
        )

    def _compute(self, predictions: list[list[list[str]]], *, return_values: bool = False) -> dict[str, Any]:
        values = [tsr(verdicts) for verdicts in predictions]
        lengths = [len(verdicts) for verdicts in predictions]
        verdicts = [verdict for candidates in predictions for candidate in candidates for verdict in candidate]
        result: dict[str, Any] = {
            "tsr": sum(values) / len(values) if values else None,
            "n_lists": len(values),
            "k_min": min(lengths, default=None),
            "k_max": max(lengths, default=None),
            "n_verdicts": len(verdicts),
            "n_abstain": verdicts.count(Verdict.ABSTAIN),
            "status": "ok" if values else "undefined: no lists",
        }
        if return_values:
            result["values"] = values
        return result
