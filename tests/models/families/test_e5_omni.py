from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from support.embedder_contract import EmbedderContract, images, query
from support.tiny_e5_omni import save_tiny_e5_omni
from support.tiny_qwen import DIM

from circus_bench.models.base import PromptInput
from circus_bench.models.families.e5_omni import FAMILY, load, metas, prompt_template

NAME = "Haon-Chen/e5-omni-7B"
START = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
IMAGE = "<|vision_bos|><|IMAGE|><|vision_eos|>"
FINISH = "<|im_end|>\n<|im_start|>assistant\n<|endoftext|>"
# As chat_template.json of Qwen/Qwen2.5-Omni-7B renders one user turn, with the end of the model card.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_e5_omni(tmp_path_factory.mktemp("e5-omni"))


@pytest.fixture(scope="module")
def load_tiny(folder):
    return partial(load, NAME, path=folder, device="cpu")


class TestContract(EmbedderContract):
    pass


def asked(text: str, *, instruction: str = "", image: bool = True) -> PromptInput:
    return PromptInput(is_query=True, instruction=instruction, has_image=image, text=text)


def test_both_sizes_are_listed_without_audio_and_video():
    assert {meta.name: meta.embed_dim for meta in metas()} == {"Haon-Chen/e5-omni-3B": 2048, NAME: 3584}
    assert all(meta.modalities == ["text", "image"] for meta in metas())
    assert all(meta.loader is load for meta in metas())


def test_neither_torchvision_nor_torchaudio_is_needed(folder, monkeypatch):
    for package in ("torchvision", "torchaudio", "qwen_omni_utils"):
        monkeypatch.setitem(sys.modules, package, None)
    assert query(load(NAME, path=folder), {"image": images(), "text": ["a"] * 3}).shape == (3, DIM)


def test_a_query_shows_the_image_then_its_marked_instruction_and_text():
    expected = f"{START}{IMAGE}Query: Find it.\na dog{FINISH}"
    assert prompt_template(asked("a dog", instruction="Find it.")) == expected


def test_a_query_without_instruction_is_its_marked_text():
    assert prompt_template(asked("a dog", image=False)) == f"{START}Query: a dog{FINISH}"


def test_an_image_only_query_reads_like_a_gallery_document():
    document = PromptInput(is_query=False, instruction="", has_image=True, text="")
    assert prompt_template(asked("")) == prompt_template(document) == f"{START}{IMAGE}{FINISH}"


def test_a_text_document_is_not_marked_as_query():
    assert (
        prompt_template(PromptInput(is_query=False, instruction="", has_image=False, text="a dog"))
        == f"{START}a dog{FINISH}"
    )


def test_images_keep_the_resolution_range_of_the_published_code():
    # 4 and 16384 squares of 28 pixels, as in qwen_omni_utils
    assert (FAMILY.min_pixels, FAMILY.max_pixels) == (3136, 12_845_056)


def test_inputs_with_and_without_image_share_a_batch(encoder):
    items = [asked("a dog"), asked("a dog", image=False)]
    together = encoder.embed(items, [images()[0], None])
    singly = np.concatenate([encoder.embed(items[:1], images()[:1]), encoder.embed(items[1:], [None])])
    np.testing.assert_allclose(together, singly, atol=1e-5)


def test_a_batch_is_padded_on_the_left_and_ends_in_the_end_token(encoder):
    tensors = encoder.tensors([asked("a"), asked("a dog on a beach")], images()[:2])
    assert tensors["attention_mask"][0, 0] == 0
    end = encoder.tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert tensors["input_ids"][:, -1].tolist() == [end, end]


@pytest.mark.parametrize("size", [(28, 28), (90, 33), (300, 200), (3, 60)])
def test_an_image_takes_a_token_for_each_28_pixels_square(encoder, size):
    tensors = encoder.tensors([asked("a")], [Image.new("RGB", size)])
    tokens = int((tensors["input_ids"] == encoder.model.config.image_token_id).sum())
    assert tokens == int(tensors["image_grid_thw"].prod()) // 4
    # Both sides are multiples of 28 pixels, and there are at least 4 such squares.
    assert tokens >= 4


def test_the_embedding_is_what_the_model_cards_code_gives(encoder):
    # Haon-Chen/e5-omni-7B, README.md: hidden_states[-1][:, -1] of the model with its head, scaled to length one
    item = asked("a dog", instruction="Find it.")
    with torch.inference_mode():
        output = encoder.model(**encoder.tensors([item], images()[:1]), output_hidden_states=True, return_dict=True)
    expected = torch.nn.functional.normalize(output.hidden_states[-1][:, -1], dim=-1)
    np.testing.assert_allclose(encoder.embed([item], images()[:1]), expected, atol=1e-6)
