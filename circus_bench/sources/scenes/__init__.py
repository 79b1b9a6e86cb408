"""Generate `scenes`, a synthetic benchmark of known ground truth, so that an audit can be checked.

Every image is drawn by a program and every query's kind is known by construction. It tells whether an audit finds what
is there; it says nothing about photographs.

Example:
    >>> benchmark = scenes(seed=7, queries=40, gallery=400)
    >>> len(benchmark.queries), len(benchmark.gallery.ids)
    (40, 400)
    >>> {expected_label(query, 10) for query in benchmark.queries if query.group == "image_shortcut"}
    {'shortcut'}
"""

from __future__ import annotations

import numpy as np

from circus_bench.benchmark import Benchmark, Gallery, Protocol, Query, ReferencePolicy
from circus_bench.errors import BenchmarkError
from circus_bench.sources.scenes.synthetic import QueryKind, SyntheticQuery, make_synthetic_set
from circus_bench.sources.scenes.world import Scene, encode_png, render

GENERATOR_VERSION = 1
_RENDERED_AT_ONCE = 256
_DISTRACTOR_MARGIN = 4  # this many times K text distractors leave a text-only hit to chance

__all__ = ["GENERATOR_VERSION", "QueryKind", "expected_label", "scenes"]


def scenes(seed: int = 7, queries: int = 600, *, gallery: int = 3000) -> Benchmark:
    """Generate the benchmark. The same arguments give the same benchmark.

    Args:
        seed: of the scenes, the queries and the jitter of the images.
        queries: number of queries; each kind has a fixed share.
        gallery: number of images, references included.

    Raises:
        BenchmarkError: the gallery is too small for the queries.
    """
    made = make_synthetic_set(seed=seed, queries=queries, gallery=gallery)
    ids = [f"scene-{index:05d}" for index in range(gallery)]
    return Benchmark(
        name="scenes",
        protocol=Protocol(
            id="scenes/test",
            reference=ReferencePolicy.REMOVED,
            gallery="all images, references included",
            positives="the one planted target",
            captions="the generated text, unchanged",
        ),
        queries=tuple(_query(number, query, ids) for number, query in enumerate(made.queries)),
        gallery=Gallery(tuple(ids), dict(zip(ids, _images(made.scenes, seed), strict=True))),
        source={
            "generator": "circus_bench.sources.scenes",
            "generator_version": GENERATOR_VERSION,
            "seed": seed,
            "queries": queries,
            "gallery": gallery,
            "license": "Apache-2.0",
        },
    )


def expected_label(query: Query, k: int) -> str | None:
    """Return the label that an ideal pool would give a synthetic query at cutoff K, with the reference removed.

    An ideal text-only model ranks the `n_text` images that fulfill the text first, in any order; an ideal image-only
    model ranks the `n_near` near-duplicates of the reference first; an ideal composed model finds the outcome of the
    edit.

    - `shortcut` is certain when all images that fulfill the text fit into the top K, target included (`n_text` <= K),
      or all near-duplicates and then the target of an image shortcut (`n_near` + 1 <= K).
    - No shortcut is near certain when the text leaves at least 4 K candidates and K near-duplicates fill the image-only
      top K. A valid composed query is then `composition_required`; a query that is too broad or invalid is
      `unresolved`, for nothing tells its target from others.
    - In between, the label is a matter of chance.

    Args:
        query: a query of `scenes`.
        k: the cutoff.

    Returns:
        `shortcut`, `composition_required`, `unresolved`, or None where it is left to chance.

    Raises:
        BenchmarkError: the query is not of `scenes`.
    """
    try:
        kind = QueryKind(query.details["kind"])
        n_text, n_near = int(query.details["n_text"]), int(query.details["n_near"])
    except (KeyError, ValueError) as error:
        raise BenchmarkError(f"query {query.id!r} is not one of the benchmark `scenes`: {error!r}") from error
    if n_text <= k or (kind is QueryKind.IMAGE_SHORTCUT and n_near + 1 <= k):
        return "shortcut"
    if kind in (QueryKind.TEXT_SHORTCUT, QueryKind.IMAGE_SHORTCUT) or n_text < _DISTRACTOR_MARGIN * k or n_near < k:
        return None
    return "composition_required" if kind is QueryKind.COMPOSITION_REQUIRED else "unresolved"


def _query(number: int, synthetic: SyntheticQuery, ids: list[str]) -> Query:
    kind = synthetic.kind.value
    return Query(
        id=f"q-{number:04d}",
        reference=ids[synthetic.reference],
        text=synthetic.text,
        targets=(ids[synthetic.target],),
        group=kind,
        details={"kind": kind, "edit": synthetic.edit, "n_text": synthetic.n_text, "n_near": synthetic.n_near},
    )


def _images(pictured: tuple[Scene, ...], seed: int) -> list[bytes]:
    rng = np.random.default_rng(seed)
    starts = range(0, len(pictured), _RENDERED_AT_ONCE)
    return [encode_png(image) for start in starts for image in render(pictured[start : start + _RENDERED_AT_ONCE], rng)]
