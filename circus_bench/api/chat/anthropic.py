"""Claude, over Anthropic's Messages API, with structured outputs (`output_config.format`).

Version 2026-10-21 of the API, which the package asks for by default, takes no temperature. RMIR's judges are told apart
by it, so the version before is asked for, unless the settings say that the model takes none.
"""

from __future__ import annotations

import re
from typing import Any

from circus_bench.api.chat.messages import Question, Reply
from circus_bench.api.chat.parsing import without_limits
from circus_bench.api.chat.shared import (
    Endpoint,
    ProviderSettings,
    Tariff,
    estimate_of,
    picture,
    prompt_of,
    usage_of,
)
from circus_bench.api.runtime import Price, RemoteError, Usage

_URL = "https://api.anthropic.com"
_VERSION_WITH_TEMPERATURE = "2023-06-01"  # platform.claude.com, "Versions"
# A picture has a token every 750 pixels, and 1,600 at most (platform.claude.com, "Vision").
_PIXELS_A_TOKEN, _PICTURE_TOKENS = 750, 1600
_STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_SOURCE, _DATE = "https://platform.claude.com/docs/en/about-claude/pricing", "2026-11-30"
_TARIFFS = {
    "claude-sonnet-4-5": Tariff(3, 15),
    "claude-sonnet-4-6": Tariff(3, 15),
    "claude-haiku-4-5": Tariff(1, 5),
    "claude-opus-4-5": Tariff(5, 25),
    "claude-opus-4-6": Tariff(5, 25),
}


def price(model: str, name: str, kind: str) -> Price | None:  # noqa: ARG001  # the other providers' kinds differ
    """What a model costs; see `circus_bench.api.chat.providers.price_of`.

    Args:
        model: as questions name it.
        name: as the vendor does; with or without a date.
        kind: of the provider.
    """
    tariff = _TARIFFS.get(re.sub(r"-\d{8}$", "", name))
    return tariff.price(model, _SOURCE, _DATE) if tariff else None


class AnthropicProvider:
    """Asks Claude.

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
        self._sdk: Any = anthropic
        self.client = anthropic.Anthropic(
            api_key=endpoint.key.reveal(),
            base_url=endpoint.url,
            max_retries=0,
            timeout=settings.timeout,
            default_headers={"anthropic-version": _VERSION_WITH_TEMPERATURE} if settings.takes_temperature else None,
            # A redirect is not followed: the key would go along to wherever it points.
            http_client=anthropic.DefaultHttpxClient(follow_redirects=False),
        )

    def answer(self, question: Question) -> Reply:
        """Ask one question; see `Provider.answer`."""
        body = self.body(question)
        more = {"temperature": body.pop("temperature")} if "temperature" in body else None
        with self.endpoint.calling(self._sdk):
            message = self.client.messages.create(**body, extra_body=more)
        with self.endpoint.reading():
            return self.reply(question.model, message.to_dict(mode="json"))

    def estimate(self, question: Question, *, batch: bool = False) -> Usage:
        """What a question may use at most."""
        sizes = [picture(data).size for data in question.images.values()]
        tokens = sum(min(width * height / _PIXELS_A_TOKEN, _PICTURE_TOKENS) for width, height in sizes)
        return estimate_of(question, tokens, batch=batch)

    def body(self, question: Question) -> dict[str, Any]:
        """A request: pictures first, then the text, as the vendor advises."""
        pictures = [picture(data) for data in question.images.values()]
        content: list[dict[str, Any]] = [
            {"type": "image", "source": {"type": "base64", "media_type": found.media_type, "data": found.base64}}
            for found in pictures
        ]
        content.append({"type": "text", "text": prompt_of(question, with_schema=not self._settings.structured)})
        body: dict[str, Any] = {
            "model": question.model.rpartition("/")[2],
            "max_tokens": question.max_tokens,
            "messages": [{"role": "user", "content": content}],
        }
        if self._settings.takes_temperature:
            body["temperature"] = question.temperature
        if self._settings.structured and question.schema:
            body["output_config"] = {"format": {"type": "json_schema", "schema": without_limits(question.schema)}}
        return body

    def reply(self, model: str, message: Any, *, batch: bool = False) -> Reply:
        """Read a message of the API.

        Args:
            model: as questions name it.
            message: JSON.
            batch: whether it was made in a batch.
        """
        text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
        stop = str(message["stop_reason"])
        used = message["usage"]
        # What goes through their cache is priced otherwise; we do not ask for it.
        asked = sum(used.get(name) or 0 for name in ("cache_creation_input_tokens", "cache_read_input_tokens"))
        tokens = (used["input_tokens"] + asked, used["output_tokens"])
        return Reply(text, _STOPS.get(stop, stop), usage_of(model, tokens, batch=batch))

    def close(self) -> None:
        """Let go of connections."""
        self.client.close()


def make(name: str, kind: str, settings: ProviderSettings) -> AnthropicProvider:  # noqa: ARG001
    """See `circus_bench.api.chat.providers.make_provider`."""
    endpoint = Endpoint.find(name, settings, own_url=_URL, key_variables=("ANTHROPIC_API_KEY",))
    return AnthropicProvider(endpoint, settings)
