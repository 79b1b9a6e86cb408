"""Asks many questions at once, keeps every reply, and pays for none of them twice.

A reply is on disk, under the key of its question, before it is used. So a run that was killed, ran out of its budget or
lost its service goes on where it was: what was answered is read, only the rest is asked. Unreadable replies and
refusals are replies, too: they are kept, read again, and never asked for a second time.
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

from circus_bench.api.chat.messages import Outcome, Parsed, Provider, Question, Reply
from circus_bench.api.chat.parsing import read
from circus_bench.api.embeddings.vendor import RejectedError
from circus_bench.api.runtime import Caller, Meter, RateLimit, RemoteError, Replies, TransientError

_HOPELESS = 20  # rejected questions in a row: then it is not the questions that are wrong


def _unhurried() -> Caller:
    return Caller(RateLimit(math.inf))


@dataclass(frozen=True)
class Lane:
    """A provider, and the pace at which it is called.

    Attributes:
        provider: whom to ask.
        caller: its pace and retries; as fast as it answers by default.
    """

    provider: Provider
    caller: Caller = field(default_factory=_unhurried)


@dataclass(frozen=True, slots=True)
class _Rejected:
    """Not taken by the service, not paid for, and therefore not kept."""

    reason: str


@dataclass
class _Session:
    """One `ask`: what failed first."""

    failure: BaseException | None = None


class CachedAsker:
    """The `Asker` that is used in earnest. A context: on leaving it, its threads end.

    Several threads may ask at the same time, equal questions included.

    Args:
        lanes: of each model that will be asked, or one for all models.
        replies: where replies are kept.
        meter: refuses what the budget does not allow, and counts what is spent.
        threads: questions under way at once.

    Attributes:
        meter: as above.
        tally: how many questions were `kept` (read from disk), `asked`, `rejected`; how the outcomes were: `Parsed`,
            `Refused`, `Malformed`; how many of the parsed ones were `repaired`.
    """

    def __init__(self, lanes: Mapping[str, Lane] | Lane, replies: Replies, *, meter: Meter, threads: int = 8) -> None:
        self._lanes = lanes
        self._replies = replies
        self.meter = meter
        self.tally: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="asking")
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Reply | _Rejected]] = {}
        self._sessions = 0
        self._rejected_in_a_row = 0

    @classmethod
    def free(cls, provider: Provider, replies: Replies, *, threads: int = 8) -> CachedAsker:
        """An asker of one provider that charges nothing, such as a model on this machine."""
        return cls(Lane(provider), replies, meter=Meter(None, math.inf), threads=threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the threads; what is under way is awaited."""
        self._pool.shutdown(cancel_futures=True)

    def ask(self, questions: Sequence[Question]) -> Iterator[Outcome]:
        """The outcomes, in the order of the questions.

        After a failure, and when the iterator is closed early, nothing more is asked; what is under way is awaited and
        kept, for it is paid for.

        Raises:
            BudgetError: a budget of money or time is used up. What was answered is kept; a repeated run goes on.
            RemoteError: a service cannot be used, or refused many questions in a row.
        """
        keys = [question.key for question in questions]
        kept = self._replies.get(keys)
        self._count(kept=len(kept))
        with self._session() as session:
            open_ones = {key: question for key, question in zip(keys, questions, strict=True) if key not in kept}
            futures = {key: self._start(key, question, session) for key, question in open_ones.items()}
            try:
                for key, question in zip(keys, questions, strict=True):
                    if key in kept:
                        reply: Reply | _Rejected = Reply.from_bytes(kept[key])
                    else:
                        reply = self._await(key, question, futures, session)
                    yield self._outcome(reply, question)
            finally:
                self._cancel(futures)
                wait(futures.values())

    @contextmanager
    def _session(self) -> Iterator[_Session]:
        with self._lock:
            if not self._sessions:
                self._rejected_in_a_row = 0
                for lane in self._all_lanes():
                    lane.caller.resume()
            self._sessions += 1
        try:
            yield _Session()
        finally:
            with self._lock:
                self._sessions -= 1

    def _start(self, key: str, question: Question, session: _Session) -> Future[Reply | _Rejected]:
        """Ask in a thread, unless another session is asking the same."""
        with self._lock:
            future = self._under_way.get(key)
            if future is None or future.cancelled():
                future = self._pool.submit(self._work, key, question, session)
                self._under_way[key] = future
            return future

    def _cancel(self, futures: Mapping[str, Future[Reply | _Rejected]]) -> None:
        for key, future in futures.items():
            if future.cancel():
                with self._lock:
                    if self._under_way.get(key) is future:
                        del self._under_way[key]

    def _await(
        self, key: str, question: Question, futures: dict[str, Future[Reply | _Rejected]], session: _Session
    ) -> Reply | _Rejected:
        while True:
            try:
                return futures[key].result()
            except CancelledError:  # another session was to ask, and gave up before it did
                futures[key] = self._start(key, question, session)
            except BaseException as error:  # noqa: BLE001  # raised again
                # The first failure is the one to report; those that follow only say that they were stopped.
                raise session.failure or error from None

    def _work(self, key: str, question: Question, session: _Session) -> Reply | _Rejected:
        try:
            return self._answer(key, question)
        except BaseException as error:
            session.failure = session.failure or error
            for lane in self._all_lanes():
                lane.caller.stop()
            raise
        finally:
            with self._lock:
                self._under_way.pop(key, None)

    def _answer(self, key: str, question: Question) -> Reply | _Rejected:
        # Another process, or a session that has just ended, may have been faster.
        if kept := self._replies.get([key]):
            return Reply.from_bytes(kept[key])
        lane = self._lane(question.model)
        estimate = lane.provider.estimate(question)

        def attempt() -> Reply:
            with self.meter.reserving(estimate) as book:
                try:
                    reply = lane.provider.answer(question)
                except TransientError as error:
                    if error.maybe_paid:
                        book(estimate)
                    raise
                self._replies.put({key: reply.to_bytes()})
                book(reply.usage or estimate)
                return reply

        try:
            reply = lane.caller.call(attempt, tokens=sum(estimate.values()))
        except RejectedError as error:
            return self._reject(error)
        with self._lock:
            self._rejected_in_a_row = 0
            self.tally["asked"] += 1
        return reply

    def _reject(self, error: RejectedError) -> _Rejected:
        with self._lock:
            self._rejected_in_a_row += 1
            self.tally["rejected"] += 1
            if self._rejected_in_a_row < _HOPELESS:
                return _Rejected(error.reason)
        raise RemoteError(
            f"{_HOPELESS} questions in a row were rejected, so something else is wrong; the last reason: {error}"
        )

    def _outcome(self, reply: Reply | _Rejected, question: Question) -> Outcome:
        if isinstance(reply, _Rejected):
            reply = Reply(reply.reason, stop="refusal")
        outcome = read(reply, question.schema)
        self._count(
            **{type(outcome).__name__: 1, "repaired": int(isinstance(outcome, Parsed) and bool(outcome.repairs))}
        )
        return outcome

    def _count(self, **numbers: int) -> None:
        with self._lock:
            self.tally.update(numbers)

    def _lane(self, model: str) -> Lane:
        if isinstance(self._lanes, Lane):
            return self._lanes
        if model not in self._lanes:
            raise RemoteError(f"no provider for the model {model!r}; there are some for {sorted(self._lanes)}")
        return self._lanes[model]

    def _all_lanes(self) -> Iterable[Lane]:
        return [self._lanes] if isinstance(self._lanes, Lane) else self._lanes.values()
