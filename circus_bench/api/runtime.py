"""Call paid services within a rate limit and a budget, with retries and a response cache.

Nothing here knows what is asked for: embedding models and LLM judges use it alike. A service is called from threads.
Each call waits for its place in the rate limit, is retried when the failure is the service's, is counted by a budget
that stops before its limit is passed, and its response is on disk before anything else is asked.

The retries are not tenacity's: a wait here ends early when another thread has failed or when the wall-clock budget does
not cover it, every attempt takes its own place in the rate limit, and a `Retry-After` holds back all threads. Around
tenacity's hooks the same code is longer.
"""

from __future__ import annotations

import math
import os
import random
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from circus_bench._typing import StrPath
from circus_bench.errors import CircusError, FormatError

T = TypeVar("T")
Usage = Mapping[str, float]
"""Amounts by unit of billing, such as `{"text_tokens": 12, "pixels": 50_000}`."""

RETRYABLE_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses of failures that may pass."""
CLIENT_ERROR = frozenset({400, 413, 422})
"""HTTP statuses of requests that are not taken as they are."""
MAX_CONSECUTIVE_REJECTIONS = 20
"""After so many rejected requests without an answer it is not the requests that are wrong."""
POLL_SECONDS = 1.0
"""How soon a waiting thread sees that it should stop."""

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_MINUTE = 60.0
_SCHEMA_VERSION = 1
_KEYS_PER_QUERY = 500  # SQLite takes at least 999 parameters in every build


class RemoteError(CircusError):
    """A service cannot be used: it refused the key, does not know the model, or kept failing."""


class BudgetError(RemoteError):
    """A budget of money or time does not allow the next call. What was paid for is kept; a repeated run goes on."""


class StoppedError(RemoteError):
    """A call was not made because another one failed; that one's error says why."""


class TransientError(RemoteError):
    """A call failed in a way that may pass: too many requests, an error of the server, a lost or broken answer.

    Attributes:
        retry_after: seconds that the service asked to wait, or None.
        maybe_paid: whether the service may have charged for an answer that did not arrive.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, maybe_paid: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.maybe_paid = maybe_paid


class RejectedError(RemoteError):
    """The service will not take a request as it is: something in it is refused, or it is too large.

    A request of several inputs is then cut in two; a single input that is rejected has no result.

    Attributes:
        reason: in the service's words.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Secret:
    """An API key that does not show in messages, logs or tracebacks.

    Example:
        >>> key = Secret("abc-123")
        >>> key
        Secret(***)
        >>> key.redact("the key abc-123 is wrong")
        'the key *** is wrong'
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @classmethod
    def from_environment(cls, *names: str) -> Secret:
        """Read the first of some environment variables that is set.

        Raises:
            RemoteError: none is.
        """
        for name in names:
            if value := os.environ.get(name, "").strip():
                return cls(value)
        raise RemoteError(f"no API key: set the environment variable {' or '.join(names)}")

    def reveal(self) -> str:
        """Return the key itself, for the header of a request and nothing else."""
        return self._value

    def redact(self, text: str) -> str:
        """Blot the key out of a text that came from outside."""
        return text.replace(self._value, "***")

    def __repr__(self) -> str:
        return "Secret(***)"

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        raise TypeError("a Secret is not pickled")


def check_address(url: str, *, setting: str) -> None:
    """Refuse an address that a key would be sent to over an open line.

    Args:
        url: where requests with the key go.
        setting: what the user sets to change it, for the message.

    Raises:
        RemoteError: it is neither https nor on this machine.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise RemoteError(f"{setting}: {url!r} is not https, so the key would be readable on the way")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read the seconds to wait from the header `Retry-After`, which holds seconds or a date (RFC 9110, section 10.2.3).

    Args:
        headers: of a response; their names in any case.
    """
    value = headers.get("Retry-After")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        # The service's own clock, where it gives one: ours may be off.
        now = headers.get("Date")
        wait = parsedate_to_datetime(value) - (parsedate_to_datetime(now) if now else datetime.now(UTC))
    except (TypeError, ValueError):
        return None
    return max(0.0, wait.total_seconds())


class Clock(Protocol):
    """A source of time: the module `time`, or what a test brings."""

    def monotonic(self) -> float:
        """Return the seconds since some moment."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class RateLimit:
    """At most so many requests and tokens in any window of a minute, over all threads.

    A single request larger than the limit is let through when nothing else was sent for a minute.

    Args:
        requests: requests per minute; `math.inf` for no limit.
        tokens: tokens per minute; no limit by default.
        clock: where time comes from.
    """

    def __init__(self, requests: float, *, tokens: float = math.inf, clock: Clock | None = None) -> None:
        self._limits = (requests, tokens)
        self._clock: Clock = clock or time
        self._sent: deque[tuple[float, float, float]] = deque()
        self._held_until = -math.inf
        self._lock = threading.Lock()

    def claim(self, *, requests: float = 1, tokens: float = 0) -> float:
        """Count a call of this size if it may be made now.

        Returns:
            0, or the seconds after which to try again; then nothing was counted.
        """
        with self._lock:
            now = self._clock.monotonic()
            if now < self._held_until:
                return self._held_until - now
            if all(map(math.isinf, self._limits)):
                return 0
            while self._sent and now - self._sent[0][0] >= _MINUTE:
                self._sent.popleft()
            used = (sum(entry[1] for entry in self._sent), sum(entry[2] for entry in self._sent))
            fits = all(
                there + more <= limit for there, more, limit in zip(used, (requests, tokens), self._limits, strict=True)
            )
            if fits or not self._sent:
                self._sent.append((now, requests, tokens))
                return 0
            # A hair more than needed, for a difference of floats may round to just under a minute.
            return self._sent[0][0] + _MINUTE - now + 1e-6

    def hold(self, seconds: float) -> None:
        """Let nobody through for a while, as a service's `Retry-After` asks."""
        with self._lock:
            self._held_until = max(self._held_until, self._clock.monotonic() + seconds)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retries of a failed call: exponential backoff with jitter.

    Attributes:
        attempts: calls in all, the first included.
        first_wait: seconds before the second one; it doubles each time.
        longest_wait: seconds at most, unless the service itself asks for more.
        seed: of the jitter.
    """

    attempts: int = 8
    first_wait: float = 1.0
    longest_wait: float = 60.0
    seed: int = 0

    def wait(self, failures: int, *, asked: float | None, jitter: float) -> float:
        """Compute the seconds to wait after so many failures.

        Args:
            failures: 1 after the first call.
            asked: what the service asked for; the wait is never shorter.
            jitter: uniform in [0, 1): the wait is between half and all of the exponential one.
        """
        own = min(self.first_wait * 2.0 ** (failures - 1), self.longest_wait) * (0.5 + jitter / 2)
        return own if asked is None else max(own, asked)


class RetryingCaller:
    """Calls one service within its rate limit, with retries, until a deadline.

    Args:
        limit: shared by everything that calls the service.
        policy: of the retries.
        seconds: wall-clock budget from now on; none by default.
        clock: where time comes from; the limit's own should be the same.
    """

    def __init__(
        self,
        limit: RateLimit,
        *,
        policy: RetryPolicy | None = None,
        seconds: float = math.inf,
        clock: Clock | None = None,
    ) -> None:
        self._limit = limit
        self._policy = policy or RetryPolicy()
        self._clock: Clock = clock or time
        self._seconds = seconds
        self._deadline = self._clock.monotonic() + seconds
        self._stopped = threading.Event()
        self._random = random.Random(self._policy.seed)  # noqa: S311  # jitter, not a secret

    def call(self, call: Callable[[], T], *, requests: float = 1, tokens: float = 0) -> T:
        """Make a call, and make it again while it raises `TransientError`.

        Args:
            call: one attempt.
            requests: what an attempt counts against the limit.
            tokens: likewise.

        Raises:
            BudgetError: the deadline has passed, or would pass during a wait.
            RemoteError: every attempt failed, or `stop` was called; or whatever else `call` raises.
        """
        for failures in range(1, self._policy.attempts + 1):
            while (wait := self._limit.claim(requests=requests, tokens=tokens)) > 0:
                self._wait(wait)
            self._wait(0)
            try:
                return call()
            except TransientError as error:
                if failures == self._policy.attempts:
                    raise RemoteError(f"gave up after {failures} attempts; the last one: {error}") from error
                wait = self._policy.wait(failures, asked=error.retry_after, jitter=self._random.random())
                if error.retry_after is not None:
                    self._limit.hold(wait)
            self._wait(wait)
        raise AssertionError  # the last attempt returns or raises

    def stop(self) -> None:
        """Let every thread that waits here, or will, end with an error; what is under way is not touched."""
        self._stopped.set()

    def resume(self) -> None:
        """Take `stop` back."""
        self._stopped.clear()

    def _wait(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        if end >= self._deadline:
            raise BudgetError(
                f"the time budget of {self._seconds:g} seconds is used up; what was answered is kept, run again to "
                f"go on"
            )
        while not self._stopped.is_set() and (left := end - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left, POLL_SECONDS))
        if self._stopped.is_set():
            raise StoppedError("stopped because another call failed")


@dataclass(frozen=True, slots=True)
class Price:
    """The price list of a service.

    Attributes:
        usd: US dollars by unit, one unit each.
        source: where it says so.
        date: when it was read, ISO 8601.
    """

    usd: Mapping[str, float]
    source: str
    date: str

    def cost(self, usage: Usage) -> float:
        """Compute the US dollars for some usage.

        Raises:
            KeyError: a unit has no price.
        """
        return sum(self.usd[unit] * amount for unit, amount in usage.items())


@dataclass
class Budget:
    """A budget of US dollars that counts what is spent and refuses what passes it; calls under way count as estimated.

    Attributes:
        price: None when it is not known.
        limit: US dollars that may be spent; None when the user has not set any.
        setting: what the user sets to change the budget, for messages.
        spent: usage that the service reported, and the estimate of every answer that was lost on the way.
    """

    price: Price | None
    limit: float | None
    setting: str = "CIRCUS_API_BUDGET_USD"
    spent: Counter[str] = field(default_factory=Counter)
    _reserved: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def usd(self) -> float | None:
        """US dollars spent, or None when the price is not known."""
        return self.price.cost(self.spent) if self.price else None

    def check(self, estimate: Usage) -> None:
        """Refuse to start what would pass the budget.

        Raises:
            BudgetError: no budget is set, the price is not known, or the estimate is above what is left.
        """
        if self.limit is None:
            costs = f"about ${self.price.cost(estimate):.4f}" if self.price else "an unknown amount"
            raise BudgetError(
                f"this calls a paid service and costs {costs}; set {self.setting} to the US dollars that may be spent "
                f"(`inf` for no limit)"
            )
        if math.isinf(self.limit):
            return
        if self.price is None:
            raise BudgetError(
                f"the price is not known, so the budget of ${self.limit:g} cannot be kept; set {self.setting} to "
                f"`inf` to go on without one"
            )
        spent, more = self.price.cost(self.spent) + self._reserved, self.price.cost(estimate)
        if spent + more > self.limit:
            raise BudgetError(
                f"the budget of ${self.limit:g} is too small: ${spent:.4f} is spent or under way, and about "
                f"${more:.4f} more is needed; what was answered is kept, raise {self.setting} and run again to go on"
            )

    @contextmanager
    def reserving(self, estimate: Usage) -> Iterator[Callable[[Usage], None]]:
        """Hold the estimate back while a call is under way; yields a function that charges what it used.

        Raises:
            BudgetError: see `check`.
        """
        with self._lock:
            self.check(estimate)
            held = self.price.cost(estimate) if self.price else 0.0
            self._reserved += held
        try:
            yield self.charge
        finally:
            with self._lock:
                self._reserved -= held

    def charge(self, usage: Usage) -> None:
        """Count what was used, whatever the budget says: it is spent."""
        with self._lock:
            self.spent.update(usage)


class ResponseCache:
    """A cache of paid responses on disk, by the digest of what was asked.

    One SQLite file, which several processes may use at once. A response is safe when `put` returns: a process that is
    killed right after it loses nothing.

    Args:
        path: the file; made with its folders when it does not exist.

    Raises:
        FormatError: the file is something else.
    """

    def __init__(self, path: StrPath) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        try:
            self._file = sqlite3.connect(path, timeout=60, check_same_thread=False)
            (version,) = self._file.execute("PRAGMA user_version").fetchone()
            if version not in (0, _SCHEMA_VERSION):
                raise FormatError(f"{path}: replies of schema version {version}, expected {_SCHEMA_VERSION}")
            with self._file:
                self._file.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply BLOB NOT NULL)")
                self._file.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        except sqlite3.DatabaseError as error:
            raise FormatError(f"{path}: not a file of replies ({error})") from error

    def __len__(self) -> int:
        with self._lock:
            (count,) = self._file.execute("SELECT COUNT(*) FROM replies").fetchone()
        return int(count)

    def get(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Look up responses; returns those that are there, by key."""
        return dict(self._select("key, reply", keys))

    def known(self, keys: Iterable[str]) -> set[str]:
        """Return those of the keys for which there is a response."""
        return {key for (key,) in self._select("key", keys)}

    def _select(self, columns: str, keys: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        wanted = list(dict.fromkeys(keys))
        for start in range(0, len(wanted), _KEYS_PER_QUERY):
            chunk = wanted[start : start + _KEYS_PER_QUERY]
            query = f"SELECT {columns} FROM replies WHERE key IN ({','.join('?' * len(chunk))})"  # noqa: S608  # our own
            with self._lock:
                yield from self._file.execute(query, chunk).fetchall()

    def put(self, responses: Mapping[str, bytes]) -> None:
        """Keep responses, all of them or none. A key that is there already keeps its first one."""
        with self._lock, self._file:
            self._file.executemany("INSERT OR IGNORE INTO replies VALUES (?, ?)", responses.items())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
