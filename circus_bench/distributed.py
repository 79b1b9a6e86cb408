"""Run one distributed job in several processes, those that `accelerate launch` or `torchrun` started, or in one.

Every process of a job does the same steps in the same order, each on its share of the work, and meets the others at the
end of each step: there they learn what the others found, or that one of them failed. They talk over gloo, on the CPU,
whatever the encoders compute on; and nothing is set up unless a launcher says that there are several processes.
"""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from circus_bench.errors import CircusError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")

COLLECTIVE_TIMEOUT = timedelta(
    hours=24
)  # shares of an encode may end hours apart; a process that died is noticed at once


class ProcessError(CircusError):
    """Failure, loss or disagreement of another process of the job."""


class Channel(Protocol):
    """Means by which the processes of a job exchange objects and failures."""

    def gather(self, outcome: Any) -> list[Any]:
        """Give every process what each of them has to say, in the order of their ranks."""
        ...

    def signal_failure(self, step: int) -> None:
        """Let the others know, before they come to the end of the step, that this process failed in it."""
        ...

    def has_failed(self, step: int) -> bool:
        """Tell whether one of the others failed in the step."""
        ...


class DistributedJob:
    """Processes of one job, as one of them sees it.

    Args:
        rank: which of them this is, from 0.
        count: how many there are.
        channel: how they talk; needed when there are several.

    Attributes:
        rank: which of them this is; 0 is the main one.
        count: how many there are.
    """

    def __init__(self, rank: int = 0, count: int = 1, channel: Channel | None = None) -> None:
        self.rank = rank
        self.count = count
        self._channel = channel
        self._step = 0

    @property
    def is_main(self) -> bool:
        """Tell whether this is the process that writes files and talks to the user."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Take every count-th item, from `rank` on. Round r of all processes is items[r * count : (r + 1) * count]."""
        return items[self.rank :: self.count]

    def run_on_all(self, what: str, work: Callable[[], T]) -> list[T]:
        """Run a step in every process and gather what it returns; an error in one of them is an error in all.

        Args:
            what: names the step in messages. It has to be the same in every process.
            work: the step; what it returns has to be picklable.

        Returns:
            What it returned in each process, by rank.

        Raises:
            ProcessError: another process failed, was lost, or is at another step.
        """
        if self._channel is None:
            return [work()]
        self._step += 1
        outcome: T | None = None
        error: Exception | None = None
        try:
            outcome = work()
        except Exception as caught:  # noqa: BLE001 - the others have to hear of it; it is raised again below
            error = caught
            self._channel.signal_failure(self._step)
        failure = None if error is None else f"{type(error).__name__}: {error}"
        told = self._channel.gather((what, failure, outcome))
        if error is not None:
            raise error
        for rank, (_, other, _) in enumerate(told):
            if other is not None:
                raise ProcessError(f"process {rank} of {self.count} failed while {what}: {other}")
        steps = {step: rank for rank, (step, _, _) in enumerate(told)}
        if len(steps) > 1:
            where = ", ".join(f"process {rank} is {step}" for step, rank in steps.items())
            raise ProcessError(f"the processes do different things ({where}); start all of them with the same command")
        return [cast("T", found) for _, _, found in told]

    def run_on_main(self, what: str, work: Callable[[], T]) -> T:
        """Run a step in the main process while the others wait, and give every process what it returns.

        Raises:
            ProcessError: see `run_on_all`.
        """
        found = self.run_on_all(what, lambda: work() if self.is_main else None)[0]
        return cast("T", found)

    def assert_equal(self, what: str, value: T) -> None:
        """Refuse to go on unless every process has the same value.

        Raises:
            ProcessError: names a process that has another, and the values.
        """
        values = self.run_on_all(f"comparing {what}", lambda: value)
        for rank, other in enumerate(values):
            if other != values[0]:
                raise ProcessError(f"the processes differ in {what}: process 0 has {values[0]}, process {rank} {other}")

    def should_stop(self) -> bool:
        """Tell whether another process has failed in the current step, so that going on with it makes no sense."""
        return self._channel is not None and self._channel.has_failed(self._step)


SINGLE_PROCESS = DistributedJob()
"""The job of a single process: nothing is exchanged."""


def current_job() -> DistributedJob:
    """Join the job that the environment describes, as its launcher set it; the job of one process without a launcher.

    Raises:
        CircusError: the environment speaks of several processes but was not set by a launcher.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        return SINGLE_PROCESS
    missing = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise CircusError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but {', '.join(missing)} are not set: start with "
            f"`accelerate launch` or `torchrun`, or unset WORLD_SIZE"
        )
    return _joined()


def claim_device(device: str | None = None) -> str | None:
    """Choose the device of this process: under a launcher, on a machine with GPUs, the one of its local rank.

    It becomes torch's current device too, so that `cuda` means it. Where there are fewer GPUs than processes they are
    shared, as accelerate does it.

    Args:
        device: what the user asked for. Only None and `cuda` leave the choice open.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) <= 1 or device not in (None, "cuda"):
        return device
    import torch

    if not torch.cuda.is_available() or os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes"):
        return device
    own = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(own)
    return f"cuda:{own}"


@functools.cache
def _joined() -> DistributedJob:
    """Join the process group of the job, once per process: every process has to take part in it."""
    import torch
    from accelerate import PartialState  # type: ignore[import-untyped]
    from torch import distributed

    claim_device()
    state = PartialState(cpu=not torch.cuda.is_available())
    expected = int(os.environ["WORLD_SIZE"])
    if state.num_processes != expected:
        raise CircusError(f"the launcher speaks of {expected} processes, but accelerate sees {state.num_processes}")
    group = distributed.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)
    atexit.register(_leave)
    return DistributedJob(state.process_index, state.num_processes, _Gloo(group, is_main=state.process_index == 0))


def _leave() -> None:
    """Close the connections: an interpreter that ends while their threads run is aborted now and then."""
    from torch import distributed

    _joined.cache_clear()
    if distributed.is_initialized():
        distributed.destroy_process_group()


class _Gloo:
    """Exchange objects over a gloo group, and signal failures through a small store of the main process.

    Args:
        group: of all processes.
        is_main: whether this is process 0.
    """

    def __init__(self, group: ProcessGroup | None, *, is_main: bool) -> None:
        from torch import distributed

        self._group = group
        self._count = distributed.get_world_size()
        store: Any = distributed.TCPStore  # type: ignore[attr-defined]  # public, but not listed
        host = os.environ["MASTER_ADDR"]
        board = store(host, 0, is_master=True, wait_for_workers=False) if is_main else None
        port = self.gather(board and board.port)[0]
        self._board = board or store(host, port, is_master=False, wait_for_workers=False)

    def gather(self, outcome: Any) -> list[Any]:
        from torch import distributed

        told: list[Any] = [None] * self._count
        try:
            distributed.all_gather_object(told, outcome, group=self._group)
        except RuntimeError as error:
            raise ProcessError(
                f"another process was lost: killed, or out of memory, or its machine went down ({error}). Start the "
                f"job again; it goes on with the embeddings that were stored"
            ) from error
        return told

    def signal_failure(self, step: int) -> None:
        self._board.set(str(step), "failed")

    def has_failed(self, step: int) -> bool:
        try:
            return bool(self._board.check([str(step)]))
        except RuntimeError:  # the main process, which keeps the board, is gone
            return True
