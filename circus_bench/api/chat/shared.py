"""Share settings, token prices, image payloads, and the address and errors of a service among the providers."""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from PIL import Image

from circus_bench.api.chat.messages import Provider, Request
from circus_bench.api.failures import Failures
from circus_bench.api.images import to_png
from circus_bench.api.runtime import Price, RemoteError, Secret, Usage, check_address
from circus_bench.images import decode
from circus_bench.io import to_json

MAX_SIDE = 1568
"""Pixels of the longer side of an image as it is sent. Claude scales larger ones down to it (platform.claude.com,
"Vision"); the others are shown the same, so that all judges see alike."""
MAX_BYTES = 3_750_000
"""Of an image: five million characters in base64, the least that a vendor takes (Anthropic: 5 MB)."""

_MEDIA_TYPES = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}
_CHARACTERS_PER_TOKEN = 3  # English has about four
_FRAME_TOKENS = 400  # of what a service adds to a request: its own words about the schema


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """The settings of a provider.

    Attributes:
        kind: one of `PROVIDERS`, for a provider with a name of its own.
        base_url: instead of the environment's, which goes before the vendor's own.
        key_variable: environment variable that holds the key, instead of the usual ones.
        requests_per_minute: of every model.
        tokens_per_minute: likewise; what is asked and what may be answered both count.
        timeout: seconds to wait for a sign of an answer.
        structured: whether the service is given the schema, to follow it; else it is written below the prompt.
        takes_temperature: whether the service is told the temperature. Newer models refuse it and sample as they like;
            their answers to samples of a request still differ.
    """

    kind: str = ""
    base_url: str | None = None
    key_variable: str | None = None
    requests_per_minute: float = 500.0
    tokens_per_minute: float = math.inf
    timeout: float = 120.0
    structured: bool = True
    takes_temperature: bool = True


class PricedProvider(Provider, Protocol):
    """A provider of this package."""

    def close(self) -> None:
        """Let go of connections."""
        ...


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """US dollars per million tokens.

    Attributes:
        input: tokens of the request, images included.
        output: tokens of the completion.
    """

    input: float
    output: float

    def price(self, model: str, source: str, date: str) -> Price:
        """Write the price list of a model; in a batch everything costs half."""
        million = 1_000_000
        usd = {f"{model} input": self.input / million, f"{model} output": self.output / million}
        batch = {f"{model} batch input": self.input / 2 / million, f"{model} batch output": self.output / 2 / million}
        return Price(usd | batch, source, date)


def token_usage(model: str, tokens: tuple[float, float], *, batch: bool = False) -> Usage:
    """Express usage in the units of `TokenPrice.price`.

    Args:
        model: as requests name it.
        tokens: of the request and of the completion.
        batch: whether it was sent in a batch.
    """
    kind = "batch " if batch else ""
    return {f"{model} {kind}input": tokens[0], f"{model} {kind}output": tokens[1]}


def estimate_usage(request: Request, image_tokens: float, *, batch: bool = False) -> Usage:
    """Estimate what a request may use at most.

    Args:
        request: what will be sent.
        image_tokens: of all its images together.
        batch: whether it will be sent in a batch.
    """
    characters = len(request.text) + len(to_json(dict(request.schema)))
    asked = math.ceil(characters / _CHARACTERS_PER_TOKEN) + _FRAME_TOKENS + image_tokens
    return token_usage(request.model, (asked, request.max_tokens), batch=batch)


def render_prompt(request: Request, *, with_schema: bool) -> str:
    """Render the text of a request, with the schema below it if the service is not given it otherwise."""
    if not with_schema or not request.schema:
        return request.text
    return (
        f"{request.text}\n\nAnswer with one JSON object that follows this schema, and with nothing else:\n"
        f"{to_json(dict(request.schema))}"
    )


@dataclass(frozen=True, slots=True)
class ImagePayload:
    """An image as it is sent.

    Attributes:
        media_type: of the file.
        data: bytes of the file.
        size: width and height.
    """

    media_type: str
    data: bytes = field(repr=False)
    size: tuple[int, int]

    @property
    def base64(self) -> str:
        """The file in base64."""
        return base64.b64encode(self.data).decode()


@lru_cache(maxsize=64)
def image_payload(data: bytes) -> ImagePayload:
    """Prepare an image as all services take it and show it alike.

    A JPEG, PNG or WebP file that needs no treatment goes as it is. Everything else is decoded by the rules of
    `circus_bench.images` (orientation, transparency, first frame), scaled down if need be, and sent as PNG.

    Args:
        data: bytes of an image file.

    Raises:
        UnreadableImageError: the image cannot be decoded in full.
    """
    decoded = decode(data)
    image = decoded.image
    with Image.open(io.BytesIO(data)) as file:
        media_type = _MEDIA_TYPES.get(file.format or "")
    if media_type and not decoded.flags and max(image.size) <= MAX_SIDE and len(data) <= MAX_BYTES:
        return ImagePayload(media_type, data, image.size)
    image.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
    png = to_png(image, max_pixels=MAX_SIDE**2, max_bytes=MAX_BYTES)
    return ImagePayload("image/png", png, image.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Failures):
    """The address, the key and the failures of a service.

    Attributes:
        url: its address.
    """

    url: str

    @classmethod
    def find(
        cls, name: str, settings: ProviderSettings, *, own_url: str | None, key_variables: tuple[str, ...]
    ) -> Endpoint:
        """Read address and key from the settings and the environment.

        Args:
            name: of the provider.
            settings: go before the environment.
            own_url: the vendor's own address; None if there is none, and then a key is not needed.
            key_variables: environment variables that may hold the key.

        Raises:
            RemoteError: the key or the address is missing, or the key would go over an open line.
        """
        url_variable = f"CIRCUS_{name.upper().replace('-', '_')}_URL"
        url = settings.base_url or os.environ.get(url_variable) or own_url
        if not url:
            raise RemoteError(f"provider {name!r} has no address: set {url_variable}, or base_url in its settings")
        variables = (settings.key_variable,) if settings.key_variable else key_variables
        needed = own_url is not None or settings.key_variable is not None
        there = any(os.environ.get(variable, "").strip() for variable in variables)
        key = Secret.from_environment(*variables) if needed or there else None
        if key:
            check_address(url, setting=url_variable)
        return cls(name=name, url=url.rstrip("/"), key=key, key_variables=variables)

    @contextmanager
    def calling(self, sdk: Any) -> Iterator[None]:
        """Put our errors in the place of those of the Anthropic or the OpenAI package, which share their names.

        Args:
            sdk: the package.
        """
        try:
            yield
        except sdk.APIStatusError as error:
            raise self.of_status(
                error.status_code, error_message(error.body) or str(error), error.response.headers
            ) from None
        except sdk.APIConnectionError as error:
            raise self.no_answer(error.__cause__ or error, never_sent=was_never_sent(error)) from None
        except (sdk.APIError, ValueError) as error:  # what is said to be JSON, and is not
            raise self.broken_answer(repr(error)) from None
        except Exception as error:  # while an answer is read bit by bit
            if not is_transport_error(error):
                raise
            raise self.no_answer(error, never_sent=was_never_sent(error)) from None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Take an answer of another form than the documented one for a broken one."""
        try:
            yield
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise self.broken_answer(f"not the documented form: {error!r}") from None


def error_message(body: Any) -> str | None:
    """Find the words of a service in the body of an error: `error.message`, `message` or `detail`."""
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        inner = inner if isinstance(inner, Mapping) else {"message": inner}
        words = inner.get("message") or inner.get("detail")
        return str(words) if words else None
    return None


def is_transport_error(error: BaseException) -> bool:
    """Tell whether an error comes from the HTTP packages, of which the vendors' packages use one or the other."""
    return type(error).__module__.partition(".")[0] in {"httpx", "httpx2", "httpcore", "httpcore2"}


def was_never_sent(error: BaseException) -> bool:
    """Tell whether no connection came about, so that nothing was charged; the cause is httpx's or httpx2's."""
    return type(error.__cause__ or error).__name__ in {"ConnectError", "ConnectTimeout", "PoolTimeout"}
