"""A tiny random model of this machine: what it writes is garbage, so that its replies are malformed."""

from __future__ import annotations

import math

import pytest
from support.parts import png
from support.tiny_llava import save_tiny_llava

from circus_bench.api.chat.client import CachedClient
from circus_bench.api.chat.local import LocalProvider
from circus_bench.api.chat.messages import Malformed, Request
from circus_bench.api.chat.providers import make_client
from circus_bench.api.runtime import RemoteError, ResponseCache
from circus_bench.rmir.templates import load_template


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_tiny_llava(tmp_path_factory.mktemp("judge"))


@pytest.fixture
def provider():
    return LocalProvider(device="cpu", dtype="float32")


@pytest.fixture
def make_request(checkpoint):
    def made(**changes):
        given = {"temperature": 0.0, "sample": 0, "max_tokens": 12} | changes
        return load_template("judge").render(
            f"local/{checkpoint}", {"text": "What opens this?"}, images={"a": png(1), "b": png(2)}, **given
        )

    return made


def test_greedy_answers_are_equal(provider, make_request):
    assert provider.answer(make_request()) == provider.answer(make_request())


def test_an_answer_ends_at_the_limit_of_tokens(provider, make_request):
    completion = provider.answer(make_request(max_tokens=5))
    assert completion.stop == "length"
    assert [used for unit, used in completion.usage.items() if unit.endswith("output")] == [5]


def test_a_sampled_answer_follows_from_the_request_alone(provider, make_request):
    import torch

    torch.manual_seed(1)
    first = provider.answer(make_request(temperature=0.85))
    state = torch.get_rng_state()
    provider.answer(make_request(temperature=0.85, sample=1))
    assert provider.answer(make_request(temperature=0.85)) == first
    assert torch.equal(torch.get_rng_state(), state)


def test_samples_differ(provider, make_request):
    assert len({provider.answer(make_request(temperature=1.0, sample=sample)).text for sample in range(4)}) > 1


def test_the_images_matter(provider, make_request):
    import dataclasses

    other = dataclasses.replace(make_request(), images={"a": png(3), "b": png(4)})
    assert provider.answer(other).text != provider.answer(make_request()).text


def test_garbage_is_malformed_and_kept(provider, make_request, tmp_path):
    with CachedClient.free(provider, ResponseCache(tmp_path / "replies.sqlite")) as client:
        [outcome] = client.complete([make_request()])
        [again] = client.complete([make_request()])
    assert isinstance(outcome, Malformed)
    assert again == outcome
    assert client.tally["asked"] == 1


def test_a_local_model_needs_no_budget(make_request, tmp_path):
    one = make_request()
    with make_client([one.model], tmp_path / "replies.sqlite", budget=None) as client:
        assert len(list(client.complete([one]))) == 1
        assert client.budget.limit == math.inf
        assert client.budget.usd == 0


def test_a_model_that_is_not_there_is_an_error(provider, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(RemoteError, match="cannot load 'nobody/nothing'"):
        provider.answer(Request("local/nobody/nothing", "t", "x"))
