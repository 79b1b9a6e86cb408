"""Gemini Embedding 2, through the Gemini API.

Facts, read in August to November 2026:

- Protocol: `POST /v1beta/models/MODEL:batchEmbedContents`, key in the header `x-goog-api-key`; one request a content,
  one embedding a request, in order. A content of several parts has one embedding (googleapis/python-genai,
  `google/genai/models.py` and `tests/models/test_embed_content.py`). At most 100 requests a call, and each counts
  against the requests a minute (garrytan/gbrain#1922). 429 carries `google.rpc.RetryInfo` in the body, no header.
- Prompt: this model has no `taskType`. A task is written before the text, `task: search result | query: ` for queries
  and `title: none | text: ` for documents (ai.google.dev/gemini-api/docs/embeddings). The CIRCUS paper does so with an
  image beside the text as well (matteoattimonelli/CIRCUS, `retrievers/gemini_embedding_2_retriever.py`), and so is it
  done here; mteb leaves the text of such inputs bare. Text comes before the image; an image alone has no prompt.
- Price: $0.20 a million text tokens, $0.45 a million image tokens, $0.00012 an image; hence 258 tokens an image, which
  is also what the vendor's other models count (unverified for this one).
- The pace that an account is allowed is shown in AI Studio; the default here is a guess. Set CIRCUS_API_RPM and
  CIRCUS_API_TPM to yours.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from circus_bench.api.embeddings.vendor import Content, Failure, Limits, Role, Vendor
from circus_bench.api.runtime import Price, Secret, Usage

if TYPE_CHECKING:
    from mteb.models import ModelMeta

PREVIEW = "google/gemini-embedding-2-preview"
NAMES = (PREVIEW, "google/gemini-embedding-2")
"""The paper's model, and its successor under a stable name."""

_DIMENSIONS = 3072
_IMAGE_TOKENS = 258
_CHARACTERS_A_TOKEN = 2  # English has about four; an estimate must not be too low

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
class Gemini(Vendor):
    """A model of the Gemini API."""

    def base_url(self, key: Secret) -> str:  # noqa: ARG002
        """The Gemini API's address."""
        return "https://generativelanguage.googleapis.com"

    def path(self) -> str:
        """The method that embeds several contents."""
        return f"/v1beta/{self._model}:batchEmbedContents"

    def header(self, key: Secret) -> tuple[str, str]:
        """Google's own header for keys."""
        return "x-goog-api-key", key.reveal()

    def prompt(self, text: str, role: Role | None) -> str:
        """The task, then the text."""
        if role is Role.QUERY:
            return f"task: search result | query: {text}"
        return f"title: none | text: {text}" if role is Role.DOCUMENT else text

    def told_role(self, role: Role | None) -> Role | None:  # noqa: ARG002
        """None: the role is in the prompt only, so an image alone is the same question in both roles."""
        return None

    def estimate(self, text: str | None, size: tuple[int, int] | None) -> Usage:
        """Tokens of the text by its length; every image has the same number."""
        return {
            "text_tokens": -(-len(text or "") // _CHARACTERS_A_TOKEN),
            "image_tokens": _IMAGE_TOKENS if size else 0,
        }

    def tokens(self, usage: Usage) -> float:
        """All tokens count."""
        return sum(usage.values())

    def body(self, contents: Sequence[Content], role: Role | None) -> dict[str, Any]:  # noqa: ARG002  # in the prompt
        """One request a content."""
        requests = [
            {"model": self._model, "content": {"parts": _parts(content)}, "outputDimensionality": self.dimensions}
            for content in contents
        ]
        return {"requests": requests}

    def vectors(self, reply: Any) -> list[list[float]]:
        """`embeddings[].values`."""
        return [embedding["values"] for embedding in reply["embeddings"]]

    def usage(self, reply: Any) -> Usage | None:
        """`usageMetadata.promptTokenDetails`, tokens by modality; older answers have none."""
        details = reply.get("usageMetadata", {}).get("promptTokenDetails")
        if not details:
            return None
        usage = {"text_tokens": 0.0, "image_tokens": 0.0}
        for entry in details:
            unit = "text_tokens" if entry.get("modality") == "TEXT" else "image_tokens"
            usage[unit] += entry.get("tokenCount", 0)
        return usage

    def failure(self, status: int, reply: Any) -> Failure:
        """`error.message`; a wrong key is a 400 with the reason API_KEY_INVALID, not a 401."""
        error = reply.get("error") if isinstance(reply, Mapping) else None
        if not isinstance(error, Mapping):
            return Failure(f"no explanation with status {status}")
        details = [entry for entry in error.get("details") or () if isinstance(entry, Mapping)]
        bad_key = any(entry.get("reason") == "API_KEY_INVALID" for entry in details)
        delays = (entry["retryDelay"] for entry in details if "retryDelay" in entry)
        return Failure(str(error.get("message")), bad_key=bad_key, retry_after=_seconds(next(delays, None)))

    @property
    def _model(self) -> str:
        return "models/" + self.name.partition("/")[2]


def vendor(name: str) -> Gemini:
    """The vendor's side of a model of `NAMES`."""
    return Gemini(
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
    """The models as mteb knows them; these stand in for mteb's own loader, which keeps neither budget nor replies."""
    from circus_bench.api.embeddings.metas import api_meta

    dates = {PREVIEW: "2026-03-10", NAMES[1]: "2026-04-22"}
    return [
        api_meta(
            load,
            vendor(name),
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
    """Seconds of a `google.protobuf.Duration` in JSON, such as `31s`."""
    try:
        return max(0.0, float(str(duration).removesuffix("s")))
    except ValueError:
        return None
