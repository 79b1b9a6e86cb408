"""Voyage multimodal 3.5, through the API of Voyage AI.

Facts, read in August to November 2026:

- Protocol: `POST /v1/multimodalembeddings`, key as a bearer token; `data[].embedding` with `index`, `usage` with
  `text_tokens` and `image_pixels`, errors in `detail` (docs.voyageai.com/reference/multimodal-embeddings-api;
  voyage-ai/voyageai-python). Keys that begin with `al-` belong to ai.mongodb.com (there, `voyageai/util.py`).
- Limits: 1,000 inputs and 320,000 tokens a request, 32,000 an input, 16 million pixels and 20 MB an image; other models
  of the vendor refuse 120,000 tokens a request (embeddings-benchmark/mteb#1098), so requests stay below that.
- Tokens: 560 pixels are one; an image counts as at least 50,000 and at most 2 million pixels.
- Prompt: the service puts its own before the input, by `input_type` `query` or `document`. Instruction and text come
  before the image (matteoattimonelli/CIRCUS, `retrievers/voyage_multimodal_35_retriever.py`). That adapter puts a zero
  vector where an image was refused; here it is an error. `truncation` is off: what does not fit is refused, not cut.
- Price: $0.12 a million text tokens, $0.60 a billion pixels; the free share of an account is not considered.
- Pace: 2,000 requests and 2 million tokens a minute in the lowest paid tier (docs.voyageai.com/docs/rate-limits).
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

NAME = "voyageai/voyage-multimodal-3.5"

_DIMENSIONS = 1024
_PIXELS_A_TOKEN = 560
_FEWEST_PIXELS, _MOST_PIXELS = 50_000, 2_000_000
_CHARACTERS_A_TOKEN = 2  # English has about four; an estimate must not be too low
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
class Voyage(Vendor):
    """A multimodal model of Voyage AI."""

    def base_url(self, key: Secret) -> str:
        """Voyage's own address, or MongoDB's for its keys."""
        return "https://ai.mongodb.com" if key.reveal().startswith("al-") else "https://api.voyageai.com"

    def path(self) -> str:
        """The method that embeds multimodal inputs."""
        return "/v1/multimodalembeddings"

    def header(self, key: Secret) -> tuple[str, str]:
        """A bearer token."""
        return "Authorization", f"Bearer {key.reveal()}"

    def prompt(self, text: str, role: Role | None) -> str:  # noqa: ARG002
        """The text as it is; the service adds its prompt."""
        return text

    def told_role(self, role: Role | None) -> Role | None:
        """`input_type`."""
        return role

    def estimate(self, text: str | None, size: tuple[int, int] | None) -> Usage:
        """Tokens of the text by its length; pixels as they are charged."""
        pixels = min(max(size[0] * size[1], _FEWEST_PIXELS), _MOST_PIXELS) if size else 0
        return {"text_tokens": -(-len(text or "") // _CHARACTERS_A_TOKEN) + _PROMPT_TOKENS, "pixels": pixels}

    def tokens(self, usage: Usage) -> float:
        """Text tokens, and one token every 560 pixels."""
        return usage["text_tokens"] + usage["pixels"] / _PIXELS_A_TOKEN

    def body(self, contents: Sequence[Content], role: Role | None) -> dict[str, Any]:
        """One input a content."""
        return {
            "inputs": [{"content": _segments(content)} for content in contents],
            "model": self.name.partition("/")[2],
            "input_type": role,
            "truncation": False,
            "output_dimension": self.dimensions,
        }

    def vectors(self, reply: Any) -> list[list[float]]:
        """`data[].embedding`, by `index`."""
        rows = sorted(reply["data"], key=lambda row: int(row["index"]))
        if [row["index"] for row in rows] != list(range(len(rows))):
            raise ValueError(f"indices {[row['index'] for row in rows][:5]}")
        return [row["embedding"] for row in rows]

    def usage(self, reply: Any) -> Usage | None:
        """`usage`, with text and pixels apart as they are charged."""
        usage = reply.get("usage", {})
        if "text_tokens" not in usage or "image_pixels" not in usage:
            return None
        return {"text_tokens": usage["text_tokens"], "pixels": usage["image_pixels"]}

    def failure(self, status: int, reply: Any) -> Failure:
        """`detail`."""
        return Failure(str(reply["detail"]) if isinstance(reply, Mapping) and "detail" in reply else f"status {status}")


def vendor(name: str = NAME) -> Voyage:
    """The vendor's side of the model."""
    return Voyage(
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
    """The model as mteb knows it."""
    from circus_bench.api.embeddings.metas import api_meta

    return [
        api_meta(
            load,
            vendor(),
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
