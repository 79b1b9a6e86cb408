from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from support.embedder_contract import TEXTS, EmbedderContract, images, query
from support.tiny_qwen import save_tiny_qwen
from transformers import Qwen2VLModel

from circus_bench.errors import FormatError
from circus_bench.models.base import PromptInput
from circus_bench.models.families.vlm2vec import load, metas, prompt_template

NAME = "VLM2Vec/VLM2Vec-V2.0"
RANK, ALPHA = 4, 16


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save_tiny_qwen(tmp_path_factory.mktemp("base"), "qwen2_vl")


@pytest.fixture(scope="module")
def adapter(tmp_path_factory, base):
    """A random DoRA adapter on two projections of both layers, named as transformers 4.51 named them."""
    folder = tmp_path_factory.mktemp("adapter")
    settings = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": ALPHA,
        "use_dora": True,
        "base_model_name_or_path": "Qwen/x",
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    draw = torch.Generator().manual_seed(0)
    tensors = {}
    weights = Qwen2VLModel.from_pretrained(base, dtype=torch.float32).language_model.state_dict()
    for name in ("self_attn.q_proj", "mlp.down_proj"):
        for layer in range(2):
            rows, columns = weights[f"layers.{layer}.{name}.weight"].shape
            module = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{module}.lora_A.weight"] = torch.randn(RANK, columns, generator=draw)
            tensors[f"{module}.lora_B.weight"] = torch.randn(rows, RANK, generator=draw)
            tensors[f"{module}.lora_magnitude_vector"] = torch.rand(rows, generator=draw) + 0.5
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


@pytest.fixture(scope="module")
def load_tiny(base, adapter):
    return partial(load, NAME, path=adapter, base_path=base, device="cpu")


class TestContract(EmbedderContract):
    pass


@pytest.mark.parametrize(
    ("item", "prompt"),
    [
        (PromptInput(True, "Find it.", True, "make it red"), "<|image_pad|> Find it.\nmake it red"),
        (PromptInput(True, "", True, "make it red"), "<|image_pad|> make it red"),
        (PromptInput(True, "", True, ""), "<|image_pad|> Represent the given image."),
        (PromptInput(False, "", True, ""), "<|image_pad|> Represent the given image."),
        (PromptInput(True, "Find it.", False, "a red dress"), "Find it.\na red dress"),
        (PromptInput(False, "", False, "a red dress"), "a red dress"),
    ],
    ids=["pair", "pair without instruction", "image query", "document", "text query", "text document"],
)
def test_prompt(item, prompt):
    assert prompt_template(item) == prompt


def test_embedding_is_the_last_state_of_the_adapted_model(encoder, base, adapter):
    model = Qwen2VLModel.from_pretrained(base, dtype=torch.float32).eval()
    tensors = load_file(adapter / "adapter_model.safetensors")
    ids = encoder.tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        for name in ("self_attn.q_proj", "mlp.down_proj"):
            for index, layer in enumerate(model.language_model.layers):
                key = f"base_model.model.model.layers.{index}.{name}"
                total = layer.get_submodule(name).weight + ALPHA / RANK * (
                    tensors[f"{key}.lora_B.weight"] @ tensors[f"{key}.lora_A.weight"]
                )
                direction = total / total.norm(dim=1, keepdim=True)
                layer.get_submodule(name).weight.copy_(tensors[f"{key}.lora_magnitude_vector"][:, None] * direction)
        state = model(input_ids=ids).last_hidden_state[0, -1]
    vector = query(encoder, {"text": TEXTS[:1]}, instruction="")[0]
    np.testing.assert_allclose(vector, state / state.norm(), atol=1e-5)


def test_image_tokens_are_counted_one_by_one(encoder):
    tensors = encoder.tensors([PromptInput(False, "", True, "")], images()[:1])
    length = tensors["input_ids"].shape[1]
    assert tensors["position_ids"].tolist() == [[list(range(length))]] * 3


def test_images_have_4_to_1280_tokens(encoder):
    # Four tokens are 56 x 56 pixels. 2000 x 1500 exceeds 1280 x 784 pixels by a factor of 1.729 a side, which leaves
    # 41.3 x 30.98 tokens of 28 x 28 pixels, rounded down.
    tensors = encoder.tensors(
        [PromptInput(False, "", True, "")] * 2, [Image.new("RGB", (9, 9)), Image.new("RGB", (2000, 1500))]
    )
    assert tensors["mm_token_type_ids"].sum(1).tolist() == [4, 41 * 30]


def test_adapter_without_known_base_is_an_error(adapter):
    with pytest.raises(FormatError, match="no base model is known for the adapter 'ORG/other'"):
        load("ORG/other", path=adapter)


def test_folder_without_adapter_is_an_error(base):
    with pytest.raises(FormatError, match=r"adapter_config\.json"):
        load(NAME, path=base, base_path=base, device="cpu")


def test_metas_are_both_models_with_our_loader():
    second, first = metas()
    assert (second.name, second.embed_dim, second.loader) == (NAME, 1536, load)
    assert (first.name, first.embed_dim, first.loader) == ("TIGER-Lab/VLM2Vec-Qwen2VL-7B", 3584, load)
