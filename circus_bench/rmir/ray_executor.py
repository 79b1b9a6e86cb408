"""The Ray engine: the workers of a cluster, or of this machine, do the work.

A worker is an actor with tools of its own. Ray starts it again when it dies, and gives it the piece that it was at.
What it had been answered is in the cache of replies, so that nothing is asked twice. All machines have to see the
folders of the pipeline, that cache included, under the same paths. They share one budget, which an actor keeps.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from circus_bench.api.runtime import Meter, Usage
from circus_bench.errors import CircusError
from circus_bench.rmir.executors import Tools, Work, cause_of

T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """What one process of several has to know of the others.

    Attributes:
        workers: how many share the rates that a service allows.
        ledger: keeps the budget of all of them; None in a process that is alone.
    """

    workers: int = 1
    ledger: Any = None

    def meter(self, own: Meter) -> Meter:
        """The meter that a process has to use: its own when it is alone."""
        return own if self.ledger is None else _SharedMeter(own, self.ledger)


MakeTools = Callable[[Share], Tools]
"""Makes the tools of a process. It is sent to the workers, so it is a function of a module, or a `partial` of one."""


class RayEngine:
    """Actors of a Ray cluster. A context: on leaving it, they end.

    Args:
        make: the tools of a worker.
        workers: how many; one a CPU of the cluster by default.
        address: of a cluster that runs. By default the one that RAY_ADDRESS names, or one of this machine, which is
            started and ended here.

    Raises:
        CircusError: Ray is not installed.
    """

    def __init__(self, make: MakeTools, *, workers: int | None = None, address: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise CircusError("this engine takes Ray: pip install 'circus-bench[ray]'") from None
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray: Any = ray
        self._started = not ray.is_initialized()
        if self._started:
            ray.init(address=address, include_dashboard=False, log_to_driver=False)
        count = workers or int(self._ray.cluster_resources()["CPU"])
        self.tools = make(Share())
        self._ledger: Any = None
        if self.tools.meter is not None:
            self._ledger = ray.remote(num_cpus=0)(_Ledger).remote(self.tools.meter.price, self.tools.meter.budget)
        # A call of a worker that died is made again, however often it dies.
        actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(_Worker)
        self._workers: list[Any] = [actor.remote(make, Share(count, self._ledger)) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        for actor in [*self._workers, *([self._ledger] if self._ledger else [])]:
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()

    def do(self, work: Work[T], pieces: Sequence[T]) -> Iterator[T]:
        """See `Engine`."""
        waiting, idle = iter(pieces), [*self._workers]
        running: dict[Any, tuple[Any, T]] = {}  # by the promise of the outcome
        failures: list[BaseException] = []
        while True:
            while idle and not failures and (piece := next(waiting, None)) is not None:
                worker = idle.pop()
                running[worker.do.remote(work, piece)] = worker, piece
            if not running:
                break
            (done,), _ = self._ray.wait(list(running), num_returns=1)
            worker, piece = running.pop(done)
            idle.append(worker)
            try:
                with _unwrapped():
                    self._ray.get(done)
            except CircusError as error:
                failures.append(error)
            else:
                yield piece
            self._count()
        if failures:
            raise cause_of(failures)

    def _count(self) -> None:
        if self.tools.meter is not None:
            self.tools.meter.spent = self._ray.get(self._ledger.spent.remote())


class _Worker:
    """Runs in a process of the cluster."""

    def __init__(self, make: MakeTools, share: Share) -> None:
        self._tools = make(share)

    def do(self, work: Work[T], piece: T) -> None:
        work(self._tools, piece)


class _Ledger:
    """Keeps the budget of all workers. What one had reserved when it died stays reserved, for it may have been paid."""

    def __init__(self, price: Any, budget: float | None) -> None:
        self._meter = Meter(price, budget, setting="--budget")
        self._open: dict[int, tuple[contextlib.ExitStack, Callable[[Usage], None]]] = {}
        self._numbers = itertools.count()

    def reserve(self, estimate: Usage) -> int:
        stack = contextlib.ExitStack()
        book = stack.enter_context(self._meter.reserving(estimate))
        number = next(self._numbers)
        self._open[number] = stack, book
        return number

    def settle(self, number: int, usage: Usage) -> None:
        stack, book = self._open.pop(number)
        with stack:
            book(usage)

    def spent(self) -> Counter[str]:
        return self._meter.spent


class _SharedMeter(Meter):
    """Asks the ledger before every call, and tells it what the call used."""

    def __init__(self, own: Meter, ledger: Any) -> None:
        super().__init__(own.price, own.budget, own.setting)
        self._ledger = ledger

    @contextmanager
    def reserving(self, estimate: Usage) -> Iterator[Callable[[Usage], None]]:
        """See `Meter.reserving`."""
        import ray

        used: Counter[str] = Counter()
        with _unwrapped():
            number = ray.get(self._ledger.reserve.remote(dict(estimate)))
        try:
            yield used.update
        finally:
            ray.get(self._ledger.settle.remote(number, dict(used)))


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Raise our own errors as they were raised in the other process."""
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, CircusError):
            raise cause from None
        raise CircusError(f"a worker failed: {error}") from error
