"""The evaluation tasks of a dataset folder: what `eval.yaml` declares, and what results are entered for.

A benchmark has a task for each subset and condition. The composed query's goes by the configuration's name, such as
`cirr_sf`; the others add their condition, such as `cirr_sf_text_only`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from circus_bench.benchmark import Condition
from circus_bench.hub.tables import Table
from circus_bench.labels.labels import Subset

K = 10
METRIC = f"hit_rate@{K}"
"""The value of every task, in per cent."""


@dataclass(frozen=True, slots=True)
class EvalTask:
    """One task.

    Attributes:
        id: its id within the dataset.
        config: the configuration that holds its queries.
        benchmark: the benchmark as the folder spells it.
        subset: its queries.
        condition: what of a query the model is shown.
    """

    id: str
    config: str
    benchmark: str
    subset: Subset
    condition: Condition


def eval_tasks(manifest: Mapping[str, Any]) -> tuple[EvalTask, ...]:
    """List the evaluation tasks of a dataset folder, in a fixed order.

    Args:
        manifest: of the folder; see `circus_bench.hub.writer.write_dataset_folder`.
    """
    return tuple(
        EvalTask(_task_id(config, condition), config, benchmark, Subset(of["subset"]), condition)
        for benchmark, entry in sorted(manifest["benchmarks"].items())
        for config, of in entry["configs"].items()
        if of["table"] == Table.ROWS
        for condition in Condition
    )


def _task_id(config: str, condition: Condition) -> str:
    return config if condition is Condition.MULTIMODAL else f"{config}_{condition.value}"
