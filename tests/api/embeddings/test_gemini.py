from __future__ import annotations

import pytest
from mteb.types import PromptType
from support.misbehaving_server import gemini_error

from circus_bench.api.embeddings.gemini import NAMES, PREVIEW, metas, vendor
from circus_bench.api.embeddings.vendor import Content
from circus_bench.api.runtime import Secret

GEMINI = vendor(PREVIEW)
TEXT = "make it red"


def test_body_is_that_of_batch_embed_contents():
    # AAEC is base64 of the bytes 0, 1, 2.
    assert GEMINI.body([Content(TEXT, b"\x00\x01\x02"), Content(None, b"")], PromptType.query) == {
        "requests": [
            {
                "model": "models/gemini-embedding-2-preview",
                "content": {
                    "parts": [{"text": TEXT}, {"inlineData": {"mimeType": "image/png", "data": "AAEC"}}],
                },
                "outputDimensionality": 3072,
            },
            {
                "model": "models/gemini-embedding-2-preview",
                "content": {"parts": [{"inlineData": {"mimeType": "image/png", "data": ""}}]},
                "outputDimensionality": 3072,
            },
        ]
    }


def test_task_is_written_before_the_text():
    # The vendor's documented prompts: ai.google.dev/gemini-api/docs/embeddings.
    assert GEMINI.prompt(TEXT, PromptType.query) == "task: search result | query: make it red"
    assert GEMINI.prompt(TEXT, PromptType.document) == "title: none | text: make it red"
    assert GEMINI.prompt(TEXT, None) == TEXT


def test_address_and_header_are_those_of_the_gemini_api():
    key = Secret("abc")
    assert GEMINI.base_url(key) + GEMINI.path() == (
        "https://generativelanguage.googleapis.com/v1beta/models/gemini-embedding-2-preview:batchEmbedContents"
    )
    assert GEMINI.header(key) == ("x-goog-api-key", "abc")


def test_an_image_costs_what_the_price_list_says():
    assert GEMINI.price.cost(GEMINI.estimate(None, (640, 480))) == pytest.approx(0.00012, abs=5e-6)


def test_each_item_counts_as_a_request():
    assert GEMINI.limits.counts_items
    assert GEMINI.limits.items <= 100


def test_the_wait_is_read_from_the_body():
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "31s"}
    quota = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []}
    failure = GEMINI.failure(429, gemini_error(429, "RESOURCE_EXHAUSTED", "You exceeded your quota", quota, retry))
    assert failure.retry_after == 31
    assert failure.reason == "You exceeded your quota"


@pytest.mark.parametrize("response", [None, [], {"error": "text"}, {"error": {"details": [3, {"retryDelay": "soon"}]}}])
def test_an_error_of_another_form_is_still_an_error(response):
    failure = GEMINI.failure(500, response)
    assert failure.retry_after is None
    assert not failure.bad_key


def test_usage_without_details_is_not_known():
    assert GEMINI.usage({"embeddings": []}) is None
    assert GEMINI.usage({"usageMetadata": {"promptTokenCount": 3}}) is None


def test_metas_name_the_preview_and_its_successor():
    assert [meta.name for meta in metas()] == list(NAMES)
    assert {meta.embed_dim for meta in metas()} == {3072}
