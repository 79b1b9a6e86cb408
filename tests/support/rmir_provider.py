"""Provide a collection of a few images of known positives, a scripted provider that knows them, and an encoder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support.parts import png
from support.standins import vector_of

from circus_bench.api.chat.client import CachedClient, Route
from circus_bench.api.chat.messages import Completion, Request
from circus_bench.api.runtime import Budget, Price, ResponseCache
from circus_bench.rmir.config import (
    CandidateSettings,
    CaptionSettings,
    Config,
    DedupMode,
    FilterSettings,
    GenerateSettings,
    JudgeSettings,
    JudgeSpec,
    ReadabilityMetric,
    RunSettings,
    SeedSettings,
    SplitSettings,
)
from circus_bench.rmir.executors import Resources
from circus_bench.rmir.ray_executor import WorkerQuota
from circus_bench.rmir.records import Category

IDS = tuple(f"i{number:02d}" for number in range(24))
FILES = {image: png(number) for number, image in enumerate(IDS)}
TRUTH: Mapping[tuple[str, str], tuple[str, ...]] = {
    (image, category): (IDS[8 + (2 * place + turn) % 16], IDS[8 + (2 * place + turn + 5) % 16])[: 1 + place % 2]
    for place, image in enumerate(IDS[:8])
    for turn, category in ((0, "functional"), (7, "causal"))
}
"""Positives: the first eight images have a functional and a causal question, every other one two answers."""

_BY_FILE = {hashlib.sha256(data).hexdigest(): image for image, data in FILES.items()}


class ScriptedProvider:
    """Provider that knows the ground truth, and counts the calls per request.

    Args:
        change: may give another reply text than the truth: called with the kind of request, the request, and the
            images' ids.
        delay: called before every answer, for tests that stop a run in the middle.
        log: gets a line with the request's key at every answer.
        usage: of a request.
    """

    name = "scripted"

    def __init__(
        self,
        change: Callable[[str, Request, Sequence[str]], str | None] = lambda *_: None,
        delay: Callable[[Request], object] = lambda _: None,
        log: Path | None = None,
        usage: Callable[[Request], dict[str, float]] = lambda _: {"calls": 1},
    ) -> None:
        self.asked: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self._change = change
        self._delay = delay
        self._log = log
        self._usage = usage
        self._lock = threading.Lock()

    def estimate(self, request: Request) -> dict[str, float]:
        return self._usage(request)

    def answer(self, request: Request) -> Completion:
        self._delay(request)
        kind = request.template.partition("@")[0]
        with self._lock:
            self.asked[request.key] += 1
            self.kinds[kind] += 1
        if self._log:
            with self._log.open("a") as file:
                file.write(request.key + "\n")
        ids = [_BY_FILE[digest] for digest in request.images]
        changed = self._change(kind, request, ids)
        return Completion(
            json.dumps(truth(kind, request, ids)) if changed is None else changed, usage=self._usage(request)
        )


def truth(kind: str, request: Request, ids: Sequence[str]) -> dict[str, Any]:
    if kind == "caption":
        return {"caption": f"picture of {ids[0]}"}
    if kind.startswith("check_"):
        return {"reason": "it does", "passed": True}
    if kind == "judge":
        category = next(c for c in Category if f"what {c} thing" in request.text)
        right = ids[1] in TRUTH[ids[0], category]
        return {"reason": "it is so", "decision": "accept" if right else "reject"}
    answers = TRUTH.get((ids[0], kind.removeprefix("generate_")))
    if answers is None:
        return {"possible": False, "text": "", "answer": ""}
    text = f"Which is the what {kind.removeprefix('generate_')} thing here?"
    return {"possible": True, "text": text, "answer": "picture of " + " and ".join(answers)}


class NamingEmbedder:
    """Gives an image, and a text that names images, a direction of its own; a text of two lies between theirs."""

    def images(self, files: Sequence[bytes]) -> Any:
        return np.array([vector_of(_BY_FILE[hashlib.sha256(data).hexdigest()], 64) for data in files], np.float32)

    def texts(self, texts: Sequence[str], *, role: str) -> Any:
        named = [[word for word in text.split() if word in IDS] for text in texts]
        return np.array([sum(vector_of(image, 64) for image in ids) for ids in named], np.float32)


def make_resources(
    folder: Path | None = None, provider: ScriptedProvider | None = None, *, threads: int = 4, **changes: Any
) -> Resources:
    """Make resources whose response cache lies in a folder, or in memory."""
    client = CachedClient.free(
        provider or ScriptedProvider(),
        ResponseCache(folder / "replies.sqlite" if folder else Path(":memory:")),
        threads=threads,
    )
    return Resources(**{"images": FILES, "client": client, "embedder": lambda _: NamingEmbedder(), **changes})


def make_worker_resources(
    quota: WorkerQuota, *, folder: Path, kill_at: int | None = None, budget: float | None = None
) -> Resources:
    """Make resources of a worker: the response cache and a log of the requests lie in a folder, a call costs a dollar.

    Args:
        quota: the worker's share.
        folder: holds `replies.sqlite` and `log`.
        kill_at: length of the log at which a process, and only one, kills itself before it answers.
        budget: dollars.
    """

    def note(_: Request) -> None:
        log = folder / "log"
        if kill_at is not None and log.exists() and len(log.read_text().split()) >= kill_at:
            with contextlib.suppress(FileExistsError):
                (folder / "killed").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)

    total = quota.budget(Budget(Price({"calls": 1}, "made up", "2026-01-01"), budget or math.inf, setting="--budget"))
    provider = ScriptedProvider(delay=note, log=folder / "log")
    client = CachedClient(Route(provider), ResponseCache(folder / "replies.sqlite"), budget=total, threads=1)
    return Resources(images=FILES, client=client, embedder=lambda _: NamingEmbedder(), budget=total)


def make_config(**changes: Any) -> Config:
    """Settings for the collection above: all images, two indexes of five candidates, three judges of two families."""
    settings: dict[str, Any] = {
        "seed": SeedSettings(clusters=0, near=DedupMode.OFF),
        "generate": GenerateSettings(model="scripted", reading=ReadabilityMetric.OFF),
        "filter": FilterSettings(model="scripted"),
        "caption": CaptionSettings(model="scripted"),
        "candidates": CandidateSettings(visual="naming", text="naming", visual_k=5, text_k=5),
        "judge": JudgeSettings(panel=(JudgeSpec("strong"), JudgeSpec("light", samples=2))),
        "split": SplitSettings(test_size=6),
        "run": RunSettings(batch_size=4),
    }
    return Config(**{**settings, **changes})
