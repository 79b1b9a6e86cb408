"""Audit composed image retrieval benchmarks for shortcuts, and score models honestly on the rest.

The names below are imported when they are first used, so that `import circus_bench` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from circus_bench._version import __version__

if TYPE_CHECKING:
    from circus_bench.audit.audit import Audit, audit_runs
    from circus_bench.audit.report import write_report
    from circus_bench.audit.scores import Scores, score_run
    from circus_bench.benchmark import Benchmark, Condition, Defect, Gallery, Protocol, Query, ReferencePolicy
    from circus_bench.encoding.embedding_store import EmbeddingStore
    from circus_bench.encoding.encoder import EncodeSettings
    from circus_bench.errors import CircusError
    from circus_bench.hub.loading import load_benchmark
    from circus_bench.hub.writer import save_benchmark
    from circus_bench.labels.formats import load_labels
    from circus_bench.labels.labels import Labels, Subset
    from circus_bench.labels.published import published_labels
    from circus_bench.metrics.loading import load_metric
    from circus_bench.metrics.shortcut import Label
    from circus_bench.models import load_encoder
    from circus_bench.ranking.ranker import rank_scores, rank_targets
    from circus_bench.runs.run import Run, run_benchmark

_HOME = {
    "Audit": "audit.audit",
    "Benchmark": "benchmark",
    "CircusError": "errors",
    "Condition": "benchmark",
    "Defect": "benchmark",
    "EmbeddingStore": "encoding.embedding_store",
    "EncodeSettings": "encoding.encoder",
    "Gallery": "benchmark",
    "Label": "metrics.shortcut",
    "Labels": "labels.labels",
    "Protocol": "benchmark",
    "Query": "benchmark",
    "ReferencePolicy": "benchmark",
    "Run": "runs.run",
    "Scores": "audit.scores",
    "Subset": "labels.labels",
    "audit_runs": "audit.audit",
    "load_benchmark": "hub.loading",
    "load_encoder": "models",
    "load_labels": "labels.formats",
    "load_metric": "metrics.loading",
    "published_labels": "labels.published",
    "rank_scores": "ranking.ranker",
    "rank_targets": "ranking.ranker",
    "run_benchmark": "runs.run",
    "save_benchmark": "hub.writer",
    "score_run": "audit.scores",
    "write_report": "audit.report",
}

__all__ = [
    "Audit",
    "Benchmark",
    "CircusError",
    "Condition",
    "Defect",
    "EmbeddingStore",
    "EncodeSettings",
    "Gallery",
    "Label",
    "Labels",
    "Protocol",
    "Query",
    "ReferencePolicy",
    "Run",
    "Scores",
    "Subset",
    "__version__",
    "audit_runs",
    "load_benchmark",
    "load_encoder",
    "load_labels",
    "load_metric",
    "published_labels",
    "rank_scores",
    "rank_targets",
    "run_benchmark",
    "save_benchmark",
    "score_run",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
