"""Prompts, positions and limits are those of Code-kunkun/LamRA: dataset/datasets_mbeir.py, models/, collators/."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from support.embedder_contract import EmbedderContract
from support.tiny_qwen import save_tiny_qwen, tiny_tokenizer

from circus_bench.errors import CircusError
from circus_bench.models.base import PromptInput
from circus_bench.models.families.lamra import load, metas, prompt_template

SEEN = "<|vision_start|><|image_pad|><|vision_end|>"
ARCHITECTURES = ("qwen2_vl", "qwen2_5_vl")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def load_tiny(request, tmp_path_factory):
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<emb>"])
    path = save_tiny_qwen(tmp_path_factory.mktemp("lamra"), request.param, tokenizer=tokenizer)
    return partial(metas()[ARCHITECTURES.index(request.param)].load_model, device="cpu", path=path)


class TestContract(EmbedderContract):
    pass


def test_both_bases_are_described():
    assert [meta.name for meta in metas()] == ["code-kunkun/LamRA-Ret", "code-kunkun/LamRA-Ret-Qwen2.5VL-7b"]


def test_other_name_is_an_error():
    with pytest.raises(CircusError, match=r"code-kunkun/LamRA-Ret, code-kunkun/LamRA-Ret-Qwen2\.5VL-7b"):
        load("code-kunkun/LamRA-Rank")


@pytest.mark.parametrize(
    ("item", "user"),
    [
        (
            PromptInput(True, "Find it.", True, "make it red"),
            f"{SEEN}Find it. make it red.\nSummarize above image and sentence in one word: ",
        ),
        (
            PromptInput(True, "Find it.", False, "make it red"),
            "Find it. make it red.\nSummarize above sentence in one word: ",
        ),
        (PromptInput(True, "", True, ""), f"{SEEN}\nSummarize above image in one word: "),
        (PromptInput(False, "", True, ""), f"{SEEN}\nSummarize above image in one word: "),
        (
            PromptInput(True, "", True, ' make it\r "red" '),
            f'{SEEN}Make it "red.\nSummarize above image and sentence in one word: ',
        ),
        (
            PromptInput(True, "find it", True, "is it red?"),
            f"{SEEN}Find it. is it red?\nSummarize above image and sentence in one word: ",
        ),
    ],
    ids=["image and text", "text without image", "image only", "document", "no instruction", "no full stop"],
)
def test_prompt(item, user):
    assert prompt_template(item) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
    )


def test_padding_is_on_the_right(encoder):
    items = [PromptInput(True, "", False, text) for text in ("ab", "a")]
    assert encoder.tensors(items, [None] * 2)["attention_mask"][:, -1].tolist() == [1, 0]


def test_image_positions_are_those_of_the_authors(encoder, noise):
    tensors = encoder.tensors([PromptInput(False, "", True, "")], [noise((90, 60))])
    assert ("position_ids" in tensors) == ("Qwen2.5VL" not in encoder.mteb_model_meta.name)


def test_embedding_is_the_state_before_the_embedding_token_of_the_whole_prompt(encoder, noise):
    image, item = noise((84, 56)), PromptInput(True, "Find it.", True, "make it red")  # 3 x 2 image tokens
    whole = prompt_template(item).replace("<|image_pad|>", "<|image_pad|>" * 6)
    whole += "<emb>.<|im_end|>\n<|im_start|>assistant\n"
    tokens = encoder.tokenizer(whole, return_tensors="pt")
    ids, model = tokens["input_ids"], encoder.model
    length = ids.shape[1]
    counted = {"position_ids": torch.arange(length).expand(3, 1, -1)}
    with torch.inference_mode():
        states = model(
            **tokens,
            **encoder.image_processor(images=[image], return_tensors="pt"),
            mm_token_type_ids=(ids == model.config.image_token_id).long(),
            **({} if "Qwen2.5VL" in encoder.mteb_model_meta.name else counted),
        ).last_hidden_state
    place = ids[0].tolist().index(encoder.tokenizer.convert_tokens_to_ids("<emb>"))
    expected = torch.nn.functional.normalize(states[0, place - 1], dim=0).numpy()

    found = encoder.encode([{"image": [image], "text": ["Find it. make it red."]}])[0]

    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((84, 56), 6),
        ((28, 28), 4),  # enlarged to at least 4 tokens
        # 20 x 15 tokens
        ((560, 420), 300),
        # 40 x 30 tokens are four times too many: both sides are halved.
        ((1120, 840), 300),
    ],
)
def test_image_limits(encoder, size, tokens):
    tensors = encoder.tensors([PromptInput(False, "", True, "")], [Image.new("RGB", size)])
    assert int(tensors["mm_token_type_ids"].sum()) == tokens
