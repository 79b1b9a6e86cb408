"""Call Claude over Anthropic's Messages API, with structured output (`output_config.format`).

Version 2026-10-21 of the API, which the package asks for by default, takes no temperature. RMIR's judges are told apart
by it, so the version before is asked for, unless the settings say that the model takes none.
"""

from __future__ import annotations

import re
from typing import Any

from circus_bench.api.chat.messages import Completion, Request
from circus_bench.api.chat.parsing import strip_limits
from circus_bench.api.chat.shared import (
    Endpoint,
    ProviderSettings,
    TokenPrice,
    estimate_usage,
    image_payload,
    render_prompt,
    token_usage,
)
from circus_bench.api.runtime import Price, RemoteError, Usage

_URL = "https://api.anthropic.com"
_VERSION_WITH_TEMPERATURE = "2023-06-01"  # platform.claude.com, "Versions"
# An image has a token every 750 pixels, and 1,600 at most (platform.claude.com, "Vision").
_PIXELS_PER_TOKEN, _MAX_IMAGE_TOKENS = 750, 1600
_STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_SOURCE, _DATE = "https://platform.claude.com/docs/en/about-claude/pricing", "2026-11-30"
_PRICES = {
    "claude-sonnet-4-5": TokenPrice(3, 15),
    "claude-sonnet-4-6": TokenPrice(3, 15),
    "claude-haiku-4-5": TokenPrice(1, 5),
    "claude-opus-4-5": TokenPrice(5, 25),
    "claude-opus-4-6": TokenPrice(5, 25),
}


def price(model: str, name: str, kind: str) -> Price | None:  # noqa: ARG001  # the other providers' kinds differ
    """Look up the token price of a model; see `circus_bench.api.chat.providers.price_of`."""
    # Names come with or without a date.
    price_list = _PRICES.get(re.sub(r"-\d{8}$", "", name))
    return price_list.price(model, _SOURCE, _DATE) if price_list else None


class AnthropicProvider:
    """Claude as a provider.

    Args:
        endpoint: of the service.
        settings: how it is used.
    """

    def __init__(self, endpoint: Endpoint, settings: ProviderSettings) -> None:
        import anthropic

        if endpoint.key is None:
            raise RemoteError(f"{endpoint.name}: no API key; set {' or '.join(endpoint.key_variables)}")
        self.name = endpoint.name
        self.endpoint = endpoint
        self._settings = settings
        self.sdk: Any = anthropic
        self.client = anthropic.Anthropic(
            api_key=endpoint.key.reveal(),
            base_url=endpoint.url,
            max_retries=0,
            timeout=settings.timeout,
            default_headers={"anthropic-version": _VERSION_WITH_TEMPERATURE} if settings.takes_temperature else None,
            # A redirect is not followed: the key would go along to wherever it points.
            http_client=anthropic.DefaultHttpxClient(follow_redirects=False),
        )

    def answer(self, request: Request) -> Completion:
        """Answer one request; see `Provider.answer`."""
        body = self.body(request)
        more = {"temperature": body.pop("temperature")} if "temperature" in body else None
        with self.endpoint.calling(self.sdk):
            message = self.client.messages.create(**body, extra_body=more)
        with self.endpoint.reading():
            return self.completion(request.model, message.to_dict(mode="json"))

    def estimate(self, request: Request, *, batch: bool = False) -> Usage:
        """Estimate what a request may use at most."""
        sizes = [image_payload(data).size for data in request.images.values()]
        tokens = sum(min(width * height / _PIXELS_PER_TOKEN, _MAX_IMAGE_TOKENS) for width, height in sizes)
        return estimate_usage(request, tokens, batch=batch)

    def body(self, request: Request) -> dict[str, Any]:
        """Write a request: images first, then the text, as the vendor advises."""
        payloads = [image_payload(data) for data in request.images.values()]
        content: list[dict[str, Any]] = [
            {"type": "image", "source": {"type": "base64", "media_type": found.media_type, "data": found.base64}}
            for found in payloads
        ]
        content.append({"type": "text", "text": render_prompt(request, with_schema=not self._settings.structured)})
        body: dict[str, Any] = {
            "model": request.model.rpartition("/")[2],
            "max_tokens": request.max_tokens,
            "messages": [{"role": "user", "content": content}],
        }
        if self._settings.takes_temperature:
            body["temperature"] = request.temperature
        if self._settings.structured and request.schema:
            body["output_config"] = {"format": {"type": "json_schema", "schema": strip_limits(request.schema)}}
        return body

    def completion(self, model: str, message: Any, *, batch: bool = False) -> Completion:
        """Read a message of the API.

        Args:
            model: as requests name it.
            message: JSON.
            batch: whether it was made in a batch.
        """
        text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
        stop = str(message["stop_reason"])
        used = message["usage"]
        # What goes through their cache is priced otherwise; we do not ask for it.
        asked = sum(used.get(name) or 0 for name in ("cache_creation_input_tokens", "cache_read_input_tokens"))
        tokens = (used["input_tokens"] + asked, used["output_tokens"])
        return Completion(text, _STOPS.get(stop, stop), token_usage(model, tokens, batch=batch))

    def close(self) -> None:
        """Let go of connections."""
        self.client.close()


def make(name: str, kind: str, settings: ProviderSettings) -> AnthropicProvider:  # noqa: ARG001
    """Make the provider; see `circus_bench.api.chat.providers.make_provider`."""
    endpoint = Endpoint.find(name, settings, own_url=_URL, key_variables=("ANTHROPIC_API_KEY",))
    return AnthropicProvider(endpoint, settings)
