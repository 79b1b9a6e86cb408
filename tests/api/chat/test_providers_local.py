"""A tiny random model of this machine: what it writes is garbage, so that its replies are malformed."""

from __future__ import annotations

import math

import pytest
from support.parts import png
from support.tiny_llava import save_tiny_llava

from circus_bench.api.chat.client import CachedAsker
from circus_bench.api.chat.local import LocalProvider
from circus_bench.api.chat.messages import Malformed, Question
from circus_bench.api.chat.providers import make_asker
from circus_bench.api.runtime import RemoteError, Replies
from circus_bench.rmir.templates import load_template


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_tiny_llava(tmp_path_factory.mktemp("judge"))


@pytest.fixture
def provider():
    return LocalProvider(device="cpu", dtype="float32")


@pytest.fixture
def question(checkpoint):
    def made(**changes):
        given = {"temperature": 0.0, "sample": 0, "max_tokens": 12} | changes
        return load_template("judge").question(
            f"local/{checkpoint}", {"text": "What opens this?"}, images={"a": png(1), "b": png(2)}, **given
        )

    return made


def test_greedy_answers_are_equal(provider, question):
    assert provider.answer(question()) == provider.answer(question())


def test_an_answer_ends_at_the_limit_of_tokens(provider, question):
    reply = provider.answer(question(max_tokens=5))
    assert reply.stop == "length"
    assert [used for unit, used in reply.usage.items() if unit.endswith("output")] == [5]


def test_a_sampled_answer_follows_from_the_question_alone(provider, question):
    import torch

    torch.manual_seed(1)
    first = provider.answer(question(temperature=0.85))
    state = torch.get_rng_state()
    provider.answer(question(temperature=0.85, sample=1))
    assert provider.answer(question(temperature=0.85)) == first
    assert torch.equal(torch.get_rng_state(), state)


def test_samples_differ(provider, question):
    assert len({provider.answer(question(temperature=1.0, sample=sample)).text for sample in range(4)}) > 1


def test_the_images_matter(provider, question):
    import dataclasses

    other = dataclasses.replace(question(), images={"a": png(3), "b": png(4)})
    assert provider.answer(other).text != provider.answer(question()).text


def test_garbage_is_malformed_and_kept(provider, question, tmp_path):
    with CachedAsker.free(provider, Replies(tmp_path / "replies.sqlite")) as asker:
        [outcome] = asker.ask([question()])
        [again] = asker.ask([question()])
    assert isinstance(outcome, Malformed)
    assert again == outcome
    assert asker.tally["asked"] == 1


def test_a_local_model_needs_no_budget(question, tmp_path):
    one = question()
    with make_asker([one.model], tmp_path / "replies.sqlite", budget=None) as asker:
        assert len(list(asker.ask([one]))) == 1
        assert asker.meter.budget == math.inf
        assert asker.meter.usd == 0


def test_a_model_that_is_not_there_is_an_error(provider, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(RemoteError, match="cannot load 'nobody/nothing'"):
        provider.answer(Question("local/nobody/nothing", "t", "x"))
