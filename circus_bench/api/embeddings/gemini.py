"""Embed with Gemini Embedding 2, through the Gemini API.

Facts, read in August to November 2026:

- Protocol: `POST /v1beta/models/MODEL:batchEmbedContents`, key in the header `x-goog-api-key`; one request per content,
  one embedding per request, in order. A content of several parts has one embedding (googleapis/python-genai,
  `google/genai/models.py` and `tests/models/test_embed_content.py`). At most 100 requests per call, and each counts
  against the requests per minute (garrytan/gbrain#1922). 429 carries `google.rpc.RetryInfo` in the body, no header.
- Prompt: this model has no `taskType`. A task is written before the text, `task: search result | query: ` for queries
  and `title: none | text: ` for documents (ai.google.dev/gemini-api/docs/embeddings). The CIRCUS paper does so with an
  image beside the text as well (matteoattimonelli/CIRCUS, `retrievers/gemini_embedding_2_retriever.py`), and so is it
  done here; mteb leaves the text of such inputs bare. Text comes before the image; an image alone has no prompt.
- Price: $0.20 per million text tokens, $0.45 per million image tokens, $0.00012 per image; hence 258 tokens each, which
  is also what the vendor's other models count (unverified for this one).
- The rate limit of an account is shown in AI Studio; the default here is a guess. Set CIRCUS_API_RPM and
  CIRCUS_API_TPM to yours.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from circus_bench.api.embeddings.vendor import Content, Failure, Limits, Vendor
from circus_bench.api.runtime import Price, Secret, Usage

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.types import PromptType

PREVIEW = "google/gemini-embedding-2-preview"
NAMES = (PREVIEW, "google/gemini-embedding-2")
"""The paper's model, and its successor under a stable name."""

_DIMENSIONS = 3072
_IMAGE_TOKENS = 258
_CHARACTERS_PER_TOKEN = 2  # English has about four; an estimate must not be too low

_LIMITS = Limits(
    items=8,  # the paper's; larger batches save nothing, each item counts as a request
    tokens=float("inf"),
    body_bytes=18_000_000,  # a request may have 20 MB
    image_pixels=float("inf"),
    image_bytes=12_000_000,
    requests_per_minute=1_000,
    tokens_per_minute=1_000_000,
    counts_items=True,
)
_PRICE = Price(
    {"text_tokens": 0.20e-6, "image_tokens": 0.45e-6},
    source="https://ai.google.dev/gemini-api/docs/pricing, as quoted by tokencost.app and zilliz.com",
    date="2026-03-11",
)


@dataclass(frozen=True)
class GeminiEmbedding(Vendor):
    """A model of the Gemini API."""

    def base_url(self, key: Secret) -> str:  # noqa: ARG002
        """Return the Gemini API's address."""
        return "https://generativelanguage.googleapis.com"

    def path(self) -> str:
        """Return the path of the method that embeds several contents."""
        return f"/v1beta/{self._model}:batchEmbedContents"

    def header(self, key: Secret) -> tuple[str, str]:
        """Return Google's own header for keys."""
        return "x-goog-api-key", key.reveal()

    def prompt(self, text: str, prompt_type: PromptType | None) -> str:
        """Write the task, then the text."""
        if prompt_type == "query":
            return f"task: search result | query: {text}"
        return f"title: none | text: {text}" if prompt_type == "document" else text

    def request_prompt_type(self, prompt_type: PromptType | None) -> PromptType | None:  # noqa: ARG002
        """Return None: the type is in the prompt only, so an image alone is the same request for both types."""
        return None

    def estimate(self, text: str | None, size: tuple[int, int] | None) -> Usage:
        """Estimate tokens of the text by its length; every image has the same number."""
        return {
            "text_tokens": -(-len(text or "") // _CHARACTERS_PER_TOKEN),
            "image_tokens": _IMAGE_TOKENS if size else 0,
        }

    def tokens(self, usage: Usage) -> float:
        """Count all tokens."""
        return sum(usage.values())

    def body(self, contents: Sequence[Content], prompt_type: PromptType | None) -> dict[str, Any]:  # noqa: ARG002  # in the prompt
        """Write one request per content."""
        requests = [
            {"model": self._model, "content": {"parts": _parts(content)}, "outputDimensionality": self.dimensions}
            for content in contents
        ]
        return {"requests": requests}

    def vectors(self, response: Any) -> list[list[float]]:
        """Read `embeddings[].values`."""
        return [embedding["values"] for embedding in response["embeddings"]]

    def usage(self, response: Any) -> Usage | None:
        """Read `usageMetadata.promptTokenDetails`, tokens by modality; older answers have none."""
        details = response.get("usageMetadata", {}).get("promptTokenDetails")
        if not details:
            return None
        usage = {"text_tokens": 0.0, "image_tokens": 0.0}
        for entry in details:
            unit = "text_tokens" if entry.get("modality") == "TEXT" else "image_tokens"
            usage[unit] += entry.get("tokenCount", 0)
        return usage

    def failure(self, status: int, response: Any) -> Failure:
        """Read `error.message`; a wrong key is a 400 with the reason API_KEY_INVALID, not a 401."""
        error = response.get("error") if isinstance(response, Mapping) else None
        if not isinstance(error, Mapping):
            return Failure(f"no explanation with status {status}")
        details = [entry for entry in error.get("details") or () if isinstance(entry, Mapping)]
        bad_key = any(entry.get("reason") == "API_KEY_INVALID" for entry in details)
        delays = (entry["retryDelay"] for entry in details if "retryDelay" in entry)
        return Failure(str(error.get("message")), bad_key=bad_key, retry_after=_seconds(next(delays, None)))

    @property
    def _model(self) -> str:
        return "models/" + self.name.partition("/")[2]


def vendor(name: str) -> GeminiEmbedding:
    """Describe the vendor's side of a model of `NAMES`."""
    return GeminiEmbedding(
        name=name,
        revision="1",
        dimensions=_DIMENSIONS,
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_variable="CIRCUS_GEMINI_URL",
        limits=_LIMITS,
        price=_PRICE,
    )


def load(model_name: str, revision: str | None = None, **kwargs: Any) -> Any:  # noqa: ARG001
    """Load a model; the loader that mteb calls. `kwargs` are fields of `ApiSettings`."""
    from circus_bench.api.embeddings.encoder import make_encoder

    return make_encoder(vendor(model_name), **kwargs)


def metas() -> list[ModelMeta]:
    """Describe the models to mteb; these stand in for mteb's own loader, which has no budget and no cache."""
    dates = {PREVIEW: "2026-03-10", NAMES[1]: "2026-04-22"}
    return [
        vendor(name).describe(
            load,
            release_date=dates[name],
            max_tokens=8192,
            reference="https://ai.google.dev/gemini-api/docs/embeddings",
        )
        for name in NAMES
    ]


def _parts(content: Content) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if content.text is not None:
        parts.append({"text": content.text})
    if content.image is not None:
        parts.append({"inlineData": {"mimeType": "image/png", "data": base64.b64encode(content.image).decode()}})
    return parts


def _seconds(duration: Any) -> float | None:
    """Read the seconds of a `google.protobuf.Duration` in JSON, such as `31s`."""
    try:
        return max(0.0, float(str(duration).removesuffix("s")))
    except ValueError:
        return None
