"""Register the models, tasks and benchmarks of circus-bench with mteb.

An installed circus-bench does this by itself when mteb is imported (see `build_backend/circus_bench_mteb_hook.py`);
`circus-bench mteb` does it on purpose. Repeating a step is harmless. Each step needs `mteb` to be fully imported.
"""

from __future__ import annotations

import importlib
from typing import Any


def register() -> None:
    """Register everything."""
    register_models()
    register_tasks()
    register_benchmarks()


def register_models() -> None:
    """Let `mteb.get_model` and `mteb run -m` know our models; under a launcher, each process claims its GPU."""
    from circus_bench.distributed import claim_device
    from circus_bench.models.loading import register as register_all

    claim_device()  # `mteb run` loads every process's model on "cuda", before a task is asked
    register_all()


def register_tasks() -> None:
    """Let `mteb.get_task` and `mteb run -t` know our tasks."""
    # `mteb.get_tasks`, the attribute, is a function that hides the module of that name.
    _registry().register_tasks(importlib.import_module("mteb.get_tasks"))


def register_benchmarks() -> None:
    """Let `mteb.get_benchmark` and `mteb run -b` know our benchmarks."""
    _registry().register_benchmarks(importlib.import_module("mteb.benchmarks.benchmarks"))


def _registry() -> Any:
    """Import the registry of `tasks/`, which becomes a part of the package when it is installed."""
    return importlib.import_module("circus_bench.tasks.registry")
