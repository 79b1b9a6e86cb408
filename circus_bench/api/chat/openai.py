"""OpenAI's chat completions, and every server that speaks their protocol: vLLM, Ollama, hosted ones."""

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

_URL = "https://api.openai.com/v1"
# Models count pictures differently. The most that one has in the families of the price list is 1,536 patches of 32
# pixels times 2.46, for the smallest models (developers.openai.com, "Images and vision").
_PICTURE_TOKENS = 3800
_STOPS = {"stop": "end", "length": "length", "content_filter": "refusal"}
_SOURCE, _DATE = "https://developers.openai.com/api/docs/pricing, as quoted by the crate openai-cost", "2026-11-30"
_TARIFFS = {
    "gpt-5": Tariff(1.25, 10),
    "gpt-5-mini": Tariff(0.25, 2),
    "gpt-5-nano": Tariff(0.05, 0.4),
    "gpt-4.1": Tariff(2, 8),
    "gpt-4.1-mini": Tariff(0.4, 1.6),
    "gpt-4.1-nano": Tariff(0.1, 0.4),
}


def price(model: str, name: str, kind: str) -> Price | None:
    """What a model costs; see `circus_bench.api.chat.providers.price_of`.

    Args:
        model: as questions name it.
        name: as the vendor does; with or without a date.
        kind: of the provider; what a compatible server charges is not known.
    """
    tariff = _TARIFFS.get(re.sub(r"-\d{4}-\d{2}-\d{2}$", "", name)) if kind == "openai" else None
    return tariff.price(model, _SOURCE, _DATE) if tariff else None


class OpenAIProvider:
    """Asks for chat completions.

    Args:
        endpoint: of the service.
        settings: how it is used.
        official: whether it is OpenAI itself, which has another name for the limit of tokens than the servers that
            followed its protocol.
    """

    def __init__(self, endpoint: Endpoint, settings: ProviderSettings, *, official: bool) -> None:
        import openai

        self.name = endpoint.name
        self.endpoint = endpoint
        self._settings = settings
        self._limit = "max_completion_tokens" if official else "max_tokens"
        self._sdk: Any = openai
        self.client = openai.OpenAI(
            # The package insists on a key; servers that need none ignore it.
            api_key=endpoint.key.reveal() if endpoint.key else "none",
            base_url=endpoint.url,
            max_retries=0,
            timeout=settings.timeout,
            # A redirect is not followed: the key would go along to wherever it points.
            http_client=openai.DefaultHttpxClient(follow_redirects=False),
        )

    def answer(self, question: Question) -> Reply:
        """Ask one question; see `Provider.answer`."""
        body = self.body(question)
        with self.endpoint.calling(self._sdk):
            try:
                completion = self.client.chat.completions.create(**body)
            except self._sdk.RateLimitError as error:
                if error.code == "insufficient_quota":  # waiting does not help
                    raise RemoteError(f"{self.name}: the account has no credit left ({error.message})") from None
                raise
        with self.endpoint.reading():
            return self.reply(question.model, completion.to_dict(mode="json"))

    def estimate(self, question: Question, *, batch: bool = False) -> Usage:
        """What a question may use at most."""
        return estimate_of(question, _PICTURE_TOKENS * len(question.images), batch=batch)

    def body(self, question: Question) -> dict[str, Any]:
        """A request."""
        pictures = [picture(data) for data in question.images.values()]
        content: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": f"data:{found.media_type};base64,{found.base64}"}}
            for found in pictures
        ]
        content.append({"type": "text", "text": prompt_of(question, with_schema=not self._settings.structured)})
        body: dict[str, Any] = {
            "model": question.model.removeprefix(f"{self.name}/"),
            self._limit: question.max_tokens,
            "messages": [{"role": "user", "content": content}],
        }
        if self._settings.takes_temperature:
            body["temperature"] = question.temperature
        if self._settings.structured and question.schema:
            name = re.sub(r"[^A-Za-z0-9_-]", "_", question.template)
            schema = {"name": name, "strict": True, "schema": without_limits(question.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def reply(self, model: str, completion: Any, *, batch: bool = False) -> Reply:
        """Read a completion of the API.

        Args:
            model: as questions name it.
            completion: JSON; not every compatible server tells what was used.
            batch: whether it was made in a batch.
        """
        choice = completion["choices"][0]
        message, stop = choice["message"], str(choice["finish_reason"])
        used = completion.get("usage")
        usage = usage_of(model, (used["prompt_tokens"], used["completion_tokens"]), batch=batch) if used else {}
        if message.get("refusal"):
            return Reply(message["refusal"], "refusal", usage)
        return Reply(message["content"] or "", _STOPS.get(stop, stop), usage)

    def close(self) -> None:
        """Let go of connections."""
        self.client.close()


def make(name: str, kind: str, settings: ProviderSettings) -> OpenAIProvider:
    """See `circus_bench.api.chat.providers.make_provider`."""
    official = kind == "openai"
    variable = "OPENAI_API_KEY" if official else f"CIRCUS_{name.upper().replace('-', '_')}_API_KEY"
    endpoint = Endpoint.find(name, settings, own_url=_URL if official else None, key_variables=(variable,))
    return OpenAIProvider(endpoint, settings, official=official)
