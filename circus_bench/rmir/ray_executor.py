"""Execute the tasks of a stage on the Ray workers of a cluster, or of this machine.

A worker is an actor with resources of its own. Ray restarts it when it dies, and gives it its last item again. The
replies that it had got are in the response cache, so that nothing is requested twice. All machines have to see the
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

from circus_bench.api.runtime import Budget, Usage
from circus_bench.errors import CircusError
from circus_bench.rmir.executors import Resources, Task, cause_of

T = TypeVar("T")


@dataclass(frozen=True)
class WorkerQuota:
    """A worker's share of the rate limits and of the budget.

    Attributes:
        workers: number of workers that share the rate limits of a service.
        shared_budget: actor that keeps the budget of all of them; None in a process that is alone.
    """

    workers: int = 1
    shared_budget: Any = None

    def budget(self, own: Budget) -> Budget:
        """Return the budget that a process has to use: its own when it is alone."""
        return own if self.shared_budget is None else _WorkerBudget(own, self.shared_budget)


MakeResources = Callable[[WorkerQuota], Resources]
"""Makes the resources of a process. It is sent to the workers, so it is a module's function, or a `partial` of one."""


class RayExecutor:
    """Executor on actors of a Ray cluster. It is a context; on exit they end.

    Args:
        make: makes the resources of a worker.
        workers: number of workers; one per CPU of the cluster by default.
        address: of a cluster that runs. By default the one that RAY_ADDRESS names, or one of this machine, which is
            started and ended here.

    Raises:
        CircusError: Ray is not installed.
    """

    def __init__(self, make: MakeResources, *, workers: int | None = None, address: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise CircusError("this executor needs Ray: pip install 'circus-bench[ray]'") from None
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray: Any = ray
        self._started = not ray.is_initialized()
        if self._started:
            ray.init(address=address, include_dashboard=False, log_to_driver=False)
        count = workers or int(self._ray.cluster_resources()["CPU"])
        self.resources = make(WorkerQuota())
        self._shared_budget: Any = None
        if (own := self.resources.budget) is not None:
            self._shared_budget = ray.remote(num_cpus=0)(_SharedBudget).remote(own.price, own.limit)
        # A call of a worker that died is made again, however often it dies.
        actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(_Worker)
        self._workers: list[Any] = [actor.remote(make, WorkerQuota(count, self._shared_budget)) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        for actor in [*self._workers, *([self._shared_budget] if self._shared_budget else [])]:
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()

    def map(self, task: Task[T], items: Sequence[T]) -> Iterator[T]:
        """See `Executor`."""
        waiting, idle = iter(items), [*self._workers]
        running: dict[Any, tuple[Any, T]] = {}  # by the promise of the outcome
        failures: list[BaseException] = []
        while True:
            while idle and not failures and (item := next(waiting, None)) is not None:
                worker = idle.pop()
                running[worker.run.remote(task, item)] = worker, item
            if not running:
                break
            (done,), _ = self._ray.wait(list(running), num_returns=1)
            worker, item = running.pop(done)
            idle.append(worker)
            try:
                with _unwrapped():
                    self._ray.get(done)
            except CircusError as error:
                failures.append(error)
            else:
                yield item
            self._count()
        if failures:
            raise cause_of(failures)

    def _count(self) -> None:
        if self.resources.budget is not None:
            self.resources.budget.spent = self._ray.get(self._shared_budget.spent.remote())


class _Worker:
    """Worker in a process of the cluster."""

    def __init__(self, make: MakeResources, quota: WorkerQuota) -> None:
        self._resources = make(quota)

    def run(self, task: Task[T], item: T) -> None:
        task(self._resources, item)


class _SharedBudget:
    """Budget of all workers. What one had reserved when it died stays reserved, for it may have been paid."""

    def __init__(self, price: Any, budget: float | None) -> None:
        self._budget = Budget(price, budget, setting="--budget")
        self._open: dict[int, tuple[contextlib.ExitStack, Callable[[Usage], None]]] = {}
        self._numbers = itertools.count()

    def reserve(self, estimate: Usage) -> int:
        stack = contextlib.ExitStack()
        charge = stack.enter_context(self._budget.reserving(estimate))
        number = next(self._numbers)
        self._open[number] = stack, charge
        return number

    def settle(self, number: int, usage: Usage) -> None:
        stack, charge = self._open.pop(number)
        with stack:
            charge(usage)

    def spent(self) -> Counter[str]:
        return self._budget.spent


class _WorkerBudget(Budget):
    """Budget that reserves every call from the shared budget, and charges it the call's usage."""

    def __init__(self, own: Budget, shared_budget: Any) -> None:
        super().__init__(own.price, own.limit, own.setting)
        self._shared_budget = shared_budget

    @contextmanager
    def reserving(self, estimate: Usage) -> Iterator[Callable[[Usage], None]]:
        """See `Budget.reserving`."""
        import ray

        used: Counter[str] = Counter()
        with _unwrapped():
            number = ray.get(self._shared_budget.reserve.remote(dict(estimate)))
        try:
            yield used.update
        finally:
            ray.get(self._shared_budget.settle.remote(number, dict(used)))


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Raise our own errors as in the other process."""
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, CircusError):
            raise cause from None
        raise CircusError(f"a worker failed: {error}") from error
