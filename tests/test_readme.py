"""The README's example prints what the README says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.warm_python import WarmPython

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_the_python_example_prints_the_output_shown(warm_python: WarmPython, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```\s*```text\n(.*?)```", readme, re.DOTALL)
    assert found
    code, output = found.groups()
    done = warm_python.run(f"import warnings\nwarnings.simplefilter('ignore')\n{code}", cwd=tmp_path)
    assert (done.stdout, done.returncode) == (output, 0), done.stderr


def test_the_readme_is_short() -> None:
    # A page that a newcomer reads to the end.
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_path_in_the_readme_exists() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme[readme.index("## What is where") : readme.index("## What it does not say")]
    folder = ROOT
    for row in re.findall(r"^\| (.*?) \|", table, re.MULTILINE)[2:]:
        for name in re.findall(r"`([^`]+)`|\(([^)]+)\)", row):
            path = next(filter(None, name))
            # A bare file name stands beside the path before it.
            candidates = (ROOT / path, folder / path)
            assert any(candidate.exists() for candidate in candidates), path
            folder = (ROOT / path).parent if (ROOT / path).exists() else folder
