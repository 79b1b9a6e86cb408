"""Embed with Voyage multimodal 3.5, through the API of Voyage AI.

Facts, read in August to November 2026:

- Protocol: `POST /v1/multimodalembeddings`, key as a bearer token; `data[].embedding` with `index`, `usage` with
  `text_tokens` and `image_pixels`, errors in `detail` (docs.voyageai.com/reference/multimodal-embeddings-api;
  voyage-ai/voyageai-python). Keys that begin with `al-` belong to ai.mongodb.com (there, `voyageai/util.py`).
- Limits: 1,000 inputs and 320,000 tokens per request, 32,000 per input, 16 million pixels and 20 MB per image; other
  models of the vendor refuse 120,000 tokens per request (embeddings-benchmark/mteb#1098), so requests stay below that.
- Tokens: 560 pixels are one; an image counts as at least 50,000 and at most 2 million pixels.
- Prompt: the service puts its own before the input, by `input_type` `query` or `document`. Instruction and text come
  before the image (matteoattimonelli/CIRCUS, `retrievers/voyage_multimodal_35_retriever.py`). That adapter puts a zero
  vector where an image was refused; here it is an error. `truncation` is off: what does not fit is refused, not cut.
- Price: $0.12 per million text tokens, $0.60 per billion pixels; the free share of an account is not considered.
- Rate limit: 2,000 requests and 2 million tokens per minute in the lowest paid tier
  (docs.voyageai.com/docs/rate-limits).
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

NAME = "voyageai/voyage-multimodal-3.5"

_DIMENSIONS = 1024
_PIXELS_PER_TOKEN = 560
_FEWEST_PIXELS, _MOST_PIXELS = 50_000, 2_000_000
_CHARACTERS_PER_TOKEN = 2  # English has about four; an estimate must not be too low
_PROMPT_TOKENS = 16  # of the service's own prompt

_LIMITS = Limits(
    items=32,
    tokens=100_000,
    body_bytes=30_000_000,
    image_pixels=16_000_000,
    image_bytes=20_000_000,
    requests_per_minute=2_000,
    tokens_per_minute=2_000_000,
    counts_items=False,
)
_PRICE = Price(
    {"text_tokens": 0.12e-6, "pixels": 0.60e-9},
    source="https://docs.voyageai.com/docs/pricing, as quoted by usagepricing.com",
    date="2026-08-25",
)


@dataclass(frozen=True)
class VoyageEmbedding(Vendor):
    """A multimodal model of Voyage AI."""

    def base_url(self, key: Secret) -> str:
        """Return Voyage's own address, or MongoDB's for its keys."""
        return "https://ai.mongodb.com" if key.reveal().startswith("al-") else "https://api.voyageai.com"

    def path(self) -> str:
        """Return the path of the method that embeds multimodal inputs."""
        return "/v1/multimodalembeddings"

    def header(self, key: Secret) -> tuple[str, str]:
        """Return a bearer token."""
        return "Authorization", f"Bearer {key.reveal()}"

    def prompt(self, text: str, prompt_type: PromptType | None) -> str:  # noqa: ARG002
        """Write the text as it is; the service adds its prompt."""
        return text

    def request_prompt_type(self, prompt_type: PromptType | None) -> PromptType | None:
        """Return the `input_type`."""
        return prompt_type

    def estimate(self, text: str | None, size: tuple[int, int] | None) -> Usage:
        """Estimate tokens of the text by its length; pixels as they are charged."""
        pixels = min(max(size[0] * size[1], _FEWEST_PIXELS), _MOST_PIXELS) if size else 0
        return {"text_tokens": -(-len(text or "") // _CHARACTERS_PER_TOKEN) + _PROMPT_TOKENS, "pixels": pixels}

    def tokens(self, usage: Usage) -> float:
        """Count text tokens, and one token every 560 pixels."""
        return usage["text_tokens"] + usage["pixels"] / _PIXELS_PER_TOKEN

    def body(self, contents: Sequence[Content], prompt_type: PromptType | None) -> dict[str, Any]:
        """Write one input per content."""
        return {
            "inputs": [{"content": _segments(content)} for content in contents],
            "model": self.name.partition("/")[2],
            "input_type": prompt_type,
            "truncation": False,
            "output_dimension": self.dimensions,
        }

    def vectors(self, response: Any) -> list[list[float]]:
        """Read `data[].embedding`, by `index`."""
        rows = sorted(response["data"], key=lambda row: int(row["index"]))
        if [row["index"] for row in rows] != list(range(len(rows))):
            raise ValueError(f"indices {[row['index'] for row in rows][:5]}")
        return [row["embedding"] for row in rows]

    def usage(self, response: Any) -> Usage | None:
        """Read `usage`, with text and pixels apart as they are charged."""
        usage = response.get("usage", {})
        if "text_tokens" not in usage or "image_pixels" not in usage:
            return None
        return {"text_tokens": usage["text_tokens"], "pixels": usage["image_pixels"]}

    def failure(self, status: int, response: Any) -> Failure:
        """Read `detail`."""
        return Failure(
            str(response["detail"]) if isinstance(response, Mapping) and "detail" in response else f"status {status}"
        )


def vendor(name: str = NAME) -> VoyageEmbedding:
    """Describe the vendor's side of the model."""
    return VoyageEmbedding(
        name=name,
        revision="1",
        dimensions=_DIMENSIONS,
        key_variables=("VOYAGE_API_KEY",),
        url_variable="CIRCUS_VOYAGE_URL",
        limits=_LIMITS,
        price=_PRICE,
    )


def load(model_name: str, revision: str | None = None, **kwargs: Any) -> Any:  # noqa: ARG001
    """Load the model; the loader that mteb calls. `kwargs` are fields of `ApiSettings`."""
    from circus_bench.api.embeddings.encoder import make_encoder

    return make_encoder(vendor(model_name), **kwargs)


def metas() -> list[ModelMeta]:
    """Describe the model to mteb."""
    return [
        vendor().describe(
            load,
            release_date="2026-01-15",
            max_tokens=32_000,
            reference="https://docs.voyageai.com/docs/multimodal-embeddings",
        )
    ]


def _segments(content: Content) -> list[dict[str, str]]:
    segments = []
    if content.text is not None:
        segments.append({"type": "text", "text": content.text})
    if content.image is not None:
        data = base64.b64encode(content.image).decode()
        segments.append({"type": "image_base64", "image_base64": f"data:image/png;base64,{data}"})
    return segments
