"""Embed with RzenEmbed (arXiv:2510.27350), on Qwen2-VL-7B.

Sources: the authors' `rzen_embed_inference.py` and README of 360CVGroup/RzenEmbed, and for what is special to composed
retrieval `retrievers/rzen_embed_retriever.py` of matteoattimonelli/CIRCUS.

| what | user turn |
|---|---|
| multimodal query | image, instruction, newline, text |
| text-only query | black image, instruction, newline, text |
| image-only query | image |
| gallery document | image, `Represent the given image.` |

The embedding is the last hidden state of an end-of-text token that follows the opening of the assistant's turn. The
authors call the language model past the wrapper that computes image positions, so that tokens are counted one by one;
the CIRCUS adapter does not, and its positions are those of Qwen2-VL. We follow the authors. They resize images twice:
to whole image tokens, then to the limits of the family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from circus_bench.models.base import PromptInput
from circus_bench.models.checkpoint import CheckpointOptions
from circus_bench.models.families.qwen_vl import (
    IMAGE,
    TOKEN_PIXELS,
    Positions,
    QwenVLEncoder,
    QwenVLFamily,
    chat,
    load_qwen_vl,
)
from circus_bench.models.metas import adapt_meta

if TYPE_CHECKING:
    from mteb.models import ModelMeta

# 360CVGroup/RzenEmbed, rzen_embed_inference.py
DOCUMENT = "Represent the given image."


def prompt_template(item: PromptInput) -> str:
    """Write the prompt of an item."""
    text = item.query_text if item.is_query or item.text else DOCUMENT
    return chat((IMAGE if item.has_image else "") + text) + "<|endoftext|>"


FAMILY = QwenVLFamily(
    model_class="Qwen2VLModel",
    prompt_template=prompt_template,
    min_pixels=256 * TOKEN_PIXELS,
    max_pixels=1280 * TOKEN_PIXELS,
    first_limits=(4 * TOKEN_PIXELS, 16384 * TOKEN_PIXELS),
    max_tokens=2000,  # where the authors cut, end-of-text token included; here it is the text that loses its end
    positions=Positions.SEQUENTIAL,
)


def metas() -> list[ModelMeta]:
    """Describe RzenEmbed as mteb does, with our loader."""
    from mteb.models.model_implementations.rzen_embed_model import rzen_embed

    return [adapt_meta(rzen_embed, load)]


def load(model_name: str, revision: str | None = None, **options: Unpack[CheckpointOptions]) -> QwenVLEncoder:
    """Load RzenEmbed; see `circus_bench.models.checkpoint.Checkpoint` for the options."""
    return load_qwen_vl(FAMILY, model_name, revision, **options)
