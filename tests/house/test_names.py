"""Every concept has one home and the field's word for a name."""

from __future__ import annotations

import ast
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.package_tree import ROOT, package_folders

ROOMS = (
    "api", "api/chat", "api/embeddings", "audit", "cli", "demo", "demo/world", "doctor", "encoding", "hub", "labels",
    "labels/published", "metrics", "metrics/hub_modules", "models", "models/families", "models/mini", "ranking", "rmir",
    "rmir/stages", "runs", "sources", "sources/scenes", "submit", "validation", "validation/app",
)  # fmt: skip
FILES_OF_THE_CORE = ("__init__", "_typing", "_version", "benchmark", "distributed", "errors", "images", "io")
NAMES = tomllib.loads((Path(__file__).parent / "names.toml").read_text(encoding="utf-8"))


@cache
def modules() -> tuple[Path, ...]:
    return tuple(path for folder in package_folders().values() for path in sorted(folder.rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def identifiers(path: Path) -> dict[str, int]:
    """Return the line of each identifier of a file; the keywords of a call count."""
    with path.open("rb") as file:
        return {
            token.string: token.start[0] for token in tokenize.tokenize(file.readline) if token.type == tokenize.NAME
        }


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def definitions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the classes, functions, imports, fields and module variables of a file, each with its line."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name, node.lineno) for alias in node.names)
        if isinstance(node, ast.ClassDef | ast.Module):
            for statement in node.body:
                targets = (
                    statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
                )
                yield from ((target.id, target.lineno) for target in targets if isinstance(target, ast.Name))


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_exists(room: str) -> None:
    assert (ROOT / "circus_bench" / room / "__init__.py").is_file()


@pytest.mark.parametrize("name", FILES_OF_THE_CORE)
def test_every_file_of_the_core_exists(name: str) -> None:
    assert (ROOT / "circus_bench" / f"{name}.py").is_file()


def test_no_former_home_is_back() -> None:
    assert [name for name in NAMES["former_homes"] if (ROOT / "circus_bench" / name).exists()] == []


def test_no_class_name_has_two_homes() -> None:
    homes = defaultdict(list)
    for path in modules():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(where(path, node.lineno))
    several = [f"{name}: {', '.join(places)}" for name, places in homes.items() if len(places) > 1]
    assert not several, "\n".join(several)


def test_no_retired_name_is_used() -> None:
    found = [
        f"{where(path, line)}: {name}"
        for path in (*modules(), *sorted((ROOT / "benchmarks").rglob("*.py")))
        for name, line in identifiers(path).items()
        if name in NAMES["retired"]
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("room", NAMES["retired_in"])
def test_no_retired_name_is_defined_where_it_stood(room: str) -> None:
    retired = NAMES["retired_in"][room]
    folder = ROOT / "circus_bench" / room
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
    found = [f"{where(path, line)}: {name}" for path in files for name, line in definitions(path) if name in retired]
    assert not found, "\n".join(found)
