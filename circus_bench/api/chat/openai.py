"""Call OpenAI's chat completions, or any server that speaks their protocol: vLLM, Ollama, hosted ones."""

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

_URL = "https://api.openai.com/v1"
# Models count images differently. The most that one has in the families of the price list is 1,536 patches of 32
# pixels times 2.46, for the smallest models (developers.openai.com, "Images and vision").
_MAX_IMAGE_TOKENS = 3800
_STOPS = {"stop": "end", "length": "length", "content_filter": "refusal"}
_SOURCE, _DATE = "https://developers.openai.com/api/docs/pricing, as quoted by the crate openai-cost", "2026-11-30"
_PRICES = {
    "gpt-5": TokenPrice(1.25, 10),
    "gpt-5-mini": TokenPrice(0.25, 2),
    "gpt-5-nano": TokenPrice(0.05, 0.4),
    "gpt-4.1": TokenPrice(2, 8),
    "gpt-4.1-mini": TokenPrice(0.4, 1.6),
    "gpt-4.1-nano": TokenPrice(0.1, 0.4),
}


def price(model: str, name: str, kind: str) -> Price | None:
    """Look up the token price of a model; see `circus_bench.api.chat.providers.price_of`."""
    # Names come with or without a date.
    price_list = _PRICES.get(re.sub(r"-\d{4}-\d{2}-\d{2}$", "", name)) if kind == "openai" else None
    return price_list.price(model, _SOURCE, _DATE) if price_list else None


class OpenAIProvider:
    """Chat completions as a provider.

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
        self.sdk: Any = openai
        self.client = openai.OpenAI(
            # The package insists on a key; servers that need none ignore it.
            api_key=endpoint.key.reveal() if endpoint.key else "none",
            base_url=endpoint.url,
            max_retries=0,
            timeout=settings.timeout,
            # A redirect is not followed: the key would go along to wherever it points.
            http_client=openai.DefaultHttpxClient(follow_redirects=False),
        )

    def answer(self, request: Request) -> Completion:
        """Answer one request; see `Provider.answer`."""
        body = self.body(request)
        with self.endpoint.calling(self.sdk):
            try:
                response = self.client.chat.completions.create(**body)
            except self.sdk.RateLimitError as error:
                if error.code == "insufficient_quota":  # waiting does not help
                    raise RemoteError(f"{self.name}: the account has no credit left ({error.message})") from None
                raise
        with self.endpoint.reading():
            return self.completion(request.model, response.to_dict(mode="json"))

    def estimate(self, request: Request, *, batch: bool = False) -> Usage:
        """Estimate what a request may use at most."""
        return estimate_usage(request, _MAX_IMAGE_TOKENS * len(request.images), batch=batch)

    def body(self, request: Request) -> dict[str, Any]:
        """Write a request."""
        payloads = [image_payload(data) for data in request.images.values()]
        content: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": f"data:{found.media_type};base64,{found.base64}"}}
            for found in payloads
        ]
        content.append({"type": "text", "text": render_prompt(request, with_schema=not self._settings.structured)})
        body: dict[str, Any] = {
            "model": request.model.removeprefix(f"{self.name}/"),
            self._limit: request.max_tokens,
            "messages": [{"role": "user", "content": content}],
        }
        if self._settings.takes_temperature:
            body["temperature"] = request.temperature
        if self._settings.structured and request.schema:
            name = re.sub(r"[^A-Za-z0-9_-]", "_", request.template)
            schema = {"name": name, "strict": True, "schema": strip_limits(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def completion(self, model: str, response: Any, *, batch: bool = False) -> Completion:
        """Read a completion of the API.

        Args:
            model: as requests name it.
            response: JSON; not every compatible server tells what was used.
            batch: whether it was made in a batch.
        """
        choice = response["choices"][0]
        message, stop = choice["message"], str(choice["finish_reason"])
        used = response.get("usage")
        usage = token_usage(model, (used["prompt_tokens"], used["completion_tokens"]), batch=batch) if used else {}
        if message.get("refusal"):
            return Completion(message["refusal"], "refusal", usage)
        return Completion(message["content"] or "", _STOPS.get(stop, stop), usage)

    def close(self) -> None:
        """Let go of connections."""
        self.client.close()


def make(name: str, kind: str, settings: ProviderSettings) -> OpenAIProvider:
    """Make the provider; see `circus_bench.api.chat.providers.make_provider`."""
    official = kind == "openai"
    variable = "OPENAI_API_KEY" if official else f"CIRCUS_{name.upper().replace('-', '_')}_API_KEY"
    endpoint = Endpoint.find(name, settings, own_url=_URL if official else None, key_variables=(variable,))
    return OpenAIProvider(endpoint, settings, official=official)
