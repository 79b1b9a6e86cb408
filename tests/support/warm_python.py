"""Run code in new processes that have its imports already: importing mteb and transformers takes ten seconds.

One process imports what is asked for, once, and forks for every run. A run begins with modules that nobody has used,
dies alone when it is killed, and leaves nothing behind. Where there is no fork (Windows) a run is a new interpreter.

As a program this file is the process that forks: it reads one JSON object per line, and answers with the id of the
process and then with its exit code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PATIENCE = 300  # seconds, for a machine that is busy with other things


class WarmPython:
    """Interpreter that has imported these modules, in this environment."""

    def __init__(self, *modules: str, env: Mapping[str, str] | None = None) -> None:
        self._modules = modules
        self._env = env
        self._server: subprocess.Popen[str] | None = None

    def close(self) -> None:
        """End the process that forks."""
        if self._server is not None:
            self._server.communicate()
            self._server = None

    def run(
        self,
        code: str,
        *arguments: object,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        meanwhile: Callable[[int], None] = lambda _: None,
    ) -> subprocess.CompletedProcess[str]:
        """Run code as `python -c CODE ARGUMENTS...` does, and capture what it prints.

        Args:
            code: Python.
            arguments: of the program.
            env: the environment, as it is here by default.
            cwd: working folder, as it is here by default.
            meanwhile: called with the id of the process while it runs.
        """
        argv = list(map(str, arguments))
        settings = {"env": dict(os.environ if env is None else env), "cwd": str(cwd or Path.cwd())}
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            if hasattr(os, "fork"):
                job = {"code": code, "argv": argv, "out": str(out), "err": str(err), **settings}
                status = self._fork(job, meanwhile)
            else:
                with out.open("wb") as stdout, err.open("wb") as stderr:
                    process = subprocess.Popen(
                        [sys.executable, "-c", code, *argv], stdout=stdout, stderr=stderr, **settings
                    )
                    meanwhile(process.pid)
                    status = process.wait(PATIENCE)
            return subprocess.CompletedProcess(argv, status, out.read_text("utf-8"), err.read_text("utf-8"))

    def _fork(self, job: dict[str, Any], meanwhile: Callable[[int], None]) -> int:
        if self._server is None:
            command = [sys.executable, __file__, *self._modules]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._server = subprocess.Popen(command, env=self._env, text=True, **pipes)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        process = int(self._server.stdout.readline())
        alarm = threading.Timer(PATIENCE, os.kill, (process, signal.SIGKILL))
        alarm.start()
        try:
            meanwhile(process)
        finally:
            status = int(self._server.stdout.readline())
            alarm.cancel()
        return status


def _serve() -> None:
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            _become(json.loads(line))
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def _become(job: Mapping[str, Any]) -> None:
    """Run the code in this process, and end as an interpreter does."""
    for descriptor, path in ((1, job["out"]), (2, job["err"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    sys.argv = ["-c", *job["argv"]]
    sys.path[0] = ""
    status: Any = 0
    try:
        exec(compile(job["code"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        status = end.code
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
        status = 1
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)


if __name__ == "__main__":
    gc.disable()  # imports make no garbage, and looking for it takes a fifth of their time
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    _serve()
