"""Prompts and limits are those of src/models/qwen3_vl_embedding.py in QwenLM/Qwen3-VL-Embedding."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from support.embedder_contract import EmbedderContract
from support.tiny_qwen import save_tiny_qwen

from circus_bench.models.base import PromptInput
from circus_bench.models.families.qwen3_vl_embedding import metas, prompt_template

SEEN = "<|vision_start|><|image_pad|><|vision_end|>"
DEFAULT = "Represent the user's input."


@pytest.fixture(scope="module")
def load_tiny(tmp_path_factory):
    path = save_tiny_qwen(tmp_path_factory.mktemp("qwen3"), "qwen3_vl")
    return partial(metas()[0].load_model, device="cpu", path=path)


class TestContract(EmbedderContract):
    pass


def test_both_sizes_are_described():
    assert [meta.name for meta in metas()] == ["Qwen/Qwen3-VL-Embedding-2B", "Qwen/Qwen3-VL-Embedding-8B"]
    assert [meta.embed_dim for meta in metas()] == [2048, 4096]


def test_mteb_finds_the_metadata_of_an_encoder(encoder):
    assert encoder.mteb_model_meta.name == "Qwen/Qwen3-VL-Embedding-2B"


@pytest.mark.parametrize(
    ("item", "system", "user"),
    [
        (PromptInput(True, "Find it.", True, "make it red"), "Find it.", f"{SEEN}make it red"),
        (PromptInput(True, "Find it.", False, "make it red"), "Find it.", "make it red"),
        (PromptInput(True, "", True, ""), DEFAULT, SEEN),
        (PromptInput(False, "", True, ""), DEFAULT, SEEN),
        (PromptInput(True, " Find it ", True, "make it red"), "Find it.", f"{SEEN}make it red"),
        (PromptInput(True, "Which one?", True, "make it red"), "Which one?", f"{SEEN}make it red"),
        (PromptInput(True, "Find it.", False, ""), "Find it.", "NULL"),
    ],
    ids=["image and text", "text without image", "image only", "document", "no full stop", "question", "nothing"],
)
def test_prompt(item, system, user):
    assert prompt_template(item) == (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
    )


def test_padding_is_on_the_right(encoder):
    items = [PromptInput(True, "", False, text) for text in ("ab", "a")]
    assert encoder.tensors(items, [None] * 2)["attention_mask"][:, -1].tolist() == [1, 0]


def test_last_token_is_pooled_and_the_model_computes_positions(encoder, noise):
    image = noise((96, 64))
    tensors = encoder.tensors([PromptInput(True, "", True, "make it red")], [image])
    assert "position_ids" not in tensors
    with torch.inference_mode():
        expected = encoder.model(**tensors).last_hidden_state[0, -1]
    expected = torch.nn.functional.normalize(expected, dim=0).numpy()
    np.testing.assert_allclose(encoder.encode([{"image": [image], "text": ["make it red"]}])[0], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((96, 64), 6),  # 3 x 2 tokens of 32 x 32
        ((32, 32), 4),  # enlarged to at least 4 tokens
        ((1600, 1152), 1800),  # 50 x 36
        # 100 x 72 tokens are four times too many: both sides are halved.
        ((3200, 2304), 1800),
    ],
)
def test_image_limits(encoder, size, tokens):
    tensors = encoder.tensors([PromptInput(False, "", True, "")], [Image.new("RGB", size)])
    assert int(tensors["mm_token_type_ids"].sum()) == tokens
