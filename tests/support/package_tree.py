"""Lay the packages out as an installation does: `tasks`, `cards` and `dataset_scripts` inside `circus_bench`.

Tools that read files instead of importing (mypy, the import contract) do not know setup.cfg's `package_dir`.
As a program: `python tests/support/package_tree.py FOLDER`.
"""

from __future__ import annotations

import configparser
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def package_folders() -> dict[str, Path]:
    """Return the folder of every top-level and mapped package by its dotted name, the outer ones first."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config["options"]["package_dir"].strip().splitlines()
    mapped = dict(line.replace(" ", "").split("=") for line in lines)
    return {"circus_bench": ROOT / "circus_bench", **{name: ROOT / folder for name, folder in mapped.items()}}


def make_package_tree(folder: Path) -> Path:
    """Replace `folder` by one that can be put on PYTHONPATH; modification times are kept for tools that cache."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, source in package_folders().items():
        target = folder.joinpath(*name.split("."))
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return folder


if __name__ == "__main__":
    make_package_tree(Path(sys.argv[1]))
