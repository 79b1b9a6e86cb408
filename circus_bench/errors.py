"""The one exception family of circus-bench, and the way its messages name ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class CircusError(Exception):
    """Base of every error that circus-bench raises on purpose.

    The message names the file or the ids concerned, what was expected and what to do.
    """


class BenchmarkError(CircusError):
    """A benchmark contradicts itself: duplicate ids, targets outside the gallery, empty texts, ..."""


class ImageError(CircusError):
    """An image is missing or cannot be decoded."""


class EmbeddingError(CircusError):
    """An encoder produced embeddings that cannot be ranked, or none where some were due."""


class RefusedError(EmbeddingError):
    """A model refused some inputs for good: a service that finds an image unsafe, say. All others have their vectors.

    Attributes:
        reasons: what was said, by the name of the input, or by its position where it has none.
    """

    def __init__(self, model: str, reasons: Mapping[int | str, str]) -> None:
        named = [f"{f'input {name}' if isinstance(name, int) else name}: {reasons[name]}" for name in reasons]
        super().__init__(
            f"{model} refused inputs ({some(named)}); the others are kept. Leave these out with "
            f"`Benchmark.without_images`, or run again if the refusal looks like an accident"
        )
        self.reasons = dict(reasons)


class FormatError(CircusError):
    """A file does not follow the schema that its reader expects."""


class MismatchError(CircusError):
    """Files of different benchmarks, protocols or models were about to be mixed."""


def some(ids: Iterable[object], *, shown: int = 5) -> str:
    """Name the first few ids and the count of all.

    Example:
        >>> some(["a", "b"])
        "2: 'a', 'b'"
        >>> some(range(7))
        '7: 0, 1, 2, 3, 4, ...'
    """
    listed = list(ids)
    more = ", ..." if len(listed) > shown else ""
    return f"{len(listed):,}: " + ", ".join(repr(i) for i in listed[:shown]) + more
