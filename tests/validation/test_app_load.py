"""Eight raters at once through HTTP: the log holds each acknowledged annotation exactly once."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "validation_load.py"


@pytest.fixture(scope="module")
def script() -> Any:
    """The benchmark of the same name, which does this for a minute."""
    spec = importlib.util.spec_from_file_location("validation_load", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


# 250 annotations are 125 per second for two seconds, of which each of the eight raters makes 31: 248.
@pytest.mark.slow
@pytest.mark.parametrize("kills", [0, 1])
def test_each_acknowledged_annotation_is_in_the_log_once(script: Any, tmp_path: Path, kills: int) -> None:
    load = script.run_load(tmp_path, seconds=2, rate=125, kills=kills)
    assert load.acknowledged == 248
    assert load.repeated > 0
    assert (load.missing, load.doubled, load.unknown) == (0, 0, 0)
