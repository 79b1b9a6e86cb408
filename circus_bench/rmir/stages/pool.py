"""Collect the retrieval pool, the images that every query is ranked against: stage 6.

The pool is the union of the candidates that survived, of the queries that still have a positive: what the paper calls
completeness over difficulty. It is not the seed pool without what was deleted, for most of that no judge has seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from circus_bench.rmir.records import CandidateConsensus, PoolImage
from circus_bench.rmir.stages.consensus import positives_by_query

VERSION = 1


def pool(survivors: Sequence[CandidateConsensus]) -> list[PoolImage]:
    """Collect the images of the pool, by id, from the candidates that stage 5 kept."""
    alive = positives_by_query(survivors)
    return [PoolImage(image) for image in sorted({row.image for row in survivors if row.query in alive})]
