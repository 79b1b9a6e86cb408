"""Each recipe of docs/recipes is followed, word for word, on a copy of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.package_tree import ROOT, make_package_tree
from support.warm_python import WarmPython

RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.md"))
BLOCK = re.compile(r"```(python|diff|text)\n(.*?)```", re.DOTALL)
NAMED = re.compile(r"# (circus_bench/\S+)\n(.*)", re.DOTALL)


def edited(text: str, diff: str) -> str:
    """Apply a diff without line numbers; its context has to be unique."""
    lines = diff.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
    assert text.count(old) == 1, f"not there, or not unique:\n{old}"
    return text.replace(old, new)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_can_be_followed(recipe: Path, warm_libraries: WarmPython, tmp_path: Path) -> None:
    tree, folder = make_package_tree(tmp_path / "tree"), tmp_path / "work"
    folder.mkdir()
    edits: list[Path] = []

    def run(code: str) -> str:
        ready = f"import sys, warnings; sys.path.insert(0, {str(tree)!r}); warnings.simplefilter('ignore')\n"
        done = warm_libraries.run(ready + code, cwd=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    printed = shown = ""
    for kind, content in BLOCK.findall(recipe.read_text(encoding="utf-8")):
        named = NAMED.fullmatch(content)
        if named and kind == "python":
            edits.append(tree / named[1])
            edits[-1].write_text(named[2], encoding="utf-8")
        elif named and kind == "diff":
            path = tree / named[1]
            path.write_text(edited(path.read_text(encoding="utf-8"), named[2]), encoding="utf-8")
        elif kind == "python":
            printed += run(content)
        else:
            shown += content
    assert shown
    assert printed == shown
    (written,) = edits
    module = ".".join(written.relative_to(tree).with_suffix("").parts)
    assert run(f"import doctest, {module} as module; print(doctest.testmod(module).failed)") == "0\n"


def test_there_is_a_recipe_for_each_kind_of_addition() -> None:
    kinds = ("command", "metric", "model", "provider", "source")
    assert [path.stem for path in RECIPES] == [f"add-a-{kind}" for kind in kinds]
