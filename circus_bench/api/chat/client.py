"""Complete many requests at once, cache every completion, and pay for none of them twice.

A completion is on disk, under the key of its request, before it is used. So a run that was killed, ran out of its
budget or lost its service goes on where it was: what was answered is read, only the rest is sent. Malformed completions
and refusals are completions, too: they are kept, parsed again, and never paid for a second time.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from circus_bench.api.chat.messages import Completion, Parsed, ParseResult, Provider, Request
from circus_bench.api.chat.parsing import parse_response
from circus_bench.api.runtime import (
    MAX_CONSECUTIVE_REJECTIONS,
    Budget,
    RateLimit,
    RejectedError,
    RemoteError,
    ResponseCache,
    RetryingCaller,
    TransientError,
)


def _unhurried() -> RetryingCaller:
    return RetryingCaller(RateLimit(math.inf))


@dataclass(frozen=True)
class Route:
    """A provider, and the rate limit at which it is called.

    Attributes:
        provider: answers the requests.
        caller: its rate limit and retries; as fast as it answers by default.
    """

    provider: Provider
    caller: RetryingCaller = field(default_factory=_unhurried)


@dataclass(frozen=True, slots=True)
class _Rejected:
    """Not taken by the service, not paid for, and therefore not kept."""

    reason: str


@dataclass
class _Session:
    """One `complete`: what failed first."""

    failure: BaseException | None = None


class CachedClient:
    """The `ChatClient` that is used in earnest. A context: on leaving it, its threads end.

    Several threads may use it at the same time, for equal requests as well.

    Args:
        routes: of each model that will be used, or one for all models.
        cache: where completions are kept.
        budget: refuses what the budget does not allow, and counts what is spent.
        threads: requests under way at once.

    Attributes:
        budget: as above.
        tally: how many requests were `kept` (read from disk), `asked`, `rejected`; how the results were: `Parsed`,
            `Refused`, `Malformed`; how many of the parsed ones were `repaired`.
    """

    def __init__(
        self, routes: Mapping[str, Route] | Route, cache: ResponseCache, *, budget: Budget, threads: int = 8
    ) -> None:
        self._routes = routes
        self._cache = cache
        self.budget = budget
        self.tally: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="completing")
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Completion | _Rejected]] = {}
        self._sessions = 0
        self._rejected_in_a_row = 0

    @classmethod
    def free(cls, provider: Provider, cache: ResponseCache, *, threads: int = 8) -> CachedClient:
        """Make a client of one provider that charges nothing, such as a model on this machine."""
        return cls(Route(provider), cache, budget=Budget(None, math.inf), threads=threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the threads; what is under way is awaited."""
        self._pool.shutdown(cancel_futures=True)

    def complete(self, requests: Sequence[Request]) -> Iterator[ParseResult]:
        """Complete requests; yields parse results, in the order of the requests.

        After a failure, and when the iterator is closed early, nothing more is sent; what is under way is awaited and
        kept, for it is paid for.

        Raises:
            BudgetError: a budget of money or time is used up. What was answered is kept; a repeated run goes on.
            RemoteError: a service cannot be used, or refused many requests in a row.
        """
        keys = [request.key for request in requests]
        kept = self._cache.get(keys)
        self._count(kept=len(kept))
        with self._session() as session:
            open_ones = {key: request for key, request in zip(keys, requests, strict=True) if key not in kept}
            futures = {key: self._start(key, request, session) for key, request in open_ones.items()}
            try:
                for key, request in zip(keys, requests, strict=True):
                    if key in kept:
                        completion: Completion | _Rejected = Completion.from_bytes(kept[key])
                    else:
                        completion = self._await(key, request, futures, session)
                    yield self._outcome(completion, request)
            finally:
                self._cancel(futures)
                wait(futures.values())

    @contextmanager
    def _session(self) -> Iterator[_Session]:
        with self._lock:
            if not self._sessions:
                self._rejected_in_a_row = 0
                for route in self._all_routes():
                    route.caller.resume()
            self._sessions += 1
        try:
            yield _Session()
        finally:
            with self._lock:
                self._sessions -= 1

    def _start(self, key: str, request: Request, session: _Session) -> Future[Completion | _Rejected]:
        """Send in a thread, unless another session is sending the same."""
        with self._lock:
            future = self._under_way.get(key)
            if future is None or future.cancelled():
                future = self._pool.submit(self._work, key, request, session)
                self._under_way[key] = future
            return future

    def _cancel(self, futures: Mapping[str, Future[Completion | _Rejected]]) -> None:
        for key, future in futures.items():
            if future.cancel():
                with self._lock:
                    if self._under_way.get(key) is future:
                        del self._under_way[key]

    def _await(
        self, key: str, request: Request, futures: dict[str, Future[Completion | _Rejected]], session: _Session
    ) -> Completion | _Rejected:
        while True:
            try:
                return futures[key].result()
            except CancelledError:  # another session was to send it, and gave up before it did
                futures[key] = self._start(key, request, session)
            except BaseException as error:  # noqa: BLE001  # raised again
                # The first failure is the one to report; those that follow only say that they were stopped.
                raise session.failure or error from None

    def _work(self, key: str, request: Request, session: _Session) -> Completion | _Rejected:
        try:
            return self._answer(key, request)
        except BaseException as error:
            session.failure = session.failure or error
            for route in self._all_routes():
                route.caller.stop()
            raise
        finally:
            with self._lock:
                self._under_way.pop(key, None)

    def _answer(self, key: str, request: Request) -> Completion | _Rejected:
        # Another process, or a session that has just ended, may have been faster.
        if kept := self._cache.get([key]):
            return Completion.from_bytes(kept[key])
        route = self._route(request.model)
        estimate = route.provider.estimate(request)

        def attempt() -> Completion:
            with self.budget.reserving(estimate) as charge:
                try:
                    completion = route.provider.answer(request)
                except TransientError as error:
                    if error.maybe_paid:
                        charge(estimate)
                    raise
                self._cache.put({key: completion.to_bytes()})
                charge(completion.usage or estimate)
                return completion

        try:
            completion = route.caller.call(attempt, tokens=sum(estimate.values()))
        except RejectedError as error:
            return self._reject(error)
        with self._lock:
            self._rejected_in_a_row = 0
            self.tally["asked"] += 1
        return completion

    def _reject(self, error: RejectedError) -> _Rejected:
        with self._lock:
            self._rejected_in_a_row += 1
            self.tally["rejected"] += 1
            if self._rejected_in_a_row < MAX_CONSECUTIVE_REJECTIONS:
                return _Rejected(error.reason)
        raise RemoteError(
            f"{MAX_CONSECUTIVE_REJECTIONS} requests in a row were rejected, so something else is wrong; the last "
            f"reason: {error}"
        )

    def _outcome(self, completion: Completion | _Rejected, request: Request) -> ParseResult:
        if isinstance(completion, _Rejected):
            completion = Completion(completion.reason, stop="refusal")
        outcome = parse_response(completion, request.schema)
        self._count(
            **{type(outcome).__name__: 1, "repaired": int(isinstance(outcome, Parsed) and bool(outcome.repairs))}
        )
        return outcome

    def _count(self, **numbers: int) -> None:
        with self._lock:
            self.tally.update(numbers)

    def _route(self, model: str) -> Route:
        if isinstance(self._routes, Route):
            return self._routes
        if model not in self._routes:
            raise RemoteError(f"no provider for the model {model!r}; there are some for {sorted(self._routes)}")
        return self._routes[model]

    def _all_routes(self) -> Iterable[Route]:
        return [self._routes] if isinstance(self._routes, Route) else self._routes.values()
