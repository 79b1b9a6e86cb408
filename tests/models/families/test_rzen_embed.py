from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from support.embedder_contract import TEXTS, EmbedderContract, document, images, query
from support.tiny_qwen import save_tiny_qwen
from transformers import Qwen2VLModel

from circus_bench.errors import EmbeddingError
from circus_bench.models.base import PromptInput
from circus_bench.models.families.rzen_embed import FAMILY, load, metas, prompt_template

NAME = "qihoo360/RzenEmbed"
# the chat around a user turn in 360CVGroup/RzenEmbed, rzen_embed_inference.py
CHAT = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n"
    "<|im_start|>assistant\n<|endoftext|>"
)
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_qwen(tmp_path_factory.mktemp("rzen"), "qwen2_vl")


@pytest.fixture(scope="module")
def load_tiny(folder):
    return partial(load, NAME, path=folder, device="cpu")


class TestContract(EmbedderContract):
    pass


@pytest.mark.parametrize(
    ("item", "user"),
    [
        (PromptInput(True, "Find it.", True, "make it red"), IMAGE + "Find it.\nmake it red"),
        (PromptInput(True, "", True, "make it red"), IMAGE + "make it red"),
        (PromptInput(True, "", True, ""), IMAGE),
        (PromptInput(False, "", True, ""), IMAGE + "Represent the given image."),
        (PromptInput(True, "Find it.", False, "a red dress"), "Find it.\na red dress"),
        (PromptInput(False, "", False, "a red dress"), "a red dress"),
    ],
    ids=["pair", "pair without instruction", "image query", "document", "text query", "text document"],
)
def test_prompt(item, user):
    assert prompt_template(item) == CHAT.format(user)


def test_embedding_is_the_state_of_the_end_of_text_token(encoder, folder):
    # The image has 504 x 504 pixels, 18 x 18 tokens: within both limits, so neither step resizes it.
    image = Image.effect_noise((504, 504), 64).convert("RGB")
    prompt = CHAT.format(IMAGE.replace("<|image_pad|>", "<|image_pad|>" * 324) + "Find it.\n" + TEXTS[0])
    ids = encoder.tokenizer(prompt, return_tensors="pt")["input_ids"]
    assert encoder.tokenizer.decode(ids[0, -1]) == "<|endoftext|>"
    pixels = encoder.image_processor(images=[image], return_tensors="pt")
    places = torch.arange(ids.shape[1]).expand(3, 1, -1)
    with torch.inference_mode():
        model = Qwen2VLModel.from_pretrained(folder, dtype=torch.float32).eval()
        state = model(input_ids=ids, position_ids=places, **pixels).last_hidden_state[0, -1]
    vector = query(encoder, {"image": [image], "text": TEXTS[:1]})[0]
    np.testing.assert_allclose(vector, state / state.norm(), atol=1e-5)


def test_image_tokens_are_counted_one_by_one(encoder):
    tensors = encoder.tensors([PromptInput(False, "", True, "")], images()[:1])
    length = tensors["input_ids"].shape[1]
    assert tensors["position_ids"].tolist() == [[list(range(length))]] * 3


def test_images_have_256_to_1280_tokens(encoder):
    # 256 tokens are 448 x 448 pixels. 2000 x 1500 first becomes 71 x 54 tokens of 28 x 28 pixels; these exceed 1280 by
    # a factor of 1.731 a side, which leaves 41.02 x 31.2, rounded down. (Resized once, it would have 41 x 30.)
    tensors = encoder.tensors(
        [PromptInput(False, "", True, "")] * 2, [Image.new("RGB", (60, 60)), Image.new("RGB", (2000, 1500))]
    )
    counts = tensors["mm_token_type_ids"].sum(1).tolist()
    assert counts == [256, 41 * 31]


def test_small_images_are_resized_twice(encoder):
    # 60 x 44 pixels become 56 x 56 (whole tokens, at least four), which then become 448 x 448.
    image = images()[0]
    twice = document(encoder, {"image": [image.resize((56, 56))]})
    np.testing.assert_array_equal(document(encoder, {"image": [image]}), twice)


def test_too_elongated_image_is_an_error(encoder):
    with pytest.raises(EmbeddingError, match="200-fold"):
        document(encoder, {"image": [Image.new("RGB", (1, 201))]})


def test_text_is_cut_where_the_authors_cut(encoder):
    tensors = encoder.tensors([PromptInput(True, "", False, "red " * 1000)], [None])
    assert tensors["input_ids"].shape[1] == FAMILY.max_tokens == 2000
    assert encoder.tokenizer.decode(tensors["input_ids"][0, -1]) == "<|endoftext|>"


def test_meta_is_that_of_mteb_with_our_loader():
    (meta,) = metas()
    assert (meta.name, meta.embed_dim, meta.loader) == (NAME, 3584, load)
    assert meta._resolve_extras_groups() == []
