"""mteb knows circus-bench as soon as it is installed: the start-up hook, its limits, and its off switch.

How the hook behaves is tested with stand-ins for mteb and circus-bench that import in no time; the real ones follow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.warm_python import WarmPython

ROOT = Path(__file__).resolve().parent.parent
BACKEND = ROOT / "build_backend"

START = "import circus_bench_mteb_hook; circus_bench_mteb_hook.install()\n"
MTEB = {
    "mteb/__init__.py": "import mteb.models\nfrom mteb.get_tasks import get_tasks\nprint('mteb')\n",
    "mteb/__main__.py": "print('main')\n",
    "mteb/models.py": "MODELS = {}\n",
    "mteb/get_tasks.py": "TASKS = {}\ndef get_tasks(): ...\n",
    "mteb/benchmarks/__init__.py": "",
    "mteb/benchmarks/benchmarks/__init__.py": "print('benchmarks')\n",
}
CIRCUS = {
    "circus_bench/__init__.py": "",
    "circus_bench/registration.py": (
        "def register_models():\n"
        "    from circus_bench.family import WHOLE\n"
        "    print('models')\n"
        "def register_tasks(): print('tasks')\n"
        "def register_benchmarks(): print('with ours')\n"
    ),
    "circus_bench/family.py": "import mteb.models\nWHOLE = True\n",
    "circus_bench/other.py": "import circus_bench.family\nprint('other')\n",
}

Python = Callable[..., "subprocess.CompletedProcess[str]"]
Real = Callable[..., tuple[str, str]]


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """`python(code, files, **environment)`: run code in a fresh interpreter that has the hook and these files only."""

    def run(
        *arguments: str, files: Mapping[str, str] | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        for name, content in (MTEB | CIRCUS if files is None else files).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        # -S leaves the installed .pth files out; this one line does what Python does with ours.
        prelude = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(BACKEND)!r}]\n{START}"
        return subprocess.run(
            [sys.executable, "-S", "-c", prelude + textwrap.dedent("\n".join(arguments))],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], **environment},
        )

    return run


@pytest.mark.parametrize(
    "code",
    [
        "import mteb",
        "import mteb.models",
        "from mteb.get_tasks import get_tasks",
        "import circus_bench.registration; import mteb",
    ],
)
def test_models_and_tasks_are_registered_once_mteb_is_complete(python: Python, code: str) -> None:
    done = python(code)
    assert (done.stdout.split("\n"), done.stderr) == (["mteb", "models", "tasks", ""], "")


def test_mteb_run_as_a_module_knows_ours(python: Python) -> None:
    done = python("import runpy", "runpy.run_module('mteb', run_name='__main__')")
    assert (done.stdout.split("\n"), done.stderr) == (["mteb", "models", "tasks", "main", ""], "")


@pytest.mark.parametrize("code", ["import circus_bench.family", "import circus_bench.other"])
def test_registering_waits_until_no_module_of_ours_is_half_imported(python: Python, code: str) -> None:
    done = python(code, "import mteb")
    assert done.stderr == ""
    assert done.stdout.split() in (["mteb", "models", "tasks"], ["mteb", "other", "models", "tasks"])


def test_benchmarks_are_registered_when_mteb_s_are_loaded(python: Python) -> None:
    done = python("import mteb.benchmarks.benchmarks")
    assert done.stdout.split("\n") == ["mteb", "models", "tasks", "benchmarks", "with ours", ""]


def test_a_second_import_registers_nothing_twice(python: Python) -> None:
    done = python("import mteb", "import mteb.benchmarks.benchmarks", "import mteb", "from mteb import benchmarks")
    assert done.stdout.split("\n") == ["mteb", "models", "tasks", "benchmarks", "with ours", ""]


def test_installing_twice_is_harmless(python: Python) -> None:
    done = python(START, "import mteb")
    assert done.stdout.split("\n") == ["mteb", "models", "tasks", ""]


def test_the_off_switch_leaves_mteb_alone(python: Python) -> None:
    code = "print([finder for finder in sys.meta_path if 'circus' in type(finder).__module__])"
    done = python("import mteb", code, CIRCUS_BENCH_NO_MTEB_HOOK="1")
    assert done.stdout.split("\n") == ["mteb", "[]", ""]


def test_python_without_mteb_sees_nothing_of_the_hook(python: Python) -> None:
    done = python("import json, circus_bench", files=CIRCUS)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_missing_mteb_stays_an_ordinary_error(python: Python) -> None:
    code = "try: import mteb\nexcept ModuleNotFoundError as error: print(error)"
    done = python(code, files=CIRCUS)
    assert (done.stdout, done.stderr) == ("No module named 'mteb'\n", "")


def test_a_broken_mteb_stays_an_ordinary_error(python: Python) -> None:
    code = "for _ in range(2):\n    try: import mteb\n    except RuntimeError as error: print(error)"
    done = python(code, files={**MTEB, **CIRCUS, "mteb/models.py": "raise RuntimeError('broken')"})
    assert (done.stdout, done.stderr) == ("broken\nbroken\n", "")


@pytest.mark.parametrize(
    ("files", "error"),
    [
        (MTEB, "No module named 'circus_bench'"),
        ({**MTEB, "circus_bench/__init__.py": "raise RuntimeError('two\\nlines')"}, "RuntimeError('two\\nlines')"),
        ({**MTEB, "circus_bench/__init__.py": "1 +"}, "SyntaxError"),
    ],
    ids=["gone", "broken", "damaged"],
)
def test_a_circus_bench_that_does_not_work_costs_a_line_and_nothing_else(
    python: Python, files: Mapping[str, str], error: str
) -> None:
    done = python("import mteb", "print(mteb.models.MODELS)", files=files)
    assert done.stdout.split("\n") == ["mteb", "{}", ""]
    (line,) = done.stderr.splitlines()
    assert error in line
    assert "CIRCUS_BENCH_NO_MTEB_HOOK=1" in line


def test_a_failing_step_does_not_take_the_next_with_it(python: Python) -> None:
    done = python("import mteb", files={**MTEB, **CIRCUS, "circus_bench/family.py": "raise ValueError('bad')"})
    assert done.stdout.split("\n") == ["mteb", "tasks", ""]
    assert "ValueError('bad')" in done.stderr


def test_a_loader_that_takes_no_attributes_is_left_alone(python: Python) -> None:
    code = """
    import importlib.machinery
    class Loader:
        __slots__ = ()
        def create_module(self, spec): return None
        def exec_module(self, module): print("theirs")
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return importlib.machinery.ModuleSpec(name, Loader()) if name == "mteb" else None
    sys.meta_path.insert(1, Finder)
    import mteb
    """
    done = python(code)
    assert done.stdout == "theirs\n"
    assert "not fully registered" in done.stderr


def test_the_hook_imports_nothing_that_python_has_not_loaded_at_start(python: Python) -> None:
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "CIRCUS_BENCH_NO_MTEB_HOOK": "1"},
    )
    done = python("print(*sys.modules)")
    # `os` is loaded by `site`, which -S leaves out.
    assert {*done.stdout.split()} - {*bare.stdout.split()} <= {"__future__", "circus_bench_mteb_hook"}


REAL = """
import mteb
assert mteb.get_task("CIRCUS-Scenes").metadata.name == "CIRCUS-Scenes"
assert "CIRCUS-CIRR" in {task.metadata.name for task in mteb.get_tasks(categories=["it2i"])}
assert [task.metadata.name for task in mteb.get_benchmark("CIRCUS").tasks][0] == "CIRCUS-CIRR"
assert mteb.get_model_meta("circus-bench/mini-balanced").n_parameters > 0
assert mteb.get_model_meta("nvidia/MM-Embed").loader.__module__.startswith("circus_bench.")
print("all known")
"""


@pytest.fixture
def real(warm_libraries: WarmPython) -> Real:
    """`real(code, **environment)`: what code prints in a process with the installed packages and this tree's hook."""

    def run(code: str, **environment: str) -> tuple[str, str]:
        fresh = "import sys; assert not {'huggingface_hub', 'mteb', 'circus_bench'} & {*sys.modules}"
        code = f"{fresh}; sys.path.insert(0, {str(BACKEND)!r})\n{code}"
        done = warm_libraries.run(code, env={**os.environ, **environment})
        return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "Warning" not in line)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        "",
        "from mteb.get_tasks import get_task",
        "import circus_bench.models.families.gme",
        "import circus_bench.tasks.circus_cirr",
    ],
)
def test_the_real_mteb_knows_ours_whatever_is_imported_first(real: Real, first: str) -> None:
    assert real(f"{START}{first}\n{REAL}") == ("all known\n", "")


@pytest.mark.slow
def test_everything_is_registered_by_hand_where_the_hook_is_off(real: Real) -> None:
    code = f"import mteb\nfrom circus_bench.registration import register\nregister()\nregister()\n{REAL}"
    assert real(code, CIRCUS_BENCH_NO_MTEB_HOOK="1") == ("all known\n", "")


@pytest.mark.slow
def test_mteb_s_own_benchmarks_keep_their_tasks(real: Real) -> None:
    """Benchmarks that choose tasks by their properties must not pick up ours."""
    code = (
        f"{START}import mteb\n"
        "ours = {'CIRCUS', 'RMIR'}\n"
        "names = {t.metadata.name for b in mteb.get_benchmarks() if b.name not in ours for t in b.tasks}\n"
        "print([name for name in names if name.startswith('CIRCUS-') or name == 'RMIR'])"
    )
    assert real(code) == ("[]\n", "")
