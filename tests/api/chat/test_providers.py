"""Names, keys, addresses, prices and pictures: what needs no service."""

from __future__ import annotations

import io
import math
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from circus_bench.api.chat.providers import (
    ProviderSettings,
    make_client,
    make_provider,
    price_of,
    shared_budget,
    split_model,
)
from circus_bench.api.chat.shared import MAX_BYTES, MAX_SIDE, image_payload
from circus_bench.api.runtime import BudgetError, Price, RemoteError
from circus_bench.images import UnreadableImageError, decode


def file(image, kind="JPEG", **options):
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def noise(width, height):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


# --- names


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("claude-sonnet-4-5", ("anthropic", "claude-sonnet-4-5")),
        ("anthropic/claude-haiku-4-5-20251001", ("anthropic", "claude-haiku-4-5-20251001")),
        ("gpt-4.1-mini", ("openai", "gpt-4.1-mini")),
        ("gemini-2.5-flash", ("gemini", "gemini-2.5-flash")),
        ("compatible/org/model:13b", ("compatible", "org/model:13b")),
        ("local//models/judge", ("local", "/models/judge")),
        ("mine/claude-x", ("mine", "claude-x")),
    ],
)
def test_a_model_names_its_provider(model, parts):
    assert split_model(model, named=["mine"]) == parts


@pytest.mark.parametrize("model", ["llava", "Qwen/Qwen2.5-VL-3B-Instruct", "anthropic/", ""])
def test_a_model_of_nobody_is_an_error(model):
    with pytest.raises(RemoteError, match="no provider is known by that name"):
        split_model(model)


# --- keys and addresses


@pytest.mark.parametrize(
    ("name", "variable"),
    [("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY"), ("gemini", "GEMINI_API_KEY or GOOGLE_API_KEY")],
)
def test_a_missing_key_is_an_error_that_names_the_variable(name, variable, monkeypatch):
    for one in variable.split(" or "):
        monkeypatch.delenv(one, raising=False)
    with pytest.raises(RemoteError, match=variable):
        make_provider(name)


def test_a_key_of_another_variable_can_be_used(monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-mine")
    provider = make_provider("mine", ProviderSettings(kind="anthropic", key_variable="MY_KEY"))
    assert provider.client.api_key == "sk-mine"


def test_another_credential_in_the_environment_is_not_sent_along(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-right")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "another")
    assert make_provider("anthropic").client.auth_headers == {"Authorization": "Bearer sk-right"}


def test_an_open_line_is_refused(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-right")
    monkeypatch.setenv("CIRCUS_ANTHROPIC_URL", "http://example.org")
    with pytest.raises(RemoteError, match=r"CIRCUS_ANTHROPIC_URL.*is not https"):
        make_provider("anthropic")


def test_the_key_of_openai_is_not_sent_to_other_servers(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    monkeypatch.setenv("CIRCUS_COMPATIBLE_URL", "http://10.0.0.5:8000/v1")
    assert make_provider("compatible").client.api_key == "none"


def test_a_compatible_server_needs_an_address(monkeypatch):
    monkeypatch.delenv("CIRCUS_COMPATIBLE_URL", raising=False)
    with pytest.raises(RemoteError, match="set CIRCUS_COMPATIBLE_URL"):
        make_provider("compatible")


def test_a_provider_of_no_kind_is_an_error():
    with pytest.raises(RemoteError, match="of no known kind; there are anthropic, openai"):
        make_provider("mine")


def test_a_missing_package_is_named_with_the_extra(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(RemoteError, match=r"needs the package 'openai': pip install 'circus-bench\[judges\]'"):
        make_provider("openai")


def test_the_packages_do_not_try_again_by_themselves(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk")
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    assert [make_provider(name).client.max_retries for name in ("anthropic", "openai")] == [0, 0]


def test_no_package_is_imported_before_it_is_needed():
    code = (
        "import sys; from circus_bench.api.chat.providers import price_of; price_of('claude-haiku-4-5'); "
        "print([name for name in ('anthropic', 'openai', 'google.genai', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- money


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "anthropic/claude-sonnet-4-5-20250929"])
def test_a_million_tokens_cost_what_the_price_list_says(model):
    price = price_of(model)
    # $3 in, $15 out; half of it in a batch.
    assert [round(1e6 * price.usd[f"{model} {unit}"], 9) for unit in ("input", "output")] == [3, 15]
    assert [round(1e6 * price.usd[f"{model} batch {unit}"], 9) for unit in ("input", "output")] == [1.5, 7.5]
    assert price.source.startswith("https://")


@pytest.mark.parametrize("model", ["claude-unknown-9", "compatible/gpt-4.1", "gpt-9"])
def test_an_unknown_price_is_none(model):
    assert price_of(model) is None


def test_a_local_model_costs_nothing():
    assert set(price_of("local/x").usd.values()) == {0}


def test_one_budget_holds_for_all_models():
    budget = shared_budget([price_of("claude-sonnet-4-5"), price_of("gpt-4.1-mini"), price_of("local/x")], 5.0)
    # A million tokens of each: $3, $0.4 and nothing.
    budget.charge({"claude-sonnet-4-5 input": 1e6, "gpt-4.1-mini input": 1e6, "local/x input": 1e6})
    assert budget.usd == pytest.approx(3.4)
    with pytest.raises(BudgetError, match="the budget of \\$5 is too small"):
        budget.check({"claude-sonnet-4-5 input": 1e6})


def test_one_unknown_price_makes_the_sum_unknown():
    budget = shared_budget([price_of("claude-sonnet-4-5"), None], 5.0)
    assert budget.price is None
    with pytest.raises(BudgetError, match="price is not known"):
        budget.check({"claude-sonnet-4-5 input": 1})


@pytest.mark.parametrize("prices", [[None], [None, Price({"x": 0.0}, "s", "")]])
def test_an_unknown_price_is_not_taken_for_nothing(prices):
    assert shared_budget(prices, None).limit is None


def test_models_of_this_machine_need_no_budget():
    assert shared_budget([price_of("local/x")], None).limit == math.inf


def test_all_models_are_checked_before_any_is_asked(tmp_path):
    with pytest.raises(RemoteError, match="no provider is known"):
        make_client(["local/x", "nobody"], tmp_path / "r.sqlite", budget=1.0)


# --- pictures


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_file_that_needs_no_treatment_goes_as_it_is(kind):
    data = file(noise(60, 40), kind)
    found = image_payload(data)
    assert (found.data, found.media_type, found.size) == (data, f"image/{kind.lower()}", (60, 40))


def test_other_files_are_sent_as_png_of_the_decoded_image():
    data = file(noise(60, 40), "BMP")
    found = image_payload(data)
    assert found.media_type == "image/png"
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(found.data))), np.asarray(noise(60, 40)))


def test_a_turned_photograph_is_sent_upright():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = file(noise(60, 40), exif=exif)
    found = image_payload(data)
    assert found.size == decode(data).image.size == (40, 60)


def test_transparency_is_sent_on_white():
    found = image_payload(file(Image.new("RGBA", (40, 40), (255, 0, 0, 0)), "PNG"))
    assert Image.open(io.BytesIO(found.data)).getpixel((5, 5)) == (255, 255, 255)


def test_a_large_image_is_scaled_down_in_proportion():
    found = image_payload(file(Image.new("RGB", (4 * MAX_SIDE, MAX_SIDE))))
    assert found.size == (MAX_SIDE, MAX_SIDE // 4)


def test_a_heavy_file_is_made_light_enough():
    data = file(noise(1500, 1500), "PNG")
    assert len(data) > MAX_BYTES
    assert len(image_payload(data).data) <= MAX_BYTES


def test_a_broken_image_is_an_error():
    with pytest.raises(UnreadableImageError):
        image_payload(file(noise(200, 200))[:-2000])
