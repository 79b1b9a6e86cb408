"""Execute the tasks of a stage: in threads of this process, or elsewhere (see `circus_bench.rmir.ray_executor`).

An executor processes items in any order. Each item leaves a file, named after its content, so that the output of a
stage does not depend on the executor, and an item that was lost with its worker is processed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from circus_bench.api.chat.messages import ChatClient
from circus_bench.api.runtime import Budget, StoppedError
from circus_bench.rmir.embedders import EmbedderProtocol

T = TypeVar("T")


@dataclass(frozen=True)
class Resources:
    """Resources of the stages in one process.

    Attributes:
        images: the collection: image id to the bytes of its file.
        client: completes requests to models.
        embedder: name to encoder.
        captions: image id to a description, as far as the collection brings some along.
        budget: of the client; None where nothing is charged.
        version: of the collection. Images are known by their ids; change it when the picture behind an id changes.
    """

    images: Mapping[str, bytes]
    client: ChatClient
    embedder: Callable[[str], EmbedderProtocol]
    captions: Mapping[str, str] = field(default_factory=dict)
    budget: Budget | None = None
    version: str = ""


Task = Callable[[Resources, T], object]
"""Processes one item, and leaves the output in a file."""


class Executor(Protocol):
    """Maps tasks over items.

    Attributes:
        resources: of this process.
    """

    resources: Resources

    def map(self, task: Task[T], items: Sequence[T]) -> Iterator[T]:
        """Process every item, and yield each when it is done.

        After a failure no further item is begun; those under way are awaited.

        Raises:
            CircusError: the first failure.
        """
        ...


class LocalExecutor:
    """Executor in threads of this process.

    Args:
        resources: of this process; several threads use them at once.
        threads: items under way at once. A few are enough, for a client has threads of its own: while the last replies
            of one item are awaited, the next one is under way.
    """

    def __init__(self, resources: Resources, *, threads: int = 2) -> None:
        self.resources = resources
        self._threads = threads

    def map(self, task: Task[T], items: Sequence[T]) -> Iterator[T]:
        """See `Executor`."""
        waiting = iter(items)
        running: dict[Future[object], T] = {}
        failures: list[BaseException] = []
        with ThreadPoolExecutor(self._threads, thread_name_prefix="stage") as pool:
            while True:
                while len(running) < self._threads and not failures and (item := next(waiting, None)) is not None:
                    running[pool.submit(task, self.resources, item)] = item
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    item = running.pop(future)
                    if error := future.exception():
                        failures.append(error)
                    else:
                        yield item
        if failures:
            raise cause_of(failures)


def cause_of(failures: Sequence[BaseException]) -> BaseException:
    """Choose the failure to report: the first one that is more than the consequence of another."""
    return next((error for error in failures if not isinstance(error, StoppedError)), failures[0])
