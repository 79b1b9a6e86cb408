from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from circus_bench.api.images import to_png, to_rgb
from circus_bench.images import black


def opened(data):
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def test_png_keeps_every_pixel(noise):
    image = noise((40, 30))
    sent = opened(to_png(image, max_pixels=float("inf"), max_bytes=10**9))
    np.testing.assert_array_equal(np.asarray(sent), np.asarray(image))


def test_black_stays_black_when_it_is_scaled_down():
    sent = opened(to_png(black((3000, 2000)), max_pixels=60_000, max_bytes=10**9))
    assert sent.size == (300, 200)
    assert not np.asarray(sent).any()


def test_a_picture_above_the_pixels_keeps_its_proportions(noise):
    # 200 x 100 are 20,000 pixels; a quarter of them is half of each side.
    assert opened(to_png(noise((200, 100)), max_pixels=5_000, max_bytes=10**9)).size == (100, 50)


def test_a_file_above_the_bytes_is_made_smaller(noise):
    image = noise((200, 100))
    data = to_png(image, max_pixels=float("inf"), max_bytes=30_000)
    # Noise has three bytes a pixel: 30,000 bytes hold at most 10,000 pixels, and a step is a tenth of each side.
    width, height = opened(data).size
    assert len(data) <= 30_000
    assert 10_000 * 0.81 * 0.9 < width * height <= 10_000


def test_equal_pixels_are_equal_bytes(noise):
    first, second = (to_png(noise((40, 30)), max_pixels=1e6, max_bytes=10**6) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("mode", ["RGBA", "L", "P"])
def test_other_modes_become_rgb(noise, mode):
    assert to_rgb(noise((40, 30)).convert(mode)).mode == "RGB"
