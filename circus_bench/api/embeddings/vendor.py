"""What sets one vendor of embeddings apart from another, as data and pure functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from circus_bench.api.runtime import Price, RemoteError, Secret, Usage


class Role(StrEnum):
    """What an input is in a retrieval."""

    QUERY = "query"
    DOCUMENT = "document"


class RejectedError(RemoteError):
    """The service will not take a request as it is: something in it is refused, or it is too large.

    A request of several inputs is then cut in two; a single input that is rejected has no embedding.

    Attributes:
        reason: in the service's words.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Limits:
    """What a vendor allows.

    Attributes:
        items: inputs a request.
        tokens: tokens a request.
        body_bytes: bytes of a request's body.
        image_pixels: width times height of an image; larger ones are scaled down here.
        image_bytes: bytes of an image file, likewise.
        requests_per_minute: default of the pace.
        tokens_per_minute: likewise.
        counts_items: whether every input counts as a request in the pace.
    """

    items: int
    tokens: float
    body_bytes: int
    image_pixels: float
    image_bytes: int
    requests_per_minute: float
    tokens_per_minute: float
    counts_items: bool


@dataclass(frozen=True, slots=True)
class Content:
    """One input as it is sent.

    Attributes:
        text: with the vendor's prompt, or None.
        image: bytes of a PNG file, or None.
    """

    text: str | None
    image: bytes | None

    @property
    def body_bytes(self) -> int:
        """About what it takes in a request: base64 makes four characters of three bytes."""
        return len((self.text or "").encode()) + len(self.image or b"") * 4 // 3 + 200


@dataclass(frozen=True, slots=True)
class Failure:
    """What an answer that is not 200 means.

    Attributes:
        reason: in the service's words.
        bad_key: whether the key is what is wrong.
        retry_after: seconds that the body asks to wait, or None.
    """

    reason: str
    bad_key: bool = False
    retry_after: float | None = None


@dataclass(frozen=True)
class Vendor(ABC):
    """A model of a vendor.

    Attributes:
        name: the model as mteb names it.
        revision: as mteb registers it; the services name no version of the weights.
        dimensions: of the embeddings.
        key_variables: environment variables that may hold the key, the first one that is set wins.
        url_variable: environment variable that holds another address of the service.
        limits: what it allows.
        price: what it charges, or None when that is not known.
    """

    name: str
    revision: str
    dimensions: int
    key_variables: tuple[str, ...]
    url_variable: str
    limits: Limits
    price: Price | None

    @abstractmethod
    def base_url(self, key: Secret) -> str:
        """The service's own address."""

    @abstractmethod
    def path(self) -> str:
        """What follows the address."""

    @abstractmethod
    def header(self, key: Secret) -> tuple[str, str]:
        """Name and value of the header that carries the key."""

    @abstractmethod
    def prompt(self, text: str, role: Role | None) -> str:
        """The text as it is sent."""

    @abstractmethod
    def told_role(self, role: Role | None) -> Role | None:
        """The role as far as a request names it outside of the text; None where it makes no difference."""

    @abstractmethod
    def estimate(self, text: str | None, size: tuple[int, int] | None) -> Usage:
        """An upper guess of what an input uses.

        Args:
            text: as it is sent.
            size: (width, height) of the image.
        """

    @abstractmethod
    def tokens(self, usage: Usage) -> float:
        """What a usage counts against the tokens a minute."""

    @abstractmethod
    def body(self, contents: Sequence[Content], role: Role | None) -> dict[str, Any]:
        """The JSON of a request."""

    @abstractmethod
    def vectors(self, reply: Any) -> list[list[float]]:
        """The embeddings of an answer, in the order of the request. A malformed one may raise whatever it likes."""

    @abstractmethod
    def usage(self, reply: Any) -> Usage | None:
        """What the service counted, or None when it does not say."""

    @abstractmethod
    def failure(self, status: int, reply: Any) -> Failure:
        """What an answer that is not 200 means; `reply` is None when it is not JSON."""
