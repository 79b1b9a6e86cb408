"""Load the `evaluate` modules that ship with the package, by name and without copying them."""

from __future__ import annotations

import importlib
from typing import Any

from circus_bench.errors import CircusError

_CLASSES = {
    "comp_gap": "CompGap",
    "min_rank_shortcut": "MinRankShortcut",
    "recall_at_k": "RecallAtK",
    "tsr": "Tsr",
}


def load_metric(name: str, **options: Any) -> Any:
    """Return one of the package's metrics as an `evaluate.Metric`.

    The class is imported from the installed package: nothing is downloaded, and no module is copied to a cache.
    `evaluate.load` on the module's folder gives the same metric.

    Args:
        name: `comp_gap`, `min_rank_shortcut`, `recall_at_k` or `tsr`.
        options: passed to the metric's constructor, as `evaluate.load` does: `num_process`, `process_id`,
            `experiment_id`, `keep_in_memory`, `cache_dir`, ...

    Raises:
        CircusError: there is no such metric.

    Example:
        >>> load_metric("recall")
        Traceback (most recent call last):
        ...
        circus_bench.errors.CircusError: no metric 'recall'; known: comp_gap, min_rank_shortcut, recall_at_k, tsr
    """
    if name not in _CLASSES:
        raise CircusError(f"no metric {name!r}; known: {', '.join(_CLASSES)}")
    module = importlib.import_module(f"circus_bench.metrics.hub_modules.{name}.{name}")
    return getattr(module, _CLASSES[name])(**options)
