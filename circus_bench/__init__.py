"""Circus-bench: shortcut audits and honest scores for composed image retrieval.

The names below are imported when they are first used, so that `import circus_bench` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from circus_bench._version import __version__

if TYPE_CHECKING:
    from circus_bench.audit.audit import Audit, audit_runs
    from circus_bench.audit.report import write_report
    from circus_bench.benchmark import Benchmark, Condition, Gallery, Protocol, Query, ReferencePolicy
    from circus_bench.encoding.embedding_store import EmbeddingStore
    from circus_bench.metrics.loading import load_metric
    from circus_bench.models import load_encoder
    from circus_bench.runs.run import Run, run_benchmark

_HOME = {
    "Audit": "circus_bench.audit.audit",
    "Benchmark": "circus_bench.benchmark",
    "Condition": "circus_bench.benchmark",
    "EmbeddingStore": "circus_bench.encoding.embedding_store",
    "Gallery": "circus_bench.benchmark",
    "Protocol": "circus_bench.benchmark",
    "Query": "circus_bench.benchmark",
    "ReferencePolicy": "circus_bench.benchmark",
    "Run": "circus_bench.runs.run",
    "audit_runs": "circus_bench.audit.audit",
    "load_encoder": "circus_bench.models",
    "load_metric": "circus_bench.metrics.loading",
    "run_benchmark": "circus_bench.runs.run",
    "write_report": "circus_bench.audit.report",
}

__all__ = [
    "Audit",
    "Benchmark",
    "Condition",
    "EmbeddingStore",
    "Gallery",
    "Protocol",
    "Query",
    "ReferencePolicy",
    "Run",
    "__version__",
    "audit_runs",
    "load_encoder",
    "load_metric",
    "run_benchmark",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
