"""The MTEB task classes of circus-bench; installed as `circus_bench.tasks`.

One file a task, with its metadata; the logic is in `circus_bench.tasks.retrieval`. `register` makes them known to mteb.
"""

from __future__ import annotations


def register() -> None:
    """Make the tasks and benchmarks known to mteb, so that `mteb.get_task("CIRCUS-CIRR")` finds them.

    Repeating it is harmless.
    """
    import importlib

    from circus_bench.tasks.registry import register_benchmarks, register_tasks

    # The attribute `mteb.get_tasks` is a function of the same name; the module has to be imported by its path.
    register_tasks(importlib.import_module("mteb.get_tasks"))
    register_benchmarks(importlib.import_module("mteb.benchmarks.benchmarks"))
