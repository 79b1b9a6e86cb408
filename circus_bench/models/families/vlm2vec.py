"""Embed with VLM2Vec (arXiv:2410.05160) and VLM2Vec-V2 (arXiv:2507.04590), LoRA adapters on Qwen2-VL.

Both repositories hold an adapter (that of V2 is a DoRA adapter), which is merged into the base model on loading. Merged
weights that TIGER-Lab/VLM2Vec-Qwen2VL-7B held beside it are not used: TIGER-AI-Lab/VLM2Vec#44 found them faulty.

Sources: `experiments/examples/qwen2vl/demo_v2_image.py`, `demo_v1_image.py` and `src/model/processor.py` of
TIGER-AI-Lab/VLM2Vec, and for what is special to composed retrieval `retrievers/vlm2vec_v2_retriever.py` of
matteoattimonelli/CIRCUS.

| what | prompt, without any chat template |
|---|---|
| multimodal query | image, space, instruction, newline, text |
| text-only query | black image, space, instruction, newline, text |
| image-only query | image, space, `Represent the given image.` |
| gallery document | image, space, `Represent the given image.` |

The embedding is the last hidden state of the last token. The prompts write the image placeholder without the markers
around it; the version of Qwen2-VL that the models were trained with places image tokens by row and column after a
marker only, so that here all tokens are counted one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from circus_bench._typing import StrPath
from circus_bench.errors import FormatError
from circus_bench.models.base import PromptInput
from circus_bench.models.checkpoint import Checkpoint, CheckpointOptions
from circus_bench.models.families.qwen_vl import TOKEN_PIXELS, Positions, QwenVLEncoder, QwenVLFamily, load_model
from circus_bench.models.lora import merge_adapter
from circus_bench.models.metas import adapt_meta

if TYPE_CHECKING:
    from mteb.models import ModelMeta

# TIGER-AI-Lab/VLM2Vec, src/model/processor.py
PLACEHOLDER = "<|image_pad|>"
# matteoattimonelli/CIRCUS, retrievers/vlm2vec_v2_retriever.py; also the instruction of image targets in training
IMAGE_PROMPT = "Represent the given image."

BASES = {
    "VLM2Vec/VLM2Vec-V2.0": ("Qwen/Qwen2-VL-2B-Instruct", "895c3a49bc3fa70a340399125c650a463535e71c"),
    "TIGER-Lab/VLM2Vec-Qwen2VL-7B": ("Qwen/Qwen2-VL-7B-Instruct", "eed13092ef92e448dd6875b2a00151bd3f7db0ac"),
}
"""The base model, and its revision, of each adapter."""


def prompt_template(item: PromptInput) -> str:
    """Write the prompt of an item."""
    return f"{PLACEHOLDER} {item.query_text or IMAGE_PROMPT}" if item.has_image else item.query_text


FAMILY = QwenVLFamily(
    model_class="Qwen2VLModel",
    prompt_template=prompt_template,
    # TIGER-AI-Lab/VLM2Vec, src/arguments.py: the defaults of resize_min_pixels and resize_max_pixels
    min_pixels=4 * TOKEN_PIXELS,
    max_pixels=1280 * TOKEN_PIXELS,
    positions=Positions.SEQUENTIAL,
)


def metas() -> list[ModelMeta]:
    """Describe VLM2Vec-V2 as mteb does, and VLM2Vec on Qwen2-VL-7B, which mteb does not know."""
    from mteb.models.model_implementations.vlm2vec_models import vlm2vec2

    first: dict[str, Any] = {
        "name": "TIGER-Lab/VLM2Vec-Qwen2VL-7B",
        "revision": None,  # the repository's commit hash could not be looked up
        "release_date": "2025-02-20",
        "n_parameters": 8_291_375_616,
        "n_embedding_parameters": 544_997_376,
        "memory_usage_mb": 15815,
        "embed_dim": 3584,
        "public_training_code": "https://github.com/TIGER-AI-Lab/VLM2Vec",
        "public_training_data": "https://huggingface.co/datasets/TIGER-Lab/MMEB-train",
        "reference": "https://huggingface.co/TIGER-Lab/VLM2Vec-Qwen2VL-7B",
        "adapted_from": "Qwen/Qwen2-VL-7B-Instruct",
        "citation": None,
    }
    return [adapt_meta(vlm2vec2, load, use_instructions=True, **changes) for changes in ({}, first)]


def load(
    model_name: str,
    revision: str | None = None,
    *,
    base_path: StrPath | None = None,
    **options: Unpack[CheckpointOptions],
) -> QwenVLEncoder:
    """Load a base model and merge its adapter into it.

    Args:
        model_name: one of `BASES`.
        revision: of the adapter; that of the base is fixed.
        base_path: a local folder of the base model to load instead.
        options: see `Checkpoint`; `path` is a folder of the adapter.

    Raises:
        FormatError: the model has no known base, or the adapter does not fit it.
    """
    if model_name not in BASES:
        raise FormatError(f"no base model is known for the adapter {model_name!r}, only for {', '.join(BASES)}")
    base, base_revision = BASES[model_name]
    base_options: CheckpointOptions = {**options, "path": base_path}
    loaded = load_model(FAMILY, base, base_revision, **base_options)
    merge_adapter(loaded.model, Checkpoint(model_name, revision, **options))
    return QwenVLEncoder(FAMILY, loaded)
