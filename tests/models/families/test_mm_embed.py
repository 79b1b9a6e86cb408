from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.embedder_contract import EmbedderContract, document, images
from support.tiny_mm_embed import save_tiny_mm_embed
from tokenizers import Tokenizer
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

from circus_bench.errors import FormatError
from circus_bench.models.base import PromptInput
from circus_bench.models.families.mm_embed import NAME, load, metas, prompt_template


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_mm_embed(tmp_path_factory.mktemp("mm-embed"))


@pytest.fixture(scope="module")
def load_tiny(folder):
    return partial(load, NAME, path=folder, device="cpu")


class TestContract(EmbedderContract):
    padding_sides = ("right",)


def asked(text: str, *, instruction: str = "Retrieve a day-to-day image.", image: bool = True) -> PromptInput:
    return PromptInput(is_query=True, instruction=instruction, has_image=image, text=text)


def test_importing_the_family_loads_neither_torch_nor_transformers():
    code = "import sys, circus_bench.models.families.mm_embed; print({'torch', 'transformers'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_the_meta_names_the_published_weights():
    (meta,) = metas()
    assert (meta.name, meta.revision) == (NAME, "a2542c237b5b700ed01b829689756425441cef97")
    assert meta.embed_dim == 4096
    # Trained on CIRR and FashionIQ: mteb must not call them zero-shot.
    assert {"CIRRIT2IRetrieval", "FashionIQIT2IRetrieval"} <= meta.training_datasets


# The expected strings are those that `encode` of nvidia/MM-Embed, modeling_nvmmembed.py, builds.
def test_a_query_names_its_instruction_then_shows_the_image_before_the_text():
    assert prompt_template(asked("a dog", instruction="Find it.")) == "Instruct: Find it.\nQuery: <image>\na dog"


def test_a_query_without_instruction_is_marked_as_query_only():
    assert prompt_template(asked("", instruction="")) == "Query: <image>\n"


def test_a_query_without_image_has_no_image_line():
    assert prompt_template(asked("a dog", instruction="Find it.", image=False)) == "Instruct: Find it.\nQuery: a dog"


def test_a_gallery_document_is_the_image_alone():
    assert prompt_template(PromptInput(is_query=False, instruction="", has_image=True, text="")) == "<image>\n"


def test_a_text_starts_and_ends_with_its_tokens_and_is_padded_on_the_right(encoder):
    tensors = encoder.tensors([asked("a"), asked("a much longer text about a dog")], images()[:2])
    ids, mask = tensors["input_ids"], tensors["attention_mask"]
    start, end, pad = (encoder.tokenizer.convert_tokens_to_ids(token) for token in ("<s>", "</s>", "<pad>"))
    length = int(mask[0].sum())
    assert ids[0, 0] == start
    assert ids[0, length - 1] == end
    assert ids[0, length:].tolist() == [pad] * (ids.shape[1] - length)
    assert length < ids.shape[1] == int(mask[1].sum())


def test_the_tokens_are_those_of_the_published_tokenizer_file(folder, encoder):
    text = prompt_template(asked("a dog on a beach"))
    # The file's own template has the start token alone; `add_eos_token` asks for the other.
    published = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text)
    assert encoder.tokenizer(text)["input_ids"] == [*published.ids, encoder.tokenizer.eos_token_id]


def test_an_image_takes_one_token_a_patch_and_one_for_the_newline(encoder):
    # (28 / 14)^2 patches and the newline
    tensors = encoder.tensors([asked("a")], images()[:1])
    assert int((tensors["input_ids"] == encoder.tokenizer.convert_tokens_to_ids("<image>")).sum()) == 5


def test_the_pixels_are_those_of_llava_nexts_global_view(folder, encoder):
    ours = encoder.tensors([asked("a")], images()[:1])["pixel_values"]
    reference = LlavaNextImageProcessorPil.from_pretrained(folder)(images=images()[:1], return_tensors="pt")
    torch.testing.assert_close(ours[0], reference["pixel_values"][0, 0])


@pytest.mark.parametrize("mode", ["L", "RGBA", "P"])
def test_images_of_any_mode_are_taken(encoder, mode):
    assert document(encoder, {"image": [images()[0].convert(mode)]}).shape == (1, 32)


def test_the_mean_leaves_out_the_instruction_and_the_line_break_after_it(encoder):
    items = [asked("a dog"), asked("a dog", instruction="")]
    mask = encoder.tensors(items, images()[:2])["attention_mask"]
    pooled = encoder.pooled_tokens(items, mask)
    tokens = encoder.tokenizer.convert_ids_to_tokens(encoder.tensors(items, images()[:2])["input_ids"][0].tolist())
    # <s>, the instruction, its line break; what follows begins "Query: "
    first = int(pooled[0].argmax())
    assert tokens[first - 1] == "<0x0A>"
    assert "".join(tokens[first : first + 4]).startswith("Query:")
    assert pooled[0, first:].equal(mask[0, first:])
    assert pooled[1].equal(mask[1])


def test_the_embedding_is_the_unit_mean_of_the_refined_states(encoder):
    item = asked("a dog")
    tensors = encoder.tensors([item], images()[:1])
    with torch.inference_mode():
        output = encoder.model(**tensors).last_hidden_state
        refined = encoder.model.latent_attention_model(output)[0]
    kept = refined[encoder.pooled_tokens([item], tensors["attention_mask"])[0].bool()].mean(0)
    np.testing.assert_allclose(encoder.embed([item], images()[:1])[0], kept / kept.norm(), atol=1e-6)


def test_attention_looks_both_ways(encoder):
    tensors = encoder.tensors([asked("a dog on a beach")], images()[:1])
    changed = {**tensors, "input_ids": tensors["input_ids"].clone()}
    changed["input_ids"][0, -2] = 4
    with torch.inference_mode():
        moved = (encoder.hidden_states(tensors) - encoder.hidden_states(changed)).abs().amax(-1)[0]
    assert moved[0] > 1e-5


def test_latent_attention_is_softmax_over_the_latents_and_a_gated_block(encoder):
    # The formulas of arXiv:2405.17428, section 3.1, and of modeling_nvembed.py, written out for one head at a time.
    module = encoder.model.latent_attention_model
    states = torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(1))
    attend, feed = module.cross_attend_blocks
    with torch.inference_mode():
        queries = attend.fn.to_q(attend.norm(states[0]))
        keys, values = attend.fn.to_kv(attend.norm_context(module.latents)).chunk(2, dim=-1)
        heads = []
        for head in (slice(0, 8), slice(8, 16)):
            weights = torch.softmax(queries[:, head] @ keys[:, head].T / 8**0.5, dim=-1)
            heads.append(weights @ values[:, head])
        after = states[0] + torch.cat(heads, dim=-1) @ attend.fn.to_out.weight.T
        widened = feed.fn.net[0](feed.norm(after))
        gated = widened[:, :128] * torch.nn.functional.gelu(widened[:, 128:])
        expected = after + feed.fn.net[2](gated)
        torch.testing.assert_close(module(states)[0], expected)


def test_the_text_tower_has_the_rotary_base_and_vocabulary_of_the_text_embedder(encoder):
    text = encoder.model.config.text_config
    assert text.rope_parameters["rope_theta"] == 10_000
    assert text.vocab_size == encoder.tokenizer.convert_tokens_to_ids("<image>")


def test_the_text_tower_has_no_window(encoder):
    # The configuration of NV-Embed mentions one, of 4 tokens in the fixture; the published code masks padding alone.
    assert encoder.model.config.text_config.sliding_window is None


@pytest.mark.parametrize("left", [None, torch.zeros(5, 31)], ids=["missing", "of another shape"])
def test_weights_that_do_not_fit_are_refused(folder, tmp_path, left):
    shutil.copytree(folder, tmp_path / "cut")
    state = load_file(folder / "model.safetensors")
    del state["latent_attention_model.latents"]
    if left is not None:
        state["latent_attention_model.latents"] = left
    save_file(state, tmp_path / "cut" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(FormatError, match=r"latent_attention_model\.latents"):
        load(NAME, path=tmp_path / "cut")


def test_a_text_embedder_that_cannot_be_had_is_named(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "lost")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "lost" / "config.json").write_text(json.dumps({**config, "retriever": "nvidia/NV-Embed-v1"}))
    with pytest.raises(FormatError, match=r"nvidia/NV-Embed-v1: cannot read config\.json"):
        load(NAME, path=tmp_path / "lost")
