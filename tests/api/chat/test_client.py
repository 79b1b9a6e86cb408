from __future__ import annotations

import json
import math
import threading
from collections import Counter

import pytest
from support.clocks import FakeClock

from circus_bench.api.chat.client import CachedClient, Route
from circus_bench.api.chat.messages import Completion, Malformed, Parsed, Refused, Request
from circus_bench.api.runtime import (
    Budget,
    BudgetError,
    Price,
    RateLimit,
    RejectedError,
    RemoteError,
    ResponseCache,
    RetryingCaller,
    RetryPolicy,
    TransientError,
)

SCHEMA = {
    "type": "object",
    "required": ["echo"],
    "additionalProperties": False,
    "properties": {"echo": {"type": "string"}},
}
# A question is estimated at 10 tokens and uses 5, a dollar each.
PRICE = Price({"tokens": 1.0}, source="a test", date="2026-01-01")


def make_requests(*texts):
    return [Request("model", "ask@1", text, schema=SCHEMA) for text in texts]


def parsed(*texts):
    return [Parsed({"echo": text}) for text in texts]


class Echo:
    """Answers with the text of the question, or what the script says; writes down what it was asked."""

    name = "echo"

    def __init__(self):
        self.script = {}
        self.asked = []
        self.lock = threading.Lock()

    def answer(self, request):
        with self.lock:
            self.asked.append(request.text)
            acts = self.script.get(request.text, [])
            act = acts.pop(0) if acts else None
        if callable(act):
            act = act()
        if isinstance(act, Exception):
            raise act
        return act or Completion(json.dumps({"echo": request.text}), "end", {"tokens": 5})

    def estimate(self, request):
        return {"tokens": 10}


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "replies.sqlite"


@pytest.fixture
def make(echo, path):
    """`make(budget=..., threads=..., ...)`: an client of `echo`; waiting takes no time."""
    made = []

    def client(*, budget=math.inf, threads=1, provider=echo, price=PRICE):
        clock = FakeClock()
        route = Route(provider, RetryingCaller(RateLimit(math.inf, clock=clock), clock=clock))
        made.append(CachedClient(route, ResponseCache(path), budget=Budget(price, budget, "--budget"), threads=threads))
        return made[-1]

    yield client
    for one in made:
        one.close()


# --- outcomes


@pytest.mark.parametrize("threads", [1, 4])
def test_outcomes_come_in_the_order_of_the_requests(make, threads):
    texts = [str(number) for number in range(30)]
    assert list(make(threads=threads).complete(make_requests(*texts))) == parsed(*texts)


def test_no_requests_have_no_outcomes(make):
    assert list(make().complete([])) == []


def test_equal_requests_are_asked_once(make, echo):
    assert list(make(threads=3).complete(make_requests("a", "b", "a"))) == parsed("a", "b", "a")
    assert sorted(echo.asked) == ["a", "b"]


def test_samples_are_different_requests(make, echo):
    list(make().complete([Request("model", "ask@1", "a", schema=SCHEMA, sample=sample) for sample in range(3)]))
    assert echo.asked == ["a", "a", "a"]


def test_kept_replies_are_not_asked_for_again(make, echo):
    list(make().complete(make_requests("a", "b")))
    assert list(make().complete(make_requests("b", "c", "a"))) == parsed("b", "c", "a")
    assert echo.asked == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("completion", "outcome"),
    [
        (Completion("I will not.", "refusal", {"tokens": 5}), Refused("I will not.")),
        (Completion("no idea", "end", {"tokens": 5}), Malformed("no idea", "no JSON object")),
        (Completion('{"echo', "length", {"tokens": 5}), None),
        (Completion("\ud800", "end", {"tokens": 5}), Malformed("?", "no JSON object")),
    ],
    ids=["refused", "malformed", "truncated", "surrogate"],
)
def test_refused_and_malformed_replies_are_kept_as_paid_ones(make, echo, completion, outcome):
    echo.script["a"] = [completion]
    [first] = make().complete(make_requests("a"))
    assert outcome is None or first == outcome
    assert isinstance(first, (Refused, Malformed))
    assert list(make().complete(make_requests("a"))) == [first]
    assert echo.asked == ["a"]


def test_the_tally_counts_what_happened(make, echo):
    list(make().complete(make_requests("a")))
    echo.script |= {
        "b": [Completion("no")],
        "c": [RejectedError("HTTP 400", "too blue")],
        "d": [Completion('x {"echo": "d"}')],
    }
    client = make()
    list(client.complete(make_requests("a", "b", "c", "d")))
    assert client.tally == Counter(kept=1, asked=2, rejected=1, Parsed=2, Malformed=1, Refused=1, repaired=1)


# --- failures


def test_a_passing_failure_is_tried_again(make, echo):
    echo.script["a"] = [TransientError("busy", retry_after=3), TransientError("busy")]
    assert list(make().complete(make_requests("a"))) == parsed("a")
    assert echo.asked == ["a"] * 3


def test_a_lost_answer_counts_as_spent_if_it_may_have_been_paid(make, echo):
    echo.script["a"] = [TransientError("lost", maybe_paid=True), TransientError("busy")]
    client = make()
    list(client.complete(make_requests("a")))
    # The estimate of the lost answer, and what the last one used.
    assert client.budget.usd == 10 + 5


def test_a_rejected_request_is_refused_with_the_reason_and_not_kept(make, echo):
    echo.script["b"] = [RejectedError("HTTP 400", "the image is broken")]
    assert list(make().complete(make_requests("a", "b", "c"))) == [
        *parsed("a"),
        Refused("the image is broken"),
        *parsed("c"),
    ]
    assert list(make().complete(make_requests("b"))) == parsed("b")


def test_many_rejections_in_a_row_are_an_error(make, echo):
    texts = [str(number) for number in range(40)]
    echo.script = {text: [RejectedError("HTTP 400", "no such parameter")] for text in texts[10:]}
    found = []
    with pytest.raises(RemoteError, match=r"20 requests in a row were rejected.*HTTP 400"):
        found.extend(make().complete(make_requests(*texts)))
    # 10 answers, then 19 rejections; the 20th is the error.
    assert found == [*parsed(*texts[:10]), *[Refused("no such parameter")] * 19]


def test_an_answer_ends_the_row_of_rejections(make, echo):
    texts = [str(number) for number in range(40)]
    echo.script = {text: [RejectedError("HTTP 400", "bad")] for text in texts if text != "15"}
    assert len(list(make().complete(make_requests(*texts[:31])))) == 31


def test_after_a_failure_nothing_more_is_asked_and_the_next_run_goes_on(make, echo):
    texts = [str(number) for number in range(10)]
    echo.script["4"] = [RemoteError("HTTP 404")]
    found = []
    with pytest.raises(RemoteError, match="HTTP 404"):
        found.extend(make().complete(make_requests(*texts)))
    assert found == parsed(*texts[:4])
    assert echo.asked == texts[:5]
    assert list(make().complete(make_requests(*texts))) == parsed(*texts)
    assert echo.asked == [*texts[:5], *texts[4:]]


def test_after_a_failure_a_request_that_waits_for_another_try_is_given_up(echo, path):
    waiting = threading.Event()

    def be_busy():
        waiting.set()
        return TransientError("busy")

    def fail():
        waiting.wait(60)
        return RemoteError("HTTP 404")

    echo.script |= {"a": [be_busy], "b": [fail]}
    route = Route(echo, RetryingCaller(RateLimit(math.inf), policy=RetryPolicy(first_wait=30)))  # 15 seconds at least
    with (
        CachedClient(route, ResponseCache(path), budget=Budget(None, math.inf), threads=2) as client,
        pytest.raises(RemoteError, match="HTTP 404"),
    ):
        list(client.complete(make_requests("a", "b")))
    assert sorted(echo.asked) == ["a", "b"]


def test_the_first_failure_is_the_one_that_is_reported(make, echo):
    held = threading.Event()

    def fail():
        held.set()
        return RemoteError("the first one")

    def fail_later():
        held.wait(60)
        return RemoteError("the second one")

    echo.script |= {"a": [fail_later], "b": [fail]}
    with pytest.raises(RemoteError, match="the first one"):
        list(make(threads=2).complete(make_requests("a", "b")))


def test_the_same_client_goes_on_after_a_failure(make, echo):
    client = make()
    echo.script["a"] = [RemoteError("HTTP 404")]
    with pytest.raises(RemoteError):
        list(client.complete(make_requests("a")))
    assert list(client.complete(make_requests("a", "b"))) == parsed("a", "b")


def test_what_is_under_way_is_kept_when_the_reader_leaves(make, echo):
    started, held, ended = threading.Event(), threading.Event(), threading.Event()

    def wait():
        started.set()
        held.wait(60)
        ended.set()

    echo.script["b"] = [wait]
    client = make(threads=2)
    outcomes = client.complete(make_requests("a", "b", *map(str, range(50))))
    assert next(outcomes) == parsed("a")[0]
    started.wait(60)
    threading.Timer(0.2, held.set).start()
    outcomes.close()
    assert ended.is_set()
    assert list(make().complete(make_requests("b"))) == parsed("b")
    assert echo.asked.count("b") == 1


def test_two_threads_that_ask_the_same_pay_once(make, echo):
    started, held = threading.Event(), threading.Event()

    def wait():
        started.set()
        held.wait(60)

    echo.script["a"] = [wait]
    client = make(threads=4)
    submitted, start = threading.Semaphore(0), client._start

    def counted(*arguments):
        future = start(*arguments)
        submitted.release()
        return future

    client._start = counted
    found = [[], [], []]
    readers = [
        threading.Thread(target=lambda mine=mine: mine.extend(client.complete(make_requests("a", "b"))))
        for mine in found
    ]
    readers[0].start()
    started.wait(60)
    submitted.acquire(timeout=60)
    for reader in readers[1:]:
        reader.start()
        submitted.acquire(timeout=60)  # this reader, too, waits for "a"
    # Whatever was submitted before this question is under way when it is answered.
    list(client.complete(make_requests("c")))
    held.set()
    for reader in readers:
        reader.join()
    assert found == [parsed("a", "b")] * 3
    assert sorted(echo.asked) == ["a", "b", "c"]


def test_what_another_process_was_answered_in_the_meantime_is_not_asked(make, echo):
    other = make()  # a client of its own, which shares nothing but the file

    def meanwhile():
        list(other.complete(make_requests("b")))

    echo.script["a"] = [meanwhile]
    assert list(make().complete(make_requests("a", "b"))) == parsed("a", "b")
    assert echo.asked == ["a", "b"]


def test_a_model_without_a_lane_is_an_error(echo, path):
    with (
        CachedClient({"other": Route(echo)}, ResponseCache(path), budget=Budget(None, math.inf)) as client,
        pytest.raises(RemoteError, match=r"no provider for the model 'model'; there are some for \['other'\]"),
    ):
        list(client.complete(make_requests("a")))


def test_models_are_asked_over_their_own_lanes(path):
    one, other = Echo(), Echo()
    routes = {"one": Route(one), "other": Route(other)}
    with CachedClient(routes, ResponseCache(path), budget=Budget(None, math.inf)) as client:
        list(client.complete([Request(model, "t", model, schema=SCHEMA) for model in ("one", "other", "one")]))
    assert (one.asked, other.asked) == (["one"], ["other"])


def test_a_free_client_needs_no_budget(echo, path):
    with CachedClient.free(echo, ResponseCache(path)) as client:
        assert list(client.complete(make_requests("a"))) == parsed("a")


# --- money


@pytest.mark.parametrize("budget", [None, 9])
def test_nothing_is_asked_without_a_budget_for_it(make, echo, budget):
    with pytest.raises(BudgetError, match="--budget"):
        list(make(budget=budget).complete(make_requests("a")))
    assert echo.asked == []


def test_an_unknown_price_needs_a_budget_without_limit(make):
    with pytest.raises(BudgetError, match="price is not known"):
        list(make(price=None, budget=1e9).complete(make_requests("a")))
    assert list(make(price=None).complete(make_requests("a"))) == parsed("a")


def test_a_budget_that_ends_in_mid_stage_keeps_what_was_paid(make, echo):
    texts = [str(number) for number in range(10)]
    client = make(budget=26)
    found = []
    with pytest.raises(BudgetError, match="what was answered is kept, raise --budget and run again"):
        found.extend(client.complete(make_requests(*texts)))
    # An answer costs 5 and may cost 10: after four of them 20 are spent, and 10 more do not fit into 26.
    assert found == parsed(*texts[:4])
    assert client.budget.usd == 20
    assert list(make(budget=100).complete(make_requests(*texts))) == parsed(*texts)
    assert Counter(echo.asked) == Counter(texts)
