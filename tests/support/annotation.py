"""Studies of drawn scenes for the tests of the annotation app, and a server process that can be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from functools import lru_cache
from pathlib import Path

from circus_bench.benchmark import Benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.sources.scenes import scenes
from circus_bench.validation.annotation_log import AnnotationLog
from circus_bench.validation.app import open_log
from circus_bench.validation.rubric import load_rubric
from circus_bench.validation.study import Item, Study

RATERS = ("ann", "ben")
STRATA = ("scenes/unresolved", "scenes/composition_required")
KNOWN = "QUERY_TOO_BROAD"
PANEL = 8


@lru_cache
def benchmark() -> Benchmark:
    """Forty queries on four hundred drawn scenes; made once."""
    return scenes(seed=7, queries=40, gallery=400)


def make_study(items: int = 30, *, training: int = 0, checks: int = 0, raters: tuple[str, ...] = RATERS) -> Study:
    """A study that every rater judges completely, in an order of their own.

    Args:
        items: that count.
        training: further items that come first, with feedback; a careful rater calls them `KNOWN`.
        checks: further items whose answer is `KNOWN`, at the end.
        raters: their ids.
    """
    made = []
    for place, query in enumerate(benchmark().queries[: training + items + checks]):
        kind = "training" if place < training else "check" if place >= training + items else ""
        others = [image for image in benchmark().gallery.ids if image != query.reference][place::50]
        panel = tuple(sorted({*query.targets, *others[:PANEL]}))
        stratum = f"scenes/{kind}" if kind else STRATA[place % 2]
        known = KNOWN if kind else ""
        made.append(Item(f"scenes::{query.id}", "scenes", query.id, stratum, 1.0, panel, known, kind == "training"))
    ids = [item.id for item in made]
    shown = {rater: (*ids[:training], *ids[training + place :], *ids[training : training + place])
             for place, rater in enumerate(raters)}  # fmt: skip
    return Study("drawn scenes", load_rubric(), 1, tuple(made), shown, {"scenes": "scenes"})


def save(study: Study, folder: Path) -> Path:
    """Write a study and its benchmark as `circus-bench validate` keeps them."""
    study.save(folder)
    save_benchmark(benchmark(), folder / "scenes")
    return folder


class Server:
    """`serve` in a process of its own, on a port that stays the same over restarts.

    Attributes:
        folder: of the study.
        url: where it answers.
    """

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        self.folder = folder
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        code = (
            "import sys; from pathlib import Path; from circus_bench.validation.app import serve; "
            "serve(Path(sys.argv[1]), port=int(sys.argv[2]), backup_every=10)"
        )
        command = [sys.executable, "-c", code, str(self.folder), str(self._port)]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        for _ in range(600):
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        raise RuntimeError((self.folder / "server.log").read_text())

    def kill(self) -> None:
        """SIGKILL: no time to tidy up."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: an orderly end."""
        self._end(signal.SIGTERM)

    def log(self) -> AnnotationLog:
        """Open the database from here."""
        return open_log(self.folder)

    def token(self, person: str, role: str = "rater") -> str:
        """A new sign-in token."""
        with closing(self.log()) as log:
            return log.invite(person, role)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None
