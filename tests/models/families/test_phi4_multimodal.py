from __future__ import annotations

import json
import shutil
import sys
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from support.embedder_contract import EmbedderContract, images, query
from support.tiny_phi4 import save_tiny_phi4
from support.tiny_qwen import DIM

from circus_bench.errors import FormatError
from circus_bench.models.base import PromptInput
from circus_bench.models.families import lamra
from circus_bench.models.families.phi4_multimodal import NAME, load, metas, prompt_template
from circus_bench.models.families.phi4_multimodal_modeling import Crops

PUBLISHED = Crops(size=448, patch=14)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_phi4(tmp_path_factory.mktemp("phi4"))


@pytest.fixture(scope="module")
def load_tiny(folder):
    return partial(load, NAME, path=folder, device="cpu")


def asked(text: str, *, instruction: str = "", image: bool = True) -> PromptInput:
    return PromptInput(is_query=True, instruction=instruction, has_image=image, text=text)


class TestContract(EmbedderContract):
    pass


def test_neither_torchvision_nor_peft_is_needed(folder, monkeypatch):
    for package in ("torchvision", "torchaudio", "peft"):
        monkeypatch.setitem(sys.modules, package, None)
    assert query(load(NAME, path=folder), {"image": images(), "text": ["a"] * 3}).shape == (3, DIM)


def test_the_meta_names_the_published_weights():
    (meta,) = metas()
    assert (meta.name, meta.revision) == (NAME, "93f923e1a7727d1c4f446756212d9d3e8fcc5d81")
    assert meta.embed_dim == 3072


# The turns are those of the model card, microsoft/Phi-4-multimodal-instruct, README.md.
@pytest.mark.parametrize(
    ("item", "user"),
    [
        (asked("a dog", instruction="Find it."), "<|endoftext10|>Find it.\na dog\n" + lamra.SUMMARIZE_BOTH),
        (asked("a dog"), "<|endoftext10|>a dog\n" + lamra.SUMMARIZE_BOTH),
        (asked(""), "<|endoftext10|>\n" + lamra.SUMMARIZE_IMAGE),
        (PromptInput(False, "", True, ""), "<|endoftext10|>\n" + lamra.SUMMARIZE_IMAGE),
        (asked("a dog", image=False), "a dog\n" + lamra.SUMMARIZE_TEXT),
    ],
    ids=["pair", "pair without instruction", "image query", "document", "text query"],
)
def test_prompt(item, user):
    assert prompt_template(item) == f"<|user|>{user}<|end|><|assistant|>"


def test_the_embedding_is_the_state_of_the_token_that_opens_the_answer(encoder):
    item = asked("a dog")
    tensors = encoder.tensors([item], images()[:1])
    assert encoder.tokenizer.decode(tensors["input_ids"][0, -1]) == "<|assistant|>"
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(encoder.hidden_states(tensors)[:, -1], dim=-1)
    np.testing.assert_allclose(encoder.embed([item], images()[:1]), expected, atol=1e-6)


def test_padding_is_on_the_right(encoder):
    mask = encoder.tensors([asked("a"), asked("a dog on a beach")], images()[:1] * 2)["attention_mask"]
    assert mask[:, 0].tolist() == [1, 1]
    assert mask[:, -1].tolist() == [0, 1]


@pytest.mark.parametrize("swapped", [False, True])
def test_inputs_with_and_without_image_share_a_batch(encoder, swapped):
    inputs = [(asked("a dog"), images()[0]), (asked("a dog", image=False), None)]
    if swapped:
        inputs.reverse()
    together = encoder.embed(*zip(*inputs, strict=True))
    singly = np.concatenate([encoder.embed([item], [image]) for item, image in inputs])
    np.testing.assert_allclose(together, singly, atol=1e-5)


def test_a_longer_input_does_not_change_a_shorter_one(encoder):
    # Beyond 128 tokens the fixture's rotary positions are scaled otherwise, for a whole batch.
    items = [asked("a dog"), asked("a dog " * 30)]
    together = encoder.embed(items, images()[:2])
    np.testing.assert_allclose(together[:1], encoder.embed(items[:1], images()[:1]), atol=1e-5)
    np.testing.assert_allclose(together[1:], encoder.embed(items[1:], images()[1:2]), atol=1e-5)


def test_the_vision_adapter_is_added_where_there_is_an_image(encoder, folder):
    # W + (alpha / r) B A, arXiv:2106.09685; the fixture has r = 2, alpha = 4.
    merged = load(NAME, path=folder).model  # its own adapter stays inactive
    adapter = _published_tensors(folder)
    with torch.no_grad():
        for name, module in merged.named_modules():
            if f"model.{name}.lora_A.vision.weight" in adapter:
                down, up = (adapter[f"model.{name}.lora_{part}.vision.weight"] for part in "AB")
                module.weight += 2 * up @ down
    tensors = encoder.tensors([asked("a dog")], images()[:1])
    with torch.inference_mode():
        expected = merged(**tensors).last_hidden_state
        torch.testing.assert_close(encoder.hidden_states(tensors), expected, atol=1e-4, rtol=1e-4)


def test_the_vision_adapter_is_not_added_where_there_is_none(encoder, folder):
    plain = load(NAME, path=folder).model
    tensors = encoder.tensors([asked("a dog", image=False)], [None])
    encoder.embed([asked("a dog")], images()[:1])  # which switches the adapter on
    with torch.inference_mode():
        torch.testing.assert_close(encoder.hidden_states(tensors), plain(**tensors).last_hidden_state)


def _published_tensors(folder):
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def test_the_weights_are_the_published_ones_under_their_new_names(encoder, folder):
    published = _published_tensors(folder)
    image = encoder.model.embed_tokens_extend.image_embed
    prefix = "model.embed_tokens_extend.image_embed."
    for name, ours in {
        f"{prefix}glb_GN": image.global_img_feature_extensor,
        f"{prefix}sub_GN": image.sub_img_feature_extensor,
        f"{prefix}img_projection.0.weight": image.img_projection_up.weight,
        f"{prefix}img_projection.2.bias": image.img_projection_down.bias,
        "model.layers.1.mlp.down_proj.base_layer.weight": encoder.model.layers[1].mlp.down_proj.weight,
    }.items():
        assert torch.equal(published[name], ours), name


def test_the_vision_tower_attends_in_both_directions(encoder):
    pixels = torch.zeros(1, 3, 56, 56)
    changed = pixels.clone()
    changed[..., -14:, -14:] = 1  # the last patch
    mask = torch.ones(1, 4, 4, dtype=torch.bool)
    features = encoder.model.embed_tokens_extend.image_embed.get_img_features
    with torch.inference_mode():
        moved = (features(pixels, mask) - features(changed, mask)).abs().amax(-1)[0]
    assert moved[0] > 1e-5


def test_the_number_of_image_tokens_is_that_of_the_published_formula():
    # 640 x 480 fills 2 x 2 crops of 448 as 896 x 672: 32 columns and 24 rows of tokens. processing_phi4mm.py:
    # 256 + 1 + 32 * 24 tokens, one line end for each of 24 rows and 16 for the overview.
    assert PUBLISHED.tokens(640, 480) == 256 + 1 + 32 * 24 + 24 + 16


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((448, 448), (1, 1)),
        ((449, 448), (2, 1)),
        ((2688, 2688), (6, 6)),
        # 5 / 4 is the closest to 9010 / 7000 of all ratios with at most 36 crops
        ((9010, 7000), (5, 4)),
        # 1 / 1, 2 / 2, ... are equally close; the largest that the image fills by more than half
        ((4480, 4480), (6, 6)),
    ],
)
def test_an_image_is_cut_into_at_most_36_crops(size, grid):
    assert PUBLISHED.grid(*size) == grid


def test_crops_come_row_by_row_after_the_overview():
    image = Image.new("RGB", (112, 112))
    for place, shade in (((0, 0), 0), ((56, 0), 85), ((0, 56), 170), ((56, 56), 255)):
        image.paste((shade, shade, shade), (*place, place[0] + 56, place[1] + 56))
    pixels, mask, size = Crops(size=56, patch=14).pixels(image)
    assert pixels.shape == (5, 3, 56, 56)
    assert size == (112, 112)
    assert mask.all()
    # the middle of each crop; shades 0 to 255 become -1 to 1
    assert pixels[1:, 0, 28, 28].tolist() == pytest.approx([-1, -1 / 3, 1 / 3, 1])


def test_what_an_image_does_not_fill_is_white_and_masked():
    pixels, mask, size = Crops(size=56, patch=14).pixels(Image.new("RGB", (60, 44)))
    # 2 x 1 crops; at 56 / 44 the image is 76 pixels wide: of 8 columns of patches (112 - 76) // 14 = 2 are empty
    assert size == (56, 112)
    assert mask.int().sum((1, 2)).tolist() == [16, 16, 8]
    assert mask[2].tolist() == [[True, True, False, False]] * 4
    assert pixels[2, :, :, -28:].eq(1).all()
    assert pixels[1].eq(-1).all()


def test_the_prompt_has_the_image_tokens_that_the_model_fills(encoder):
    tensors = encoder.tensors([asked("a")], images()[:1])
    image_token = encoder.model.config.vision_config.image_token_id
    # (60, 44): 2 rows of 3 tokens and a line end, one between, 2 rows of 2 tokens and a line end
    assert int((tensors["input_ids"] == image_token).sum()) == 2 * 4 + 1 + 2 * 3


def test_a_checkpoint_in_another_layout_is_refused(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "phi4_multimodal"}))
    with pytest.raises(FormatError, match="expected 'phi4mm'"):
        load(NAME, path=tmp_path)


def test_a_checkpoint_without_vision_adapter_is_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "bare")
    index = tmp_path / "bare" / "model.safetensors.index.json"
    files = json.loads(index.read_text())["weight_map"]
    bare = {name: file for name, file in files.items() if ".vision." not in name}
    index.write_text(json.dumps({"metadata": {}, "weight_map": bare}))
    with pytest.raises(FormatError, match="no vision adapter"):
        load(NAME, path=tmp_path / "bare")


def test_a_tokenizer_of_another_checkpoint_is_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["image_token_id"] += 1
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))
    with pytest.raises(FormatError, match="different checkpoints"):
        load(NAME, path=tmp_path / "other")
