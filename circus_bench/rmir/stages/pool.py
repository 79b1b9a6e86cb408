"""Stage 6: the images that every query is ranked against.

The pool is the union of the candidates that survived, of the queries that still have a positive: what the paper calls
completeness over difficulty. It is not the seed pool without what was deleted, for most of that no judge has seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from circus_bench.rmir.records import Judged, PoolImage
from circus_bench.rmir.stages.consensus import answered

VERSION = 1


def pool(survivors: Sequence[Judged]) -> list[PoolImage]:
    """Collect the images of the pool, by id.

    Args:
        survivors: what stage 5 kept.
    """
    alive = answered(survivors)
    return [PoolImage(image) for image in sorted({row.image for row in survivors if row.query in alive})]
