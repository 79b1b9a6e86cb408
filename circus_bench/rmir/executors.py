"""Where the work of a stage is done: in threads of this process, or elsewhere (see `circus_bench.rmir.ray_executor`).

An engine does pieces of work in whatever order it likes. Each piece leaves a file, named after what it is made of, so
that the outcome of a stage does not depend on the engine, and a piece that was lost with its worker is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from circus_bench.api.chat.messages import Asker
from circus_bench.api.runtime import Meter, StoppedError
from circus_bench.rmir.embedders import Embedder

T = TypeVar("T")


@dataclass(frozen=True)
class Tools:
    """What the stages work with, in one process.

    Attributes:
        images: the collection: image id to the bytes of its file.
        asker: puts questions to models.
        embedder: the encoder of a name.
        captions: image id to a description, as far as the collection brings some along.
        meter: what the asker spends; None where nothing is charged.
        version: of the collection. Images are known by their ids; it is to be changed when the picture behind an id is.
    """

    images: Mapping[str, bytes]
    asker: Asker
    embedder: Callable[[str], Embedder]
    captions: Mapping[str, str] = field(default_factory=dict)
    meter: Meter | None = None
    version: str = ""


Work = Callable[[Tools, T], object]
"""Does one piece of work, and leaves its outcome in a file."""


class Engine(Protocol):
    """Does work.

    Attributes:
        tools: those of this process.
    """

    tools: Tools

    def do(self, work: Work[T], pieces: Sequence[T]) -> Iterator[T]:
        """Do every piece; yields each when it is done.

        After a failure no further piece is begun; those under way are awaited.

        Raises:
            CircusError: the first failure.
        """
        ...


class LocalEngine:
    """Threads of this process.

    Args:
        tools: of this process; they have to stand being used by several threads.
        threads: pieces under way at once. A few are enough, for an asker has threads of its own: while the last replies
            of one piece are awaited, the next one is under way.
    """

    def __init__(self, tools: Tools, *, threads: int = 2) -> None:
        self.tools = tools
        self._threads = threads

    def do(self, work: Work[T], pieces: Sequence[T]) -> Iterator[T]:
        """See `Engine`."""
        waiting = iter(pieces)
        running: dict[Future[object], T] = {}
        failures: list[BaseException] = []
        with ThreadPoolExecutor(self._threads, thread_name_prefix="stage") as pool:
            while True:
                while len(running) < self._threads and not failures and (piece := next(waiting, None)) is not None:
                    running[pool.submit(work, self.tools, piece)] = piece
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    piece = running.pop(future)
                    if error := future.exception():
                        failures.append(error)
                    else:
                        yield piece
        if failures:
            raise cause_of(failures)


def cause_of(failures: Sequence[BaseException]) -> BaseException:
    """The failure to report: the first one that is more than the consequence of another."""
    return next((error for error in failures if not isinstance(error, StoppedError)), failures[0])
