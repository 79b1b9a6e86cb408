r"""Embed with LamRA-Ret (arXiv:2412.01720), on Qwen2-VL and Qwen2.5-VL.

Source: Code-kunkun/LamRA, branches `master` (Qwen2-VL) and `qwen2.5vl`: `dataset/datasets_mbeir.py` for the prompts,
`models/qwen2_vl.py` and `models/qwen2_5_vl.py` for positions and pooling, `collators/qwen2_vision_process.py` and
`qwen2_5_vision_process.py` for the image limits.

| what | user turn |
|---|---|
| multimodal query | image, instruction and text, newline, `Summarize above image and sentence in one word: ` |
| text-only query | the same with a black image |
| image-only query | image, newline, `Summarize above image in one word: ` |
| gallery document | image, newline, `Summarize above image in one word: ` |

Instruction and text are two sentences: each starts with a capital and ends in a full stop, a question mark or an
exclamation mark. Without either, a query looks like a document. The system turn is that of the chat template.

The assistant's turn would go on with `<emb>.`, and the embedding is the last hidden state of the token *before*
`<emb>`. Attention is causal, so that what follows that token does not change it. The prompt ends there, and no token is
added to the vocabulary.

On Qwen2-VL the authors call the language model past the wrapper that computes image positions, so that tokens are
counted one by one; on Qwen2.5-VL image tokens are placed by row and column.

The runs of the CIRCUS paper differ: `retrieval/generate_retrieval_data.py` of matteoattimonelli/CIRCUS joins
instruction and text by a newline and leaves them as they are, and its `retrievers/lamra_retriever.py` shows images of
up to 16,384 image tokens, and cuts inputs off at 1,024 tokens.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Unpack

from circus_bench.errors import CircusError
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
from circus_bench.models.metas import describe_model

if TYPE_CHECKING:
    from mteb.models import ModelMeta

# construct_messages of dataset/datasets_mbeir.py in Code-kunkun/LamRA
SUMMARIZE_BOTH = "Summarize above image and sentence in one word: "
SUMMARIZE_TEXT = "Summarize above sentence in one word: "
SUMMARIZE_IMAGE = "Summarize above image in one word: "


def prompt_template(item: PromptInput) -> str:
    """Write the prompt of an item."""
    text = _sentence(f"{_sentence(item.instruction)} {item.text}")
    return chat(one_word(text, image=IMAGE if item.has_image else ""))


def one_word(text: str, *, image: str) -> str:
    """Write image and text, and below them the request to summarize in one word what there is of the two."""
    request = (SUMMARIZE_BOTH if text else SUMMARIZE_IMAGE) if image else SUMMARIZE_TEXT
    return f"{image}{text}\n{request}"


_QWEN2 = QwenVLFamily(
    model_class="Qwen2VLModel",
    prompt_template=prompt_template,
    # MIN_PIXELS and MAX_PIXELS of collators/qwen2_vision_process.py, max_length of collators/mbeir_eval.py
    min_pixels=4 * TOKEN_PIXELS,
    max_pixels=300 * TOKEN_PIXELS,
    max_tokens=1024,
    positions=Positions.SEQUENTIAL,
)

FAMILIES = {
    "code-kunkun/LamRA-Ret": _QWEN2,
    "code-kunkun/LamRA-Ret-Qwen2.5VL-7b": dataclasses.replace(
        _QWEN2, model_class="Qwen2_5_VLModel", positions=Positions.MROPE
    ),
}


def metas() -> list[ModelMeta]:
    """Describe LamRA-Ret on both bases; mteb does not know them."""
    on_qwen2: dict[str, Any] = {
        "name": "code-kunkun/LamRA-Ret",
        "revision": "f86e40fba363563866ba8feec831773ec6af84f9",
        "release_date": "2024-12-02",  # of the paper
        "n_parameters": 8_291_375_616,  # of Qwen2-VL-7B
        "license": "apache-2.0",
        "adapted_from": "Qwen/Qwen2-VL-7B-Instruct",
    }
    on_qwen2_5: dict[str, Any] = {
        "name": "code-kunkun/LamRA-Ret-Qwen2.5VL-7b",
        "revision": None,
        "release_date": "2025-03-12",  # of the code
        "n_parameters": 8_292_166_656,  # of Qwen2.5-VL-7B
        "adapted_from": "Qwen/Qwen2.5-VL-7B-Instruct",
    }
    return [
        describe_model(
            load,
            languages=["eng-Latn"],
            n_embedding_parameters=152_064 * 3_584,
            max_tokens=1024,
            embed_dim=3584,
            public_training_code="https://github.com/Code-kunkun/LamRA",
            public_training_data="https://huggingface.co/datasets/TIGER-Lab/M-BEIR",
            reference=f"https://huggingface.co/{own['name']}",
            training_datasets={"CIRRIT2IRetrieval", "FashionIQIT2IRetrieval"},  # their training parts, in M-BEIR
            **own,
        )
        for own in (on_qwen2, on_qwen2_5)
    ]


def load(model_name: str, revision: str | None = None, **options: Unpack[CheckpointOptions]) -> QwenVLEncoder:
    """Load LamRA-Ret; see `circus_bench.models.checkpoint.Checkpoint` for the options.

    Raises:
        CircusError: the name is not one of the two.
    """
    if model_name not in FAMILIES:
        raise CircusError(f"no LamRA-Ret is called {model_name!r}; there are {', '.join(FAMILIES)}")
    return load_qwen_vl(FAMILIES[model_name], model_name, revision, **options)


def _sentence(text: str) -> str:
    """Turn a text into a sentence; Code-kunkun/LamRA, dataset/datasets_mbeir.py (format_string)."""
    text = text.replace("\r", "").strip().strip('"')
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".?!" else ".")
