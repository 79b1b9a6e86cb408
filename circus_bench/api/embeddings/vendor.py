"""Describe a vendor of embeddings, as data and pure functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from circus_bench.api.runtime import Price, Secret, Usage

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.types import PromptType


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a vendor.

    Attributes:
        items: inputs per request.
        tokens: tokens per request.
        body_bytes: bytes of a request's body.
        image_pixels: width times height of an image; larger ones are scaled down here.
        image_bytes: bytes of an image file, likewise.
        requests_per_minute: default of the rate limit.
        tokens_per_minute: likewise.
        counts_items: whether every input counts as a request in the rate limit.
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
    image: bytes | None = field(repr=False)

    @property
    def body_bytes(self) -> int:
        """About what it takes in a request: base64 makes four characters of three bytes."""
        return len((self.text or "").encode()) + len(self.image or b"") * 4 // 3 + 200


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason of an answer that is not 200.

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

    def describe(self, loader: Callable[..., Any], *, release_date: str, max_tokens: int, reference: str) -> ModelMeta:
        """Describe the model to mteb.

        Args:
            loader: called by mteb with the name and the revision.
            release_date: ISO 8601.
            max_tokens: of one input.
            reference: the vendor's page about it.
        """
        from circus_bench.models.metas import describe_model

        return describe_model(
            loader,
            name=self.name,
            revision=self.revision,
            release_date=release_date,
            max_tokens=max_tokens,
            embed_dim=self.dimensions,
            open_weights=False,
            framework=["API"],
            reference=reference,
        )

    @abstractmethod
    def base_url(self, key: Secret) -> str:
        """Return the service's own address."""

    @abstractmethod
    def path(self) -> str:
        """Return the path after the address."""

    @abstractmethod
    def header(self, key: Secret) -> tuple[str, str]:
        """Return name and value of the header that carries the key."""

    @abstractmethod
    def prompt(self, text: str, prompt_type: PromptType | None) -> str:
        """Write the text as it is sent."""

    @abstractmethod
    def request_prompt_type(self, prompt_type: PromptType | None) -> PromptType | None:
        """Return the prompt type if a request names it outside of the text; None where it makes no difference."""

    @abstractmethod
    def estimate(self, text: str | None, size: tuple[int, int] | None) -> Usage:
        """Estimate what an input uses, an upper guess.

        Args:
            text: as it is sent.
            size: (width, height) of the image.
        """

    @abstractmethod
    def tokens(self, usage: Usage) -> float:
        """Count a usage against the tokens per minute."""

    @abstractmethod
    def body(self, contents: Sequence[Content], prompt_type: PromptType | None) -> dict[str, Any]:
        """Write the JSON of a request."""

    @abstractmethod
    def vectors(self, response: Any) -> list[list[float]]:
        """Read the embeddings of an answer, in the order of the request. A malformed one may raise anything."""

    @abstractmethod
    def usage(self, response: Any) -> Usage | None:
        """Read what the service counted, or None when it does not say."""

    @abstractmethod
    def failure(self, status: int, response: Any) -> Failure:
        """Read an answer that is not 200; `response` is None when it is not JSON."""
