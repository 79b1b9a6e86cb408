"""Small parts of a dataset folder: a benchmark whose images may be passed on, and verdicts on its queries."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numpy as np
from PIL import Image

from circus_bench.benchmark import Benchmark, Condition, Gallery, Protocol, Query, ReferencePolicy
from circus_bench.hub.tables import LabeledBenchmark
from circus_bench.labels.labels import Labels, Subset
from circus_bench.labels.provenance import Provenance
from circus_bench.labels.query_label import QueryLabel, RejectionReason
from circus_bench.metrics.shortcut import Label, Shortcut

FREE = {"license": "CC0-1.0", "image_license": "CC0-1.0", "images_redistributable": True}

IN_SUBSET = {Subset.FULL: ["q0", "q1", "q2", "q3"], Subset.SF: ["q1", "q2", "q3"], Subset.V: ["q1", "q3"]}
"""The queries of `made_part`: q0 is a shortcut, people rejected q2."""


def made_benchmark(*, name: str = "made", images: bool = True, size: int = 32, **changes: Any) -> Benchmark:
    """Four queries in a gallery of six; the reference of q3 is outside it, q2 has two targets and a subset."""
    ids = tuple(f"g{i}" for i in range(6))
    queries = (
        Query("q0", "g0", "make it red", ("g1",), group="colour"),
        Query("q1", "g1", "two  of “them”", ("g2",), group="number", details={"kind": ["x", 1]}),
        Query("q2", "g2", "smaller", ("g3", "g4"), subset=("g2", "g3", "g4", "g5")),
        Query("q3", "outside", "the same, by night", ("g5",)),
    )
    held = {image_id: png(seed, size) for seed, image_id in enumerate((*ids, "outside"))} if images else None
    settings: dict[str, Any] = {
        "name": name,
        "protocol": Protocol(f"{name}/test", ReferencePolicy.KEPT, gallery="six images"),
        "queries": queries,
        "gallery": Gallery(ids, held),
        "source": FREE,
    }
    return Benchmark(**{**settings, **changes})


def made_labels(benchmark: Benchmark) -> Labels:
    """The verdicts behind `IN_SUBSET`."""
    ranks = {Condition.MULTIMODAL: 4, Condition.TEXT_ONLY: 50, Condition.IMAGE_ONLY: None}
    composed, open_ = Label.COMPOSITION_REQUIRED, Label.UNRESOLVED
    verdicts = [
        QueryLabel("q0", Label.SHORTCUT, Shortcut.TEXT_ONLY, {**ranks, Condition.TEXT_ONLY: 2}, support_unimodal=3),
        QueryLabel("q1", composed, best_rank=ranks, support_unimodal=0, audited=True, valid=True, stratum=composed),
        QueryLabel("q2", open_, audited=True, valid=False, stratum=open_, reasons=(RejectionReason.QUERY_TOO_BROAD,)),
        QueryLabel("q3", open_, audited=True, valid=True, stratum=open_),
    ]
    origin = Provenance(source="made up", k=10, pool=("tests/a", "tests/b"), n_queries=4)
    return Labels(benchmark.name, origin, {verdict.query: verdict for verdict in verdicts})


def made_part(**settings: Any) -> LabeledBenchmark:
    """`made_benchmark` with `made_labels`."""
    benchmark = made_benchmark(**settings)
    return LabeledBenchmark(benchmark, made_labels(benchmark))


def without_images(benchmark: Benchmark) -> Benchmark:
    """The annotations alone."""
    return dataclasses.replace(benchmark, gallery=Gallery(benchmark.gallery.ids))


def png(seed: int, size: int = 32) -> bytes:
    """A PNG file of noise."""
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
