"""The vendors' own packages against a server that speaks their protocols."""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from support.clocks import FakeClock
from support.misbehaving_server import (
    ANTHROPIC,
    GEMINI_CHAT,
    KEY,
    OPENAI,
    Act,
    Dialect,
    MisbehavingServer,
    anthropic_error,
    anthropic_message,
    gemini_error,
    gemini_reply,
    openai_completion,
    openai_error,
)
from support.parts import png

from circus_bench.api.chat.messages import Malformed, Parsed, Refused, Request
from circus_bench.api.chat.providers import ProviderSettings, make_client, make_provider, price_of
from circus_bench.api.runtime import BudgetError, RemoteError, RetryPolicy
from circus_bench.images import decode, digest

SCHEMA = {
    "type": "object",
    "required": ["echo"],
    "additionalProperties": False,
    "properties": {"echo": {"type": "string", "minLength": 1}},
}


@dataclass(frozen=True)
class Vendor:
    """What sets the protocols apart, for these tests."""

    model: str
    dialect: Dialect
    path: str
    variable: str | None
    busy: Any
    overloaded: tuple[int, Any]
    completion: Any
    cut: str
    declined: Any


def _refused_by_openai(text):
    return openai_completion("", refusal=text)


VENDORS = {
    "anthropic": Vendor(
        "anthropic/claude-haiku-4-5",
        ANTHROPIC,
        "",
        "ANTHROPIC_API_KEY",
        anthropic_error("rate_limit_error", "Too many requests"),
        (529, anthropic_error("overloaded_error", "Overloaded")),
        anthropic_message,
        "max_tokens",
        lambda text: anthropic_message(text, "refusal"),
    ),
    "openai": Vendor(
        "openai/gpt-4.1-mini",
        OPENAI,
        "/v1",
        "OPENAI_API_KEY",
        openai_error("Rate limit reached", "rate_limit_exceeded"),
        (503, openai_error("The engine is currently overloaded")),
        openai_completion,
        "length",
        _refused_by_openai,
    ),
    "compatible": Vendor(
        "compatible/org/llava:13b",
        dataclasses.replace(OPENAI, key_header=("Authorization", "Bearer none")),
        "/v1",
        None,
        {"detail": "busy"},
        (500, {"object": "error", "message": "CUDA is unhappy", "code": 500}),
        openai_completion,
        "length",
        _refused_by_openai,
    ),
    "gemini": Vendor(
        "gemini/gemini-2.5-flash",
        GEMINI_CHAT,
        "",
        "GEMINI_API_KEY",
        gemini_error(429, "RESOURCE_EXHAUSTED", "Quota exceeded"),
        (503, gemini_error(503, "UNAVAILABLE", "The model is overloaded.")),
        gemini_reply,
        "MAX_TOKENS",
        lambda text: gemini_reply(text, "SAFETY"),
    ),
}


@pytest.fixture(params=VENDORS)
def vendor(request):
    return VENDORS[request.param]


@pytest.fixture
def server(vendor):
    with MisbehavingServer(vendor.dialect).running() as server:
        yield server


@pytest.fixture
def make(vendor, server, tmp_path, monkeypatch):
    """`make(budget=..., threads=..., **settings)`: a client of the server; waiting takes no time."""
    if vendor.variable:
        monkeypatch.setenv(vendor.variable, KEY)
    made = []

    def client(*, budget=math.inf, threads=1, clock=None, retries=None, **settings):
        settings = {"base_url": server.url + vendor.path, "timeout": 5.0, **settings}
        made.append(
            make_client(
                [vendor.model],
                tmp_path / "replies.sqlite",
                budget=budget,
                threads=threads,
                settings={vendor.model.partition("/")[0]: ProviderSettings(**settings)},
                retries=retries,
                clock=clock or FakeClock(),
            )
        )
        return made[-1]

    yield client
    for one in made:
        one.close()


@pytest.fixture
def make_requests(vendor):
    def asked(*texts, **rest):
        return [Request(vendor.model, "ask@1", text, schema=SCHEMA, **rest) for text in texts]

    return asked


def parsed(*texts):
    return [Parsed({"echo": text}) for text in texts]


# --- proper answers


@pytest.mark.parametrize("threads", [1, 4])
def test_requests_are_answered_in_order(make, make_requests, threads):
    texts = [str(number) for number in range(8)]
    assert list(make(threads=threads).complete(make_requests(*texts))) == parsed(*texts)


def test_the_model_is_named_as_the_vendor_names_it(make, make_requests, server, vendor):
    list(make().complete(make_requests("a")))
    name = vendor.model.partition("/")[2]
    assert server.bodies[0].get("model", name) == name


def test_pictures_arrive_in_order_and_before_the_text(make, make_requests, server):
    files = [png(1), png(2)]
    digests = [digest(decode(data).image) for data in files]
    list(make().complete(make_requests("a", images=dict(zip(digests, files, strict=True)))))
    [[asked]] = server.requests
    assert asked.image == " ".join(digests)


def test_the_service_is_given_the_schema_without_limits_and_the_parameters(make, make_requests, server, vendor):
    list(make().complete(make_requests("a", temperature=0.85, max_tokens=77)))
    [body] = server.bodies
    schema = {**SCHEMA, "properties": {"echo": {"type": "string"}}}
    if vendor.dialect is ANTHROPIC:
        found = (body["output_config"]["format"], body["temperature"], body["max_tokens"])
        assert found == ({"type": "json_schema", "schema": schema}, 0.85, 77)
    elif vendor.dialect is GEMINI_CHAT:
        config = body["generationConfig"]
        found = (config["responseJsonSchema"], config["temperature"], config["maxOutputTokens"])
        assert found == (schema, 0.85, 77)
        assert config["responseMimeType"] == "application/json"
    else:
        limit = "max_completion_tokens" if vendor.dialect is OPENAI else "max_tokens"
        found = (body["response_format"]["json_schema"], body["temperature"], body[limit])
        assert found == ({"name": "ask_1", "strict": True, "schema": schema}, 0.85, 77)


def test_a_service_that_takes_no_schema_is_told_it(make, make_requests, server):
    list(make(structured=False).complete(make_requests("a")))
    assert not {"output_config", "response_format"} & server.bodies[0].keys()
    assert "responseJsonSchema" not in server.bodies[0].get("generationConfig", {})
    assert '"minLength": 1' in server.requests[0][0].text


def test_a_service_that_takes_no_temperature_is_not_told_it(make, make_requests, server):
    list(make(takes_temperature=False).complete(make_requests("a", temperature=0.85)))
    assert "temperature" not in server.bodies[0]
    assert "temperature" not in server.bodies[0].get("generationConfig", {})


def test_the_version_of_the_api_that_takes_a_temperature_is_asked_for(make, make_requests, server, vendor):
    if vendor.dialect is not ANTHROPIC:
        pytest.skip("only one vendor has versions that differ in this")
    list(make().complete(make_requests("a")))
    list(make(takes_temperature=False).complete(make_requests("b")))
    assert server.headers[0]["anthropic-version"] == "2023-06-01"
    assert server.headers[1]["anthropic-version"] >= "2026-10-21"


def test_tokens_are_counted_and_priced(make, make_requests, vendor):
    client = make()
    list(client.complete(make_requests("a")))
    # 100 tokens are asked, and {"echo": "a"} are 13 characters, a token each.
    assert client.budget.spent == {f"{vendor.model} input": 100, f"{vendor.model} output": 13}
    usd = {
        "anthropic/claude-haiku-4-5": (100 * 1 + 13 * 5) / 1e6,
        "openai/gpt-4.1-mini": (100 * 0.4 + 13 * 1.6) / 1e6,
        "gemini/gemini-2.5-flash": (100 * 0.3 + 13 * 2.5) / 1e6,
    }.get(vendor.model)
    assert client.budget.usd == (usd and pytest.approx(usd))


# --- what goes wrong


def test_retry_after_is_respected(make, make_requests, server, vendor):
    server.script = {0: Act(429, {"Retry-After": "37"}, vendor.busy)}
    clock = FakeClock()
    assert list(make(clock=clock).complete(make_requests("a"))) == parsed("a")
    assert clock.monotonic() >= 37
    assert len(server.requests) == 2


def test_an_overloaded_service_is_asked_again(make, make_requests, server, vendor):
    status, body = vendor.overloaded
    server.script = {number: Act(status, {}, body) for number in range(3)}
    assert list(make().complete(make_requests("a", "b"))) == parsed("a", "b")
    # The package itself must not have tried again.
    assert len(server.requests) == 3 + 2


def test_a_service_that_stays_overloaded_is_given_up(make, make_requests, server, vendor):
    status, body = vendor.overloaded
    server.script = {number: Act(status, {}, body) for number in range(20)}
    with pytest.raises(RemoteError, match=f"gave up after 3 attempts.*HTTP {status}"):
        list(make(retries=RetryPolicy(attempts=3)).complete(make_requests("a")))
    assert len(server.requests) == 3


@pytest.mark.parametrize("act", [Act(drop=True), Act(cut=True)], ids=["dropped", "cut"])
def test_a_lost_or_broken_answer_is_asked_again_and_counted_as_paid(make, make_requests, server, act, vendor):
    server.script = {0: act}
    client = make()
    assert list(client.complete(make_requests("a"))) == parsed("a")
    assert len(server.requests) == 2
    # The estimate of the answer that was lost: all 1024 tokens that it might have had.
    assert client.budget.spent[f"{vendor.model} output"] == 1024 + 13


def test_an_answer_that_does_not_come_is_asked_again_and_counted_as_paid(make, make_requests, server, vendor):
    server.script = {0: Act(hold=threading.Event())}
    client = make(timeout=0.3)
    assert list(client.complete(make_requests("a"))) == parsed("a")
    assert len(server.requests) == 2
    # The service may have charged for what did not come: its estimate counts.
    assert client.budget.spent[f"{vendor.model} output"] == 1024 + 13


@pytest.mark.parametrize("body", [{"detail": "what?"}, [], "text"])
def test_an_answer_of_another_form_is_asked_again(make, make_requests, server, body):
    server.script = {0: Act(body=body)}
    assert list(make().complete(make_requests("a"))) == parsed("a")


def test_a_server_that_is_not_there_costs_nothing(make, make_requests):
    client = make(base_url="http://127.0.0.1:9/v1", retries=RetryPolicy(attempts=2))
    with pytest.raises(RemoteError, match="gave up after 2 attempts"):
        list(client.complete(make_requests("a")))
    assert not client.budget.spent


def test_a_truncated_reply_is_malformed(make, make_requests, server, vendor):
    server.script = {0: Act(body=vendor.completion('{"echo": "a', vendor.cut))}
    [outcome] = make().complete(make_requests("a"))
    assert isinstance(outcome, Malformed)
    assert outcome.error.startswith("cut off at the limit of tokens")
    # It is paid for, so that a repeated run reads it again and does not ask.
    assert list(make().complete(make_requests("a"))) == [outcome]
    assert len(server.requests) == 1


def test_a_reply_without_text_is_malformed(make, make_requests, server, vendor):
    server.script = {0: Act(body=vendor.completion(""))}
    assert list(make().complete(make_requests("a"))) == [Malformed("", "an empty reply")]


def test_a_fenced_reply_is_mended(make, make_requests, server, vendor):
    server.script = {0: Act(body=vendor.completion('```json\n{"echo": "a"}\n```'))}
    assert list(make().complete(make_requests("a"))) == [Parsed({"echo": "a"}, ("a fence around the object",))]


def test_a_refusal_is_one(make, make_requests, server, vendor):
    server.script = {0: Act(body=vendor.declined("I would rather not."))}
    assert list(make().complete(make_requests("a", "b"))) == [Refused("I would rather not."), *parsed("b")]
    assert list(make().complete(make_requests("a"))) == [Refused("I would rather not.")]
    assert len(server.requests) == 2


def test_an_image_that_the_service_rejects_is_refused_with_its_words(make, make_requests, server):
    server.refused.add(digest(decode(png(1)).image))
    bad, good = make_requests("a", images={"d": png(1)}), make_requests("b", images={"e": png(2)})
    [refused, answered] = make().complete(bad + good)
    assert isinstance(refused, Refused)
    assert "image" in refused.raw
    assert answered == parsed("b")[0]


def test_a_wrong_key_is_an_error_that_names_the_variable_and_not_the_key(
    make, make_requests, vendor, monkeypatch, caplog
):
    caplog.set_level(logging.DEBUG)
    variable = vendor.variable or "CIRCUS_COMPATIBLE_API_KEY"
    monkeypatch.setenv(variable, "sk-wrong-5c0ffee")
    with pytest.raises(RemoteError, match=variable) as caught:
        list(make().complete(make_requests("a")))
    assert "sk-wrong" not in str(caught.value)
    assert "sk-wrong" not in caplog.text


def test_a_model_that_is_not_there_any_more_ends_the_run_and_is_said_to_be_the_cause(
    make, make_requests, server, vendor
):
    server.script = {0: Act(404, {}, {"error": {"message": f"model: {vendor.model}"}})}
    with pytest.raises(RemoteError, match=r"HTTP 404 .*vendors retire models"):
        list(make().complete(make_requests("a", "b")))
    assert len(server.requests) == 1


def test_the_key_is_not_logged(make, make_requests, caplog):
    caplog.set_level(logging.DEBUG)
    list(make().complete(make_requests("a")))
    assert KEY not in caplog.text


def test_a_redirect_is_not_followed(make, make_requests, server, vendor):
    with MisbehavingServer(vendor.dialect).running() as elsewhere:
        server.script = {0: Act(307, {"Location": elsewhere.url + vendor.dialect.path}, {})}
        with pytest.raises(RemoteError, match="307"):
            list(make().complete(make_requests("a")))
        assert elsewhere.requests == []


def test_a_budget_that_ends_in_mid_stage_ends_the_run_and_the_next_one_goes_on(make, make_requests, server, vendor):
    if vendor.variable is None:
        pytest.skip("what a compatible server charges is not known")
    texts = [str(number) for number in range(12)]
    asked = make_requests(*texts)
    # One answer may cost what the estimate says, and costs far less: the budget is enough for the first of them.
    provider = make_provider(vendor.model.partition("/")[0], ProviderSettings(base_url=server.url))
    one = price_of(vendor.model).cost(provider.estimate(asked[0]))
    provider.close()
    client = make(budget=1.2 * one)
    found = []
    with pytest.raises(BudgetError, match="what was answered is kept, raise --budget and run again"):
        found.extend(client.complete(asked))
    assert 1 <= len(found) < 12
    assert found == parsed(*texts[: len(found)])
    assert client.budget.usd <= 1.2 * one
    assert len(server.paid) == len(found)
    assert list(make().complete(asked)) == parsed(*texts)
    assert Counter(item.text for item in server.paid) == Counter(texts)


def test_many_threads_and_many_failures_pay_every_answer_once(make, make_requests, server, vendor):
    status, body = vendor.overloaded
    texts = [str(number) for number in range(30)]
    server.script = {
        number: Act(429, {"Retry-After": "1"}, vendor.busy) if number % 2 else Act(status, {}, body)
        for number in range(0, 40, 3)
    }
    assert list(make(threads=6, retries=RetryPolicy(attempts=20)).complete(make_requests(*texts))) == parsed(*texts)
    assert Counter(item.text for item in server.paid) == Counter(texts)
