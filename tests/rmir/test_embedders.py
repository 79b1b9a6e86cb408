"""Encoders as the pipeline uses them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mteb.types import PromptType
from support.parts import png
from support.standins import StandIn, digest_of, vector_of

from circus_bench.errors import EmbeddingError
from circus_bench.images import decode
from circus_bench.rmir.embedders import MtebEmbedder, PromptRole


def test_images_are_encoded_as_documents_in_their_order() -> None:
    encoder = StandIn()
    files = [png(number) for number in range(5)]
    vectors = MtebEmbedder(encoder, batch_size=2).images(files)  # type: ignore[arg-type]
    assert np.array_equal(vectors, [vector_of(digest_of(decode(data).image), 16) for data in files])
    (call,) = encoder.calls
    assert (call["prompt_type"], call["features"]) == (PromptType.document, ["image"])


@pytest.mark.parametrize("role", list(PromptRole))
def test_texts_are_encoded_in_the_role_they_are_for(role: PromptRole) -> None:
    encoder = StandIn()
    vectors = MtebEmbedder(encoder).texts(["a key", "rain"], role=role)  # type: ignore[arg-type]
    assert np.array_equal(vectors, [vector_of("a key", 16), vector_of("rain", 16)])
    (call,) = encoder.calls
    assert (call["prompt_type"].value, call["features"]) == (role.value, ["text"])


def test_the_task_has_no_prompt_of_its_own() -> None:
    encoder = StandIn()
    MtebEmbedder(encoder).texts(["a key"], role=PromptRole.QUERY)  # type: ignore[arg-type]
    assert encoder.calls[0]["task_metadata"].prompt is None


def test_a_missing_vector_is_an_error() -> None:
    class Short(StandIn):
        def encode(self, inputs: Any, **options: Any) -> Any:
            return super().encode(inputs, **options)[:-1]

    with pytest.raises(EmbeddingError, match=r"shape \(1, 16\) for 2 inputs"):
        MtebEmbedder(Short()).texts(["a", "b"], role=PromptRole.QUERY)  # type: ignore[arg-type]


def test_a_name_may_carry_a_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        "circus_bench.models.load_encoder", lambda name, **options: asked.append((name, options)) or SimpleNamespace()
    )
    MtebEmbedder.load("org/model@abc", device="cpu")
    MtebEmbedder.load("org/model")
    assert asked == [
        ("org/model", {"revision": "abc", "device": "cpu"}),
        ("org/model", {"revision": None, "device": None}),
    ]
