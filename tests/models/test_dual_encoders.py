"""Models named by their source: dual encoders with a fusion, and sentence-transformers models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import tiny_towers

from circus_bench.benchmark import Condition
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.encoder import BenchmarkEncoder, ModelIdentity
from circus_bench.encoding.sanity_checks import EncoderWarning
from circus_bench.errors import CircusError, EmbeddingError, FormatError
from circus_bench.models import check_known, load_encoder
from circus_bench.models.dual_encoders import DualEncoder, fuse
from circus_bench.models.spec import Fusion, ModelSpec, parse_model_spec

TEXTS = ["make it red", "the blue dress with longer sleeves", "a"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_towers.save_tiny_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def siglip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_towers.save_tiny_siglip(tmp_path_factory.mktemp("siglip"))


@pytest.fixture(scope="module")
def raw_llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_towers.save_tiny_llava(tmp_path_factory.mktemp("raw"))


@pytest.fixture(scope="module")
def llava(raw_llava: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a model of sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    folder = tmp_path_factory.mktemp("models") / "tiny-llava"
    SentenceTransformer(str(raw_llava)).save(str(folder))
    return folder


@pytest.fixture
def images(noise: Callable[..., Image.Image]) -> list[Image.Image]:
    return [noise((20, 30), 1), noise((64, 16), 2).convert("L"), noise((16, 16), 3).convert("RGBA")]


def encode(encoder: Any, **columns: list[Any]) -> Any:
    """What an encoder makes of one batch, given as mteb gives it."""
    from datasets import Features, Value
    from datasets import Image as ImageFeature
    from mteb import TaskMetadata
    from mteb.types import PromptType

    class Loader(list[Any]):
        class dataset:  # noqa: N801
            features = Features({name: ImageFeature() if name == "image" else Value("string") for name in columns})

    task = TaskMetadata(
        name="Toy",
        description="Toy.",
        dataset={"path": "toy", "revision": "1"},
        type="Any2AnyRetrieval",
        category="it2i",
        modalities=["text", "image"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
    )
    return encoder.encode(
        Loader([columns]),
        task_metadata=task,
        hf_split="test",
        hf_subset="default",
        prompt_type=PromptType.query,
        batch_size=8,
        show_progress_bar=False,
    )


def test_the_mean_gives_image_and_text_the_same_say() -> None:
    # (3, 4) and (0, 10) have the unit vectors (.6, .8) and (0, 1), whose mean is (.3, .9).
    fused = fuse(np.array([[3, 4]], np.float32), np.array([[0, 10]], np.float32), Fusion.MEAN)
    np.testing.assert_allclose(fused, [[0.3, 0.9]], rtol=1e-6)


@pytest.mark.parametrize(
    ("fusion", "expected"), [(Fusion.SUM, [3, 14]), (Fusion.TEXT, [0, 10]), (Fusion.IMAGE, [3, 4])]
)
def test_the_other_fusions_take_the_vectors_as_they_come(fusion: Fusion, expected: list[float]) -> None:
    fused = fuse(np.array([[3, 4]], np.float32), np.array([[0, 10]], np.float32), fusion)
    assert fused.tolist() == [expected]


@pytest.mark.parametrize("fusion", Fusion)
def test_an_input_of_one_kind_needs_no_fusion(fusion: Fusion) -> None:
    vectors = np.array([[3, 4]], np.float32)
    assert fuse(vectors, None, fusion) is vectors
    assert fuse(None, vectors, fusion) is vectors


def test_inputs_without_image_and_text_are_refused() -> None:
    with pytest.raises(EmbeddingError, match="neither 'image' nor 'text'"):
        fuse(None, None, Fusion.SUM)


def test_towers_of_different_widths_are_refused() -> None:
    with pytest.raises(EmbeddingError, match=r"\(1, 2\).*\(1, 3\)"):
        fuse(np.ones((1, 2), np.float32), np.ones((1, 3), np.float32), Fusion.SUM)


@pytest.mark.parametrize(("model", "dim"), [("clip", 8), ("siglip", 16)])
def test_images_texts_and_pairs_get_vectors_of_one_length(
    request: pytest.FixtureRequest, images: list[Image.Image], model: str, dim: int
) -> None:
    encoder = load_encoder(f"dual:mean:{request.getfixturevalue(model)}", device="cpu")
    found = [encode(encoder, image=images), encode(encoder, text=TEXTS), encode(encoder, image=images, text=TEXTS)]
    assert [vectors.shape for vectors in found] == [(3, dim)] * 3


@pytest.mark.parametrize("model", ["clip", "siglip"])
def test_the_vector_of_a_pair_is_the_fusion_of_its_parts(
    request: pytest.FixtureRequest, images: list[Image.Image], model: str
) -> None:
    encoder = load_encoder(f"dual:sum:{request.getfixturevalue(model)}", device="cpu")
    pair = encode(encoder, image=images, text=TEXTS)
    np.testing.assert_allclose(pair, encode(encoder, image=images) + encode(encoder, text=TEXTS), atol=1e-5)


@pytest.mark.parametrize("model", ["clip", "siglip"])
def test_a_batch_of_pairs_gives_what_single_pairs_give(
    request: pytest.FixtureRequest, images: list[Image.Image], model: str
) -> None:
    encoder = load_encoder(f"dual:mean:{request.getfixturevalue(model)}", device="cpu")
    singly = [encode(encoder, image=[image], text=[text]) for image, text in zip(images, TEXTS, strict=True)]
    np.testing.assert_allclose(encode(encoder, image=images, text=TEXTS), np.concatenate(singly), atol=1e-5)


@pytest.mark.parametrize("model", ["clip", "siglip"])
def test_the_vectors_are_those_of_the_model_in_transformers(
    request: pytest.FixtureRequest, images: list[Image.Image], model: str
) -> None:
    import torch
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    folder = request.getfixturevalue(model)
    plain = AutoModel.from_pretrained(folder).eval()
    pixels = AutoImageProcessor.from_pretrained(folder)(images=images[0], return_tensors="pt")
    tokens = AutoTokenizer.from_pretrained(folder)(
        TEXTS[:1], padding="max_length", max_length=tiny_towers.TOKENS, return_tensors="pt"
    )
    with torch.no_grad():
        image, text = plain.get_image_features(**pixels), plain.get_text_features(**tokens)
    encoder = load_encoder(f"dual:mean:{folder}", device="cpu")
    np.testing.assert_allclose(encode(encoder, image=images[:1]), image.pooler_output.numpy(), atol=1e-5)
    np.testing.assert_allclose(encode(encoder, text=TEXTS[:1]), text.pooler_output.numpy(), atol=1e-5)


def test_a_long_text_is_cut_where_the_model_ends(clip: Path) -> None:
    encoder = load_encoder(f"dual:mean:{clip}", device="cpu")
    # 24 positions hold the start, 22 words and the end.
    a, b = encode(encoder, text=["red " * 22, "red " * 22 + "dress"])
    np.testing.assert_array_equal(a, b)


def test_the_precision_is_that_asked_for_and_is_recorded(clip: Path, images: list[Image.Image]) -> None:
    encoder = DualEncoder(ModelSpec(str(clip), Fusion.MEAN), device="cpu", dtype="bfloat16")
    assert ModelIdentity.of(encoder).dtype == "bfloat16"
    assert encode(encoder, image=images).dtype == np.float32


def test_runs_with_different_fusions_are_told_apart(clip: Path) -> None:
    names = {ModelIdentity.of(load_encoder(f"dual:{fusion}:{clip}", device="cpu")).name for fusion in Fusion}
    assert names == {f"local/{clip.name}+{fusion}" for fusion in ("mean", "sum", "text", "image")}


def test_other_weights_in_a_folder_are_another_revision(clip: Path, tmp_path: Path) -> None:
    first = load_encoder(f"dual:mean:{clip}", device="cpu").mteb_model_meta.revision
    again = ModelSpec(str(tiny_towers.save_tiny_clip(tmp_path)), Fusion.SUM)
    assert again.revision(None, file="config.json") == first
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert again.revision(None, file="config.json") != first


@pytest.mark.parametrize(
    ("fusion", "alarms"),
    [
        ("mean", set()),
        ("sum", set()),
        ("text", {EncoderWarning.REFERENCE_IGNORED}),
        ("image", {EncoderWarning.TEXT_IGNORED}),
    ],
)
def test_the_probe_sees_a_fusion_that_leaves_a_part_out(
    clip: Path, tmp_path: Path, toy_benchmark: Callable[..., Any], fusion: str, alarms: set[EncoderWarning]
) -> None:
    encoder = load_encoder(f"dual:{fusion}:{clip}", device="cpu")
    sanity_check = BenchmarkEncoder(encoder, toy_benchmark(), store=EmbeddingStore(tmp_path)).sanity_check()
    assert set(sanity_check.alarms) == alarms
    assert sanity_check.batch_deviation < 1e-5


def test_a_model_with_one_tower_is_no_dual_encoder(raw_llava: Path) -> None:
    with pytest.raises(CircusError, match="LlavaModel has no vectors of single images and texts"):
        load_encoder(f"dual:mean:{raw_llava}", device="cpu")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"config\.json"):
        load_encoder(f"dual:mean:{tmp_path}", device="cpu")


def test_a_sentence_transformers_model_reads_image_and_text_at_once(llava: Path, images: list[Image.Image]) -> None:
    encoder = load_encoder(f"st:{llava}", device="cpu")
    images = [image.convert("RGB") for image in images]
    pairs = encode(encoder, image=images, text=TEXTS)
    other_texts = encode(encoder, image=images, text=TEXTS[1:] + TEXTS[:1])
    other_images = encode(encoder, image=images[1:] + images[:1], text=TEXTS)
    assert pairs.shape == (3, 16)
    assert np.abs(pairs - other_texts).max(axis=1).min() > 1e-3
    assert np.abs(pairs - other_images).max(axis=1).min() > 1e-3


def test_a_sentence_transformers_model_passes_the_probe(
    llava: Path, tmp_path: Path, toy_benchmark: Callable[..., Any]
) -> None:
    encoder = load_encoder(f"st:{llava}", device="cpu")
    sanity_check = BenchmarkEncoder(encoder, toy_benchmark(), store=EmbeddingStore(tmp_path)).sanity_check()
    assert sanity_check.alarms == ()
    assert sanity_check.batch_deviation < 1e-5


def test_a_sentence_transformers_model_is_encoded_under_the_three_conditions(
    llava: Path, tmp_path: Path, toy_benchmark: Callable[..., Any]
) -> None:
    encoder = load_encoder(f"st:{llava}", device="cpu")
    driver = BenchmarkEncoder(encoder, toy_benchmark(), store=EmbeddingStore(tmp_path))
    assert driver.gallery().shape == (4, 16)
    assert {driver.queries(condition).shape for condition in Condition} == {(3, 16)}


def test_a_sentence_transformers_model_has_name_revision_and_precision(llava: Path) -> None:
    identity = ModelIdentity.of(load_encoder(f"st:{llava}", device="cpu"))
    assert (identity.name, identity.dtype) == ("local/tiny-llava+st", "float32")
    assert len(identity.revision) == 12


def test_a_sentence_transformers_clip_needs_a_fusion(clip: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(str(clip)).save(str(tmp_path))
    with pytest.raises(CircusError, match=f"not an image and a text at once; .* dual:mean:{tmp_path}"):
        load_encoder(f"st:{tmp_path}", device="cpu")


def test_a_plain_checkpoint_is_no_sentence_transformers_model(raw_llava: Path) -> None:
    with pytest.raises(CircusError, match=r"no modules\.json"):
        load_encoder(f"st:{raw_llava}", device="cpu")


def test_other_names_are_left_to_the_registry() -> None:
    assert parse_model_spec("openai/clip-vit-base-patch32") is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dual:openai/clip-vit-base-patch32", "no fusion .* with one of mean, sum, text, image"),
        ("dual:max:openai/clip-vit-base-patch32", "no fusion 'max'"),
        ("dual:mean:nowhere", "'nowhere' is neither a folder nor"),
        ("st:", "neither a folder nor"),
        ("st:a/b/c", "neither a folder nor"),
    ],
)
def test_a_name_that_no_model_can_have_is_refused_before_loading(name: str, message: str) -> None:
    with pytest.raises(CircusError, match=message):
        check_known([name])
