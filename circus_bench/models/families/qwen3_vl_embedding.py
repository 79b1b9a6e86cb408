r"""Embed with Qwen3-VL-Embedding (arXiv:2601.04720), on Qwen3-VL.

Source: `src/models/qwen3_vl_embedding.py` in QwenLM/Qwen3-VL-Embedding.

| what | system turn | user turn |
|---|---|---|
| multimodal query | the instruction | image, text |
| text-only query | the instruction | black image, text |
| image-only query | `Represent the user's input.` | image |
| gallery document | `Represent the user's input.` | image |

The default instruction is the authors', for whatever comes without one. An instruction ends in a punctuation mark; one
that does not is given a full stop. The embedding is the last hidden state of the last token. The technical report has
an end-of-text token there, which the authors' code does not write; whether there is one is left, as in that code, to
the tokenizer that comes with the checkpoint (QwenLM/Qwen3-VL-Embedding#4).

The runs of the CIRCUS paper differ: `retrieval/generate_retrieval_data.py` of matteoattimonelli/CIRCUS puts the
instruction and a newline before the text, and `retrievers/qwen3vl2b_vllm_retriever.py` has one and the same system turn
in all conditions, so that the image-only condition keeps the instruction there.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Unpack

from circus_bench.models.base import PromptInput
from circus_bench.models.checkpoint import CheckpointOptions
from circus_bench.models.families.qwen_vl import IMAGE, QwenVLEncoder, QwenVLFamily, chat, load_qwen_vl
from circus_bench.models.metas import adapt_meta

if TYPE_CHECKING:
    from mteb.models import ModelMeta

# Qwen3VLEmbedder of src/models/qwen3_vl_embedding.py in QwenLM/Qwen3-VL-Embedding
DEFAULT_INSTRUCTION = "Represent the user's input."
EMPTY = "NULL"
"""What the authors show for an input that is neither text nor image."""

_TOKEN_PIXELS = 32 * 32  # an image token of Qwen3-VL stands for 32 x 32 pixels


def prompt_template(item: PromptInput) -> str:
    """Write the prompt of an item."""
    user = (IMAGE if item.has_image else "") + item.text
    return chat(user or EMPTY, system=_punctuated(item.instruction) or DEFAULT_INSTRUCTION)


FAMILY = QwenVLFamily(
    model_class="Qwen3VLModel",
    prompt_template=prompt_template,
    # MIN_PIXELS, MAX_PIXELS and MAX_LENGTH of the same file
    min_pixels=4 * _TOKEN_PIXELS,
    max_pixels=1800 * _TOKEN_PIXELS,
    max_tokens=8192,
)


def metas() -> list[ModelMeta]:
    """Describe Qwen3-VL-Embedding in both sizes, as mteb does, with our loader."""
    from mteb.models.model_implementations.qwen3_vl_embedding_models import qwen3_vl_embedding_2b, qwen3_vl_embedding_8b

    return [adapt_meta(meta, load, output_dtypes=None) for meta in (qwen3_vl_embedding_2b, qwen3_vl_embedding_8b)]


def load(model_name: str, revision: str | None = None, **options: Unpack[CheckpointOptions]) -> QwenVLEncoder:
    """Load Qwen3-VL-Embedding; see `circus_bench.models.checkpoint.Checkpoint` for the options."""
    return load_qwen_vl(FAMILY, model_name, revision, **options)


def _punctuated(instruction: str) -> str:
    instruction = instruction.strip()
    if instruction and not unicodedata.category(instruction[-1]).startswith("P"):
        instruction += "."
    return instruction
