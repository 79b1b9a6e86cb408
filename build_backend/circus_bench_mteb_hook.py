"""Register the models, tasks and benchmarks of circus-bench with mteb, in every Python that has it installed.

mteb has no plug-in mechanism. A `.pth` file next to this module calls `install()` when an interpreter starts; that puts
one finder in front of `sys.meta_path` and does nothing else. When `mteb` is imported, the finder lets the import go its
usual way and registers afterwards. Nothing here may fail: an error becomes one line on standard error, and mteb works
as if circus-bench were not installed. `CIRCUS_BENCH_NO_MTEB_HOOK=1` switches the hook off.

The module stands outside the package and imports only what Python has loaded at start: it runs in every interpreter.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in `typing`, whose import would cost more than all the rest
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

OFF_SWITCH = "CIRCUS_BENCH_NO_MTEB_HOOK"

# What to call in circus_bench.registration once a module of mteb is complete. mteb's submodules are imported after
# `mteb` itself, whichever of them a program asks for first; the benchmarks are loaded later, and only when asked for.
_STEPS = {
    "mteb": ("register_models", "register_tasks"),
    "mteb.benchmarks.benchmarks": ("register_benchmarks",),
}


def install() -> None:
    """Put the finder in place, unless the user has switched it off. Repeating it is harmless."""
    if os.environ.get(OFF_SWITCH, "") in {"", "0"} and _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


class _Finder:
    """Runs the steps of a module after its import.

    Registering imports modules of circus_bench. One of them may be what imported mteb in the first place, and is then
    only half there: the steps wait until no import of circus_bench is under way.
    """

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._depth = 0  # imports of circus_bench under way that began before mteb was there

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = name.startswith("circus_bench.") and "mteb" not in sys.modules
        if not ours and name not in _STEPS:
            return None
        spec = self._find(name, path, target)
        if spec is not None:
            try:
                self._wrap(spec.loader, name)
            except Exception as error:  # noqa: BLE001  # such as a loader that takes no attributes
                _complain(error)
        return spec

    def _find(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """Ask the other finders."""
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None

    def _wrap(self, loader: Any, name: str) -> None:
        """Have the loader run what is waiting after it has executed the module."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.exec_module = execute
            if name in _STEPS:
                execute(module)
                self._waiting += _STEPS[name]
            else:
                self._depth += 1
                try:
                    execute(module)
                finally:
                    self._depth -= 1
            if self._depth == 0:
                self._run()

        loader.exec_module = exec_module

    def _run(self) -> None:
        failed = None
        while self._waiting:
            step = self._waiting.pop(0)
            try:
                from circus_bench import registration

                getattr(registration, step)()
            except Exception as error:  # noqa: BLE001  # whatever it is, the user's program goes on
                failed = failed or error
        if failed:
            _complain(failed)


def _complain(error: Exception) -> None:
    sys.stderr.write(f"circus-bench is not fully registered with mteb: {error!r} ({OFF_SWITCH}=1 stops the attempt)\n")


_FINDER = _Finder()
