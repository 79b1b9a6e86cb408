"""Both vendors' batch endpoints, asked by their own packages."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from support.batch_server import BatchServer
from support.clocks import FakeClock
from support.misbehaving_server import KEY

from circus_bench.api.chat.batch import make_batch_asker
from circus_bench.api.chat.messages import Parsed, Question, Refused
from circus_bench.api.chat.providers import ProviderSettings, make_asker
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
    """`make(budget=..., ...)`: an asker of the server; waiting takes no time."""

    def asker(*, budget=math.inf, **rest):
        rest = {"clock": FakeClock(), **rest}
        return make_batch_asker([model], tmp_path / "replies.sqlite", budget=budget, settings=settings, **rest)

    return asker


@pytest.fixture
def questions(model):
    def asked(*texts):
        return [Question(model, "ask@1", text, schema=SCHEMA, temperature=0.85) for text in texts]

    return asked


@pytest.fixture
def journal(tmp_path):
    return lambda: sorted((tmp_path / "replies-batches").glob("*"))


def parsed(*texts):
    return [Parsed({"echo": text}) for text in texts]


def test_a_batch_is_sent_awaited_and_read_in_order(make, questions, server, journal):
    clock = FakeClock()
    assert list(make(clock=clock).ask(questions("a", "b", "a"))) == parsed("a", "b", "a")
    [batch] = server.batches
    assert len(batch.requests) == 2
    # Looked at once at the beginning and then every minute; the third look finds it done.
    assert clock.now() == 60
    assert journal() == []


def test_a_batch_costs_half(make, questions, model):
    asker = make()
    list(asker.ask(questions("a")))
    # 100 tokens are asked, and {"echo": "a"} are 13 characters, a token each; $1 and $5, or $0.4 and $1.6, a million.
    full = 100 * 1 + 13 * 5 if "claude" in model else 100 * 0.4 + 13 * 1.6
    assert asker.meter.usd == pytest.approx(full / 2 / 1e6)


def test_the_parameters_of_the_questions_are_sent(make, questions, server, vendor):
    list(make().ask(questions("a")))
    [body] = server.batches[0].requests.values()
    assert body["temperature"] == 0.85
    if vendor == "anthropic":
        assert server.headers[0]["anthropic-version"] == "2023-06-01"


def test_replies_are_shared_with_the_asker_that_does_not_wait(make, questions, model, settings, tmp_path):
    list(make().ask(questions("a")))
    # The server knows no other endpoint, so an answer can only come from the file.
    with make_asker([model], tmp_path / "replies.sqlite", budget=1.0, settings=settings) as asker:
        assert list(asker.ask(questions("a"))) == parsed("a")


def test_what_is_kept_is_not_sent(make, questions, server):
    list(make().ask(questions("a")))
    assert list(make().ask(questions("a", "b"))) == parsed("a", "b")
    assert server.paid == Counter(a=1, b=1)


def test_large_batches_are_cut(make, questions, server):
    asker = make()
    for service in asker._services.values():
        service.max_requests = 2
    assert list(asker.ask(questions(*"abcde"))) == parsed(*"abcde")
    assert [len(batch.requests) for batch in server.batches] == [2, 2, 1]


def test_a_rejected_question_is_refused(make, questions, server):
    server.fates["b"] = "invalid"
    assert list(make().ask(questions("a", "b"))) == [*parsed("a"), Refused("too blue")]


def test_a_batch_of_rejections_is_an_error(make, questions, server):
    texts = [str(number) for number in range(20)]
    server.fates = dict.fromkeys(texts, "invalid")
    with pytest.raises(RemoteError, match=r"all 20 questions of a batch were rejected.*too blue"):
        list(make().ask(questions(*texts)))


def test_what_a_batch_left_open_is_sent_again(make, questions, server):
    server.fates["b"] = "expired"
    assert list(make().ask(questions("a", "b"))) == parsed("a", "b")
    assert [len(batch.requests) for batch in server.batches] == [2, 1]


def test_what_is_left_open_again_and_again_is_an_error(make, questions, server):
    server.fates["b"] = "stuck"
    with pytest.raises(RemoteError, match="1 questions were sent in 3 batches and never answered"):
        list(make().ask(questions("a", "b")))
    assert len(server.batches) == 3


def test_a_busy_service_is_asked_again(make, questions, server):
    server.busy = 2
    assert list(make().ask(questions("a"))) == parsed("a")
    assert len(server.batches) == 1


def test_a_batch_whose_answer_was_lost_is_found_and_not_sent_twice(make, questions, server):
    server.lose = 1
    assert list(make().ask(questions("a", "b"))) == parsed("a", "b")
    assert server.paid == Counter(a=1, b=1)


class KilledError(BaseException):
    """Stands in for a kill: nothing in the package catches it."""


def die():
    raise KilledError


@pytest.mark.parametrize("moment", ["before-the-id", "after-the-id", "after-the-results"])
def test_a_run_that_dies_finds_its_batch_again(make, questions, server, journal, moment):
    dying = make()
    if moment == "before-the-id":
        [service] = dying._services.values()
        send = service.send
        service.send = lambda bodies, marker: (send(bodies, marker), die())
    elif moment == "after-the-id":
        dying._collect = lambda batches: die() if batches else {}
    else:
        dying.meter.book = lambda _: die()  # the replies are on disk, the journal still has the batch
    with pytest.raises(KilledError):
        list(dying.ask(questions("a", "b")))
    assert len(journal()) == 1
    assert list(make().ask(questions("a", "b", "c"))) == parsed("a", "b", "c")
    assert server.paid == Counter(a=1, b=1, c=1)
    assert journal() == []


def test_a_batch_that_was_written_down_and_never_sent_is_sent(make, questions, server, journal):
    dying = make()
    [service] = dying._services.values()
    service.send = lambda *_: die()
    with pytest.raises(KilledError):
        list(dying.ask(questions("a")))
    assert len(journal()) == 1
    assert list(make().ask(questions("a"))) == parsed("a")
    assert server.paid == Counter(a=1)


def test_when_the_time_is_up_the_batch_goes_on(make, questions, server, journal):
    server.looks = 10
    with pytest.raises(BudgetError, match="run again to fetch it"):
        list(make(seconds=150).ask(questions("a")))
    assert len(journal()) == 1
    assert list(make().ask(questions("a"))) == parsed("a")
    assert server.paid == Counter(a=1)


def test_without_a_budget_nothing_is_sent(make, questions, server, journal):
    with pytest.raises(BudgetError, match="--budget"):
        list(make(budget=None).ask(questions("a")))
    assert server.batches == []
    assert journal() == []


def test_a_budget_for_a_part_sends_that_part_and_the_next_run_the_rest(make, questions, server):
    def cut(asker):
        for service in asker._services.values():
            service.max_requests = 1
        return asker

    asker = make()
    [service] = asker._services.values()
    one = asker.meter.price.cost(service.estimate(questions("a")[0]))
    with pytest.raises(BudgetError, match="run again"):
        list(cut(make(budget=1.5 * one)).ask(questions("a", "b")))
    assert server.paid == Counter(a=1)
    assert list(cut(make()).ask(questions("a", "b"))) == parsed("a", "b")
    assert server.paid == Counter(a=1, b=1)


def test_a_service_that_says_no_leaves_no_trace(make, questions, journal, monkeypatch):
    monkeypatch.setattr(BatchServer, "take", lambda *_: 1 / 0)  # the connection ends without an answer
    with pytest.raises(RemoteError, match="gave up after 2 attempts"):
        list(make(retries=RetryPolicy(attempts=2)).ask(questions("a")))
    assert len(journal()) == 1  # perhaps it arrived
    monkeypatch.undo()


def test_a_batch_for_another_model_is_not_forgotten(make, questions, server, journal, model):
    server.looks = 10
    with pytest.raises(BudgetError):
        list(make(seconds=100).ask(questions("a")))
    [path] = journal()
    path.write_text(path.read_text().replace(model, f"{model}-old"))
    with pytest.raises(RemoteError, match="ask with this model, or delete the file"):
        list(make().ask(questions("a")))


def test_a_provider_without_batches_is_refused(tmp_path):
    with pytest.raises(RemoteError, match="has no batch endpoint"):
        make_batch_asker(["local/x"], tmp_path / "r", budget=1.0)


def test_a_file_that_openai_does_not_take_is_an_error_and_forgotten(server, questions, make, vendor, journal):
    if vendor != "openai":
        pytest.skip("only one vendor checks a batch after it was taken")
    server.broken_file = "line 1 is not JSON"
    with pytest.raises(RemoteError, match=r"failed.*line 1 is not JSON"):
        list(make().ask(questions("a")))
    assert journal() == []
