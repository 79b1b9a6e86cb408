"""Which instruction an encoder is given: the protocol's, and none at all for images alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from mteb.models.abs_encoder import AbsEncoder
from mteb.types import PromptType
from support.standins import StandIn

from circus_bench.benchmark import Condition
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.encoder import BenchmarkEncoder
from circus_bench.registration import register
from circus_bench.sources.cirr import INSTRUCTION
from circus_bench.tasks.circus_cirr import CircusCIRR
from circus_bench.tasks.circus_lasco import CircusLaSCo


class Instructed(AbsEncoder):
    """Looks its instruction up as mteb's own instruction models do, and notes it."""

    instruction_template = "Instruct: {instruction}"

    def __init__(self) -> None:
        self.mteb_model_meta = StandIn().mteb_model_meta
        self.given: list[str] = []

    def encode(self, inputs: Any, *, task_metadata: Any, prompt_type: Any, **options: Any) -> np.ndarray:
        self.given.append(self.get_task_instruction(task_metadata, prompt_type))
        return StandIn().encode(inputs)


@pytest.fixture
def instructions(folder, monkeypatch, tmp_path):
    """`instructions(name)`: what `Instructed` is given for gallery and conditions, on a benchmark of that name."""
    register()
    monkeypatch.setenv("CIRCUS_DATA", str(folder))
    task = CircusCIRR()
    task.load_data()

    def given(name: str) -> dict[str, set[str]]:
        encoder = Instructed()
        benchmark = dataclasses.replace(task.labeled.benchmark, name=name)
        driver = BenchmarkEncoder(encoder, benchmark, store=EmbeddingStore(tmp_path))
        driver.gallery()
        found = {"gallery": {*encoder.given}}
        for condition in Condition:
            encoder.given.clear()
            driver.queries(condition)
            found[condition.value] = {*encoder.given}
        return found

    return given


# A benchmark called CIRR would give its queries the very name of the registered task, by which mteb looks prompts up.
@pytest.mark.parametrize("name", ["cirr", "CIRR"])
def test_only_queries_with_text_are_given_the_instruction(instructions, name):
    assert instructions(name) == {
        "gallery": {""},
        "multimodal": {f"Instruct: {INSTRUCTION}"},
        "text_only": {f"Instruct: {INSTRUCTION}"},
        "image_only": {""},
    }


@pytest.mark.parametrize("task", [CircusCIRR, CircusLaSCo])
def test_mteb_falls_back_on_no_instruction(task):
    register()
    bare = task.metadata.model_copy(update={"prompt": None})
    assert Instructed().get_instruction(bare, PromptType.query) == ""
    assert Instructed().get_instruction(bare, PromptType.document) == ""
