r"""Embed with E5-Omni (arXiv:2601.03666), the thinker of Qwen2.5-Omni; here texts and images alone.

Sources: the model card (Haon-Chen/e5-omni-7B, README.md) for the query prefix, the end token, the pooling and documents
without text; Qwen2.5-Omni's chat template (Qwen/Qwen2.5-Omni-7B, chat_template.json) for the turns; the CIRCUS paper's
adapter (matteoattimonelli/CIRCUS, retrievers/e5_omni_retriever.py, retrieval/generate_retrieval_data.py) for what the
card does not show, the image before the text and the instruction before a newline.

| input | user turn |
|---|---|
| multimodal query | image, `Query: INSTRUCTION\nTEXT` |
| text-only query | black image, `Query: INSTRUCTION\nTEXT` |
| image-only query | image |
| gallery document | image |

The prompt ends with the opening of the assistant's turn and `<|endoftext|>`, whose last hidden state is the embedding.

The paper's adapter has no `Query: ` and gives every gallery image the text `Describe the image.`: its numbers are not
those of this template. Not verified, for want of the weights: that a vector equals that of the authors' code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from circus_bench.models.base import PromptInput
from circus_bench.models.checkpoint import CheckpointOptions
from circus_bench.models.families.qwen_vl import TOKEN_PIXELS, QwenVLEncoder, QwenVLFamily, chat, load_model
from circus_bench.models.metas import adapt_meta

if TYPE_CHECKING:
    import torch
    from mteb.models import ModelMeta
    from PIL.Image import Image

# Haon-Chen/e5-omni-7B, README.md
QUERY = "Query: "
END = "<|endoftext|>"
# Qwen/Qwen2.5-Omni-7B, chat_template.json
IMAGE_TOKEN = "<|IMAGE|>"  # noqa: S105
IMAGE = f"<|vision_bos|>{IMAGE_TOKEN}<|vision_eos|>"


def prompt_template(item: PromptInput) -> str:
    """Write the prompt of an item."""
    mark = QUERY if item.is_query and item.query_text else ""
    return chat((IMAGE if item.has_image else "") + mark + item.query_text) + END


FAMILY = QwenVLFamily(
    model_class="Qwen2_5OmniThinkerForConditionalGeneration",
    prompt_template=prompt_template,
    # qwen_omni_utils, v2_5/vision_process.py (MIN_PIXELS, MAX_PIXELS), which the model card reads images with
    min_pixels=4 * TOKEN_PIXELS,
    max_pixels=16384 * TOKEN_PIXELS,
    padding_side="left",
    image_token=IMAGE_TOKEN,
)


class E5OmniEncoder(QwenVLEncoder):
    """E5-Omni: images, texts or pairs of both to unit vectors."""

    def tensors(self, items: Sequence[PromptInput], images: Sequence[Image | None]) -> dict[str, torch.Tensor]:
        """Prepare one batch for the model, which finds the image tokens by itself."""
        tensors = super().tensors(items, images)
        del tensors["mm_token_type_ids"]
        return tensors


def metas() -> list[ModelMeta]:
    """Describe the two sizes as mteb does, without audio and video."""
    from mteb.models.model_implementations.e5_omni_models import e5_omni_3b, e5_omni_7b

    return [adapt_meta(meta, load, loader_kwargs={}) for meta in (e5_omni_3b, e5_omni_7b)]


def load(model_name: str, revision: str | None = None, **options: Unpack[CheckpointOptions]) -> E5OmniEncoder:
    """Load E5-Omni; see `circus_bench.models.checkpoint.Checkpoint` for the options."""
    return E5OmniEncoder(FAMILY, load_model(FAMILY, model_name, revision, **options))
