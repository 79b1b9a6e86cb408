from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from mteb import TaskMetadata
from mteb.types import PromptType
from PIL import Image
from safetensors.torch import load_file, save_file
from support.tiny_qwen import DIM, save_tiny_qwen, tiny_tokenizer
from tokenizers.processors import TemplateProcessing

from circus_bench.benchmark import Condition
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.encoder import BenchmarkEncoder
from circus_bench.errors import EmbeddingError, FormatError
from circus_bench.models.base import LoadedModel, Pooling, PromptInput
from circus_bench.models.batches import task_instruction
from circus_bench.models.families.qwen_vl import IMAGE, Positions, QwenVLEncoder, QwenVLFamily, load_qwen_vl

CLASSES = {"qwen2_vl": "Qwen2VLModel", "qwen2_5_vl": "Qwen2_5_VLModel", "qwen3_vl": "Qwen3VLModel"}
TEXTS = ["make it red", "", "take the small dog away, and put two cats where it was"]
START, END = "<|im_start|>", "<|im_end|>"


def prompt_template(item: PromptInput) -> str:
    image = IMAGE if item.has_image else ""
    return (
        f"{START}system\n{item.instruction or 'None.'}{END}\n{START}user\n{image}{item.text}{END}\n{START}assistant\n"
    )


def family(architecture: str = "qwen2_vl", **changes) -> QwenVLFamily:
    plain = QwenVLFamily(
        model_class=CLASSES[architecture],
        prompt_template=prompt_template,
        min_pixels=4 * 28 * 28,
        max_pixels=64 * 28 * 28,
    )
    return dataclasses.replace(plain, **changes)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    return {architecture: save_tiny_qwen(folder / architecture, architecture) for architecture in CLASSES}


@pytest.fixture(scope="module")
def load(checkpoints):
    """`load(architecture, **changes)`: a tiny encoder whose family is changed so."""
    loaded = {}

    def load_one(architecture: str = "qwen2_vl", **changes) -> QwenVLEncoder:
        if architecture not in loaded:
            encoder = load_qwen_vl(family(architecture), "tiny", path=checkpoints[architecture], device="cpu")
            loaded[architecture] = LoadedModel(encoder.model, encoder.tokenizer, encoder.image_processor)
        return QwenVLEncoder(family(architecture, **changes), loaded[architecture])

    return load_one


@pytest.fixture(scope="module")
def images(noise):
    return [noise((90, 60), 0), noise((100, 200), 1), noise((300, 28), 2)]


@pytest.fixture(params=["image", "text", "both"])
def batch(request, images):
    whole = {"image": images, "text": TEXTS}
    return whole if request.param == "both" else {request.param: whole[request.param]}


def singles(batch):
    return [{name: column[i : i + 1] for name, column in batch.items()} for i in range(len(TEXTS))]


def item(text: str = "", *, has_image: bool = True) -> PromptInput:
    return PromptInput(is_query=True, instruction="", has_image=has_image, text=text)


def task(**changes) -> TaskMetadata:
    facts = {
        "name": "Toy",
        "description": "Toy.",
        "dataset": {"path": "toy", "revision": "1"},
        "type": "Any2AnyRetrieval",
        "category": "it2i",
        "modalities": ["text", "image"],
        "eval_langs": ["eng-Latn"],
        "main_score": "ndcg_at_10",
    }
    return TaskMetadata(**(facts | changes))


# --- embeddings


@pytest.mark.parametrize("architecture", CLASSES)
def test_embeddings_are_float32_unit_vectors(load, architecture, batch):
    embeddings = load(architecture).encode([batch])
    assert embeddings.dtype == np.float32
    assert embeddings.shape == (len(TEXTS), DIM)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("positions", Positions)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("architecture", CLASSES)
def test_batch_equals_single(load, architecture, side, positions, batch):
    encoder = load(architecture, padding_side=side, positions=positions)
    np.testing.assert_allclose(encoder.encode([batch]), encoder.encode(singles(batch)), atol=1e-5)


def test_batch_equals_single_under_mean_pooling(load, batch):
    encoder = load(pooling=Pooling.MEAN)
    np.testing.assert_allclose(encoder.encode([batch]), encoder.encode(singles(batch)), atol=1e-5)


def test_items_with_and_without_an_image_may_share_a_batch(load, images):
    encoder = load()
    mixed = {"image": [images[0], None, images[2]], "text": TEXTS}
    expected = [
        {"image": images[:1], "text": TEXTS[:1]},
        {"text": TEXTS[1:2]},
        {"image": images[2:], "text": TEXTS[2:]},
    ]
    np.testing.assert_allclose(encoder.encode([mixed]), encoder.encode(expected), atol=1e-5)


def test_encoding_twice_gives_the_same_bits(load, batch):
    np.testing.assert_array_equal(load().encode([batch]), load().encode([batch]))


@pytest.mark.parametrize(("side", "mask"), [("left", [0, 0, 1]), ("right", [1, 0, 0])])
def test_shorter_inputs_are_padded_on_the_side_of_the_family(load, side, mask):
    # The second text is two tokens (bytes) shorter.
    items = [item("abc", has_image=False), item("a", has_image=False)]
    tensors = load(padding_side=side).tensors(items, [None, None])
    kept = tensors["attention_mask"][1]
    assert (kept[:3] if side == "left" else kept[-3:]).tolist() == mask


@pytest.mark.parametrize("architecture", CLASSES)
def test_embedding_is_that_of_a_direct_forward_pass(checkpoints, load, architecture, noise):
    # 140 x 84 pixels are 5 x 3 image tokens of 28 x 28, and enlarged to 5 x 3 of 32 x 32, or 160 x 96.
    size = (160, 96) if architecture == "qwen3_vl" else (140, 84)
    image, text = noise(size), "make it red"
    encoder = load(architecture)
    cls = getattr(transformers, CLASSES[architecture].replace("Model", "ForConditionalGeneration"))
    model = cls.from_pretrained(checkpoints[architecture]).eval()
    prompt = prompt_template(item(text)).replace("<|image_pad|>", "<|image_pad|>" * 15)
    tokens = encoder.tokenizer(prompt, return_tensors="pt")
    with torch.inference_mode():
        states = model(
            **tokens,
            mm_token_type_ids=(tokens["input_ids"] == model.config.image_token_id).long(),
            **encoder.image_processor(images=[image], return_tensors="pt"),
            output_hidden_states=True,
        ).hidden_states[-1]
    expected = torch.nn.functional.normalize(states[0, -1], dim=0).numpy()
    np.testing.assert_allclose(encoder.encode([{"image": [image], "text": [text]}])[0], expected, atol=1e-5)


def test_mean_pooling_takes_all_tokens(load):
    encoder = load(pooling=Pooling.MEAN)
    tensors = encoder.tensors([item("abc", has_image=False)], [None])
    with torch.inference_mode():
        mean = encoder.hidden_states(tensors)[0].mean(0)
    expected = torch.nn.functional.normalize(mean, dim=0).numpy()
    np.testing.assert_allclose(encoder.encode([{"text": ["abc"]}])[0], expected, atol=1e-5)


def test_sequential_positions_count_tokens_from_the_first(load, images):
    encoder = load(positions=Positions.SEQUENTIAL, padding_side="left")
    tensors = encoder.tensors([item(), item()], images[:2])
    for row, mask in zip(tensors["position_ids"][0], tensors["attention_mask"], strict=True):
        assert row[mask.bool()].tolist() == list(range(int(mask.sum())))


def test_positions_matter_where_there_is_an_image_only(load, images):
    by_row, counted = load(), load(positions=Positions.SEQUENTIAL)
    assert np.abs(by_row.encode([{"image": images}]) - counted.encode([{"image": images}])).max() > 1e-2
    np.testing.assert_array_equal(by_row.encode([{"text": TEXTS}]), counted.encode([{"text": TEXTS}]))


def test_other_text_and_other_image_move_the_embedding(load, images):
    one, other_text, other_image = load().encode([{"image": [*images[:1] * 2, images[1]], "text": ["a", "b", "a"]}])
    assert np.abs(one - other_text).max() > 1e-2
    assert np.abs(one - other_image).max() > 1e-2


# --- images


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((84, 56), 6),  # 3 x 2 tokens of 28 x 28
        ((28, 28), 4),  # enlarged to min_pixels, 4 tokens
        # More than max_pixels, 64 tokens: both sides are divided by sqrt(1000 * 500 / (64 * 784)) = 3.157 and rounded
        # down to 11 x 5 tokens.
        ((1000, 500), 55),
        # 200 x 1 tokens are more than 64: both sides are divided by sqrt(200 / 64) = 1.77, to 113 and at least 1.
        ((5600, 28), 113),
    ],
)
def test_image_has_as_many_tokens_as_its_size_asks_for(load, size, tokens):
    tensors = load().tensors([item()], [Image.new("RGB", size)])
    assert int(tensors["mm_token_type_ids"].sum()) == tokens


@pytest.mark.parametrize("architecture", CLASSES)
@pytest.mark.parametrize("size", [(28, 28), (5600, 28), (40, 3000), (1920, 1080)])
def test_images_of_any_size_are_encoded(load, architecture, size, noise):
    assert np.isfinite(load(architecture).encode([{"image": [noise(size)]}])).all()


def test_image_is_resized_as_pillow_does(load, noise):
    # 100 x 60 pixels become 4 x 2 tokens, 112 x 56 pixels.
    image = noise((100, 60))
    resized = load().tensors([item()], [image.resize((112, 56), Image.Resampling.BICUBIC)])
    assert torch.equal(load().tensors([item()], [image])["pixel_values"], resized["pixel_values"])


def test_image_is_resized_twice_where_the_family_says_so(load, noise):
    # 100 x 60 pixels become 112 x 56 first.
    image = noise((100, 60))
    twice = load(first_limits=(4 * 28 * 28, 100 * 28 * 28)).tensors([item()], [image])
    resized = load().tensors([item()], [image.resize((112, 56))])
    assert torch.equal(twice["pixel_values"], resized["pixel_values"])


def test_too_elongated_image_is_an_error(load):
    with pytest.raises(EmbeddingError, match=r"200-fold .*\(1: \(28, 5700\)\)"):
        load().encode([{"image": [Image.new("RGB", (28, 5700))]}])


def test_gray_and_transparent_images_are_encoded_as_rgb(load, images):
    gray, clear = images[0].convert("L"), images[0].convert("RGBA")
    expected = load().encode([{"image": [gray.convert("RGB"), images[0]]}])
    np.testing.assert_array_equal(load().encode([{"image": [gray, clear]}]), expected)


def test_black_image_is_not_a_missing_image(load):
    black = load().encode([{"image": [Image.new("RGB", (64, 64))], "text": TEXTS[:1]}])
    assert np.abs(black - load().encode([{"text": TEXTS[:1]}])).max() > 1e-3


# --- texts


def test_text_with_the_placeholder_is_an_error(load, images):
    with pytest.raises(EmbeddingError, match="2 image tokens instead of 1"):
        load().encode([{"image": images[:1], "text": ["a <|image_pad|> in the text"]}])


def test_text_that_is_too_long_loses_its_end(load, images, caplog):
    encoder = load(max_tokens=100)
    with caplog.at_level(logging.WARNING):
        ids = encoder.tensors([item("a" * 500)], images[:1])["input_ids"][0].tolist()
    assert len(ids) == 100
    shown = encoder.tokenizer.decode(ids)
    assert shown.endswith(f"aaa{END}\n{START}assistant\n")
    assert "cut a text of 500 characters" in caplog.text


def test_image_that_is_too_long_for_the_model_is_an_error(load, noise):
    with pytest.raises(EmbeddingError, match="more than the 30 tokens"):
        load(max_tokens=30).encode([{"image": [noise((1000, 500))], "text": ["a"]}])


def test_token_that_the_tokenizer_appends_is_kept(tmp_path):
    tokenizer = tiny_tokenizer()
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", end)]
    )
    path = save_tiny_qwen(tmp_path, "qwen3_vl", tokenizer=tokenizer)
    encoder = load_qwen_vl(family("qwen3_vl"), "tiny", path=path, device="cpu")
    assert encoder.tensors([item("a", has_image=False)], [None])["input_ids"][0, -1] == end


def test_missing_text_is_the_empty_text(load, images):
    np.testing.assert_array_equal(
        load().encode([{"image": images, "text": [None, "", None]}]), load().encode([{"image": images}])
    )


def test_batch_without_images_and_texts_is_an_error(load):
    with pytest.raises(EmbeddingError, match=r"neither 'image' nor 'text', but \['audio'\]"):
        load().encode([{"audio": [0]}])


# --- instructions


@pytest.mark.parametrize(
    ("prompt", "instruction"), [(None, ""), ("Find it.", "Find it."), ({"query": "Find it."}, "Find it."), ({}, "")]
)
def test_instruction_is_the_one_of_the_task_and_no_other(prompt, instruction):
    assert task_instruction(task(prompt=prompt)) == instruction


def test_documents_get_no_instruction_of_the_task(load, images):
    batches, metadata = [{"image": images}], task(prompt={"query": "Find it."})
    documents = load().encode(batches, task_metadata=metadata, prompt_type=PromptType.document)
    np.testing.assert_array_equal(documents, load().encode(batches))
    queries = load().encode(batches, task_metadata=metadata, prompt_type=PromptType.query)
    assert np.abs(queries - documents).max() > 1e-3


class Recorder(QwenVLEncoder):
    """Notes every item it is shown."""

    mteb_model_meta = type("Meta", (), {"name": "tiny/recorder", "revision": "1"})()

    def embed(self, items, images):
        self.seen |= set(items)
        return super().embed(items, images)


def test_conditions_reach_the_layout_as_items(load, toy_benchmark, tmp_path):
    loaded = load()
    recorder = Recorder(family(), LoadedModel(loaded.model, loaded.tokenizer, loaded.image_processor))
    benchmark = toy_benchmark()
    driver = BenchmarkEncoder(recorder, benchmark, store=EmbeddingStore(tmp_path))
    instruction = benchmark.protocol.instruction
    texts = {query.text for query in benchmark.queries}
    expected = {
        "multimodal": {PromptInput(True, instruction, True, text) for text in texts},
        "text_only": {PromptInput(True, instruction, True, text) for text in texts},
        "image_only": {PromptInput(True, "", True, "")},
    }
    for condition, items in expected.items():
        recorder.seen = set()
        driver.queries(Condition(condition))
        assert recorder.seen == items, condition
    recorder.seen = set()
    driver.gallery()
    assert recorder.seen == {PromptInput(False, "", True, "")}


# --- checkpoints


def test_weights_are_float32_on_a_cpu(load):
    assert load().model.dtype == torch.float32
    assert load().device.type == "cpu"


def test_bfloat16_on_request_still_gives_float32_unit_vectors(checkpoints, images):
    encoder = load_qwen_vl(family(), "tiny", path=checkpoints["qwen2_vl"], device="cpu", dtype="bfloat16")
    assert encoder.model.dtype == torch.bfloat16
    embeddings = encoder.encode([{"image": images}])
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("architecture", CLASSES)
def test_checkpoint_without_a_language_head_gives_the_same_embeddings(load, architecture, images, tmp_path):
    # The head is initialized last, so that the seed gives the other weights as before.
    path = save_tiny_qwen(tmp_path, architecture, base=True)
    bare = load_qwen_vl(family(architecture), "tiny", path=path, device="cpu").encode([{"image": images}])
    np.testing.assert_array_equal(bare, load(architecture).encode([{"image": images}]))


def test_class_with_a_language_head_gives_the_same_embeddings(checkpoints, load, images):
    generating = family(model_class="Qwen2VLForConditionalGeneration")
    encoder = load_qwen_vl(generating, "tiny", path=checkpoints["qwen2_vl"], device="cpu")
    np.testing.assert_array_equal(encoder.encode([{"image": images}]), load().encode([{"image": images}]))


def test_files_in_the_form_of_2024_are_read(load, images, tmp_path):
    """Configurations were flat, and the image processor's limits had other names."""
    path = save_tiny_qwen(tmp_path, "qwen2_vl")
    config = json.loads((path / "config.json").read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    text |= {
        "rope_theta": rope["rope_theta"],
        "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]},
    }
    text = {name: text[name] for name in text if name not in ("model_type", "layer_types")}
    (path / "config.json").write_text(json.dumps(config | text))
    pixels = json.loads((path / "preprocessor_config.json").read_text())
    del pixels["size"]
    pixels |= {"min_pixels": 3136, "max_pixels": 12845056, "size": {"min_pixels": 3136, "max_pixels": 12845056}}
    pixels |= {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2VLProcessor"}
    (path / "preprocessor_config.json").write_text(json.dumps(pixels))

    large = [images[0].resize((1000, 500))]
    encoder = load_qwen_vl(family(), "tiny", path=path, device="cpu")

    np.testing.assert_array_equal(encoder.encode([{"image": large}]), load().encode([{"image": large}]))


def test_missing_weights_are_an_error(tmp_path):
    path = save_tiny_qwen(tmp_path, "qwen2_vl")
    weights = load_file(path / "model.safetensors")
    del weights["visual.merger.mlp.0.weight"]
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(FormatError, match=r"visual\.merger\.mlp\.0\.weight"):
        load_qwen_vl(family(), "tiny", path=path, device="cpu")


def test_tokenizer_of_another_checkpoint_is_an_error(load):
    tokenizer = transformers.Qwen2Tokenizer()
    tokenizer.add_tokens(["<|image_pad|>"])
    encoder = load()
    with pytest.raises(FormatError, match="belong to different checkpoints"):
        QwenVLEncoder(family(), LoadedModel(encoder.model, tokenizer, encoder.image_processor))


def test_importing_families_and_their_metadata_loads_no_torch():
    code = (
        "import sys; from circus_bench.models.families import gme, lamra, qwen3_vl_embedding\n"
        "for family in (gme, lamra, qwen3_vl_embedding): family.metas()\n"
        "print('torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
