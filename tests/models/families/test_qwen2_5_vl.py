from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from support.embedder_contract import TEXTS, EmbedderContract, images, query
from support.tiny_qwen import save_tiny_qwen
from transformers import Qwen2_5_VLModel

from circus_bench.models.base import PromptInput
from circus_bench.models.families.qwen2_5_vl import load, metas, prompt_template

NAME = "Qwen/Qwen2.5-VL-3B-Instruct"
CHAT = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n"
    "<|im_start|>assistant\n"
)
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_qwen(tmp_path_factory.mktemp("qwen2_5"), "qwen2_5_vl")


@pytest.fixture(scope="module")
def load_tiny(folder):
    return partial(load, NAME, path=folder, device="cpu")


class TestContract(EmbedderContract):
    pass


@pytest.mark.parametrize(
    ("item", "user"),
    [
        (
            PromptInput(True, "Find it.", True, "make it red"),
            IMAGE + "Find it.\nmake it red\nSummarize above image and sentence in one word: ",
        ),
        (PromptInput(True, "", True, ""), IMAGE + "\nSummarize above image in one word: "),
        (PromptInput(False, "", True, ""), IMAGE + "\nSummarize above image in one word: "),
        (PromptInput(True, "Find it.", False, "a dress"), "Find it.\na dress\nSummarize above sentence in one word: "),
        (PromptInput(False, "", False, "a dress"), "a dress\nSummarize above sentence in one word: "),
    ],
    ids=["pair", "image query", "document", "text query", "text document"],
)
def test_prompt(item, user):
    assert prompt_template(item) == CHAT.format(user)


def test_embedding_is_the_state_that_opens_the_turn_of_the_assistant(encoder, folder):
    # 56 x 44 pixels become 56 x 56, four tokens; Qwen2.5-VL places them by row and column.
    prompt = prompt_template(PromptInput(True, "Find it.", True, TEXTS[0])).replace(
        "<|image_pad|>", "<|image_pad|>" * 4
    )
    ids = encoder.tokenizer(prompt, return_tensors="pt")["input_ids"]
    assert encoder.tokenizer.decode(ids[0]).endswith("<|im_start|>assistant\n")
    pixels = encoder.image_processor(images=images()[:1], return_tensors="pt")
    kinds = (ids == encoder.model.config.image_token_id).long()
    with torch.inference_mode():
        model = Qwen2_5_VLModel.from_pretrained(folder, dtype=torch.float32).eval()
        state = model(input_ids=ids, mm_token_type_ids=kinds, **pixels).last_hidden_state[0, -1]
    vector = query(encoder, {"image": images()[:1], "text": TEXTS[:1]})[0]
    np.testing.assert_allclose(vector, state / state.norm(), atol=1e-5)


def test_metas_are_both_sizes_with_our_loader():
    assert [(meta.name, meta.embed_dim) for meta in metas()] == [
        ("Qwen/Qwen2.5-VL-3B-Instruct", 2048),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 3584),
    ]
    assert {meta.loader for meta in metas()} == {load}
