"""Register the tasks and benchmarks with mteb, in its own registries: it has no plug-ins."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask


def register_tasks(get_tasks: Any) -> None:
    """Add the task classes to mteb's list of tasks. Repeating it is harmless.

    Args:
        get_tasks: the module `mteb.get_tasks`, its code executed; the rest of mteb may still be importing.
    """
    registry = get_tasks._TASKS_REGISTRY  # noqa: SLF001 - mteb offers no other way
    new = [task for task in task_classes() if task.metadata.name not in registry]
    registry.update({task.metadata.name: task for task in new})
    get_tasks.TASK_LIST = (*get_tasks.TASK_LIST, *new)


def register_benchmarks(benchmarks: ModuleType) -> None:
    """Add the benchmarks to mteb's. Repeating it is harmless.

    Args:
        benchmarks: the module `mteb.benchmarks.benchmarks`, its code executed.
    """
    from circus_bench.tasks.benchmarks import circus, rmir

    for name, make in (("CIRCUS", circus), ("RMIR", rmir)):
        if not hasattr(benchmarks, name):
            setattr(benchmarks, name, make())
    # Built from the module once and kept; one that was built before would not show them. (The attribute
    # `mteb.benchmarks.get_benchmark` is a function of the same name, and the module need not be there yet.)
    built = sys.modules.get("mteb.benchmarks.get_benchmark")
    if built is not None:
        built._build_registry.cache_clear()  # noqa: SLF001


def task_classes() -> tuple[type[AbsTask], ...]:
    """List the task classes of this package."""
    from circus_bench.tasks.circus_circo import CircusCIRCO
    from circus_bench.tasks.circus_cirr import CircusCIRR
    from circus_bench.tasks.circus_fashioniq import CircusFashionIQ
    from circus_bench.tasks.circus_lasco import CircusLaSCo
    from circus_bench.tasks.circus_scenes import CircusScenes
    from circus_bench.tasks.rmir import RMIR

    return CircusCIRR, CircusFashionIQ, CircusLaSCo, CircusCIRCO, CircusScenes, RMIR
