"""Asks many questions at once, keeps each answer at once, and finds out which of them are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from circus_bench.api.embeddings.images import to_png
from circus_bench.api.embeddings.vendor import Content, RejectedError, Role
from circus_bench.api.runtime import RemoteError, TransientError, Usage

if TYPE_CHECKING:
    from PIL import Image

    from circus_bench.api.embeddings.encoder import ApiEncoder

Floats = NDArray[np.float32]

_HOPELESS = 20  # refusals without a single answer: then it is not the inputs that are wrong


@dataclass(frozen=True, slots=True)
class Question:
    """An input for which there may be no reply yet.

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


class Asking:
    """The questions of one encode. A context: on leaving it, everything is answered, refused, or has failed.

    Only a few requests' images are in memory at a time: `add` waits for its turn. After a failure what is under way is
    still awaited and kept, for it is paid for.

    Args:
        encoder: whose connection, pace, meter and replies are used.
        role: of all the questions.

    Attributes:
        vectors: float32 [dimensions] by key.
        refused: the service's reason by key.
    """

    def __init__(self, encoder: ApiEncoder, role: Role | None) -> None:
        self.vectors: dict[str, Floats] = {}
        self.refused: dict[str, str] = {}
        self._encoder = encoder
        self._vendor = encoder.vendor
        self._role = role
        self._asked: set[str] = set()
        self._next: list[Question] = []
        self._next_tokens = 0.0
        self._answered = 0
        self._failure: BaseException | None = None
        self._running: set[Future[None]] = set()

    def __enter__(self) -> Self:
        self._encoder.caller.resume()
        self._pool = ThreadPoolExecutor(self._encoder.settings.threads, thread_name_prefix="asking")
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        try:
            if kind is None:  # else there was a failure, and nothing more is asked
                self._send_next()
                while self._running:
                    self._await_one()
        finally:
            self._encoder.caller.stop()
            self._pool.shutdown(cancel_futures=True)

    def open(self, questions: Sequence[Question]) -> list[Question]:
        """Those of the questions that have no reply on disk."""
        kept = self._encoder.replies.known(question.key for question in questions)
        return [question for question in questions if question.key not in kept]

    def add(self, questions: Iterable[Question]) -> None:
        """Ask what has no reply yet; requests are as large as the vendor allows."""
        fresh = {question.key: question for question in questions if question.key not in self._asked}
        self._asked.update(fresh)
        kept = self._encoder.replies.get(fresh)
        for key, question in fresh.items():
            if key in kept:
                self.vectors[key] = np.frombuffer(kept[key], "<f4")
            else:
                self._collect(question)

    def _collect(self, question: Question) -> None:
        limits, tokens = self._vendor.limits, self._vendor.tokens(question.estimate)
        if self._next and (len(self._next) >= limits.items or self._next_tokens + tokens > limits.tokens):
            self._send_next()
        self._next.append(question)
        self._next_tokens += tokens

    def _send_next(self) -> None:
        while len(self._running) >= 2 * self._encoder.settings.threads:
            self._await_one()
        if self._next:
            self._running.add(self._pool.submit(self._work, self._next))
        self._next, self._next_tokens = [], 0.0

    def _await_one(self) -> None:
        _, self._running = wait(self._running, return_when=FIRST_COMPLETED)
        if self._failure:
            raise self._failure

    def _work(self, questions: Sequence[Question]) -> None:
        try:
            self._ask(questions, self._contents(questions))
        except BaseException as error:  # noqa: BLE001  # `_await_one` raises it
            # The first failure is the one to report; those that follow only say that they were stopped.
            self._failure = self._failure or error
            self._encoder.caller.stop()

    def _contents(self, questions: Sequence[Question]) -> list[Content]:
        limits = self._vendor.limits
        contents = []
        for question in questions:
            png = None
            if question.image is not None:
                png = to_png(question.image, max_pixels=limits.image_pixels, max_bytes=limits.image_bytes)
            contents.append(Content(question.text, png))
        return contents

    def _ask(self, questions: Sequence[Question], contents: Sequence[Content]) -> None:
        several = len(questions) > 1
        if several and sum(content.body_bytes for content in contents) > self._vendor.limits.body_bytes:
            self._ask_halves(questions, contents)
            return
        try:
            vectors = self._request(questions, contents)
        except RejectedError as error:
            if several:
                self._ask_halves(questions, contents)
            else:
                self._refuse(questions[0], error.reason)
        else:
            self._keep(questions, vectors)

    def _keep(self, questions: Sequence[Question], vectors: Floats) -> None:
        usable = [bool(np.isfinite(vector).all() and vector.any()) for vector in vectors]
        rows = list(zip(questions, vectors, usable, strict=True))
        good = {question.key: vector for question, vector, fine in rows if fine}
        self._encoder.replies.put({key: vector.astype("<f4").tobytes() for key, vector in good.items()})
        self.vectors.update(good)
        self._answered += len(good)
        for question, _, fine in rows:
            if not fine:
                self._refuse(question, "the service answered with NaN, infinity or a zero vector")

    def _ask_halves(self, questions: Sequence[Question], contents: Sequence[Content]) -> None:
        middle = len(questions) // 2
        self._ask(questions[:middle], contents[:middle])
        self._ask(questions[middle:], contents[middle:])

    def _request(self, questions: Sequence[Question], contents: Sequence[Content]) -> Floats:
        """One request, tried again as long as that may help."""
        encoder, vendor = self._encoder, self._vendor
        estimate: Counter[str] = Counter()
        for question in questions:
            estimate.update(question.estimate)
        body = vendor.body(contents, self._role)

        def attempt() -> Floats:
            with encoder.meter.reserving(estimate) as book:
                try:
                    reply = encoder.connection.ask(body)
                    vectors = self._vectors(reply, len(questions))
                except TransientError as error:
                    if error.maybe_paid:
                        book(estimate)
                    raise
                book(vendor.usage(reply) or estimate)
                return vectors

        requests = len(questions) if vendor.limits.counts_items else 1
        return encoder.caller.call(attempt, requests=requests, tokens=vendor.tokens(estimate))

    def _vectors(self, reply: Any, expected: int) -> Floats:
        broken = self._encoder.connection.broken
        try:
            vectors = np.array(self._vendor.vectors(reply), np.float32)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise broken(f"not the documented form: {error!r}") from None
        if vectors.ndim != 2 or len(vectors) != expected:
            raise broken(f"embeddings of shape {vectors.shape} for {expected} inputs")
        if vectors.shape[1] != self._vendor.dimensions:
            raise RemoteError(
                f"{self._vendor.name} gave {vectors.shape[1]} dimensions, {self._vendor.dimensions} were asked for"
            )
        return vectors

    def _refuse(self, question: Question, reason: str) -> None:
        self.refused[question.key] = reason if question.text is None else f"{reason} to the text {question.text!r}"
        if not self._answered and len(self.refused) >= _HOPELESS:
            raise RemoteError(
                f"{self._vendor.name} refused the first {len(self.refused)} inputs and took none, so something else is "
                f"wrong; the last reason: {reason}"
            )
