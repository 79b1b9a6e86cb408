"""Runs made from ranks that a test writes down, without an encoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from circus_bench.benchmark import Condition, Fingerprint, Protocol, ReferencePolicy
from circus_bench.encoding.encoder import ModelIdentity
from circus_bench.ranking.backends import Backend
from circus_bench.ranking.ranker import UNREACHABLE, Ranking, ReferencePosition
from circus_bench.runs.manifest import Manifest
from circus_bench.runs.run import Run
from circus_bench.runs.tables import ConditionResult

Ranks = Sequence[int | Sequence[int | None] | None]
"""For each query the rank of its target, or a list of ranks of its targets; None is a target outside the gallery."""


def make_run(
    multimodal: Ranks,
    text_only: Ranks,
    image_only: Ranks,
    *,
    model: str = "tests/a",
    revision: str = "1",
    policy: ReferencePolicy = ReferencePolicy.KEPT,
    nulls: Mapping[Condition, Sequence[int]] | None = None,
    ties: Mapping[Condition, Sequence[int]] | None = None,
    places: Mapping[Condition, Sequence[ReferencePosition]] | None = None,
    subsets: Mapping[Condition, Sequence[int]] | None = None,
    **manifest: Any,
) -> Run:
    """A Run with these ranks (reference kept) on queries q0, q1, ... of a benchmark called `made`.

    Args:
        multimodal: see `Ranks`; likewise the two others.
        model: the model's name.
        revision: of the model.
        policy: the protocol's reference policy.
        nulls: null ranks per row; there are none by default.
        ties: ties per row; 0 by default.
        places: the reference's place per row; by default it is not in the gallery.
        subsets: ranks within the queries' subsets per row; they have none by default.
        manifest: changes to the manifest.
    """
    by_condition = dict(zip(Condition, (multimodal, text_only, image_only), strict=True))
    counts = [len(_row(of_query)) for of_query in multimodal]
    targets = tuple(tuple(f"t{i}.{j}" for j in range(count)) for i, count in enumerate(counts))
    results = {}
    for condition, given in by_condition.items():
        rank = np.array([UNREACHABLE if r is None else r for of_query in given for r in _row(of_query)], np.int64)
        zeros = np.zeros(len(rank), np.int64)
        ranking = Ranking(
            rank=rank,
            ties=np.array((ties or {}).get(condition, zeros), np.int64),
            reference=np.array((places or {}).get(condition, zeros), np.int8),
            null_rank=np.array((nulls or {}).get(condition, zeros), np.int64),
            null_reference=zeros.astype(np.int8),
            subset_rank=np.array((subsets or {}).get(condition, zeros), np.int64),
            top=np.zeros((len(given), 2), np.int64),
            top_score=np.tile(np.array([0.5, 0.25], np.float32), (len(given), 1)),
            subset_top=np.zeros((len(given), 0), np.int64),
        )
        results[condition] = ConditionResult(ranking, (("i0", "i1"),) * len(given), ((),) * len(given))
    settings: dict[str, Any] = {
        "model": ModelIdentity(model, revision, "float32"),
        "benchmark": "made",
        "fingerprint": Fingerprint("annotations of made", "images of made"),
        "protocol": dataclasses.asdict(Protocol("made/test", policy)),
        "n_queries": len(counts),
        "n_gallery": 1000,
        "dim": 2,
        "seed": 0,
        "backend": Backend.NUMPY,
    }
    queries = tuple(f"q{i}" for i in range(len(counts)))
    return Run(Manifest(**{**settings, **manifest}), queries, targets, results)


def _row(ranks: int | Sequence[int | None] | None) -> Sequence[int | None]:
    return ranks if isinstance(ranks, Sequence) else (ranks,)
