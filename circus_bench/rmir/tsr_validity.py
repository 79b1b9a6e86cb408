"""Calibrate TSR against known false negatives: does it tell which queries have complete labels?

A query is incomplete when the pool holds an image that answers it and is not labeled: a false negative. In the
synthetic world these are known. In any other benchmark people can find them: `pairs_benchmark` and `answer_study` make
a study for the annotation app out of images that models retrieve and nobody labeled, and `incomplete_queries` reads its
decisions. Images that no model retrieves stay unseen, so the share of incomplete queries found this way is a lower
limit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from circus_bench.audit.statistics import LEVEL, UNDEFINED, Estimate, Floats, proportion
from circus_bench.benchmark import Benchmark
from circus_bench.errors import MismatchError, format_ids
from circus_bench.io import to_plain
from circus_bench.runs.run import Run
from circus_bench.validation.assignment import assign
from circus_bench.validation.decisions import Decision
from circus_bench.validation.hash_order import hash_shuffle
from circus_bench.validation.panel import DEFAULT_K, candidate_panels
from circus_bench.validation.rubric import load_rubric
from circus_bench.validation.study import Item, Study

ANSWERS_RUBRIC = Path(__file__).parent.parent / "validation" / "rubrics" / "answers.toml"

DEFAULT_THRESHOLDS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)

NOTHING_TO_CHECK = "nothing_to_check"
"""In the source of pairs: query to TSR, of the sampled queries of which all retrieved images are labeled."""


@dataclass(frozen=True, slots=True)
class TsrBin:
    """Queries of similar TSR.

    Attributes:
        low: the least TSR in the bin; `high` is the greatest.
        high: see `low`.
        incomplete: share of them with a false negative.
    """

    low: float
    high: float
    incomplete: Estimate


@dataclass(frozen=True, slots=True)
class TsrValidity:
    """Calibration of TSR against the completeness of labels.

    Attributes:
        bins: by rising TSR.
        thresholds: least TSR to the share of incomplete queries among those that reach it.
        concordance: the chance that a complete query has a greater TSR than an incomplete one, ties counting half: 0.5
            says that TSR tells nothing. `n` is the number of queries; undefined with fewer than two of either kind, and
            where all have the same TSR.
    """

    bins: tuple[TsrBin, ...]
    thresholds: Mapping[float, Estimate]
    concordance: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Convert to strict JSON, the thresholds as a list."""
        thresholds = [{"threshold": least, "incomplete": share.to_dict()} for least, share in self.thresholds.items()]
        return {
            "bins": to_plain(self.bins),
            "thresholds": thresholds,
            "concordance": self.concordance.to_dict(),
        }


def tsr_validity(
    tsr: Mapping[str, float | None],
    incomplete: Mapping[str, bool],
    *,
    bins: int = 4,
    thresholds: Sequence[float] = DEFAULT_THRESHOLDS,
) -> TsrValidity:
    """Calibrate TSR against false negatives.

    Args:
        tsr: query to its TSR; a query without one is left out.
        incomplete: query to whether it has a false negative; a query that is not known is left out.
        bins: of equally many queries, as far as equal TSR allows.
        thresholds: of the TSR.
    """
    both = [
        (value, incomplete[query]) for query, value in sorted(tsr.items()) if query in incomplete and value is not None
    ]
    values = np.array([value for value, _ in both], np.float64)
    missed = np.array([missing for _, missing in both], bool)
    return TsrValidity(
        bins=tuple(
            TsrBin(float(values[chosen].min()), float(values[chosen].max()), proportion(missed[chosen]))
            for chosen in _binned(values, bins)
        ),
        thresholds={threshold: proportion(missed[values >= threshold]) for threshold in thresholds},
        concordance=_concordance(values[~missed], values[missed]),
    )


def _binned(values: Floats, bins: int) -> list[np.ndarray[Any, np.dtype[np.bool_]]]:
    """Cut values into bins, as masks; equal values are in one bin."""
    if not len(values):
        return []
    edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1], method="inverted_cdf"))
    of_value = np.searchsorted(edges, values, side="left")
    return [of_value == place for place in range(len(edges) + 1) if (of_value == place).any()]


def _concordance(complete: Floats, incomplete: Floats) -> Estimate:
    """Compute the area under the ROC curve, with the confidence interval of E. R. DeLong et al. (1988).

    Source: E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson, "Comparing the areas under two or more correlated
    receiver operating characteristic curves", Biometrics 44 (1988).
    """
    if min(len(complete), len(incomplete)) < 2 or len(np.unique([*complete, *incomplete])) < 2:
        return UNDEFINED
    from scipy.special import ndtri

    of_complete = _placements(complete, incomplete)
    of_incomplete = 1 - _placements(incomplete, complete)
    value, n = float(of_complete.mean()), len(complete) + len(incomplete)
    variance = of_complete.var(ddof=1) / len(complete) + of_incomplete.var(ddof=1) / len(incomplete)
    if variance == 0:  # no pair contradicts the others: Wilson's limit for as many pairs as share no query
        sure = proportion(np.full(min(len(complete), len(incomplete)), value))
        return Estimate(value, sure.low, sure.high, n)
    half = float(ndtri((1 + LEVEL) / 2)) * math.sqrt(variance)
    return Estimate(value, max(0.0, value - half), min(1.0, value + half), n)


def _placements(values: Floats, others: Floats) -> Floats:
    """Compute for each value the share of the others that are smaller, equal ones counting half."""
    ranked = np.sort(others)
    places: Floats = (np.searchsorted(ranked, values, "left") + np.searchsorted(ranked, values, "right")) / 2
    return places / len(others)


def pairs_benchmark(
    benchmark: Benchmark, runs: Sequence[Run], *, queries: int | None = None, k: int = DEFAULT_K, seed: int = 0
) -> Benchmark:
    """Make a benchmark of the pairs of a query and an unlabeled image that models retrieve, one query per pair.

    Args:
        benchmark: the benchmark, with images.
        runs: the pool whose retrieved images are checked.
        queries: number of queries that are sampled; all by default.
        k: images of each Run, see `circus_bench.validation.panel.candidate_panels`.
        seed: of the sampling.

    Returns:
        A benchmark `<name>-answers`, whose queries `<query>::<image>` have the image as their target and, in `details`,
        the query's id besides its own details, TSR among them. Under `NOTHING_TO_CHECK` its `source` has the sampled
        queries of which all retrieved images are labeled: they count as complete.

    Raises:
        MismatchError: the Runs are about another benchmark, or retrieved labeled images only.
    """
    chosen = hash_shuffle((query.id for query in benchmark.queries), seed, "answers")[:queries]
    found = candidate_panels(benchmark, runs, chosen, k=k)
    by_id = {query.id: query for query in benchmark.queries}
    unlabeled = {
        query: [image for image in found[query] if image not in by_id[query].targets] for query in sorted(found)
    }
    pairs = [
        dataclasses.replace(
            by_id[query],
            id=f"{query}::{image}",
            targets=(image,),
            details={**by_id[query].details, "query": query},
        )
        for query, images in unlabeled.items()
        for image in images
    ]
    if not pairs:
        raise MismatchError(f"{benchmark.name!r}: the models retrieved no unlabeled image; give Runs")
    # Left out, they would make the share of incomplete queries greater than it is.
    settled = {query: by_id[query].details.get("tsr") for query, images in unlabeled.items() if not images}
    source = {**benchmark.source, NOTHING_TO_CHECK: settled}
    return dataclasses.replace(benchmark, name=f"{benchmark.name}-answers", queries=tuple(pairs), source=source)


def answer_study(pairs: Benchmark, folder: str, *, raters: Sequence[str], per_item: int = 2, seed: int = 0) -> Study:
    """Make a study for the annotation app, under the rubric "does the image answer the question?".

    Args:
        pairs: made by `pairs_benchmark`.
        folder: where it is saved, relative to the study's folder or absolute.
        raters: their ids.
        per_item: raters of each pair.
        seed: of the assignment and its order.

    Raises:
        CircusError: raters share a name, or are too few.
    """
    name = pairs.name
    items = tuple(Item(f"{name}::{query.id}", name, query.id, f"{name}/unlabelled") for query in pairs.queries)
    owned = assign([item.id for item in items], raters, per_item=per_item, seed=seed)
    order = {rater: tuple(hash_shuffle(own, seed, "order", rater)) for rater, own in owned.items()}
    return Study(f"{name}: missed positives", load_rubric(ANSWERS_RUBRIC), seed, items, order, {name: folder})


def incomplete_queries(pairs: Benchmark, decisions: Iterable[Decision]) -> dict[str, bool]:
    """Tell which queries people found a false negative of.

    Args:
        pairs: made by `pairs_benchmark`.
        decisions: on the items of its study, see `circus_bench.validation.decisions.decide`.

    Returns:
        Query to True where one of its images is decided to answer it, to False where all are decided not to, or where
        there was none to decide about. A query with an undecided image and no answer is left out.

    Raises:
        MismatchError: a decision is about another benchmark.
    """
    query_of = {query.id: str(query.details["query"]) for query in pairs.queries}
    found: dict[str, list[bool | None]] = {}
    given = list(decisions)
    if foreign := [decision.item for decision in given if decision.query not in query_of]:
        raise MismatchError(f"decisions are not about {pairs.name!r} ({format_ids(foreign)})")
    for decision in given:
        found.setdefault(query_of[decision.query], []).append(decision.valid)
    decided = {query: any(valid) for query, valid in found.items() if any(valid) or None not in valid}
    return dict.fromkeys(pairs.source.get(NOTHING_TO_CHECK, ()), False) | decided


def checked_validity(checked: Iterable[tuple[Benchmark, Iterable[Decision]]]) -> TsrValidity:
    """Calibrate TSR against the false negatives that people found.

    Args:
        checked: benchmarks that `pairs_benchmark` made, such as those of both splits, each with the decisions on it.

    Raises:
        MismatchError: decisions are about another benchmark, or the queries of a benchmark have no TSR.
    """
    tsr: dict[str, float | None] = {}
    incomplete: dict[str, bool] = {}
    for pairs, decisions in checked:
        if lacking := [query.id for query in pairs.queries if "tsr" not in query.details]:
            raise MismatchError(
                f"{pairs.name!r} was not made by the pipeline: queries without a TSR ({format_ids(lacking)})"
            )
        tsr |= pairs.source.get(NOTHING_TO_CHECK, {})
        tsr |= {str(query.details["query"]): query.details["tsr"] for query in pairs.queries}
        incomplete |= incomplete_queries(pairs, decisions)
    return tsr_validity(tsr, incomplete)
