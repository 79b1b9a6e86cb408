"""Prompts and limits are those of modeling_gme_qwen2vl.py in Alibaba-NLP/gme-Qwen2-VL-7B-Instruct."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from support.embedder_contract import EmbedderContract
from support.tiny_qwen import save_tiny_qwen

from circus_bench.models.base import PromptInput
from circus_bench.models.families.gme import metas, prompt_template


@pytest.fixture(scope="module")
def load_tiny(tmp_path_factory):
    # The published checkpoint has no language head.
    path = save_tiny_qwen(tmp_path_factory.mktemp("gme"), "qwen2_vl", base=True)
    return partial(metas()[1].load_model, device="cpu", path=path)


class TestContract(EmbedderContract):
    pass


def test_both_sizes_are_described():
    names = ["Alibaba-NLP/gme-Qwen2-VL-2B-Instruct", "Alibaba-NLP/gme-Qwen2-VL-7B-Instruct"]
    assert [meta.name for meta in metas()] == names
    assert [meta.embed_dim for meta in metas()] == [1536, 3584]


def test_mteb_finds_the_metadata_of_an_encoder(encoder):
    assert encoder.mteb_model_meta.name == "Alibaba-NLP/gme-Qwen2-VL-7B-Instruct"


@pytest.mark.parametrize(
    ("item", "system", "user"),
    [
        (
            PromptInput(True, "Find it.", True, "make it red"),
            "Find it.",
            "<|vision_start|><|image_pad|><|vision_end|>make it red",
        ),
        (PromptInput(True, "Find it.", False, "make it red"), "Find it.", "make it red"),
        (
            PromptInput(True, "", True, ""),
            "You are a helpful assistant.",
            "<|vision_start|><|image_pad|><|vision_end|>",
        ),
        (
            PromptInput(False, "", True, ""),
            "You are a helpful assistant.",
            "<|vision_start|><|image_pad|><|vision_end|>",
        ),
    ],
    ids=["image and text", "text without image", "image only", "document"],
)
def test_prompt(item, system, user):
    assert prompt_template(item) == (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n<|endoftext|>"
    )


def test_padding_is_on_the_right(encoder):
    items = [PromptInput(True, "", False, text) for text in ("ab", "a")]
    assert encoder.tensors(items, [None] * 2)["attention_mask"][:, -1].tolist() == [1, 0]


def test_last_token_is_pooled_and_positions_count_all_tokens(encoder, noise):
    tensors = encoder.tensors([PromptInput(True, "", True, "make it red")], [noise((448, 448))])
    assert tensors["input_ids"][0, -1] == encoder.tokenizer.convert_tokens_to_ids("<|endoftext|>")
    length = tensors["input_ids"].shape[1]
    with torch.inference_mode():
        # What the authors do: image features are put among the embedded tokens, and the language model is called with
        # those alone.
        embedded = encoder.model.get_input_embeddings()(tensors["input_ids"])
        pixels, grid = tensors["pixel_values"], tensors["image_grid_thw"]
        embedded[tensors["mm_token_type_ids"] == 1] = encoder.model.visual(pixels, grid_thw=grid).pooler_output
        states = encoder.model.language_model(inputs_embeds=embedded, attention_mask=torch.ones(1, length))
        expected = torch.nn.functional.normalize(states.last_hidden_state[0, -1], dim=0).numpy()
    found = encoder.encode([{"image": [noise((448, 448))], "text": ["make it red"]}])[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((448, 448), 256),  # 16 x 16
        # 4 x 4 tokens are enlarged to at least 256.
        ((112, 112), 256),
        # Rounded to 504 x 364 first, then both sides are multiplied by sqrt(256 * 784 / (504 * 364)) = 1.046 and
        # rounded up to 19 x 14.
        ((500, 375), 266),
        # Rounded to 71 x 54 tokens first, then both sides are divided by sqrt(71 * 54 / 1280) = 1.731 and rounded down
        # to 41 x 31.
        ((2000, 1500), 1271),
    ],
)
def test_image_limits(encoder, size, tokens):
    tensors = encoder.tensors([PromptInput(False, "", True, "")], [Image.new("RGB", size)])
    assert int(tensors["mm_token_type_ids"].sum()) == tokens
