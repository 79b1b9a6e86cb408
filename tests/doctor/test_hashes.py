"""Perceptual hashes: the definition, the files, and near-duplicates without comparing every pair."""

from __future__ import annotations

import io
import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from circus_bench.doctor.hashes import near_duplicates, phash, read_hashes
from circus_bench.errors import FormatError


def picture(seed: int, size: tuple[int, int] = (200, 150)) -> Image.Image:
    """A smooth random picture, as photographs are: 6 x 5 random colors, blown up."""
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)


def distance(one: int, other: int) -> int:
    return (one ^ other).bit_count()


def test_a_hash_has_64_bits() -> None:
    hashes = [phash(picture(seed)) for seed in range(20)]
    assert all(0 <= value < 2**64 for value in hashes)


def test_different_pictures_have_distant_hashes() -> None:
    hashes = [phash(picture(seed)) for seed in range(20)]
    # Independent bits differ in 32 of 64 places on average, with a standard deviation of 4.
    assert min(distance(*pair) for pair in combinations(hashes, 2)) > 8


def test_the_hash_follows_its_definition_in_plain_sums() -> None:
    grey = np.asarray(picture(3).convert("L").resize((32, 32), Image.Resampling.LANCZOS), float)
    # DCT-II by its formula: sum over m, n of x[m, n] cos(pi k (2m + 1) / 64) cos(pi l (2n + 1) / 64); a common factor
    # of the coefficients does not move the comparison with their mean.
    basis = np.array([[np.cos(np.pi * k * (2 * n + 1) / 64) for n in range(32)] for k in range(8)])
    low = [float((basis[k][:, None] * basis[m][None] * grey).sum()) for k in range(8) for m in range(8)]
    bits = "".join("1" if value > np.mean(low[1:]) else "0" for value in low)
    assert f"{phash(picture(3)):064b}" == bits


@pytest.mark.parametrize("color", ["white", "grey", (12, 200, 77)])
def test_a_flat_picture_has_the_constant_bit_alone(color: str | tuple[int, int, int]) -> None:
    assert phash(Image.new("RGB", (50, 40), color)) == 1 << 63


def test_a_black_picture_has_no_bit() -> None:
    assert phash(Image.new("RGB", (50, 40))) == 0


def test_a_recompressed_and_a_scaled_copy_are_within_one_bit() -> None:
    file = io.BytesIO()
    picture(1).save(file, "JPEG", quality=60)
    copies = [Image.open(file).convert("RGB"), picture(1).resize((100, 75), Image.Resampling.BICUBIC)]
    assert max(distance(phash(picture(1)), phash(copy)) for copy in copies) <= 1


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 15) | st.integers(2**63, 2**63 + 15), max_size=25))
def test_near_duplicates_are_those_of_comparing_every_pair(values: list[int]) -> None:
    found = near_duplicates({f"i{number}": value for number, value in enumerate(values)})
    distances = [distance(*pair) for pair in combinations(values, 2)]
    assert found.n_exact_pairs == distances.count(0)
    assert found.n_near_pairs == distances.count(0) + distances.count(1)


def test_near_duplicates_come_in_the_order_of_the_images() -> None:
    found = near_duplicates({"z": 5, "a": 9, "m": 5, "b": 8})
    assert (found.exact, found.near) == ((("z", "m"),), ((("a",), ("b",)),))


def test_a_hash_shared_by_three_images_makes_three_pairs() -> None:
    assert near_duplicates(dict.fromkeys("abc", 7)).n_exact_pairs == 3


def test_a_hash_shared_by_a_whole_gallery_is_one_group() -> None:
    found = near_duplicates({str(number): 7 for number in range(20_000)})
    # n (n - 1) / 2 pairs, counted and never listed.
    assert (len(found.exact), found.n_exact_pairs) == (1, 199_990_000)


def test_no_images_have_no_near_duplicates() -> None:
    assert near_duplicates({}).exact == ()


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_published_hashes_are_read_by_the_image_id_in_the_file_name(tmp_path: Path) -> None:
    path = write(
        tmp_path / "h.json", {"dev/a-0.png": "00000000000000ff", "b.v2.JPG": "FFFFFFFFFFFFFFFF", "c": "0" * 16}
    )
    assert read_hashes(path) == {"a-0": 255, "b.v2": 2**64 - 1, "c": 0}


@pytest.mark.parametrize("value", ["ff", "zz00000000000000", 255, None, "0x000000000000ff", " 0000000000000ff"])
def test_a_hash_that_is_not_16_digits_is_refused_by_name(tmp_path: Path, value: object) -> None:
    path = write(tmp_path / "h.json", {"fine.png": "0" * 16, "bad.png": value})
    with pytest.raises(FormatError, match=r"h\.json: no 16 hexadecimal digits for the names 1: 'bad\.png'"):
        read_hashes(path)


@pytest.mark.parametrize("content", [{}, [], "text"])
def test_a_file_that_is_no_map_of_hashes_is_refused(tmp_path: Path, content: object) -> None:
    with pytest.raises(FormatError, match=r"h\.json"):
        read_hashes(write(tmp_path / "h.json", content))


def test_one_image_with_two_hashes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "h.json", {"train/a.png": "0" * 16, "val/a.png": "1" * 16})
    with pytest.raises(FormatError, match=r"same image id and another hash \(1: 'val/a\.png'\)"):
        read_hashes(path)
