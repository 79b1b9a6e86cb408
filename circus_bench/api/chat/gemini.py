"""Call Gemini over Google's `generateContent`, with structured output by a JSON schema."""

from __future__ import annotations

from typing import Any

from circus_bench.api.chat.messages import Completion, Request
from circus_bench.api.chat.parsing import strip_limits
from circus_bench.api.chat.shared import (
    Endpoint,
    ProviderSettings,
    TokenPrice,
    error_message,
    estimate_usage,
    image_payload,
    is_transport_error,
    render_prompt,
    token_usage,
    was_never_sent,
)
from circus_bench.api.runtime import Price, RemoteError, Usage

_URL = "https://generativelanguage.googleapis.com"
# An image above 384 pixels per side is cut into tiles of 768 pixels, 258 tokens each: at most nine of them at 1568
# pixels per side (ai.google.dev, "Image understanding").
_IMAGE_TOKENS = 9 * 258
_STOPS = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    "SAFETY": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "BLOCKLIST": "refusal",
    "SPII": "refusal",
    "RECITATION": "refusal",
    "IMAGE_SAFETY": "refusal",
}
_SOURCE, _DATE = "https://ai.google.dev/gemini-api/docs/pricing, as quoted by the crate gemini-cost", "2026-11-30"
_PRICES = {
    "gemini-2.5-pro": TokenPrice(1.25, 10),  # up to 200,000 tokens per request
    "gemini-2.5-flash": TokenPrice(0.3, 2.5),
    "gemini-2.5-flash-lite": TokenPrice(0.1, 0.4),
}


def price(model: str, name: str, kind: str) -> Price | None:  # noqa: ARG001  # the other providers' kinds differ
    """Look up the token price of a model; see `circus_bench.api.chat.providers.price_of`."""
    price_list = _PRICES.get(name)
    return price_list.price(model, _SOURCE, _DATE) if price_list else None


class GeminiProvider:
    """Gemini as a provider.

    Args:
        endpoint: of the service.
        settings: how it is used.
    """

    def __init__(self, endpoint: Endpoint, settings: ProviderSettings) -> None:
        from google import genai
        from google.genai import errors, types

        if endpoint.key is None:
            raise RemoteError(f"{endpoint.name}: no API key; set {' or '.join(endpoint.key_variables)}")
        self.name = endpoint.name
        self.endpoint = endpoint
        self._settings = settings
        self._types = types
        self._error = errors.APIError
        self.client = genai.Client(
            api_key=endpoint.key.reveal(),
            vertexai=False,  # whatever the environment says
            http_options=types.HttpOptions(
                base_url=endpoint.url,
                api_version="v1beta",  # has all that is asked for here
                timeout=round(1000 * settings.timeout),
                retry_options=types.HttpRetryOptions(attempts=1),
                # A redirect is not followed: the key would go along to wherever it points.
                client_args={"follow_redirects": False},
            ),
        )

    def answer(self, request: Request) -> Completion:
        """Answer one request; see `Provider.answer`."""
        arguments = self._arguments(request)
        try:
            response = self.client.models.generate_content(**arguments)
        except self._error as error:
            raise self._failure(error) from None
        except ValueError as error:  # what is said to be JSON, and is not
            raise self.endpoint.broken_answer(repr(error)) from None
        except Exception as error:
            if not is_transport_error(error):
                raise
            raise self.endpoint.no_answer(error, never_sent=was_never_sent(error)) from None
        with self.endpoint.reading():
            return self._completion(request, response.model_dump(mode="json", exclude_none=True))

    def estimate(self, request: Request) -> Usage:
        """Estimate what a request may use at most."""
        return estimate_usage(request, _IMAGE_TOKENS * len(request.images))

    def close(self) -> None:
        """Let go of connections."""
        self.client.close()

    def _arguments(self, request: Request) -> dict[str, Any]:
        types = self._types
        payloads = [image_payload(data) for data in request.images.values()]
        parts = [types.Part.from_bytes(data=found.data, mime_type=found.media_type) for found in payloads]
        parts.append(types.Part.from_text(text=render_prompt(request, with_schema=not self._settings.structured)))
        config: dict[str, Any] = {"max_output_tokens": request.max_tokens}
        if self._settings.takes_temperature:
            config["temperature"] = request.temperature
        if self._settings.structured and request.schema:
            config |= {
                "response_mime_type": "application/json",
                "response_json_schema": strip_limits(request.schema),
            }
        return {
            "model": request.model.rpartition("/")[2],
            "contents": [types.Content(role="user", parts=parts)],
            "config": types.GenerateContentConfig(**config),
        }

    def _completion(self, request: Request, response: Any) -> Completion:
        used = response["usage_metadata"]
        # What the model thinks before it answers is charged as a part of the answer.
        answered = used.get("candidates_token_count", 0) + used.get("thoughts_token_count", 0)
        usage = token_usage(request.model, (used.get("prompt_token_count", 0), answered))
        if not response.get("candidates"):
            reason = response["prompt_feedback"]["block_reason"]
            return Completion(f"blocked: {reason}", "refusal", usage)
        candidate = response["candidates"][0]
        parts = candidate.get("content", {}).get("parts", [])
        text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
        stop = str(candidate.get("finish_reason"))
        return Completion(text, _STOPS.get(stop, stop), usage)

    def _failure(self, error: Any) -> RemoteError:
        # A wrong key is a 400 with this reason, not a 401.
        status = 401 if "API_KEY_INVALID" in str(error.details) else error.code
        return self.endpoint.of_status(
            status, error_message(error.details) or str(error), getattr(error.response, "headers", {})
        )


def make(name: str, kind: str, settings: ProviderSettings) -> GeminiProvider:  # noqa: ARG001
    """Make the provider; see `circus_bench.api.chat.providers.make_provider`."""
    endpoint = Endpoint.find(name, settings, own_url=_URL, key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"))
    return GeminiProvider(endpoint, settings)
