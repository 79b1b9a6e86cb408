"""The installed package holds what the repository holds."""

from __future__ import annotations

import configparser
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def test_setup_cfg_lists_every_package() -> None:
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "circus_bench").rglob("__init__.py")}
    mapped = {"circus_bench.cards", "circus_bench.dataset_scripts", "circus_bench.tasks"}
    assert {*setup_cfg()["options"]["packages"].split()} == found | mapped


@pytest.mark.parametrize("name", ["cards", "dataset_scripts", "tasks"])
def test_a_top_level_folder_is_installed_inside_the_package(name: str) -> None:
    module = importlib.import_module(f"circus_bench.{name}")
    assert module.__doc__
    assert f"circus_bench.{name}" in module.__doc__


def test_every_file_that_is_not_python_is_package_data() -> None:
    patterns = setup_cfg()["options.package_data"]["circus_bench"].split()
    others = [
        path
        for path in (ROOT / "circus_bench").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and "__pycache__" not in path.parts
    ]
    covered = {path for pattern in patterns for path in (ROOT / "circus_bench").glob(pattern)}
    assert [path.name for path in others if path not in covered] == []


def test_the_public_names_are_importable() -> None:
    import circus_bench

    for name in circus_bench.__all__:
        assert getattr(circus_bench, name) is not None


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import circus_bench

    with pytest.raises(AttributeError, match="nonsense"):
        circus_bench.nonsense  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, circus_bench; print(sorted({'numpy', 'torch', 'mteb', 'pyarrow', 'PIL'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
