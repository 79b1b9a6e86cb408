"""Both API encoders against a server that speaks their protocols."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from mteb.models import EncoderProtocol
from mteb.types import PromptType
from support.clocks import FakeClock
from support.misbehaving_server import GEMINI, KEY, VOYAGE, Act, Asked, MisbehavingServer, gemini_error, vector

from circus_bench.api.embeddings import gemini, voyage
from circus_bench.api.embeddings.encoder import ApiEncoder
from circus_bench.api.embeddings.settings import ApiSettings
from circus_bench.api.runtime import BudgetError, RemoteError, RetryPolicy
from circus_bench.benchmark import Condition
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.encoder import BenchmarkEncoder
from circus_bench.errors import CircusError, EmbeddingError, RefusedError
from circus_bench.images import black, digest

VENDORS = {"gemini": (gemini.vendor(gemini.PREVIEW), GEMINI), "voyage": (voyage.vendor(), VOYAGE)}


@pytest.fixture(params=VENDORS)
def name(request):
    return request.param


@pytest.fixture
def vendor(name):
    return dataclasses.replace(VENDORS[name][0], dimensions=8)


@pytest.fixture
def server(name):
    with MisbehavingServer(VENDORS[name][1], 8).running() as server:
        yield server


@pytest.fixture
def make(vendor, server, tmp_path, monkeypatch):
    """`make(items=..., **settings)`: an encoder that asks the server; waiting takes no time."""
    monkeypatch.setenv(vendor.key_variables[0], KEY)

    def encoder(*, items=4, **settings):
        limits = dataclasses.replace(vendor.limits, items=items)
        defaults = {
            "budget_usd": 1.0,
            "cache_dir": tmp_path / "replies",
            "base_url": server.url,
            "threads": 1,
            "timeout": 5.0,
            "clock": FakeClock(),
        }
        return ApiEncoder(dataclasses.replace(vendor, limits=limits), ApiSettings(**{**defaults, **settings}))

    return encoder


@pytest.fixture
def pictures(noise):
    return [noise((32 + seed, 32), seed) for seed in range(10)]


def documents(images):
    return [{"image": images}]


def gallery(encoder, images):
    return encoder.encode(documents(images), prompt_type=PromptType.document)


def expected(images, name):
    prompt_type = "document" if name == "voyage" else None
    return np.array([vector(Asked(None, digest(image), prompt_type), 8) for image in images], np.float32)


# --- proper answers


def test_an_encoder_prints_as_its_model(make, vendor):
    assert repr(make()) == f"ApiEncoder({vendor.name})"


def test_encoder_follows_mteb_protocol(make):
    encoder = make()
    encoder.mteb_model_meta = gemini.metas()[0]
    assert isinstance(encoder, EncoderProtocol)


@pytest.mark.parametrize("threads", [1, 4])
def test_vectors_come_in_the_order_of_the_inputs(make, pictures, name, threads):
    np.testing.assert_array_equal(gallery(make(threads=threads, items=3), pictures), expected(pictures, name))


def test_batches_of_the_loader_do_not_matter(make, pictures, name):
    batches = [{"image": pictures[:1]}, {"image": pictures[1:4]}, {"image": pictures[4:]}]
    found = make().encode(batches, prompt_type=PromptType.document)
    np.testing.assert_array_equal(found, expected(pictures, name))


def test_requests_are_as_large_as_allowed(make, server, pictures):
    gallery(make(items=4), pictures)
    assert sorted(map(len, server.requests)) == [2, 4, 4]


def test_equal_inputs_are_asked_once(make, server, pictures, name):
    found = gallery(make(), [pictures[0], pictures[1], pictures[0].copy()])
    np.testing.assert_array_equal(found, expected([pictures[0], pictures[1], pictures[0]], name))
    assert len(server.paid) == 2


def test_image_and_text_go_together(make, server, pictures):
    make().encode([{"image": pictures[:1], "text": ["make it red"]}], prompt_type=PromptType.query)
    [asked] = server.paid
    assert asked.image == digest(pictures[0])
    assert "make it red" in asked.text


def test_text_goes_alone(make, server):
    make().encode([{"text": ["make it red"]}], prompt_type=PromptType.query)
    assert server.paid[0].image is None


def test_empty_text_is_left_out(make, server, pictures):
    make().encode([{"image": pictures[:1], "text": [" "]}], prompt_type=PromptType.query)
    assert server.paid[0].text is None


def test_input_with_nothing_in_it_is_an_error(make):
    with pytest.raises(EmbeddingError, match="empty text and no image"):
        make().encode([{"text": [""]}], prompt_type=PromptType.query)


def test_batch_of_something_else_is_an_error(make):
    with pytest.raises(EmbeddingError, match="audio"):
        make().encode([{"audio": ["x"]}])


def test_roles_are_different_questions_where_the_service_is_told_of_them(make, server, pictures, name):
    encoder = make()
    for prompt_type in (PromptType.query, PromptType.document):
        encoder.encode(documents(pictures[:1]), prompt_type=prompt_type)
    # Gemini sees a role in the text only, and there is none.
    assert len(server.paid) == {"gemini": 1, "voyage": 2}[name]


# --- a benchmark under the three conditions


@pytest.fixture
def driver(make, toy_benchmark, tmp_path, name):
    encoder = make()
    encoder.mteb_model_meta = (gemini.metas() if name == "gemini" else voyage.metas())[0]
    return BenchmarkEncoder(encoder, toy_benchmark(), store=EmbeddingStore(tmp_path / "store"))


def test_text_only_sends_a_black_picture_of_the_size_of_the_reference(driver, server):
    driver.queries(Condition.TEXT_ONLY)
    assert {asked.image for asked in server.paid} == {digest(black((32, 32)))}
    assert all("Find the image.\n" in asked.text for asked in server.paid)


def test_image_only_sends_neither_text_nor_instruction(driver, server):
    driver.queries(Condition.IMAGE_ONLY)
    assert {asked.text for asked in server.paid} == {None}


def test_multimodal_sends_instruction_text_and_reference(driver, server, toy_benchmark):
    driver.queries(Condition.MULTIMODAL)
    texts = [query.text for query in toy_benchmark().queries]
    assert [asked.text.rpartition("Find the image.\n")[2] for asked in server.paid] == texts
    assert len({asked.image for asked in server.paid}) == 3


def test_estimate_counts_exactly_what_is_asked(make, driver, server, toy_benchmark):
    estimate = make().estimate(toy_benchmark())
    driver.gallery()
    for condition in Condition:
        driver.queries(condition)
    assert estimate.inputs == len(server.paid)
    assert estimate.kept == 0
    assert make().estimate(toy_benchmark()).kept == estimate.inputs


def test_probe_of_a_second_run_costs_nothing(driver, server):
    driver.sanity_check()
    paid = len(server.paid)
    driver.sanity_check()
    assert len(server.paid) == paid


# --- replies are kept


def test_nothing_is_asked_twice_by_a_second_encoder(make, server, pictures, name):
    gallery(make(), pictures)
    asked = len(server.requests)
    np.testing.assert_array_equal(gallery(make(), pictures), expected(pictures, name))
    assert len(server.requests) == asked


def test_only_new_inputs_are_asked(make, server, pictures):
    gallery(make(), pictures[:6])
    gallery(make(), pictures)
    assert Counter(asked.image for asked in server.paid) == Counter(map(digest, pictures))


# --- failures that pass


@pytest.mark.parametrize(
    "act",
    [
        Act(429, body={"detail": "Too many requests"}),
        Act(500, body={"detail": "Internal error"}),
        Act(503, body=b"<html>upstream</html>"),
        Act(529, body={"detail": "overloaded"}),
        Act(cut=True),
        Act(drop=True),
        Act(body={"data": "nothing", "embeddings": None}),
        Act(body={"data": [], "embeddings": []}),
        Act(body=[1, 2]),
    ],
    ids=["429", "500", "503", "529", "truncated", "dropped", "malformed", "too few", "not an object"],
)
def test_a_failure_that_passes_is_overcome(make, server, pictures, name, act):
    server.script = {0: act, 2: act}
    np.testing.assert_array_equal(gallery(make(), pictures), expected(pictures, name))
    assert Counter(asked.image for asked in server.paid) == Counter(map(digest, pictures))


def test_an_answer_that_does_not_come_is_overcome(make, server, pictures, name):
    server.script = {0: Act(hold=threading.Event())}
    np.testing.assert_array_equal(gallery(make(timeout=0.2), pictures), expected(pictures, name))


def test_retry_after_is_waited(make, server, pictures):
    clock = FakeClock()
    server.script = {0: Act(429, {"Retry-After": "41"}, {"detail": "slow"})}
    gallery(make(clock=clock), pictures[:1])
    assert 41 <= clock.monotonic() < 42


def test_retry_after_may_be_a_date(make, server, pictures):
    clock = FakeClock()
    headers = {"Date": "Mon, 30 Nov 2026 10:00:00 GMT", "Retry-After": "Mon, 30 Nov 2026 10:00:50 GMT"}
    server.script = {0: Act(503, headers, {})}
    gallery(make(clock=clock), pictures[:1])
    assert 50 <= clock.monotonic() < 51


def test_failures_that_do_not_pass_end_with_the_last_reason(make, server, pictures):
    server.script = {number: Act(500, body=b"it burns") for number in range(9)}
    with pytest.raises(RemoteError, match=r"gave up after 3 attempts.*HTTP 500"):
        gallery(make(retries=RetryPolicy(attempts=3)), pictures)


def test_what_was_answered_before_a_failure_is_kept(make, server, pictures, name):
    server.script = {number: Act(500) for number in range(1, 4)}
    with pytest.raises(RemoteError):
        gallery(make(retries=RetryPolicy(attempts=3)), pictures)
    np.testing.assert_array_equal(gallery(make(), pictures), expected(pictures, name))
    assert Counter(asked.image for asked in server.paid) == Counter(map(digest, pictures))


def test_pace_is_kept(make, pictures, name):
    clock = FakeClock()
    gallery(make(clock=clock, items=2, requests_per_minute=2), pictures)
    # Five requests of two inputs. Gemini counts ten, of which two a minute: four full minutes pass. Voyage counts five:
    # two minutes.
    assert clock.monotonic() == pytest.approx({"gemini": 240, "voyage": 120}[name], abs=1)


# --- too large, refused


def test_a_batch_that_is_too_large_is_split(make, server, pictures, name):
    server.most_items = 3
    np.testing.assert_array_equal(gallery(make(items=8), pictures), expected(pictures, name))
    # 8 is split to 4 and 4, these to 2; the last 2 go as they are.
    assert [len(request) for request in server.requests] == [8, 4, 2, 2, 4, 2, 2, 2]


def test_a_413_is_split_too(make, server, pictures, name):
    server.script = {0: Act(413, body=b"Request Entity Too Large")}
    np.testing.assert_array_equal(gallery(make(), pictures[:4]), expected(pictures[:4], name))


def test_a_body_above_the_limit_is_split_before_it_is_sent(make, server, pictures, name):
    encoder = make(items=8)
    # Noise of 32 x 32 to 41 x 32 takes 3 to 4 kB as PNG, a third more in base64: two fit.
    limits = dataclasses.replace(encoder.vendor.limits, body_bytes=11_500)
    encoder.vendor = dataclasses.replace(encoder.vendor, limits=limits)
    np.testing.assert_array_equal(gallery(encoder, pictures[:8]), expected(pictures[:8], name))
    assert [len(request) for request in server.requests] == [2, 2, 2, 2]


def test_a_refused_image_is_an_error_that_names_it(make, server, pictures):
    server.refused = {digest(pictures[3]), digest(pictures[7])}
    with pytest.raises(RefusedError, match=r"refused inputs \(2: .input 3: .* image.*, .input 7: ") as refusal:
        gallery(make(), pictures)
    assert list(refusal.value.reasons) == [3, 7]


def test_all_others_are_kept_when_an_image_is_refused(make, server, pictures, name):
    server.refused = {digest(pictures[3])}
    with pytest.raises(RefusedError):
        gallery(make(), pictures)
    asked = len(server.requests)
    others = pictures[:3] + pictures[4:]
    np.testing.assert_array_equal(gallery(make(), others), expected(others, name))
    assert len(server.requests) == asked


def test_a_refused_image_may_be_taken_later(make, server, pictures, name):
    server.refused = {digest(pictures[3])}
    with pytest.raises(RefusedError):
        gallery(make(), pictures)
    server.refused = set()
    np.testing.assert_array_equal(gallery(make(), pictures), expected(pictures, name))
    assert Counter(asked.image for asked in server.paid) == Counter(map(digest, pictures))


def test_a_zero_vector_is_a_refusal_and_not_kept(make, server, pictures, name):
    row = {"embedding": [0.0] * 8, "index": 0, "values": [0.0] * 8}
    server.script = {0: Act(body={"data": [row], "embeddings": [row]})}
    with pytest.raises(RefusedError, match="zero vector"):
        gallery(make(), pictures[:1])
    np.testing.assert_array_equal(gallery(make(), pictures[:1]), expected(pictures[:1], name))


def test_a_service_that_takes_nothing_is_not_asked_for_everything(make, server, noise):
    many = [noise((28, 28), seed) for seed in range(60)]
    server.refused = set(map(digest, many))
    with pytest.raises(RemoteError, match="refused the first 20 inputs and took none"):
        gallery(make(), many)
    # Batches of four: each takes 7 requests to find four refusals; 20 refusals are five batches.
    assert len(server.requests) == 35


def test_another_number_of_dimensions_is_an_error(make, server, pictures):
    server.dim = 5
    with pytest.raises(RemoteError, match="gave 5 dimensions, 8 were asked for"):
        gallery(make(), pictures)


# --- budgets


def test_nothing_is_asked_without_a_budget(make, server, pictures):
    with pytest.raises(BudgetError, match=r"costs about \$0.\d+; set CIRCUS_API_BUDGET_USD"):
        gallery(make(budget_usd=None), pictures)
    assert server.requests == []


def test_nothing_is_asked_when_the_first_batch_shows_that_the_budget_is_too_small(make, server, pictures, vendor):
    class Loader(list):
        dataset = range(10_000)

    usd = vendor.price.cost(vendor.estimate(None, (32, 32)))
    with pytest.raises(BudgetError, match="too small"):
        make(budget_usd=9_000 * usd).encode(Loader(documents(pictures)), prompt_type=PromptType.document)
    assert server.requests == []


def test_a_budget_stops_between_requests_and_the_next_run_goes_on(make, server, pictures, vendor, name):
    batches = [{"image": [picture]} for picture in pictures]
    usd = vendor.price.cost(vendor.estimate(None, (32, 32)))
    encoder = make(items=2, budget_usd=4.5 * usd)
    with pytest.raises(BudgetError, match="run again to go on"):
        encoder.encode(batches, prompt_type=PromptType.document)
    assert len(server.paid) == 4
    assert encoder.budget.usd <= 4.5 * usd
    np.testing.assert_array_equal(gallery(make(), pictures), expected(pictures, name))
    assert Counter(asked.image for asked in server.paid) == Counter(map(digest, pictures))


def test_meter_books_what_the_service_counts(make, pictures, name):
    encoder = make()
    encoder.encode([{"image": pictures[:2], "text": ["make it red"] * 2}], prompt_type=PromptType.query)
    text = len("task: search result | query: make it red") if name == "gemini" else len("make it red")
    images = {"image_tokens": 2 * 258} if name == "gemini" else {"pixels": 2 * 50_000}
    assert dict(encoder.budget.spent) == {"text_tokens": 2 * text, **images}


def test_a_lost_answer_counts_as_spent(make, server, pictures, vendor):
    server.script = {0: Act(cut=True)}
    encoder = make()
    gallery(encoder, pictures[:1])
    [unit] = vendor.estimate(None, (32, 32)).keys() - {"text_tokens"}
    assert encoder.budget.spent[unit] == 2 * vendor.estimate(None, (32, 32))[unit]


def test_a_benchmark_above_the_budget_is_refused_before_the_first_call(make, server, toy_benchmark):
    with pytest.raises(BudgetError):
        make(budget_usd=1e-9).check_budget(toy_benchmark())
    assert server.requests == []


def test_a_benchmark_whose_replies_are_kept_needs_no_budget(make, driver, toy_benchmark):
    driver.gallery()
    for condition in Condition:
        driver.queries(condition)
    assert make(budget_usd=None).check_budget(toy_benchmark()).usd == 0


def test_time_budget_stops(make, server, pictures):
    server.script = {1: Act(429, {"Retry-After": "3600"}, {})}
    with pytest.raises(BudgetError, match="time budget"):
        gallery(make(seconds=600.0), pictures)
    assert len(server.paid) == 4


# --- keys and addresses


def test_a_wrong_key_is_an_error_and_asked_once(make, vendor, server, pictures, monkeypatch):
    encoder = make()
    monkeypatch.setenv(vendor.key_variables[0], "sk-wrong-key-0001")
    encoder = make()
    with pytest.raises(RemoteError, match=f"look at the key in {vendor.key_variables[0]}"):
        gallery(encoder, pictures)
    assert server.paid == []


def test_a_missing_key_is_an_error_at_once(vendor, monkeypatch, tmp_path):
    for variable in vendor.key_variables:
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(RemoteError, match=vendor.key_variables[0]):
        ApiEncoder(vendor, ApiSettings(cache_dir=tmp_path))


def test_the_key_shows_nowhere(make, server, pictures, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    echo = {"detail": f"your key {KEY} is odd", **gemini_error(500, "INTERNAL", f"your key {KEY} is odd")}
    server.script = {number: Act(500, body=echo) for number in (1, 2)}
    encoder = make(retries=RetryPolicy(attempts=2))
    with pytest.raises(RemoteError) as failure:
        gallery(encoder, pictures)
    chain, error = [], failure.value
    while error:
        chain.append(f"{error!r} {error}")
        error = error.__cause__ or error.__context__
    shown = "\n".join([*chain, caplog.text, repr(vars(encoder)), repr(encoder.settings)])
    assert "your key *** is odd" in shown
    assert KEY not in shown
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert all(KEY.encode() not in path.read_bytes() for path in files)


def test_a_redirect_is_not_followed(make, server, pictures):
    server.script = {0: Act(307, {"Location": "http://127.0.0.1:1/"}, {})}
    with pytest.raises(RemoteError, match="HTTP 307"):
        gallery(make(), pictures)


def test_an_open_line_is_refused(make):
    with pytest.raises(RemoteError, match="not https"):
        make(base_url="http://example.org")


def test_no_connection_costs_nothing(make, pictures):
    encoder = make(base_url="http://127.0.0.1:1", retries=RetryPolicy(attempts=2))
    with pytest.raises(RemoteError, match="no answer"):
        gallery(encoder, pictures)
    assert encoder.budget.usd == 0


def test_an_unknown_model_is_an_error(make, pictures):
    encoder = make()
    encoder.connection._url += "x"
    with pytest.raises(RemoteError, match="HTTP 404"):
        gallery(encoder, pictures)


# --- settings


def test_settings_come_from_the_environment(monkeypatch, tmp_path):
    values = {
        "CIRCUS_API_BUDGET_USD": "inf",
        "CIRCUS_API_SECONDS": "60",
        "CIRCUS_API_RPM": "300",
        "CIRCUS_API_TPM": "9000",
        "CIRCUS_API_THREADS": "2",
        "CIRCUS_API_REPLIES": str(tmp_path),
        "CIRCUS_X_URL": "https://example.org",
    }
    for variable, value in values.items():
        monkeypatch.setenv(variable, value)
    found = ApiSettings.from_environment(url_variable="CIRCUS_X_URL")
    assert (found.budget_usd, found.seconds, found.threads) == (float("inf"), 60, 2)
    assert (found.requests_per_minute, found.tokens_per_minute) == (300, 9000)
    assert (found.cache_dir, found.base_url) == (Path(tmp_path), "https://example.org")


def test_processes_share_budget_and_pace(monkeypatch):
    for variable, value in {"CIRCUS_API_BUDGET_USD": "8", "CIRCUS_API_RPM": "300", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(variable, value)
    found = ApiSettings.from_environment(url_variable="CIRCUS_X_URL")
    assert (found.budget_usd, found.requests_per_minute) == (2, 75)


@pytest.mark.parametrize("value", ["many", "0", "-3", "nan"])
def test_a_setting_that_is_no_positive_number_is_an_error(monkeypatch, value):
    monkeypatch.setenv("CIRCUS_API_RPM", value)
    with pytest.raises(CircusError, match="CIRCUS_API_RPM"):
        ApiSettings.from_environment(url_variable="CIRCUS_X_URL")
