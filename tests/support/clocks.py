"""A clock for tests."""

from __future__ import annotations

import threading


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 0.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.time += seconds
