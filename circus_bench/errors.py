"""Define the one exception family of circus-bench, and find and name ids for its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


class CircusError(Exception):
    """Base of every error that circus-bench raises on purpose.

    The message names the file or the ids concerned, what was expected and what to do.
    """


class BenchmarkError(CircusError):
    """Contradiction within a benchmark: duplicate ids, targets outside the gallery, empty texts, ..."""


class ImageError(CircusError):
    """Missing image, or one that cannot be decoded."""


class EmbeddingError(CircusError):
    """Embeddings that cannot be ranked, or that an encoder failed to give."""


class RefusedError(EmbeddingError):
    """Refusal of some inputs for good, by a service that finds an image unsafe, say. All others have their vectors.

    Attributes:
        reasons: what was said, by the name of the input, or by its position where it has none.
    """

    def __init__(self, model: str, reasons: Mapping[int | str, str]) -> None:
        named = [f"{f'input {name}' if isinstance(name, int) else name}: {reasons[name]}" for name in reasons]
        super().__init__(
            f"{model} refused inputs ({format_ids(named)}); the others are kept. Leave these out with "
            f"`Benchmark.without_images`, or run again if the refusal looks like an accident"
        )
        self.reasons = dict(reasons)


class FormatError(CircusError):
    """Violation of the schema that the reader of a file expects."""


class MismatchError(CircusError):
    """Attempt to mix files of different benchmarks, protocols or models."""


def duplicates(values: Iterable[T]) -> list[T]:
    """List the values that occur more than once, each of them once, in the order of their first occurrence.

    Example:
        >>> duplicates("abcacb")
        ['a', 'b', 'c']
    """
    return [value for value, count in Counter(values).items() if count > 1]


def format_ids(ids: Iterable[object], *, shown: int = 5) -> str:
    """Format the first few ids and the count of all, for a message.

    Example:
        >>> format_ids(["a", "b"])
        "2: 'a', 'b'"
        >>> format_ids(range(7))
        '7: 0, 1, 2, 3, 4, ...'
    """
    listed = list(ids)
    more = ", ..." if len(listed) > shown else ""
    return f"{len(listed):,}: " + ", ".join(repr(i) for i in listed[:shown]) + more
