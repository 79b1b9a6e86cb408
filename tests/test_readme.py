"""The README's example prints what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_python_example_prints_the_output_shown(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```\s*```text\n(.*?)```", readme, re.DOTALL)
    assert found
    code, output = found.groups()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == output


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
