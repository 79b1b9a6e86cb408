from __future__ import annotations

import pytest
from mteb.types import PromptType

from circus_bench.api.embeddings.vendor import Content
from circus_bench.api.embeddings.voyage import metas, vendor
from circus_bench.api.runtime import Secret

VOYAGE = vendor()
TEXT = "make it red"


def test_body_is_that_of_multimodalembeddings():
    # AAEC is base64 of the bytes 0, 1, 2.
    assert VOYAGE.body([Content(TEXT, b"\x00\x01\x02"), Content(TEXT, None)], PromptType.query) == {
        "inputs": [
            {
                "content": [
                    {"type": "text", "text": TEXT},
                    {"type": "image_base64", "image_base64": "data:image/png;base64,AAEC"},
                ]
            },
            {"content": [{"type": "text", "text": TEXT}]},
        ],
        "model": "voyage-multimodal-3.5",
        "input_type": "query",
        "truncation": False,
        "output_dimension": 1024,
    }


def test_input_type_is_left_open_outside_of_retrieval():
    assert VOYAGE.body([], None)["input_type"] is None


def test_the_service_adds_the_prompt():
    assert VOYAGE.prompt(TEXT, PromptType.query) == TEXT


@pytest.mark.parametrize(("key", "host"), [("pa-abc", "api.voyageai.com"), ("al-abc", "ai.mongodb.com")])
def test_the_key_tells_the_address(key, host):
    assert VOYAGE.base_url(Secret(key)) + VOYAGE.path() == f"https://{host}/v1/multimodalembeddings"


@pytest.mark.parametrize(
    ("size", "usd"),
    # The examples of the vendor's price list: $0.03, $0.60, $1.20 and $1.20 a thousand images.
    [((200, 200), 0.03), ((1000, 1000), 0.60), ((2000, 2000), 1.20), ((4000, 4000), 1.20)],
)
def test_an_image_costs_what_the_price_list_says(size, usd):
    usage = dict(VOYAGE.estimate(None, size))
    usage["text_tokens"] = 0
    assert 1000 * VOYAGE.price.cost(usage) == pytest.approx(usd)


def test_an_image_counts_a_token_every_560_pixels():
    assert VOYAGE.tokens({"text_tokens": 10, "pixels": 56_000}) == 110


def test_rows_are_put_in_the_order_of_their_index():
    rows = [{"index": 1, "embedding": [1.0]}, {"index": 0, "embedding": [0.0]}]
    assert VOYAGE.vectors({"data": rows}) == [[0.0], [1.0]]


def test_a_row_that_comes_twice_is_an_error():
    with pytest.raises(ValueError, match="indices"):
        VOYAGE.vectors({"data": [{"index": 0, "embedding": [1.0]}] * 2})


@pytest.mark.parametrize("response", [None, [], "text", {"error": "x"}])
def test_an_error_of_another_form_is_still_an_error(response):
    assert VOYAGE.failure(500, response).reason == "status 500"


def test_usage_without_pixels_is_not_known():
    assert VOYAGE.usage({"usage": {"total_tokens": 4}}) is None


def test_meta_names_the_model():
    [meta] = metas()
    assert (meta.name, meta.embed_dim, meta.open_weights) == ("voyageai/voyage-multimodal-3.5", 1024, False)
