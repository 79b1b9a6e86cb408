"""A job of several processes, played by threads: they share the work and talk like real ones, and start at once."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from circus_bench.distributed import DistributedJob

COLLECTIVE_TIMEOUT = 60  # seconds; then a thread that waits in vain ends with an error


class _Room:
    """Where the threads meet."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count)
        self.told: list[Any] = [None] * count
        self.has_failed: list[int] = []  # steps


class _Channel:
    def __init__(self, room: _Room, rank: int) -> None:
        self._room = room
        self._rank = rank

    def gather(self, outcome: Any) -> list[Any]:
        self._room.told[self._rank] = pickle.dumps(outcome)
        self._room.barrier.wait(COLLECTIVE_TIMEOUT)
        told = [pickle.loads(content) for content in self._room.told]
        self._room.barrier.wait(COLLECTIVE_TIMEOUT)  # nobody writes the next outcome before all have read this one
        return told

    def signal_failure(self, step: int) -> None:
        self._room.has_failed.append(step)

    def has_failed(self, step: int) -> bool:
        return step in self._room.has_failed


def in_job(count: int, work: Callable[[DistributedJob], Any]) -> list[Any]:
    """Let `count` processes do `work`; returns what it returned or raised in each."""
    room = _Room(count)

    def play(rank: int) -> Any:
        try:
            return work(DistributedJob(rank, count, _Channel(room, rank)))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(play, range(count)))
