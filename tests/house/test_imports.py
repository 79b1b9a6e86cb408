"""Imports point downwards, never in a circle, and reach only packages that setup.cfg declares."""

from __future__ import annotations

import ast
import configparser
import functools
import graphlib
import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp
import pytest
from support.package_tree import ROOT, make_package_tree, package_folders

# What users may leave out; it is imported where it is needed, and its absence is explained there.
EXTRAS = ("faiss", "annotate", "judges", "ray")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages as they are installed."""
    return make_package_tree(tmp_path_factory.mktemp("installed"))


def test_imports_point_downwards(tree: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("lint-imports")),
        "--no-cache",
        "--no-logo",
        str(ROOT / "pyproject.toml"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONUTF8": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_no_module_imports_itself_in_a_circle(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "circus_bench"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tree)
    graph = grimp.build_graph("circus_bench", exclude_type_checking_imports=True, cache_dir=None)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert "circus_bench.tasks.registry" in imported
    try:
        graphlib.TopologicalSorter(imported).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


def imported_packages(path: Path) -> Iterator[tuple[str, str]]:
    """Yield every import of a file that is neither ours nor Python's: its top-level package, and where it stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            package = name.partition(".")[0]
            if package not in sys.stdlib_module_names | {"circus_bench", "support"}:
                yield name, f"{path.relative_to(ROOT)}:{node.lineno}"


def declared(*extras: str) -> set[str]:
    """Return the normalized names of the distributions that setup.cfg requires, always or by these extras."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lists = [config["options"]["install_requires"], *(config["options.extras_require"][extra] for extra in extras)]
    return {normalized(re.split(r"[\s<>=!~\[;]", line)[0]) for text in lists for line in text.strip().splitlines()}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def installed() -> dict[str, set[str]]:
    """Return the normalized names of the installed distributions that have a package, by the package's name."""
    found = importlib.metadata.packages_distributions()
    return {package: {normalized(name) for name in names} for package, names in found.items()}


def providers(module: str) -> set[str]:
    package = module.partition(".")[0]
    return installed().get(package, {package})


def undeclared(folders: Iterable[Path], allowed: set[str]) -> str:
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    found = [use for path in files for use in imported_packages(path)]
    return "\n".join(f"{where}: {name}" for name, where in found if not providers(name) & allowed)


def test_every_package_that_is_imported_is_declared() -> None:
    found = undeclared(package_folders().values(), declared(*EXTRAS))
    assert not found, found


def test_every_package_that_the_tests_import_is_declared() -> None:
    found = undeclared([ROOT / "tests", ROOT / "benchmarks"], declared(*EXTRAS, "dev"))
    assert not found, found


def test_every_package_that_is_declared_is_imported() -> None:
    files = [path for folder in package_folders().values() for path in folder.rglob("*.py")]
    used = set().union(*(providers(name) for path in files for name, _ in imported_packages(path)))
    assert (declared(*EXTRAS) - used) & set().union(*installed().values()) == set()
