"""Define requests to LLMs and what comes back: the one interface between the stages and the providers.

A stage renders a request from a versioned template; a provider answers it with a completion, a text; the text is parsed
against the request's schema. One that cannot be parsed is `Malformed`, one that declines is `Refused`: neither is ever
taken for a verdict.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from circus_bench.api.runtime import Usage


@dataclass(frozen=True)
class Request:
    """A prompt to a model, with images and the schema of its structured output.

    Attributes:
        model: as `circus_bench.api.chat.providers.split_model` reads it, such as `anthropic/claude-haiku-4-5`.
        template: `<name>@<version>` of the template.
        text: the rendered prompt.
        images: digest to the bytes of each image shown, in order.
        schema: JSON schema of the completion.
        temperature: of the sampling.
        sample: which of several independent answers this is to be, from 0.
        max_tokens: of the completion.
    """

    model: str
    template: str
    text: str
    images: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    schema: Mapping[str, Any] = field(default_factory=dict, repr=False)
    temperature: float = 0.0
    sample: int = 0
    max_tokens: int = 1024

    @cached_property
    def key(self) -> str:
        """SHA-256 over all that may change the answer; the name of its completion in the response cache."""
        content = [
            self.model,
            self.template,
            self.text,
            list(self.images),
            dict(self.schema),
            self.temperature,
            self.sample,
            self.max_tokens,
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Completion:
    """The text that a provider sent back, as it is kept.

    Attributes:
        text: as it came.
        stop: why it ended: `end`, `length`, `refusal`, or the provider's own word.
        usage: what was used, by unit of billing.
    """

    text: str
    stop: str = "end"
    usage: Usage = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Serialize for the response cache."""
        return json.dumps({"text": self.text, "stop": self.stop, "usage": dict(self.usage)}, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Completion:
        """Read what `to_bytes` gave."""
        return cls(**json.loads(data))


@dataclass(frozen=True, slots=True)
class Parsed:
    """A completion that follows the schema.

    Attributes:
        value: as the schema describes it.
        repairs: what had to be mended or overlooked to read it.
    """

    value: Mapping[str, Any]
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The model declined to answer."""

    raw: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """The completion does not follow the schema."""

    raw: str
    error: str


ParseResult = Parsed | Refused | Malformed


class Provider(Protocol):
    """A service, or a local model, that answers requests."""

    name: str

    def answer(self, request: Request) -> Completion:
        """Answer one request.

        Raises:
            TransientError: a failure that may pass.
            RemoteError: one that will not.
        """
        ...

    def estimate(self, request: Request) -> Usage:
        """Estimate what a request may use at most."""
        ...


class ChatClient(Protocol):
    """Completes many requests: each one once, whatever happens in between."""

    def complete(self, requests: Sequence[Request]) -> Iterator[ParseResult]:
        """Complete requests; yields parse results, in the order of the requests."""
        ...
