"""Both vendors' batch endpoints, asked by their own packages."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from support.batch_server import BatchServer
from support.clocks import FakeClock
from support.misbehaving_server import KEY

from circus_bench.api.chat.batch import make_batch_client
from circus_bench.api.chat.messages import Parsed, Refused, Request
from circus_bench.api.chat.providers import ProviderSettings, make_client
from circus_bench.api.runtime import BudgetError, RemoteError, RetryPolicy

SCHEMA = {
    "type": "object",
    "required": ["echo"],
    "additionalProperties": False,
    "properties": {"echo": {"type": "string"}},
}
MODELS = {"anthropic": ("anthropic/claude-haiku-4-5", ""), "openai": ("openai/gpt-4.1-mini", "/v1")}


@pytest.fixture(params=MODELS)
def vendor(request, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return request.param


@pytest.fixture
def model(vendor):
    return MODELS[vendor][0]


@pytest.fixture
def server():
    with BatchServer().running() as server:
        yield server


@pytest.fixture
def settings(vendor, server):
    return {vendor: ProviderSettings(base_url=server.url + MODELS[vendor][1], timeout=5.0)}


@pytest.fixture
def make(model, settings, tmp_path):
    """`make(budget=..., ...)`: a client of the server; waiting takes no time."""

    def client(*, budget=math.inf, **rest):
        rest = {"clock": FakeClock(), **rest}
        return make_batch_client([model], tmp_path / "replies.sqlite", budget=budget, settings=settings, **rest)

    return client


@pytest.fixture
def make_requests(model):
    def asked(*texts):
        return [Request(model, "ask@1", text, schema=SCHEMA, temperature=0.85) for text in texts]

    return asked


@pytest.fixture
def journal(tmp_path):
    return lambda: sorted((tmp_path / "replies-batches").glob("*"))


def parsed(*texts):
    return [Parsed({"echo": text}) for text in texts]


def test_a_batch_is_sent_awaited_and_read_in_order(make, make_requests, server, journal):
    clock = FakeClock()
    assert list(make(clock=clock).complete(make_requests("a", "b", "a"))) == parsed("a", "b", "a")
    [batch] = server.batches
    assert len(batch.requests) == 2
    # Looked at once at the beginning and then every minute; the third look finds it done.
    assert clock.monotonic() == 60
    assert journal() == []


def test_a_batch_costs_half(make, make_requests, model):
    client = make()
    list(client.complete(make_requests("a")))
    # 100 tokens are asked, and {"echo": "a"} are 13 characters, a token each; $1 and $5, or $0.4 and $1.6, a million.
    full = 100 * 1 + 13 * 5 if "claude" in model else 100 * 0.4 + 13 * 1.6
    assert client.budget.usd == pytest.approx(full / 2 / 1e6)


def test_the_parameters_of_the_requests_are_sent(make, make_requests, server, vendor):
    list(make().complete(make_requests("a")))
    [body] = server.batches[0].requests.values()
    assert body["temperature"] == 0.85
    if vendor == "anthropic":
        assert server.headers[0]["anthropic-version"] == "2023-06-01"


def test_replies_are_shared_with_the_client_that_does_not_wait(make, make_requests, model, settings, tmp_path):
    list(make().complete(make_requests("a")))
    # The server knows no other endpoint, so an answer can only come from the file.
    with make_client([model], tmp_path / "replies.sqlite", budget=1.0, settings=settings) as client:
        assert list(client.complete(make_requests("a"))) == parsed("a")


def test_what_is_kept_is_not_sent(make, make_requests, server):
    list(make().complete(make_requests("a")))
    assert list(make().complete(make_requests("a", "b"))) == parsed("a", "b")
    assert server.paid == Counter(a=1, b=1)


def test_large_batches_are_cut(make, make_requests, server):
    client = make()
    for service in client._services.values():
        service.max_requests = 2
    assert list(client.complete(make_requests(*"abcde"))) == parsed(*"abcde")
    assert [len(batch.requests) for batch in server.batches] == [2, 2, 1]


def test_a_rejected_request_is_refused(make, make_requests, server):
    server.fates["b"] = "invalid"
    assert list(make().complete(make_requests("a", "b"))) == [*parsed("a"), Refused("too blue")]


def test_a_batch_of_rejections_is_an_error(make, make_requests, server):
    texts = [str(number) for number in range(20)]
    server.fates = dict.fromkeys(texts, "invalid")
    with pytest.raises(RemoteError, match=r"all 20 requests of a batch were rejected.*too blue"):
        list(make().complete(make_requests(*texts)))


def test_what_a_batch_left_open_is_sent_again(make, make_requests, server):
    server.fates["b"] = "expired"
    assert list(make().complete(make_requests("a", "b"))) == parsed("a", "b")
    assert [len(batch.requests) for batch in server.batches] == [2, 1]


def test_what_is_left_open_again_and_again_is_an_error(make, make_requests, server):
    server.fates["b"] = "stuck"
    with pytest.raises(RemoteError, match="1 requests were sent in 3 batches and never answered"):
        list(make().complete(make_requests("a", "b")))
    assert len(server.batches) == 3


def test_a_busy_service_is_asked_again(make, make_requests, server):
    server.busy = 2
    assert list(make().complete(make_requests("a"))) == parsed("a")
    assert len(server.batches) == 1


def test_a_batch_whose_answer_was_lost_is_found_and_not_sent_twice(make, make_requests, server):
    server.lose = 1
    assert list(make().complete(make_requests("a", "b"))) == parsed("a", "b")
    assert server.paid == Counter(a=1, b=1)


class KilledError(BaseException):
    """Stands in for a kill: nothing in the package catches it."""


def die():
    raise KilledError


@pytest.mark.parametrize("moment", ["before-the-id", "after-the-id", "after-the-results"])
def test_a_run_that_dies_finds_its_batch_again(make, make_requests, server, journal, moment):
    dying = make()
    if moment == "before-the-id":
        [service] = dying._services.values()
        send = service.send
        service.send = lambda bodies, marker: (send(bodies, marker), die())
    elif moment == "after-the-id":
        dying._collect = lambda batches: die() if batches else {}
    else:
        dying.budget.charge = lambda _: die()  # the replies are on disk, the journal still has the batch
    with pytest.raises(KilledError):
        list(dying.complete(make_requests("a", "b")))
    assert len(journal()) == 1
    assert list(make().complete(make_requests("a", "b", "c"))) == parsed("a", "b", "c")
    assert server.paid == Counter(a=1, b=1, c=1)
    assert journal() == []


def test_a_batch_that_was_written_down_and_never_sent_is_sent(make, make_requests, server, journal):
    dying = make()
    [service] = dying._services.values()
    service.send = lambda *_: die()
    with pytest.raises(KilledError):
        list(dying.complete(make_requests("a")))
    assert len(journal()) == 1
    assert list(make().complete(make_requests("a"))) == parsed("a")
    assert server.paid == Counter(a=1)


def test_when_the_time_is_up_the_batch_goes_on(make, make_requests, server, journal):
    server.looks = 10
    with pytest.raises(BudgetError, match="run again to fetch it"):
        list(make(seconds=150).complete(make_requests("a")))
    assert len(journal()) == 1
    assert list(make().complete(make_requests("a"))) == parsed("a")
    assert server.paid == Counter(a=1)


def test_without_a_budget_nothing_is_sent(make, make_requests, server, journal):
    with pytest.raises(BudgetError, match="--budget"):
        list(make(budget=None).complete(make_requests("a")))
    assert server.batches == []
    assert journal() == []


def test_a_budget_for_a_part_sends_that_part_and_the_next_run_the_rest(make, make_requests, server):
    def cut(client):
        for service in client._services.values():
            service.max_requests = 1
        return client

    client = make()
    [service] = client._services.values()
    one = client.budget.price.cost(service.estimate(make_requests("a")[0]))
    with pytest.raises(BudgetError, match="run again"):
        list(cut(make(budget=1.5 * one)).complete(make_requests("a", "b")))
    assert server.paid == Counter(a=1)
    assert list(cut(make()).complete(make_requests("a", "b"))) == parsed("a", "b")
    assert server.paid == Counter(a=1, b=1)


def test_a_service_that_says_no_leaves_no_trace(make, make_requests, journal, monkeypatch):
    monkeypatch.setattr(BatchServer, "take", lambda *_: 1 / 0)  # the connection ends without an answer
    with pytest.raises(RemoteError, match="gave up after 2 attempts"):
        list(make(retries=RetryPolicy(attempts=2)).complete(make_requests("a")))
    assert len(journal()) == 1  # perhaps it arrived
    monkeypatch.undo()


def test_a_batch_for_another_model_is_not_forgotten(make, make_requests, server, journal, model):
    server.looks = 10
    with pytest.raises(BudgetError):
        list(make(seconds=100).complete(make_requests("a")))
    [path] = journal()
    path.write_text(path.read_text().replace(model, f"{model}-old"))
    with pytest.raises(RemoteError, match="ask with this model, or delete the file"):
        list(make().complete(make_requests("a")))


def test_a_provider_without_batches_is_refused(tmp_path):
    with pytest.raises(RemoteError, match="has no batch endpoint"):
        make_batch_client(["local/x"], tmp_path / "r", budget=1.0)


def test_a_file_that_openai_does_not_take_is_an_error_and_forgotten(server, make_requests, make, vendor, journal):
    if vendor != "openai":
        pytest.skip("only one vendor checks a batch after it was taken")
    server.broken_file = "line 1 is not JSON"
    with pytest.raises(RemoteError, match=r"failed.*line 1 is not JSON"):
        list(make().complete(make_requests("a")))
    assert journal() == []
