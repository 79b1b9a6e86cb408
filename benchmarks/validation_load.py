"""Load the annotation app with eight raters: its latency, and whether the log holds each annotation once.

A server process is judged at through HTTP at a set rate, on the loopback interface. Some deliveries are repeated, as a
browser does whose acknowledgement was lost; with `--kills` the server is killed (SIGKILL) and started again in between.
Afterwards the log is compared with what was acknowledged.

    python benchmarks/validation_load.py --seconds 60 --rate 50
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circus_bench.hub.writer import save_benchmark
from circus_bench.sources.scenes import scenes
from circus_bench.validation.app import open_log
from circus_bench.validation.rubric import load_rubric
from circus_bench.validation.study import Item, Study

RATERS = 8
REPEATED = 0.05  # share of deliveries that are sent twice
_GIVE_UP = 60  # seconds without a server


@dataclass(frozen=True)
class Load:
    """Outcome of a load test.

    Attributes:
        seconds: from the first annotation to the last acknowledgement.
        acknowledged: annotations, each counted once.
        repeated: deliveries that were sent again.
        latencies: seconds to each first acknowledgement, ascending.
        missing: acknowledged annotations that the log lacks.
        doubled: annotations that the log holds more than once.
        unknown: annotations in the log that nobody delivered.
    """

    seconds: float
    acknowledged: int
    repeated: int
    latencies: tuple[float, ...]
    missing: int
    doubled: int
    unknown: int

    def quantile(self, share: float) -> float:
        """Compute the latency that this share of the annotations keeps within."""
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]


class Rater:
    """A client that judges its items one after the other, then revises them."""

    def __init__(self, port: int, token: str, seed: int) -> None:
        self._port = port
        self._random = random.Random(seed)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._headers: dict[str, str] = {}
        self.delivered: list[str] = []
        self.repeated = 0
        self.latencies: list[float] = []
        page, cookies = self._send("GET", "/sign-in")
        csrf = re.search(rb'name="csrf" content="(\w+)"', page)
        assert csrf
        self._headers = {"Cookie": cookies, "X-CSRF-Token": csrf[1].decode(), "Content-Type": "application/json"}
        _, signed_in = self._send("POST", "/sign-in", {"token": token})
        self._headers["Cookie"] += f"; {signed_in}"

    def run(self, seconds: float, rate: float) -> None:
        """Judge at a rate until the time is up."""
        item = json.loads(self._send("GET", "/items/next")[0])["item"]
        versions: dict[str, int] = {}
        start = time.monotonic()
        for number in range(int(seconds * rate)):
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
            answer = self._judge(item, versions.get(item, 0))
            versions[item] = answer["version"]
            item = answer["next"] or self._random.choice(list(versions))

    def _judge(self, item: str, replaces: int) -> dict[str, Any]:
        sound = self._random.random() < 0.5
        answers = {"text_alone": False, "image_alone": False} if sound else {}
        body = {
            "event": str(uuid.uuid4()), "item": item, "replaces": replaces, "sound": sound,
            "flags": [] if sound else ["target"], "answers": answers, "seconds": 1.0,
        }  # fmt: skip
        begun = time.monotonic()
        answer: dict[str, Any] = json.loads(self._send("POST", "/judgements", body)[0])
        self.latencies.append(time.monotonic() - begun)
        self.delivered.append(body["event"])
        if self._random.random() < REPEATED:
            self._send("POST", "/judgements", body)
            self.repeated += 1
        return answer

    def _send(self, method: str, path: str, body: object = None) -> tuple[bytes, str]:
        """Send until there is an answer, as a browser does: the same bytes, with the same event id."""
        data = None if body is None else json.dumps(body)
        give_up = time.monotonic() + _GIVE_UP
        while True:
            try:
                self._connection.request(method, path, data, self._headers)
                answer = self._connection.getresponse()
                content = answer.read()
            except (http.client.HTTPException, OSError):
                self._connection.close()
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.2)
                continue
            if answer.status != 200:
                raise RuntimeError(f"{method} {path}: {answer.status} {content.decode()}")
            return content, (answer.getheader("Set-Cookie") or "").partition(";")[0]


class Server:
    """The app in a process of its own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._folder = folder

    def start(self) -> None:
        """Start, and wait until it listens."""
        code = (
            "import sys; from pathlib import Path; from circus_bench.validation.app import serve; "
            "serve(Path(sys.argv[1]), port=int(sys.argv[2]))"
        )
        command = [sys.executable, "-c", code, str(self._folder), str(self.port)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        for _ in range(600):
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError((self._folder / "server.log").read_text())

    def end(self, number: signal.Signals) -> None:
        """Send a signal, and wait for the end."""
        self._process.send_signal(number)
        self._process.wait(30)


def run_load(folder: Path, *, seconds: float, rate: float, kills: int = 0) -> Load:
    """Judge at a server of a new study in `folder`, and compare the log with what was acknowledged.

    Args:
        folder: for the study.
        seconds: to judge for.
        rate: annotations per second, over all raters.
        kills: times that the server is killed and started again, evenly spread.
    """
    _make_study(folder)
    server = Server(folder)
    server.start()
    try:
        with closing(open_log(folder)) as log:
            raters = [Rater(server.port, log.invite(name), seed) for seed, name in enumerate(_names())]
        threads = [threading.Thread(target=rater.run, args=(seconds, rate / RATERS)) for rater in raters]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for _ in range(kills):
            time.sleep(seconds / (kills + 1))
            server.end(signal.SIGKILL)
            server.start()
        for thread in threads:
            thread.join()
        elapsed = time.monotonic() - begun
    finally:
        server.end(signal.SIGTERM)
    with closing(open_log(folder)) as log:
        stored = Counter(annotation.event for annotation in log.annotations())
    delivered = Counter(event for rater in raters for event in rater.delivered)
    return Load(
        seconds=elapsed,
        acknowledged=len(delivered),
        repeated=sum(rater.repeated for rater in raters),
        latencies=tuple(sorted(latency for rater in raters for latency in rater.latencies)),
        missing=len(delivered.keys() - stored.keys()),
        doubled=sum(count > 1 for count in stored.values()),
        unknown=len(stored.keys() - delivered.keys()),
    )


def _names() -> list[str]:
    return [f"rater-{number}" for number in range(RATERS)]


def _make_study(folder: Path) -> None:
    benchmark = scenes(seed=7, queries=40, gallery=400)
    items = tuple(
        Item(f"scenes::{query.id}", "scenes", query.id, "scenes/all", 1.0, tuple(sorted({*query.targets})))
        for query in benchmark.queries
    )
    ids = tuple(item.id for item in items)
    Study("load", load_rubric(), 0, items, dict.fromkeys(_names(), ids), {"scenes": "scenes"}).save(folder)
    save_benchmark(benchmark, folder / "scenes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=50, help="annotations per second, over all raters")
    parser.add_argument("--kills", type=int, default=0, help="times that the server is killed meanwhile")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        load = run_load(Path(folder), seconds=options.seconds, rate=options.rate, kills=options.kills)
    print(f"{RATERS} raters, {load.acknowledged} annotations acknowledged in {load.seconds:.1f} s")
    print(f"rate: {load.acknowledged / load.seconds:.1f} per second; {load.repeated} deliveries repeated")
    shown = {f"{share:.0%}": load.quantile(share) for share in (0.5, 0.95, 0.99)} | {"slowest": load.latencies[-1]}
    print("latency: " + ", ".join(f"{name} {1000 * value:.0f} ms" for name, value in shown.items()))
    print(f"log: {load.missing} missing, {load.doubled} doubled, {load.unknown} unknown")
    sys.exit(bool(load.missing or load.doubled or load.unknown))


if __name__ == "__main__":
    main()
