"""Embed with Qwen2.5-VL-Instruct (arXiv:2502.13923) without any training for it, as RMIR evaluates it.

How RMIR prompts and pools these models is not published. The convention here is the one-word limitation, which E5-V
(arXiv:2407.12580) introduced to draw embeddings from a multimodal language model as it is: the model is asked to
summarize the input in one word, and the hidden state that would give the word is the embedding. The sentences are those
of LamRA (`circus_bench.models.families.lamra`), which is built on the same models. Scores need not agree with RMIR's.

| what | user turn |
|---|---|
| multimodal query | image, instruction, newline, text, newline, `SUMMARIZE_BOTH` |
| text-only query | black image, instruction, newline, text, newline, `SUMMARIZE_BOTH` |
| image-only query | image, newline, `SUMMARIZE_IMAGE` |
| gallery document | image, newline, `SUMMARIZE_IMAGE` |

The embedding is the last hidden state of the last token, with which the assistant's turn opens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from circus_bench.models.base import PromptInput
from circus_bench.models.checkpoint import CheckpointOptions
from circus_bench.models.families.lamra import one_word
from circus_bench.models.families.qwen_vl import IMAGE, TOKEN_PIXELS, QwenVLEncoder, QwenVLFamily, chat, load_qwen_vl
from circus_bench.models.metas import describe_model

if TYPE_CHECKING:
    from mteb.models import ModelMeta


def prompt_template(item: PromptInput) -> str:
    """Write the prompt of an item."""
    return chat(one_word(item.query_text, image=IMAGE if item.has_image else ""))


FAMILY = QwenVLFamily(
    model_class="Qwen2_5_VLModel",
    prompt_template=prompt_template,
    min_pixels=4 * TOKEN_PIXELS,
    # The checkpoint allows 16384 tokens; 1280, as in the other families on Qwen2-VL, keeps a batch in memory.
    max_pixels=1280 * TOKEN_PIXELS,
)


def metas() -> list[ModelMeta]:
    """Describe the two sizes that RMIR evaluates."""
    small: dict[str, Any] = {
        "name": "Qwen/Qwen2.5-VL-3B-Instruct",
        "revision": "66285546d2b821cf421d4f5eb2576359d3770cd3",
        "n_parameters": 3_754_622_976,
        "n_embedding_parameters": 311_164_928,
        "embed_dim": 2048,
        # Qwen Research License
        "license": "https://huggingface.co/Qwen/Qwen2.5-VL-3B-Instruct/blob/main/LICENSE",
    }
    large: dict[str, Any] = {
        "name": "Qwen/Qwen2.5-VL-7B-Instruct",
        "revision": "cc594898137f460bfe9f0759e9844b3ce807cfb5",
        "n_parameters": 8_292_166_656,
        "n_embedding_parameters": 544_997_376,
        "embed_dim": 3584,
        "license": "apache-2.0",
    }
    return [
        describe_model(
            load,
            release_date="2025-01-26",
            languages=["eng-Latn", "zho-Hans"],
            max_tokens=32768,
            reference=f"https://huggingface.co/{own['name']}",
            output_dtypes="bfloat16",
            **own,
        )
        for own in (small, large)
    ]


def load(model_name: str, revision: str | None = None, **options: Unpack[CheckpointOptions]) -> QwenVLEncoder:
    """Load Qwen2.5-VL; see `circus_bench.models.checkpoint.Checkpoint` for the options."""
    return load_qwen_vl(FAMILY, model_name, revision, **options)
