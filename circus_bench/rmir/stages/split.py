"""Assign the queries whose labels are most likely complete to the test split: stage 7.

TSR is computed on the candidates of the visual index, in its order: see `circus_bench.metrics.tsr`. Lists that are
shorter than the index was asked for can be filled up with artificial negatives at their end, which raise TSR; how many
there are is in every row. A list without a single judged candidate has no TSR, and its query is for training.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

from circus_bench.metrics.tsr import Verdict, tsr
from circus_bench.rmir.config import SplitSettings, TsrScope
from circus_bench.rmir.records import Candidate, CandidateConsensus, Index, Split, SplitAssignment
from circus_bench.rmir.stages.consensus import positives_by_query

VERSION = 1


def split(
    survivors: Sequence[CandidateConsensus],
    candidates: Sequence[Candidate],
    judged: Sequence[CandidateConsensus],
    *,
    visual_k: int,
    settings: SplitSettings,
) -> list[SplitAssignment]:
    """Assign each query that has a positive to a split.

    Args:
        survivors: what stage 5 kept.
        candidates: what stage 3 found.
        judged: all that the judges saw.
        visual_k: candidates that the visual index was asked for.
        settings: of the split.

    Returns:
        One row per query, in the order of the survivors.
    """
    queries = list(positives_by_query(survivors))
    lists = visual_lists(survivors, candidates, settings=settings)
    verdicts = {(row.query, row.image): _verdicts(row) for row in judged}
    scored: dict[str, tuple[float | None, int, int]] = {}
    for query in queries:
        seen = [verdicts[query, image] for image in lists.get(query, ())]
        artificial = max(0, visual_k - len(seen)) if settings.pad and seen else 0
        padding = [[Verdict.NEGATIVE] * len(seen[0])] * artificial if seen else []
        scored[query] = (tsr([*seen, *padding]) if seen else None, len(seen), artificial)
    test = _test({query: value for query, (value, _, _) in scored.items() if value is not None}, len(queries), settings)
    return [SplitAssignment(query, Split.TEST if query in test else Split.TRAIN, *scored[query]) for query in queries]


def visual_lists(
    survivors: Sequence[CandidateConsensus], candidates: Sequence[Candidate], *, settings: SplitSettings
) -> dict[str, list[str]]:
    """Collect the images that TSR is computed on, by query, best first."""
    alive = {(row.query, row.image) for row in survivors}
    found: dict[str, list[str]] = {}
    for row in sorted(candidates, key=lambda row: row.rank):
        wanted = settings.lists is TsrScope.JUDGED or (row.query, row.image) in alive
        if row.index is Index.VISUAL and wanted:
            found.setdefault(row.query, []).append(row.image)
    return found


def _verdicts(row: CandidateConsensus) -> list[Verdict]:
    """List the votes on a candidate; TSR does not depend on whose they are."""
    counts = {Verdict.POSITIVE: row.accepts, Verdict.NEGATIVE: row.rejects, Verdict.ABSTAIN: row.abstentions}
    return [verdict for verdict, count in counts.items() for _ in range(count)]


def _test(values: Mapping[str, float], n_queries: int, settings: SplitSettings) -> set[str]:
    """Choose the queries of the test split."""
    if settings.threshold is not None:
        return {query for query, value in values.items() if value >= settings.threshold}
    size = settings.test_size if settings.test_size is not None else math.floor(n_queries * settings.test_share + 0.5)

    # Queries of the same TSR come in an order that has nothing to do with them.
    def order(query: str) -> tuple[float, str]:
        return -values[query], hashlib.sha256(f"{settings.seed} {query}".encode()).hexdigest()

    return set(sorted(values, key=order)[:size])
