from __future__ import annotations

import json
import math
import threading
from collections import Counter

import pytest
from support.clocks import FakeClock

from circus_bench.api.chat.client import CachedAsker, Lane
from circus_bench.api.chat.messages import Malformed, Parsed, Question, Refused, Reply
from circus_bench.api.embeddings.vendor import RejectedError
from circus_bench.api.runtime import (
    BudgetError,
    Caller,
    Meter,
    Price,
    RateLimit,
    RemoteError,
    Replies,
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


def questions(*texts):
    return [Question("model", "ask@1", text, schema=SCHEMA) for text in texts]


def parsed(*texts):
    return [Parsed({"echo": text}) for text in texts]


class Echo:
    """Answers with the text of the question, or what the script says; writes down what it was asked."""

    name = "echo"

    def __init__(self):
        self.script = {}
        self.asked = []
        self.lock = threading.Lock()

    def answer(self, question):
        with self.lock:
            self.asked.append(question.text)
            acts = self.script.get(question.text, [])
            act = acts.pop(0) if acts else None
        if callable(act):
            act = act()
        if isinstance(act, Exception):
            raise act
        return act or Reply(json.dumps({"echo": question.text}), "end", {"tokens": 5})

    def estimate(self, question):
        return {"tokens": 10}


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "replies.sqlite"


@pytest.fixture
def make(echo, path):
    """`make(budget=..., threads=..., ...)`: an asker of `echo`; waiting takes no time."""
    made = []

    def asker(*, budget=math.inf, threads=1, provider=echo, price=PRICE):
        clock = FakeClock()
        lane = Lane(provider, Caller(RateLimit(math.inf, clock=clock), clock=clock))
        made.append(CachedAsker(lane, Replies(path), meter=Meter(price, budget, "--budget"), threads=threads))
        return made[-1]

    yield asker
    for one in made:
        one.close()


# --- outcomes


@pytest.mark.parametrize("threads", [1, 4])
def test_outcomes_come_in_the_order_of_the_questions(make, threads):
    texts = [str(number) for number in range(30)]
    assert list(make(threads=threads).ask(questions(*texts))) == parsed(*texts)


def test_no_questions_have_no_outcomes(make):
    assert list(make().ask([])) == []


def test_equal_questions_are_asked_once(make, echo):
    assert list(make(threads=3).ask(questions("a", "b", "a"))) == parsed("a", "b", "a")
    assert sorted(echo.asked) == ["a", "b"]


def test_samples_are_different_questions(make, echo):
    list(make().ask([Question("model", "ask@1", "a", schema=SCHEMA, sample=sample) for sample in range(3)]))
    assert echo.asked == ["a", "a", "a"]


def test_kept_replies_are_not_asked_for_again(make, echo):
    list(make().ask(questions("a", "b")))
    assert list(make().ask(questions("b", "c", "a"))) == parsed("b", "c", "a")
    assert echo.asked == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply("I will not.", "refusal", {"tokens": 5}), Refused("I will not.")),
        (Reply("no idea", "end", {"tokens": 5}), Malformed("no idea", "no JSON object")),
        (Reply('{"echo', "length", {"tokens": 5}), None),
        (Reply("\ud800", "end", {"tokens": 5}), Malformed("?", "no JSON object")),
    ],
    ids=["refused", "malformed", "truncated", "surrogate"],
)
def test_refused_and_malformed_replies_are_kept_as_paid_ones(make, echo, reply, outcome):
    echo.script["a"] = [reply]
    [first] = make().ask(questions("a"))
    assert outcome is None or first == outcome
    assert isinstance(first, (Refused, Malformed))
    assert list(make().ask(questions("a"))) == [first]
    assert echo.asked == ["a"]


def test_the_tally_counts_what_happened(make, echo):
    list(make().ask(questions("a")))
    echo.script |= {"b": [Reply("no")], "c": [RejectedError("HTTP 400", "too blue")], "d": [Reply('x {"echo": "d"}')]}
    asker = make()
    list(asker.ask(questions("a", "b", "c", "d")))
    assert asker.tally == Counter(kept=1, asked=2, rejected=1, Parsed=2, Malformed=1, Refused=1, repaired=1)


# --- failures


def test_a_passing_failure_is_tried_again(make, echo):
    echo.script["a"] = [TransientError("busy", retry_after=3), TransientError("busy")]
    assert list(make().ask(questions("a"))) == parsed("a")
    assert echo.asked == ["a"] * 3


def test_a_lost_answer_counts_as_spent_if_it_may_have_been_paid(make, echo):
    echo.script["a"] = [TransientError("lost", maybe_paid=True), TransientError("busy")]
    asker = make()
    list(asker.ask(questions("a")))
    # The estimate of the lost answer, and what the last one used.
    assert asker.meter.usd == 10 + 5


def test_a_rejected_question_is_refused_with_the_reason_and_not_kept(make, echo):
    echo.script["b"] = [RejectedError("HTTP 400", "the image is broken")]
    assert list(make().ask(questions("a", "b", "c"))) == [*parsed("a"), Refused("the image is broken"), *parsed("c")]
    assert list(make().ask(questions("b"))) == parsed("b")


def test_many_rejections_in_a_row_are_an_error(make, echo):
    texts = [str(number) for number in range(40)]
    echo.script = {text: [RejectedError("HTTP 400", "no such parameter")] for text in texts[10:]}
    found = []
    with pytest.raises(RemoteError, match=r"20 questions in a row were rejected.*HTTP 400"):
        found.extend(make().ask(questions(*texts)))
    # 10 answers, then 19 rejections; the 20th is the error.
    assert found == [*parsed(*texts[:10]), *[Refused("no such parameter")] * 19]


def test_an_answer_ends_the_row_of_rejections(make, echo):
    texts = [str(number) for number in range(40)]
    echo.script = {text: [RejectedError("HTTP 400", "bad")] for text in texts if text != "15"}
    assert len(list(make().ask(questions(*texts[:31])))) == 31


def test_after_a_failure_nothing_more_is_asked_and_the_next_run_goes_on(make, echo):
    texts = [str(number) for number in range(10)]
    echo.script["4"] = [RemoteError("HTTP 404")]
    found = []
    with pytest.raises(RemoteError, match="HTTP 404"):
        found.extend(make().ask(questions(*texts)))
    assert found == parsed(*texts[:4])
    assert echo.asked == texts[:5]
    assert list(make().ask(questions(*texts))) == parsed(*texts)
    assert echo.asked == [*texts[:5], *texts[4:]]


def test_after_a_failure_a_question_that_waits_for_another_try_is_given_up(echo, path):
    waiting = threading.Event()

    def be_busy():
        waiting.set()
        return TransientError("busy")

    def fail():
        waiting.wait(60)
        return RemoteError("HTTP 404")

    echo.script |= {"a": [be_busy], "b": [fail]}
    lane = Lane(echo, Caller(RateLimit(math.inf), policy=RetryPolicy(first_wait=30)))  # 15 seconds at least
    with (
        CachedAsker(lane, Replies(path), meter=Meter(None, math.inf), threads=2) as asker,
        pytest.raises(RemoteError, match="HTTP 404"),
    ):
        list(asker.ask(questions("a", "b")))
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
        list(make(threads=2).ask(questions("a", "b")))


def test_the_same_asker_goes_on_after_a_failure(make, echo):
    asker = make()
    echo.script["a"] = [RemoteError("HTTP 404")]
    with pytest.raises(RemoteError):
        list(asker.ask(questions("a")))
    assert list(asker.ask(questions("a", "b"))) == parsed("a", "b")


def test_what_is_under_way_is_kept_when_the_reader_leaves(make, echo):
    started, held, ended = threading.Event(), threading.Event(), threading.Event()

    def wait():
        started.set()
        held.wait(60)
        ended.set()

    echo.script["b"] = [wait]
    asker = make(threads=2)
    outcomes = asker.ask(questions("a", "b", *map(str, range(50))))
    assert next(outcomes) == parsed("a")[0]
    started.wait(60)
    threading.Timer(0.2, held.set).start()
    outcomes.close()
    assert ended.is_set()
    assert list(make().ask(questions("b"))) == parsed("b")
    assert echo.asked.count("b") == 1


def test_two_threads_that_ask_the_same_pay_once(make, echo):
    started, held = threading.Event(), threading.Event()

    def wait():
        started.set()
        held.wait(60)

    echo.script["a"] = [wait]
    asker = make(threads=4)
    submitted, start = threading.Semaphore(0), asker._start

    def counted(*arguments):
        future = start(*arguments)
        submitted.release()
        return future

    asker._start = counted
    found = [[], [], []]
    readers = [threading.Thread(target=lambda mine=mine: mine.extend(asker.ask(questions("a", "b")))) for mine in found]
    readers[0].start()
    started.wait(60)
    submitted.acquire(timeout=60)
    for reader in readers[1:]:
        reader.start()
        submitted.acquire(timeout=60)  # this reader, too, waits for "a"
    # Whatever was submitted before this question is under way when it is answered.
    list(asker.ask(questions("c")))
    held.set()
    for reader in readers:
        reader.join()
    assert found == [parsed("a", "b")] * 3
    assert sorted(echo.asked) == ["a", "b", "c"]


def test_what_another_process_was_answered_in_the_meantime_is_not_asked(make, echo):
    other = make()  # an asker of its own, which shares nothing but the file

    def meanwhile():
        list(other.ask(questions("b")))

    echo.script["a"] = [meanwhile]
    assert list(make().ask(questions("a", "b"))) == parsed("a", "b")
    assert echo.asked == ["a", "b"]


def test_a_model_without_a_lane_is_an_error(echo, path):
    with (
        CachedAsker({"other": Lane(echo)}, Replies(path), meter=Meter(None, math.inf)) as asker,
        pytest.raises(RemoteError, match=r"no provider for the model 'model'; there are some for \['other'\]"),
    ):
        list(asker.ask(questions("a")))


def test_models_are_asked_over_their_own_lanes(path):
    one, other = Echo(), Echo()
    lanes = {"one": Lane(one), "other": Lane(other)}
    with CachedAsker(lanes, Replies(path), meter=Meter(None, math.inf)) as asker:
        list(asker.ask([Question(model, "t", model, schema=SCHEMA) for model in ("one", "other", "one")]))
    assert (one.asked, other.asked) == (["one"], ["other"])


def test_a_free_asker_needs_no_budget(echo, path):
    with CachedAsker.free(echo, Replies(path)) as asker:
        assert list(asker.ask(questions("a"))) == parsed("a")


# --- money


@pytest.mark.parametrize("budget", [None, 9])
def test_nothing_is_asked_without_a_budget_for_it(make, echo, budget):
    with pytest.raises(BudgetError, match="--budget"):
        list(make(budget=budget).ask(questions("a")))
    assert echo.asked == []


def test_an_unknown_price_needs_a_budget_without_limit(make):
    with pytest.raises(BudgetError, match="price is not known"):
        list(make(price=None, budget=1e9).ask(questions("a")))
    assert list(make(price=None).ask(questions("a"))) == parsed("a")


def test_a_budget_that_ends_in_mid_stage_keeps_what_was_paid(make, echo):
    texts = [str(number) for number in range(10)]
    asker = make(budget=26)
    found = []
    with pytest.raises(BudgetError, match="what was answered is kept, raise --budget and run again"):
        found.extend(asker.ask(questions(*texts)))
    # An answer costs 5 and may cost 10: after four of them 20 are spent, and 10 more do not fit into 26.
    assert found == parsed(*texts[:4])
    assert asker.meter.usd == 20
    assert list(make(budget=100).ask(questions(*texts))) == parsed(*texts)
    assert Counter(echo.asked) == Counter(texts)
