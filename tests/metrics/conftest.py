"""Fixtures for the tests of the metrics."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import circus_bench.metrics


@pytest.fixture(scope="package")
def evaluate_offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The `evaluate` library, offline and with caches of its own."""
    home = tmp_path_factory.mktemp("hf")
    path = list(sys.path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(home))
        patch.setenv("HF_MODULES_CACHE", str(home / "modules"))
        patch.setenv("HF_METRICS_CACHE", str(home / "metrics"))
        evaluate = importlib.import_module("evaluate")
        # The library reads its environment once, and another test may have imported it before.
        patch.setattr(evaluate.config, "HF_MODULES_CACHE", home / "modules")
        patch.setattr(evaluate.config, "HF_METRICS_CACHE", home / "metrics")
        for name in [name for name in sys.modules if name.startswith("evaluate_modules")]:
            patch.delitem(sys.modules, name)
        yield evaluate
        for name in [name for name in sys.modules if name.startswith("evaluate_modules")]:
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def modules_folder() -> Path:
    """The folder that holds the `evaluate` modules of the package."""
    return Path(circus_bench.metrics.__file__).parent / "hub_modules"
