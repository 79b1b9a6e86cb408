"""RzenEmbed (arXiv:2510.27350), an embedder on Qwen2-VL-7B.

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
the CIRCUS adapter does not, and its positions are those of Qwen2-VL. We follow the authors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from circus_bench.models.metas import CircusModelMeta
from circus_bench.models.qwen_vl import (
    IMAGE,
    MAX_ASPECT_RATIO,
    Item,
    Positions,
    QwenVLEncoder,
    QwenVLFamily,
    load_parts,
)

if TYPE_CHECKING:
    import torch
    from mteb.models import ModelMeta
    from PIL.Image import Image

# 360CVGroup/RzenEmbed, rzen_embed_inference.py
SYSTEM = "You are a helpful assistant."
DOCUMENT = "Represent the given image."

_TOKEN_PIXELS = 28 * 28  # an image token of Qwen2-VL stands for 28 x 28 pixels
_FIRST_LIMITS = {"min_pixels": 4 * _TOKEN_PIXELS, "max_pixels": 16384 * _TOKEN_PIXELS}


def layout(item: Item) -> str:
    """The prompt of an item."""
    # matteoattimonelli/CIRCUS, retrieval/generate_retrieval_data.py joins instruction and text by a newline.
    text = "\n".join(filter(None, (item.instruction, item.text)))
    if not item.is_query and not item.text:
        text = DOCUMENT
    user = (IMAGE if item.has_image else "") + text
    chat = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
    return f"{chat}<|endoftext|>"


FAMILY = QwenVLFamily(
    model_class="Qwen2VLModel",
    layout=layout,
    min_pixels=256 * _TOKEN_PIXELS,
    max_pixels=1280 * _TOKEN_PIXELS,
    max_tokens=2000,  # where the authors cut, end-of-text token included; here it is the text that loses its end
    positions=Positions.SEQUENTIAL,
)


class RzenEmbedEncoder(QwenVLEncoder):
    """RzenEmbed. Its authors resize images twice: first to whole image tokens, then to the limits of the family."""

    def tensors(self, items: Sequence[Item], images: Sequence[Image | None]) -> dict[str, torch.Tensor]:
        """Prepare one batch; see the base class."""
        return super().tensors(items, [None if image is None else _whole_tokens(image) for image in images])


def metas() -> list[ModelMeta]:
    """RzenEmbed as mteb describes it, with our loader."""
    from mteb.models.model_implementations.rzen_embed_model import rzen_embed

    ours = {"loader": load, "modalities": ["text", "image"], "extra_requirements_groups": None}
    return [CircusModelMeta.model_validate({**dict(rzen_embed), **ours})]


def load(model_name: str, revision: str | None = None, **kwargs: Any) -> RzenEmbedEncoder:
    """Load RzenEmbed; `circus_bench.models.qwen_vl.load_parts` lists the keyword arguments."""
    return RzenEmbedEncoder(FAMILY, load_parts(FAMILY, model_name, revision, **kwargs))


def _whole_tokens(image: Image) -> Image:
    """The image in RGB, its sides rounded to multiples of 28 pixels; bicubic, as Pillow resizes by default."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    if max(image.size) > MAX_ASPECT_RATIO * min(image.size):
        return image  # refused later, with a message
    height, width = smart_resize(image.height, image.width, factor=28, **_FIRST_LIMITS)
    return image.convert("RGB").resize((width, height))
