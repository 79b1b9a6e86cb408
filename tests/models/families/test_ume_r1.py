from __future__ import annotations

import logging
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from support.embedder_contract import TEXTS, EmbedderContract, document, images, query
from support.tiny_qwen import save_tiny_qwen, tiny_tokenizer
from transformers import AddedToken, GenerationConfig, Qwen2VLForConditionalGeneration

from circus_bench.errors import EmbeddingError, FormatError
from circus_bench.models.base import PromptInput
from circus_bench.models.families.ume_r1 import (
    REQUEST,
    DiscriminativeEncoder,
    GenerativeEncoder,
    discriminative_template,
    generative_template,
    load,
    metas,
)

GENERATIVE, DISCRIMINATIVE = "zhibinlan/UME-R1-2B", "zhibinlan/UME-R1-2B-discriminative"
START = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
LIMIT = 16
PAIR = [PromptInput(True, "Find it.", True, text) for text in TEXTS]


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken(token, special=True) for token in ("<gen_emb>", "<disc_emb>")])
    return tokenizer


def head(tokenizer, seed):
    """Rows of the language head for `<gen_emb>` and the end of turn."""
    rows = 0.6 * torch.randn(2, 32, generator=torch.Generator().manual_seed(seed))
    return dict(zip(map(tokenizer.convert_tokens_to_ids, ("<gen_emb>", "<|im_end|>")), rows, strict=True))


@pytest.fixture(scope="module")
def save(tokenizer, tmp_path_factory):
    """`save(rows)`: a checkpoint with these rows of the language head, which samples unless told otherwise."""

    def write(rows):
        folder = save_tiny_qwen(tmp_path_factory.mktemp("ume"), "qwen2_vl", tokenizer=tokenizer)
        model = Qwen2VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        with torch.no_grad():
            for token, row in rows.items():
                model.lm_head.weight[token] = row
        end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        model.generation_config = GenerationConfig(eos_token_id=end, do_sample=True, temperature=2.0)
        model.save_pretrained(folder)
        return folder

    return write


@pytest.fixture(scope="module")
def folder(save, tokenizer):
    """With this seed the model writes `<gen_emb>` within 16 tokens for all of the contract's inputs, soon or late."""
    return save(head(tokenizer, 14))


@pytest.fixture(scope="module")
def mute(save, tokenizer):
    """A model that never writes `<gen_emb>`: its score is 0, which is never the highest of 260 random ones."""
    return save({tokenizer.convert_tokens_to_ids("<gen_emb>"): torch.zeros(32)})


@pytest.fixture(scope="module")
def load_generative(folder):
    return partial(load, GENERATIVE, path=folder, device="cpu", max_new_tokens=LIMIT)


@pytest.fixture(scope="module")
def load_discriminative(folder):
    return partial(load, DISCRIMINATIVE, path=folder, device="cpu")


@pytest.fixture(scope="module")
def generative(load_generative):
    return load_generative()


@pytest.fixture(scope="module")
def discriminative(load_discriminative):
    return load_discriminative()


class TestGenerative(EmbedderContract):
    padding_sides = ("left",)

    @pytest.fixture
    def load_tiny(self, load_generative):
        return load_generative

    @pytest.fixture
    def encoder(self, generative):
        return generative


class TestDiscriminative(EmbedderContract):
    @pytest.fixture
    def load_tiny(self, load_discriminative):
        return load_discriminative

    @pytest.fixture
    def encoder(self, discriminative):
        return discriminative


# --- prompts


@pytest.mark.parametrize(
    ("item", "user"),
    [
        (PromptInput(True, "Find it.", True, "make it red"), IMAGE + "Find it.\nmake it red"),
        (PromptInput(True, "", True, "make it red"), IMAGE + "make it red"),
        (PromptInput(True, "", True, ""), IMAGE + "Represent the given image."),
        (PromptInput(False, "", True, ""), IMAGE + "Represent the given image."),
    ],
    ids=["pair", "pair without instruction", "image query", "document"],
)
def test_prompt(item, user):
    assert discriminative_template(item) == f"{START}{user}\n<disc_emb>"
    assert generative_template(item) == (f"{START}{user}\n<disc_emb>\n{REQUEST}<|im_end|>\n<|im_start|>assistant\n")


def test_request_is_that_of_the_authors():
    # XMUDeepLIT/UME-R1, src/eval/VLM2Vec/src/data/collator/eval_collator.py
    assert REQUEST == (
        "Represent the above input text, images, videos, or any combination of the three as embeddings. First output "
        "the thinking process in <think> </think> tags and then summarize the entire input in a word or sentence. "
        "Finally, use the <gen_emb> tag to represent the entire input."
    )


@pytest.mark.parametrize("name", [GENERATIVE, DISCRIMINATIVE])
def test_text_alone_is_shown_with_a_white_image(name, folder):
    encoder = load(name, path=folder, device="cpu", **({"max_new_tokens": LIMIT} if name == GENERATIVE else {}))
    alone = query(encoder, {"text": TEXTS[:1]})
    white = query(encoder, {"text": TEXTS[:1], "image": [Image.new("RGB", (56, 56), "white")]})
    np.testing.assert_array_equal(alone, white)


def test_image_tokens_are_placed_by_row_and_column(discriminative):
    assert "position_ids" not in discriminative.tensors(PAIR, images())  # the model computes its own


# --- discriminative mode


def test_discriminative_embedding_is_the_state_of_its_token_in_the_whole_prompt(discriminative, folder, tokenizer):
    model = Qwen2VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = generative_template(PAIR[0]).replace("<|image_pad|>", "<|image_pad|>" * 4)  # 60 x 44 pixels become 56 x 56
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    pixels = discriminative.image_processor(images=images()[:1], return_tensors="pt")
    kinds = (ids == model.config.image_token_id).long()
    with torch.inference_mode():
        states = model.model(input_ids=ids, mm_token_type_ids=kinds, **pixels).last_hidden_state[0]
    state = states[ids[0].tolist().index(tokenizer.convert_tokens_to_ids("<disc_emb>"))]
    vector = query(discriminative, {"image": images()[:1], "text": TEXTS[:1]})[0]
    np.testing.assert_allclose(vector, state / state.norm(), atol=1e-5)


def test_discriminative_mode_needs_no_language_head(tokenizer, tmp_path):
    save_tiny_qwen(tmp_path, "qwen2_vl", tokenizer=tokenizer, base=True)
    assert np.isfinite(document(load(DISCRIMINATIVE, path=tmp_path, device="cpu"), {"image": images()})).all()
    with pytest.raises(FormatError, match=r"lm_head\.weight"):
        load(GENERATIVE, path=tmp_path, device="cpu")


# --- generative mode


def written(encoder):
    """What the model writes for three pairs, and how much of it is read."""
    tokens = encoder.write(DiscriminativeEncoder.tensors(encoder, PAIR, images()))
    read = encoder.tensors(PAIR, images())["attention_mask"].sum(1)
    return tokens, (read - DiscriminativeEncoder.tensors(encoder, PAIR, images())["attention_mask"].sum(1)).tolist()


def test_generations_of_a_batch_have_different_lengths(generative):
    # Else the tests of batches would say little.
    _, lengths = written(generative)
    assert len(set(lengths)) == 3
    assert max(lengths) <= LIMIT


@pytest.mark.parametrize("index", range(3))
def test_embedding_is_the_state_that_generation_has_at_the_token(generative, tokenizer, index):
    # The way of XMUDeepLIT/UME-R1, README.md: all states of all steps are kept. Step j + 1 reads token j.
    prompts = DiscriminativeEncoder.tensors(generative, PAIR[index : index + 1], images()[index : index + 1])
    output = generative.model.generate(
        **prompts, do_sample=False, max_new_tokens=2 * LIMIT, output_hidden_states=True, return_dict_in_generate=True
    )
    tokens = output.sequences[0, prompts["input_ids"].shape[1] :].tolist()[:LIMIT]
    place = len(tokens) - 1 - tokens[::-1].index(tokenizer.convert_tokens_to_ids("<gen_emb>"))
    state = output.hidden_states[place + 1][-1][0, -1]
    vector = query(generative, {"image": images()[index : index + 1], "text": TEXTS[index : index + 1]})[0]
    np.testing.assert_allclose(vector, state / state.norm(), atol=1e-5)


def test_token_in_the_prompt_is_not_taken_for_a_written_one(mute):
    # The request names <gen_emb>, and so may a text.
    encoder = load(GENERATIVE, path=mute, device="cpu", max_new_tokens=4)
    query(encoder, {"image": images()[:1], "text": ["use <gen_emb>"]})
    assert encoder.unfinished == 1


def test_generation_is_greedy_although_the_checkpoint_samples(generative):
    assert generative.model.generation_config.do_sample
    torch.manual_seed(1)
    first, _ = written(generative)
    torch.manual_seed(2)
    second, _ = written(generative)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_generation_is_bounded(mute):
    encoder = load(GENERATIVE, path=mute, device="cpu", max_new_tokens=5)
    tokens, lengths = written(encoder)
    assert tokens.shape[1] == 5
    assert max(lengths) == 5


def test_image_tokens_are_never_written(save, tokenizer):
    # A row of large equal entries has the highest score of all whenever the entries of a state have a positive sum.
    image = tokenizer.convert_tokens_to_ids("<|image_pad|>")
    encoder = load(GENERATIVE, path=save({image: torch.full((32,), 50.0)}), device="cpu", max_new_tokens=6)
    prompts = DiscriminativeEncoder.tensors(encoder, PAIR, images())
    with torch.inference_mode():
        free = encoder.model.generate(**prompts, do_sample=False, max_new_tokens=6)[:, prompts["input_ids"].shape[1] :]
    assert (free == image).any()
    assert not (encoder.write(prompts) == image).any()


def test_unfinished_generation_is_read_to_its_end_counted_and_logged(mute, caplog):
    encoder = load(GENERATIVE, path=mute, device="cpu", max_new_tokens=4)
    batch = {"image": images(), "text": TEXTS}
    with caplog.at_level(logging.WARNING, logger="circus_bench.models.families.ume_r1"):
        vectors = query(encoder, batch)
    assert encoder.unfinished == 3
    assert "3 of 3 generations ended without <gen_emb> (3: 'make it red'" in caplog.text
    tokens, _ = written(encoder)
    prompts = DiscriminativeEncoder.tensors(encoder, PAIR[:1], images()[:1])
    prompts["input_ids"] = torch.cat([prompts["input_ids"], tokens[:1]], 1)
    prompts["attention_mask"] = torch.ones_like(prompts["input_ids"])
    prompts["mm_token_type_ids"] = (prompts["input_ids"] == encoder.model.config.image_token_id).long()
    with torch.inference_mode():
        state = encoder.hidden_states(prompts)[0, -1]
    np.testing.assert_allclose(vectors[0], state / state.norm(), atol=1e-5)


def test_unfinished_generation_is_not_read_beyond_its_end_of_turn(mute, tokenizer, monkeypatch):
    encoder = load(GENERATIVE, path=mute, device="cpu", max_new_tokens=4)
    end, a, b = (tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "a", "b"))
    monkeypatch.setattr(encoder, "write", lambda _: torch.tensor([[a, end, b], [end, b, b], [a, b, a]]))
    assert written(encoder)[1] == [1, 0, 3]


def test_unfinished_generation_is_an_error_on_request(mute):
    encoder = load(GENERATIVE, path=mute, device="cpu", max_new_tokens=4, unfinished="error")
    with pytest.raises(EmbeddingError, match=r"3 of 3 generations .* allow more than 4 new tokens"):
        query(encoder, {"image": images(), "text": TEXTS})


def test_bfloat16_gives_finite_float32_vectors(folder):
    half = load(GENERATIVE, path=folder, device="cpu", dtype="bfloat16", max_new_tokens=4)
    vectors = query(half, {"image": images(), "text": TEXTS})
    assert (half.model.dtype, vectors.dtype) == (torch.bfloat16, np.float32)
    assert np.isfinite(vectors).all()


# --- loading


def test_checkpoint_without_the_tokens_is_an_error(tmp_path):
    save_tiny_qwen(tmp_path, "qwen2_vl")
    with pytest.raises(FormatError, match=r"lacks the tokens of UME-R1 \(2: '<disc_emb>', '<gen_emb>'\)"):
        load(GENERATIVE, path=tmp_path, device="cpu")


def test_each_mode_has_its_own_name(generative, discriminative):
    assert [meta.name for meta in metas()] == [
        f"zhibinlan/UME-R1-{size}{suffix}" for size in ("2B", "7B") for suffix in ("", "-discriminative")
    ]
    assert isinstance(generative, GenerativeEncoder)
    assert not isinstance(discriminative, GenerativeEncoder)
