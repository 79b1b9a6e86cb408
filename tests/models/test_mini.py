from __future__ import annotations

import hashlib
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from mteb.models import EncoderProtocol
from mteb.models.model_implementations import MODEL_REGISTRY
from PIL import Image
from transformers import PreTrainedTokenizerFast

from circus_bench.errors import CircusError, EmbeddingError, FormatError
from circus_bench.models import POOL_MINI, load_encoder, register
from circus_bench.models.mini.examples import draw_batch
from circus_bench.models.mini.meta import CHECKPOINTS, checkpoint, load
from circus_bench.models.mini.modeling import MiniModel
from circus_bench.models.mini.processing import pixels
from circus_bench.models.mini.training import ATTRIBUTE_CLASSES, RECIPES, losses, make_batch, train
from circus_bench.sources.scenes.world import Scene, code, render

TEXTS = ["make the red star blue", "flip it upside down , then add a small green cross at the top left", ""]


@pytest.fixture(scope="module", params=POOL_MINI)
def encoder(request):
    return load_encoder(request.param, device="cpu")


@pytest.fixture(scope="module")
def images():
    places = [[0] * 9 for _ in TEXTS]
    for index, cells in enumerate(places):
        cells[index * 3] = code(index, index + 1, 1)
    drawn = render([Scene(index, tuple(cells)) for index, cells in enumerate(places)], np.random.default_rng(0))
    return [Image.fromarray(image) for image in drawn]


@pytest.fixture(params=["image", "text", "both"])
def batch(request, images):
    whole = {"image": images, "text": TEXTS}
    return whole if request.param == "both" else {request.param: whole[request.param]}


# --- the registry


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, circus_bench.models; print({'torch', 'mteb', 'transformers'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


def test_register_twice_keeps_the_first_entry():
    register()
    first = MODEL_REGISTRY[POOL_MINI[0]]
    register()
    assert MODEL_REGISTRY[POOL_MINI[0]] is first


def test_unknown_name_is_an_error_that_lists_close_names():
    with pytest.raises(CircusError, match="circus-bench/mini-balanced"):
        load_encoder("circus-bench/mini-balance")


def test_unknown_revision_is_an_error():
    with pytest.raises(CircusError, match="Expected"):
        load_encoder(POOL_MINI[0], revision="0123456789ab")


@pytest.mark.parametrize("device", ["abacus", "cuda:99"])
def test_a_device_that_is_not_there_is_an_error_that_names_it(device):
    with pytest.raises(CircusError, match=f"the device '{device}' cannot be used here"):
        load_encoder(POOL_MINI[0], device=device)


def test_model_that_is_no_encoder_is_an_error():
    with pytest.raises(CircusError, match="not an encoder"):
        load_encoder("mteb/baseline-random-cross-encoder")


def test_checkpoint_that_is_not_installed_is_an_error():
    with pytest.raises(FormatError, match="no checkpoint of 'circus-bench/mini-large'"):
        checkpoint("circus-bench/mini-large")


# --- the checkpoints


def test_encoder_follows_mteb_protocol(encoder):
    assert isinstance(encoder, EncoderProtocol)


def test_revision_is_a_hash_of_the_weights(encoder):
    weights = (checkpoint(encoder.mteb_model_meta.name) / "model.safetensors").read_bytes()
    assert encoder.mteb_model_meta.revision == hashlib.sha256(weights).hexdigest()[:12]


def test_metadata_count_the_parameters(encoder):
    assert encoder.mteb_model_meta.n_parameters == sum(p.numel() for p in encoder.model.parameters())


@pytest.mark.parametrize("name", RECIPES)
def test_plain_from_pretrained_gives_the_same_embeddings(name, images):
    model = MiniModel.from_pretrained(CHECKPOINTS / name).eval()
    tokens = PreTrainedTokenizerFast.from_pretrained(CHECKPOINTS / name)(TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        plain = model(pixels(images), tokens["input_ids"], tokens["attention_mask"]).numpy()
    loaded = load_encoder(f"circus-bench/mini-{name}", device="cpu")
    np.testing.assert_array_equal(plain, loaded.encode([{"image": images, "text": TEXTS}]))


@pytest.mark.parametrize("name", RECIPES)
def test_checkpoint_is_at_most_five_megabytes(name):
    assert sum(file.stat().st_size for file in (CHECKPOINTS / name).iterdir()) <= 5_000_000


@pytest.mark.parametrize("name", RECIPES)
def test_checkpoint_is_loaded_in_float32(name):
    assert {p.dtype for p in MiniModel.from_pretrained(CHECKPOINTS / name).parameters()} == {torch.float32}


# --- embeddings


def test_embeddings_are_float32_unit_vectors(encoder, batch):
    embeddings = encoder.encode([batch])
    assert embeddings.dtype == np.float32
    assert embeddings.shape == (len(TEXTS), 192)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)


def test_batch_equals_single(encoder, batch):
    singles = [{name: column[i : i + 1] for name, column in batch.items()} for i in range(len(TEXTS))]
    np.testing.assert_allclose(encoder.encode([batch]), encoder.encode(singles), atol=1e-5)


def test_encoding_twice_gives_the_same_bits(encoder, batch):
    np.testing.assert_array_equal(encoder.encode([batch]), encoder.encode([batch]))


def test_other_text_moves_the_embedding_of_a_pair(encoder, images):
    one, other = encoder.encode([{"image": images[:1] * 2, "text": TEXTS[:2]}])
    assert one @ other < 0.95


def test_other_image_moves_the_embedding_of_a_pair(encoder, images):
    one, other = encoder.encode([{"image": images[:2], "text": TEXTS[:1] * 2}])
    assert one @ other < 0.95


def test_image_with_empty_text_is_the_image_alone(encoder, images):
    with_text = encoder.encode([{"image": images, "text": [""] * len(images)}])
    np.testing.assert_allclose(with_text, encoder.encode([{"image": images}]), atol=1e-6)


def test_black_image_is_encoded_and_is_not_a_missing_image(encoder):
    black = encoder.encode([{"image": [Image.new("RGB", (64, 64))], "text": TEXTS[:1]}])
    assert np.abs(black - encoder.encode([{"text": TEXTS[:1]}])).max() > 1e-3


def test_black_images_of_any_size_are_the_same(encoder):
    sizes = [(64, 64), (640, 427), (33, 900)]
    black = encoder.encode([{"image": [Image.new("RGB", size) for size in sizes], "text": TEXTS[:1] * 3}])
    np.testing.assert_allclose(black[1:], black[[0, 0]], atol=1e-6)


@pytest.mark.parametrize("size", [(640, 427), (427, 640), (28, 28), (1920, 1080), (3000, 40)])
def test_photographs_of_any_size_are_encoded(encoder, size):
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    embedding = encoder.encode([{"image": [Image.fromarray(noise)]}])
    assert np.isfinite(embedding).all()


def test_gray_and_transparent_images_are_encoded_as_rgb(encoder, images):
    gray = images[0].convert("L")
    expected = encoder.encode([{"image": [gray.convert("RGB")]}])
    np.testing.assert_array_equal(encoder.encode([{"image": [gray]}]), expected)


def test_unknown_words_and_long_texts_are_encoded(encoder):
    texts = ["a photograph of two dogs, 5 cats & an umbrella", "make it blue and " * 100, "\U0001f600 \u00e9t\u00e9"]
    assert np.isfinite(encoder.encode([{"text": texts}])).all()


def test_case_does_not_matter(encoder):
    one, other = encoder.encode([{"text": ["Make the RED star blue", "make the red star blue"]}])
    np.testing.assert_array_equal(one, other)


def test_batch_without_images_and_texts_is_an_error(encoder):
    with pytest.raises(EmbeddingError, match="neither 'image' nor 'text', but \\['audio'\\]"):
        encoder.encode([{"audio": [0]}])


def test_progress_bar_is_drawn_on_request_only(encoder, images, capsys):
    encoder.encode([{"image": images}])
    assert capsys.readouterr().err == ""
    encoder.encode([{"image": images}], show_progress_bar=True)
    assert "encoding" in capsys.readouterr().err


def test_model_without_any_input_is_an_error(encoder):
    with pytest.raises(ValueError, match="pixel_values, input_ids or both"):
        encoder.model()


def test_encoder_can_be_driven_by_a_data_loader(encoder, images):
    rows = [{"image": image, "text": text} for image, text in zip(images, TEXTS, strict=True)]
    loader = torch.utils.data.DataLoader(rows, batch_size=2, collate_fn=lambda r: {k: [x[k] for x in r] for k in r[0]})
    embeddings = encoder.encode(loader, task_metadata=None, hf_split="test", hf_subset="default", batch_size=2)
    np.testing.assert_allclose(embeddings, encoder.encode([{"image": images, "text": TEXTS}]), atol=1e-5)


# --- training


@pytest.mark.slow
def test_one_training_step_repeats_bit_for_bit_and_loads(tmp_path):
    folders = [train("visual", tmp_path / str(run), steps=1) for run in range(2)]
    one, other = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert one == other
    assert load("trial", folder=folders[0], device="cpu").encode([{"text": TEXTS}]).shape == (3, 192)


@pytest.mark.parametrize("name", RECIPES)
def test_other_images_of_the_target_scene_are_not_negatives(name):
    tokenizer = load_encoder(f"circus-bench/mini-{name}").tokenizer
    examples, shown = draw_batch(random.Random(0), RECIPES[name].mixture)
    batch = make_batch(examples, shown, tokenizer, np.random.default_rng(0))
    queries = len(examples)
    assert not batch.same[range(queries), range(queries)].any()
    # A view's target shows the scene that its query shows: the query's image is masked, or it would win.
    views = RECIPES[name].mixture.views
    assert int(batch.same.any(1).sum()) >= views


def test_shipped_model_solves_most_of_a_training_batch():
    encoder = load_encoder("circus-bench/mini-visual", device="cpu")
    examples, shown = draw_batch(random.Random(99), RECIPES["visual"].mixture)
    batch = make_batch(examples, shown, encoder.tokenizer, np.random.default_rng(99))
    head = torch.nn.Linear(encoder.model.config.slot_size, sum(ATTRIBUTE_CLASSES))
    with torch.inference_mode():
        _, _, accuracy = losses(encoder.model, head, batch)
    # A fifth of the edits have lost their text on purpose and cannot be solved; chance is one in 177.
    assert accuracy > 0.6


def test_an_encoder_prints_as_its_name(encoder):
    assert repr(encoder) == f"MiniEncoder({encoder.mteb_model_meta.name})"
