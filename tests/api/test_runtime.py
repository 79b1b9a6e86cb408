from __future__ import annotations

import math
import pickle
import sqlite3
import subprocess
import sys
import threading

import pytest
from support.clocks import FakeClock

from circus_bench.api.runtime import (
    Budget,
    BudgetError,
    Price,
    RateLimit,
    RemoteError,
    ResponseCache,
    RetryingCaller,
    RetryPolicy,
    Secret,
    TransientError,
)
from circus_bench.errors import FormatError

PRICE = Price({"tokens": 0.5}, source="a test", date="2026-01-01")


class Failing:
    """Fails as often as it is told, then answers; writes down when it was called."""

    def __init__(self, clock, *failures):
        self._clock = clock
        self._failures = list(failures)
        self.times = []

    def __call__(self):
        self.times.append(self._clock.monotonic())
        if self._failures:
            raise self._failures.pop(0)
        return "answer"


@pytest.fixture
def clock():
    return FakeClock()


def caller(clock, *, requests=1_000.0, tokens=math.inf, **rest):
    return RetryingCaller(RateLimit(requests, tokens=tokens, clock=clock), clock=clock, **rest)


def most_in_a_minute(times, sizes=None):
    """The largest sum of sizes (1 each by default) in any window of 60 seconds that begins with a call."""
    sizes = sizes or [1] * len(times)
    windows = ([size for time, size in zip(times, sizes, strict=True) if 0 <= time - start < 60] for start in times)
    return max(sum(window) for window in windows)


# --- pace


def test_requests_stay_below_the_limit_in_every_window_of_a_minute(clock):
    asked = caller(clock, requests=10)
    call = Failing(clock)
    for _ in range(35):
        asked.call(call)
    assert most_in_a_minute(call.times) == 10


def test_no_time_is_lost_below_the_limit(clock):
    asked = caller(clock, requests=10)
    for _ in range(10):
        asked.call(lambda: None)
    assert clock.monotonic() == 0


def test_tokens_stay_below_the_limit_in_every_window_of_a_minute(clock):
    asked = caller(clock, tokens=100)
    call = Failing(clock)
    sizes = [30, 60, 20, 90, 5, 5, 100, 1, 40, 60] * 3
    for size in sizes:
        asked.call(call, tokens=size)
    assert most_in_a_minute(call.times, sizes) == 100


def test_a_call_may_count_as_several_requests(clock):
    asked = caller(clock, requests=10)
    call = Failing(clock)
    for _ in range(4):
        asked.call(call, requests=5)
    # Two calls of five fill a minute.
    assert most_in_a_minute(call.times) == 2


def test_a_call_larger_than_the_limit_goes_alone(clock):
    asked = caller(clock, tokens=100)
    call = Failing(clock)
    for size in (10, 500, 10):
        asked.call(call, tokens=size)
    assert call.times == pytest.approx([0, 60, 120], abs=0.01)


# --- retries


def test_a_failure_that_passes_is_tried_again(clock):
    call = Failing(clock, TransientError("busy"), TransientError("busy"))
    assert caller(clock).call(call) == "answer"
    assert len(call.times) == 3


def test_waits_double_with_jitter_between_half_and_all(clock):
    policy = RetryPolicy(attempts=6, first_wait=2, longest_wait=20)
    call = Failing(clock, *[TransientError("busy")] * 5)
    caller(clock, policy=policy).call(call)
    waits = [after - before for before, after in zip(call.times, call.times[1:], strict=False)]
    # 2, 4, 8, 16, and 32 cut to 20.
    assert all(full / 2 <= wait <= full for wait, full in zip(waits, (2, 4, 8, 16, 20), strict=True))


def test_the_same_seed_gives_the_same_waits():
    def times(seed):
        clock = FakeClock()
        call = Failing(clock, *[TransientError("busy")] * 4)
        caller(clock, policy=RetryPolicy(seed=seed)).call(call)
        return call.times

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_what_the_service_asks_to_wait_is_waited(clock):
    call = Failing(clock, TransientError("busy", retry_after=77))
    caller(clock).call(call)
    assert call.times[1] >= 77


def test_what_the_service_asks_to_wait_holds_for_all_calls(clock):
    limit = RateLimit(1_000, clock=clock)
    limit.hold(30)
    call = Failing(clock)
    RetryingCaller(limit, clock=clock).call(call)
    assert call.times == [30]


def test_a_service_that_keeps_failing_is_given_up(clock):
    call = Failing(clock, *[TransientError(f"failure {number}") for number in range(9)])
    with pytest.raises(RemoteError, match="gave up after 3 attempts; the last one: failure 2"):
        caller(clock, policy=RetryPolicy(attempts=3)).call(call)


def test_other_errors_are_not_tried_again(clock):
    call = Failing(clock, RemoteError("no such model"))
    with pytest.raises(RemoteError, match="no such model"):
        caller(clock).call(call)
    assert len(call.times) == 1


def test_every_attempt_counts_against_the_limit(clock):
    call = Failing(clock, TransientError("busy"))
    caller(clock, requests=1, policy=RetryPolicy(first_wait=1)).call(call)
    assert call.times[1] >= 60


# --- time budget


def test_no_call_is_made_after_the_deadline(clock):
    asked = caller(clock, seconds=100)
    clock.sleep(100)
    call = Failing(clock)
    with pytest.raises(BudgetError, match="time budget of 100 seconds"):
        asked.call(call)
    assert call.times == []


def test_a_wait_beyond_the_deadline_ends_at_once(clock):
    call = Failing(clock, TransientError("busy", retry_after=500))
    with pytest.raises(BudgetError):
        caller(clock, seconds=100).call(call)
    assert clock.monotonic() == 0


def test_a_stopped_caller_makes_no_call_until_it_is_resumed(clock):
    asked = caller(clock)
    asked.stop()
    with pytest.raises(RemoteError, match="stopped"):
        asked.call(lambda: None)
    asked.resume()
    assert asked.call(lambda: "answer") == "answer"


# --- money


def test_meter_books_what_was_used():
    budget = Budget(PRICE, 100)
    with budget.reserving({"tokens": 10}) as charge:
        charge({"tokens": 4})
    assert budget.usd == 2


def test_meter_refuses_what_would_pass_the_budget():
    budget = Budget(PRICE, 10)
    with budget.reserving({"tokens": 15}) as charge:
        charge({"tokens": 15})
    with pytest.raises(BudgetError, match=r"budget of \$10 is too small: \$7.5000 is spent .* \$3.0000 more"):
        budget.check({"tokens": 6})
    with budget.reserving({"tokens": 5}):
        pass


def test_calls_under_way_count_as_spent():
    budget = Budget(PRICE, 10)
    with budget.reserving({"tokens": 15}), pytest.raises(BudgetError), budget.reserving({"tokens": 15}):
        pass


def test_a_failed_call_gives_its_reserve_back():
    budget = Budget(PRICE, 10)
    with pytest.raises(RemoteError), budget.reserving({"tokens": 20}):
        raise RemoteError("no")
    budget.check({"tokens": 20})


def test_without_a_budget_nothing_is_spent():
    with pytest.raises(BudgetError, match=r"costs about \$5.0000; set CIRCUS_API_BUDGET_USD"):
        Budget(PRICE, None).check({"tokens": 10})


def test_an_unknown_price_is_not_taken_for_free():
    with pytest.raises(BudgetError, match="price is not known"):
        Budget(None, 10).check({"tokens": 1})
    budget = Budget(None, math.inf)
    budget.check({"tokens": 1})
    assert budget.usd is None


def test_usage_in_a_unit_without_a_price_is_an_error():
    with pytest.raises(KeyError):
        PRICE.cost({"minutes": 1})


# --- replies


def test_replies_are_found_again_by_another_process(tmp_path):
    path = tmp_path / "folder" / "replies.sqlite"
    code = f"""
import os, signal
from pathlib import Path
from circus_bench.api.runtime import ResponseCache
ResponseCache(Path({str(path)!r})).put({{"a": b"1", "b": b"2"}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert ResponseCache(path).get(["b", "a", "c"]) == {"a": b"1", "b": b"2"}


def test_the_first_reply_stays(tmp_path):
    replies = ResponseCache(tmp_path / "replies.sqlite")
    replies.put({"a": b"1"})
    replies.put({"a": b"2"})
    assert replies.get(["a"]) == {"a": b"1"}
    assert len(replies) == 1


def test_many_keys_at_once(tmp_path):
    replies = ResponseCache(tmp_path / "replies.sqlite")
    stored = {str(number): str(number).encode() for number in range(2_500)}
    replies.put(stored)
    assert replies.get(stored) == stored
    assert replies.known([*stored, "another"]) == set(stored)


def test_threads_share_the_replies(tmp_path):
    replies = ResponseCache(tmp_path / "replies.sqlite")
    threads = [threading.Thread(target=replies.put, args=({str(number): b"x"},)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replies) == 20


def test_a_file_that_holds_something_else_is_refused(tmp_path):
    path = tmp_path / "replies.sqlite"
    path.write_bytes(b"not a database, but long enough to be looked at" * 40)
    with pytest.raises(FormatError, match="not a file of replies"):
        ResponseCache(path)


def test_replies_of_another_schema_are_refused(tmp_path):
    path = tmp_path / "replies.sqlite"
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA user_version = 9")
    with pytest.raises(FormatError, match="schema version 9"):
        ResponseCache(path)


# --- keys


def test_the_first_variable_that_is_set_holds_the_key(monkeypatch):
    monkeypatch.delenv("FIRST_KEY", raising=False)
    monkeypatch.setenv("SECOND_KEY", " abc ")
    assert Secret.from_environment("FIRST_KEY", "SECOND_KEY").reveal() == "abc"


def test_a_missing_key_is_an_error_that_names_the_variables(monkeypatch):
    monkeypatch.setenv("FIRST_KEY", "")
    with pytest.raises(RemoteError, match="FIRST_KEY or SECOND_KEY"):
        Secret.from_environment("FIRST_KEY", "SECOND_KEY")


def test_a_key_does_not_show():
    key = Secret("abc-123")
    assert "abc-123" not in f"{key} {key!r} {[key]}"
    with pytest.raises(TypeError):
        pickle.dumps(key)
