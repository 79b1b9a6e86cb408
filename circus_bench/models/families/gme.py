r"""Embed with GME (arXiv:2412.16855), on Qwen2-VL.

Source: `modeling_gme_qwen2vl.py` in Alibaba-NLP/gme-Qwen2-VL-7B-Instruct and -2B-Instruct, and the `gme_inference.py`
that preceded it.

| what | system turn | user turn |
|---|---|---|
| multimodal query | the instruction | image, text |
| text-only query | the instruction | black image, text |
| image-only query | `You are a helpful assistant.` | image |
| gallery document | `You are a helpful assistant.` | image |

The default instruction is the authors': they use it for documents, and for queries without an instruction. The
embedding is the last hidden state of an end-of-text token that follows the opening of the assistant's turn.

The authors call the language model past the wrapper that computes image positions, so that tokens are counted one by
one (vllm-project/vllm#30478). They resize images twice: to whole image tokens, then to the limits of the family.

The runs of the CIRCUS paper differ: `retrieval/generate_retrieval_data.py` of matteoattimonelli/CIRCUS puts the
instruction and a newline before the text, and `retrievers/gme_qwen2vl_retriever.py` leaves the system turn at its
default. mteb's loader allows images of 4 image tokens where the authors enlarge to 256.
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

# Alibaba-NLP/gme-Qwen2-VL-7B-Instruct, modeling_gme_qwen2vl.py (default_instruction)
DEFAULT_INSTRUCTION = "You are a helpful assistant."


def prompt_template(item: PromptInput) -> str:
    """Write the prompt of an item."""
    user = (IMAGE if item.has_image else "") + item.text
    return chat(user, system=item.instruction or DEFAULT_INSTRUCTION) + "<|endoftext|>"


FAMILY = QwenVLFamily(
    model_class="Qwen2VLModel",
    prompt_template=prompt_template,
    # Alibaba-NLP/gme-Qwen2-VL-7B-Instruct, modeling_gme_qwen2vl.py (GmeQwen2VLConfig, fetch_image)
    min_pixels=256 * TOKEN_PIXELS,
    max_pixels=1280 * TOKEN_PIXELS,
    first_limits=(4 * TOKEN_PIXELS, 16384 * TOKEN_PIXELS),
    max_tokens=1800,
    positions=Positions.SEQUENTIAL,
)


def metas() -> list[ModelMeta]:
    """Describe GME in both sizes, as mteb does, with our loader."""
    from mteb.models.model_implementations.gme_v_models import gme_qwen2vl_2b, gme_qwen2vl_7b

    changes = {"modalities": ["image", "text"], "output_dtypes": None}
    return [adapt_meta(meta, load, **changes) for meta in (gme_qwen2vl_2b, gme_qwen2vl_7b)]


def load(model_name: str, revision: str | None = None, **options: Unpack[CheckpointOptions]) -> QwenVLEncoder:
    """Load GME; see `circus_bench.models.checkpoint.Checkpoint` for the options."""
    return load_qwen_vl(FAMILY, model_name, revision, **options)
