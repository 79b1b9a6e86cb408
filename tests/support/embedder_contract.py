"""What every embedder on a language model must do. The test modules of the families subclass `EmbedderContract`."""

from __future__ import annotations

import copy
import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from mteb.models import EncoderProtocol
from mteb.types import PromptType
from PIL import Image
from support.tiny_qwen import DIM

from circus_bench.errors import EmbeddingError

TEXTS = ["make it red", "with longer sleeves and no collar, ça va", "two of them"]
SIZES = [(60, 44), (30, 90), (56, 56)]


def images() -> list[Image.Image]:
    """Images of noise, of three shapes."""
    draw = np.random.default_rng(0)
    return [Image.fromarray(draw.integers(0, 256, (height, width, 3), np.uint8)) for width, height in SIZES]


def task(instruction: str) -> Any:
    """A task whose queries have an instruction."""
    return SimpleNamespace(name="toy", prompt={"query": instruction} if instruction else None)


def query(encoder: Any, batch: dict[str, list[Any]], instruction: str = "Find it.") -> np.ndarray:
    """Embed a batch as queries of a task."""
    return encoder.encode([batch], task_metadata=task(instruction), prompt_type=PromptType.query)


def document(encoder: Any, batch: dict[str, list[Any]]) -> np.ndarray:
    """Embed a batch as gallery documents of a task that has an instruction for queries."""
    return encoder.encode([batch], task_metadata=task("Find it."), prompt_type=PromptType.document)


def padded_on(side: str, encoder: Any) -> Any:
    """The same encoder with another padding side."""
    other = copy.copy(encoder)
    other.family = dataclasses.replace(encoder.family, padding_side=side)
    return other


class EmbedderContract:
    """Subclasses, or their modules, define the fixture `load_tiny`: a function that loads the encoder on the CPU.

    Attributes:
        padding_sides: those on which the family can be padded.
        bfloat16_cosine: how close the vectors in half precision come to those in single precision.
    """

    padding_sides = ("left", "right")
    bfloat16_cosine = 0.95

    @pytest.fixture(params=["image", "text", "both"])
    def batch(self, request):
        whole = {"image": images(), "text": TEXTS}
        return whole if request.param == "both" else {request.param: whole[request.param]}

    def test_it_follows_the_protocol_of_mteb(self, encoder):
        assert isinstance(encoder, EncoderProtocol)

    def test_embeddings_are_float32_unit_vectors(self, encoder, batch):
        vectors = query(encoder, batch)
        assert vectors.dtype == np.float32
        assert vectors.shape == (3, DIM)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)

    def test_batch_equals_single(self, encoder, batch):
        singles = [{name: column[i : i + 1] for name, column in batch.items()} for i in range(3)]
        single = np.concatenate([query(encoder, one) for one in singles])
        np.testing.assert_allclose(query(encoder, batch), single, atol=1e-5)

    def test_encoding_twice_gives_the_same_bits(self, encoder, batch):
        np.testing.assert_array_equal(query(encoder, batch), query(encoder, batch))

    def test_loading_again_gives_the_same_bits(self, load_tiny, encoder, batch):
        np.testing.assert_array_equal(query(load_tiny(), batch), query(encoder, batch))

    def test_bfloat16_is_close_to_float32(self, load_tiny, encoder, batch):
        half = load_tiny(dtype="bfloat16")
        assert half.model.dtype == torch.bfloat16
        vectors = query(half, batch)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
        assert (vectors * query(encoder, batch)).sum(1).min() > self.bfloat16_cosine

    def test_the_padding_side_does_not_matter(self, encoder, batch):
        expected = query(encoder, batch)
        for side in self.padding_sides:
            np.testing.assert_allclose(query(padded_on(side, encoder), batch), expected, atol=1e-5, err_msg=side)

    def test_a_text_with_the_image_token_is_refused(self, encoder):
        with pytest.raises(EmbeddingError, match="image tokens instead of 1; a text must not contain"):
            query(encoder, {"image": images()[:1], "text": [f"show {encoder.family.image_token} again"]})

    def test_other_text_moves_the_embedding_of_a_pair(self, encoder):
        one, other = query(encoder, {"image": images()[:1] * 2, "text": TEXTS[:2]})
        assert one @ other < 0.9999

    def test_other_image_moves_the_embedding_of_a_pair(self, encoder):
        one, other = query(encoder, {"image": images()[:2], "text": TEXTS[:1] * 2})
        assert one @ other < 0.9999

    def test_instruction_moves_queries(self, encoder):
        batch = {"image": images()[:1], "text": TEXTS[:1]}
        assert (query(encoder, batch) @ query(encoder, batch, "Another one.").T).item() < 0.9999

    def test_instruction_of_queries_does_not_reach_documents(self, encoder):
        batch = {"image": images()}
        without = encoder.encode([batch], task_metadata=task(""), prompt_type=PromptType.document)
        np.testing.assert_array_equal(document(encoder, batch), without)

    @pytest.mark.parametrize("size", [(1, 1), (3, 200), (320, 200), (901, 700)])
    def test_images_of_any_size_are_encoded(self, encoder, size):
        noise = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), np.uint8)
        assert np.isfinite(document(encoder, {"image": [Image.fromarray(noise)]})).all()

    def test_black_image_is_not_a_missing_image(self, encoder):
        text = {"text": TEXTS[:1]}
        black = query(encoder, {"image": [Image.new("RGB", SIZES[0])], **text})
        assert (black @ query(encoder, text).T).item() < 0.9999
