"""Batch the inputs of an embedding API into requests, cache each vector at once, and find out which are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from circus_bench.api.embeddings.connection import Connection
from circus_bench.api.embeddings.vendor import Content, Vendor
from circus_bench.api.images import to_png
from circus_bench.api.runtime import (
    MAX_CONSECUTIVE_REJECTIONS,
    Budget,
    RejectedError,
    RemoteError,
    ResponseCache,
    RetryingCaller,
    TransientError,
    Usage,
)
from circus_bench.vectors import Floats, unusable_rows

if TYPE_CHECKING:
    from mteb.types import PromptType
    from PIL import Image


@dataclass(frozen=True, slots=True)
class EmbeddingInput:
    """An input that may not be in the response cache yet.

    Attributes:
        key: digest of all that is asked.
        text: as it is sent, or None.
        image: of mode RGB, or None.
        estimate: what it will use, an upper guess.
    """

    key: str
    text: str | None
    image: Image.Image | None
    estimate: Usage


class EmbeddingBatcher:
    """The inputs of one encode. A context: on leaving it, everything is embedded, refused, or has failed.

    Only a few requests' images are in memory at a time: `add` waits for its turn. After a failure what is under way is
    still awaited and kept, for it is paid for.

    Args:
        vendor: of the model.
        prompt_type: of all the inputs.
        connection: to the vendor.
        caller: its rate limit and retries.
        budget: refuses what it does not allow, and counts what is spent.
        cache: where vectors are kept.
        threads: requests under way at once.

    Attributes:
        vectors: float32 [dimensions] by key.
        refused: the service's reason by key.
    """

    def __init__(
        self,
        vendor: Vendor,
        prompt_type: PromptType | None,
        *,
        connection: Connection,
        caller: RetryingCaller,
        budget: Budget,
        cache: ResponseCache,
        threads: int,
    ) -> None:
        self.vectors: dict[str, Floats] = {}
        self.refused: dict[str, str] = {}
        self._vendor, self._prompt_type = vendor, prompt_type
        self._connection, self._caller, self._budget, self._cache = connection, caller, budget, cache
        self._threads = threads
        self._asked: set[str] = set()
        self._next: list[EmbeddingInput] = []
        self._next_tokens = 0.0
        self._answered = 0
        self._failure: BaseException | None = None
        self._running: set[Future[None]] = set()

    def __enter__(self) -> Self:
        self._caller.resume()
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="embedding")
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        try:
            if kind is None:  # else there was a failure, and nothing more is asked
                self._send_next()
                while self._running:
                    self._await_one()
        finally:
            self._caller.stop()
            self._pool.shutdown(cancel_futures=True)

    def open(self, items: Sequence[EmbeddingInput]) -> list[EmbeddingInput]:
        """Return those of the items that are not in the cache."""
        kept = self._cache.known(item.key for item in items)
        return [item for item in items if item.key not in kept]

    def add(self, items: Iterable[EmbeddingInput]) -> None:
        """Embed what is not in the cache; requests are as large as the vendor allows."""
        fresh = {item.key: item for item in items if item.key not in self._asked}
        self._asked.update(fresh)
        kept = self._cache.get(fresh)
        for key, item in fresh.items():
            if key in kept:
                self.vectors[key] = np.frombuffer(kept[key], "<f4")
            else:
                self._collect(item)

    def _collect(self, item: EmbeddingInput) -> None:
        limits, tokens = self._vendor.limits, self._vendor.tokens(item.estimate)
        if self._next and (len(self._next) >= limits.items or self._next_tokens + tokens > limits.tokens):
            self._send_next()
        self._next.append(item)
        self._next_tokens += tokens

    def _send_next(self) -> None:
        while len(self._running) >= 2 * self._threads:
            self._await_one()
        if self._next:
            self._running.add(self._pool.submit(self._work, self._next))
        self._next, self._next_tokens = [], 0.0

    def _await_one(self) -> None:
        _, self._running = wait(self._running, return_when=FIRST_COMPLETED)
        if self._failure:
            raise self._failure

    def _work(self, items: Sequence[EmbeddingInput]) -> None:
        try:
            self._embed(items, self._contents(items))
        except BaseException as error:  # noqa: BLE001  # `_await_one` raises it
            # The first failure is the one to report; those that follow only say that they were stopped.
            self._failure = self._failure or error
            self._caller.stop()

    def _contents(self, items: Sequence[EmbeddingInput]) -> list[Content]:
        limits = self._vendor.limits
        contents = []
        for item in items:
            png = None
            if item.image is not None:
                png = to_png(item.image, max_pixels=limits.image_pixels, max_bytes=limits.image_bytes)
            contents.append(Content(item.text, png))
        return contents

    def _embed(self, items: Sequence[EmbeddingInput], contents: Sequence[Content]) -> None:
        several = len(items) > 1
        if several and sum(content.body_bytes for content in contents) > self._vendor.limits.body_bytes:
            self._embed_halves(items, contents)
            return
        try:
            vectors = self._request(items, contents)
        except RejectedError as error:
            if several:
                self._embed_halves(items, contents)
            else:
                self._refuse(items[0], error.reason)
        else:
            self._keep(items, vectors)

    def _keep(self, items: Sequence[EmbeddingInput], vectors: Floats) -> None:
        bad = {*unusable_rows(vectors).tolist()}
        good = {item.key: vectors[row] for row, item in enumerate(items) if row not in bad}
        self._cache.put({key: vector.astype("<f4").tobytes() for key, vector in good.items()})
        self.vectors.update(good)
        self._answered += len(good)
        for row in sorted(bad):
            self._refuse(items[row], "the service answered with NaN, infinity or a zero vector")

    def _embed_halves(self, items: Sequence[EmbeddingInput], contents: Sequence[Content]) -> None:
        middle = len(items) // 2
        self._embed(items[:middle], contents[:middle])
        self._embed(items[middle:], contents[middle:])

    def _request(self, items: Sequence[EmbeddingInput], contents: Sequence[Content]) -> Floats:
        """Send one request, again as long as that may help."""
        vendor = self._vendor
        estimate: Counter[str] = Counter()
        for item in items:
            estimate.update(item.estimate)
        body = vendor.body(contents, self._prompt_type)

        def attempt() -> Floats:
            with self._budget.reserving(estimate) as charge:
                try:
                    response = self._connection.post(body)
                    vectors = self._vectors(response, len(items))
                except TransientError as error:
                    if error.maybe_paid:
                        charge(estimate)
                    raise
                charge(vendor.usage(response) or estimate)
                return vectors

        requests = len(items) if vendor.limits.counts_items else 1
        return self._caller.call(attempt, requests=requests, tokens=vendor.tokens(estimate))

    def _vectors(self, response: Any, expected: int) -> Floats:
        broken = self._connection.failures.broken_answer
        try:
            vectors = np.array(self._vendor.vectors(response), np.float32)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise broken(f"not the documented form: {error!r}") from None
        if vectors.ndim != 2 or len(vectors) != expected:
            raise broken(f"embeddings of shape {vectors.shape} for {expected} inputs")
        if vectors.shape[1] != self._vendor.dimensions:
            raise RemoteError(
                f"{self._vendor.name} gave {vectors.shape[1]} dimensions, {self._vendor.dimensions} were asked for"
            )
        return vectors

    def _refuse(self, item: EmbeddingInput, reason: str) -> None:
        self.refused[item.key] = reason if item.text is None else f"{reason} to the text {item.text!r}"
        if not self._answered and len(self.refused) >= MAX_CONSECUTIVE_REJECTIONS:
            raise RemoteError(
                f"{self._vendor.name} refused the first {len(self.refused)} inputs and took none, so something else is "
                f"wrong; the last reason: {reason}"
            )
