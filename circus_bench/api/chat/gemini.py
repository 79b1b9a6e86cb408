"""Gemini, over Google's `generateContent`, with a JSON schema of the reply."""

from __future__ import annotations

from typing import Any

from circus_bench.api.chat.messages import Question, Reply
from circus_bench.api.chat.parsing import without_limits
from circus_bench.api.chat.shared import (
    Endpoint,
    ProviderSettings,
    Tariff,
    estimate_of,
    never_sent,
    of_transport,
    picture,
    prompt_of,
    said,
    usage_of,
)
from circus_bench.api.runtime import Price, RemoteError, Usage

_URL = "https://generativelanguage.googleapis.com"
# A picture above 384 pixels a side is cut into tiles of 768 pixels, 258 tokens each: at most nine of them at 1568
# pixels a side (ai.google.dev, "Image understanding").
_PICTURE_TOKENS = 9 * 258
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
_TARIFFS = {
    "gemini-2.5-pro": Tariff(1.25, 10),  # up to 200,000 tokens a question
    "gemini-2.5-flash": Tariff(0.3, 2.5),
    "gemini-2.5-flash-lite": Tariff(0.1, 0.4),
}


def price(model: str, name: str, kind: str) -> Price | None:  # noqa: ARG001  # the other providers' kinds differ
    """What a model costs; see `circus_bench.api.chat.providers.price_of`.

    Args:
        model: as questions name it.
        name: as the vendor does.
        kind: of the provider.
    """
    tariff = _TARIFFS.get(name)
    return tariff.price(model, _SOURCE, _DATE) if tariff else None


class GeminiProvider:
    """Asks Gemini.

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

    def answer(self, question: Question) -> Reply:
        """Ask one question; see `Provider.answer`."""
        request = self._request(question)
        try:
            response = self.client.models.generate_content(**request)
        except self._error as error:
            raise self._failure(error) from None
        except ValueError as error:  # what is said to be JSON, and is not
            raise self.endpoint.broken(repr(error)) from None
        except Exception as error:
            if not of_transport(error):
                raise
            raise self.endpoint.lost(error, never_sent=never_sent(error)) from None
        with self.endpoint.reading():
            return self._reply(question, response.model_dump(mode="json", exclude_none=True))

    def estimate(self, question: Question) -> Usage:
        """What a question may use at most."""
        return estimate_of(question, _PICTURE_TOKENS * len(question.images))

    def close(self) -> None:
        """Let go of connections."""
        self.client.close()

    def _request(self, question: Question) -> dict[str, Any]:
        types = self._types
        pictures = [picture(data) for data in question.images.values()]
        parts = [types.Part.from_bytes(data=found.data, mime_type=found.media_type) for found in pictures]
        parts.append(types.Part.from_text(text=prompt_of(question, with_schema=not self._settings.structured)))
        config: dict[str, Any] = {"max_output_tokens": question.max_tokens}
        if self._settings.takes_temperature:
            config["temperature"] = question.temperature
        if self._settings.structured and question.schema:
            config |= {
                "response_mime_type": "application/json",
                "response_json_schema": without_limits(question.schema),
            }
        return {
            "model": question.model.rpartition("/")[2],
            "contents": [types.Content(role="user", parts=parts)],
            "config": types.GenerateContentConfig(**config),
        }

    def _reply(self, question: Question, response: Any) -> Reply:
        used = response["usage_metadata"]
        # What the model thinks before it answers is charged as a part of the answer.
        answered = used.get("candidates_token_count", 0) + used.get("thoughts_token_count", 0)
        usage = usage_of(question.model, (used.get("prompt_token_count", 0), answered))
        if not response.get("candidates"):
            reason = response["prompt_feedback"]["block_reason"]
            return Reply(f"blocked: {reason}", "refusal", usage)
        candidate = response["candidates"][0]
        parts = candidate.get("content", {}).get("parts", [])
        text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
        stop = str(candidate.get("finish_reason"))
        return Reply(text, _STOPS.get(stop, stop), usage)

    def _failure(self, error: Any) -> RemoteError:
        # A wrong key is a 400 with this reason, not a 401.
        status = 401 if "API_KEY_INVALID" in str(error.details) else error.code
        return self.endpoint.failure(status, said(error.details) or str(error), getattr(error.response, "headers", {}))


def make(name: str, kind: str, settings: ProviderSettings) -> GeminiProvider:  # noqa: ARG001
    """See `circus_bench.api.chat.providers.make_provider`."""
    endpoint = Endpoint.find(name, settings, own_url=_URL, key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"))
    return GeminiProvider(endpoint, settings)
