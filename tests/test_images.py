"""Decoding of ordinary images, digests, inspection and the two image mappings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from circus_bench.benchmark import Benchmark
from circus_bench.errors import ImageError
from circus_bench.images import (
    MIN_SIDE,
    ImageFiles,
    ImageFlag,
    ImageInfo,
    ParquetImages,
    Unreadable,
    black,
    decode,
    digest,
    inspect_images,
)

Encode = Callable[..., bytes]
Noise = Callable[..., Image.Image]


@pytest.mark.parametrize(
    ("image_format", "options"),
    [("PNG", {}), ("BMP", {}), ("TIFF", {}), ("WEBP", {"lossless": True}), ("PPM", {})],
)
def test_a_lossless_file_keeps_every_pixel(
    encode_image: Encode, noise: Noise, image_format: str, options: dict[str, object]
) -> None:
    image = noise((40, 30))
    decoded = decode(encode_image(image, image_format, **options))
    assert decoded.image.tobytes() == image.tobytes()
    assert decoded.flags == frozenset()


def test_equal_pictures_in_different_files_have_one_digest(encode_image: Encode, noise: Noise) -> None:
    files = [encode_image(noise((40, 30)), image_format) for image_format in ("PNG", "BMP", "TIFF")]
    assert len({digest(decode(data).image) for data in files}) == 1


@pytest.mark.parametrize("level", [0, 77, 255])
def test_a_gray_image_equals_its_rgb_twin(encode_image: Encode, level: int) -> None:
    gray = decode(encode_image(Image.new("L", (30, 30), level), "PNG"))
    rgb = decode(encode_image(Image.new("RGB", (30, 30), (level,) * 3), "PNG"))
    assert digest(gray.image) == digest(rgb.image)


def test_a_bilevel_image_becomes_black_and_white(encode_image: Encode) -> None:
    image = Image.new("1", (30, 30), 1)
    image.putpixel((0, 0), 0)
    decoded = decode(encode_image(image, "PNG")).image
    assert decoded.getpixel((0, 0)) == (0, 0, 0)
    assert decoded.getpixel((1, 0)) == (255, 255, 255)


def test_decoding_twice_gives_the_same_digest(encode_image: Encode, noise: Noise) -> None:
    data = encode_image(noise((50, 40)), "JPEG")
    assert digest(decode(data).image) == digest(decode(data).image)


def test_one_changed_pixel_changes_the_digest(noise: Noise) -> None:
    image = noise((30, 30))
    changed = image.copy()
    red, green, blue = image.getpixel((29, 29))
    changed.putpixel((29, 29), (red, green, blue ^ 1))
    assert digest(image) != digest(changed)


def test_black_is_rgb_zero_of_the_asked_for_width_and_height() -> None:
    image = black((100, 50))
    assert (image.mode, image.width, image.height) == ("RGB", 100, 50)
    # One (count, color) pair: 100 * 50 pixels of zero.
    assert image.getcolors() == [(5000, (0, 0, 0))]


@given(width=st.integers(1, 60), height=st.integers(1, 60), seed=st.integers(0, 9))
@settings(max_examples=60)
def test_no_side_is_under_the_minimum_and_no_pixel_is_lost(
    encode_image: Encode, noise: Noise, width: int, height: int, seed: int
) -> None:
    image = noise((width, height), seed)
    decoded = decode(encode_image(image, "PNG"))
    padded = (max(width, MIN_SIDE), max(height, MIN_SIDE))
    assert decoded.image.size == padded
    assert (ImageFlag.PADDED in decoded.flags) == (padded != (width, height))
    left, top = (padded[0] - width) // 2, (padded[1] - height) // 2
    assert decoded.image.crop((left, top, left + width, top + height)).tobytes() == image.tobytes()


def test_inspection_gives_the_facts_of_every_image(encode_image: Encode, noise: Noise) -> None:
    images = {"a": encode_image(noise((40, 30)), "PNG"), "b": encode_image(noise((10, 50)), "PNG")}
    inspection = inspect_images(images, ["a", "b"])
    assert inspection.readable["a"] == ImageInfo(digest(noise((40, 30))), 40, 30)
    # 10 x 50 is padded to the minimum side of 28.
    assert inspection.readable["b"].width == 28
    assert inspection.readable["b"].flags == {ImageFlag.PADDED}
    assert inspection.unreadable == {}


def test_inspection_lists_what_it_cannot_read_with_the_reason(encode_image: Encode, noise: Noise) -> None:
    images = {"good": encode_image(noise((40, 30)), "PNG"), "empty": b"", "text": b"no image at all"}
    inspection = inspect_images(images, ["good", "empty", "text", "absent"])
    assert list(inspection.readable) == ["good"]
    assert inspection.unreadable == {
        "empty": Unreadable.EMPTY,
        "text": Unreadable.NOT_AN_IMAGE,
        "absent": Unreadable.MISSING,
    }


def test_inspection_reads_only_the_wanted_images(encode_image: Encode, noise: Noise) -> None:
    images = {"a": encode_image(noise((40, 30)), "PNG"), "unwanted": b""}
    assert inspect_images(images, ["a"]).unreadable == {}


def test_inspection_advances_once_an_image(encode_image: Encode, noise: Noise) -> None:
    images = {"a": encode_image(noise((40, 30)), "PNG"), "bad": b""}
    steps: list[int] = []
    # "a" is asked for twice and counts once; "bad" and "absent" count although they fail: 3 steps.
    inspect_images(images, ["a", "bad", "a", "absent"], advance=lambda: steps.append(1))
    assert len(steps) == 3


def test_a_folder_of_images_is_keyed_by_stem(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "one.jpg").write_bytes(b"1")
    (tmp_path / "deep" / "two.PNG").write_bytes(b"2")
    (tmp_path / "notes.txt").write_bytes(b"3")
    assert dict(ImageFiles.folder(tmp_path)) == {"one": b"1", "two": b"2"}


def test_two_files_of_one_stem_are_an_error_that_names_both(tmp_path: Path) -> None:
    (tmp_path / "one.jpg").write_bytes(b"1")
    (tmp_path / "one.png").write_bytes(b"2")
    with pytest.raises(ImageError, match=r"one\.jpg and .*one\.png share the id 'one'"):
        ImageFiles.folder(tmp_path)


def test_a_folder_that_does_not_exist_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="absent: no such folder"):
        ImageFiles.folder(tmp_path / "absent")


def test_a_path_that_does_not_exist_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / "there.jpg").write_bytes(b"1")
    files = ImageFiles({"there": tmp_path / "there.jpg", "gone": tmp_path / "gone.jpg"})
    assert "there" in files
    assert "gone" not in files


def write_images(benchmark: Benchmark, path: Path) -> Path:
    """Write the images of a benchmark as a file of their own."""
    assert benchmark.gallery.images is not None
    ParquetImages.write(path, benchmark.gallery.images, inspection=benchmark.inspect())
    return path


def test_images_in_parquet_are_read_back_in_any_order(encode_image: Encode, tmp_path: Path) -> None:
    # 640 images are 10 row groups of 64, more than the 8 that are kept in memory.
    ids = [f"i{number}" for number in range(640)]
    images = {
        name: encode_image(Image.new("RGB", (28, 28), (n % 256, n // 256, 0)), "BMP") for n, name in enumerate(ids)
    }
    ParquetImages.write(tmp_path / "images.parquet", images, inspection=inspect_images(images, ids))
    stored = ParquetImages.load(tmp_path / "images.parquet")
    assert list(stored) == ids
    assert all(stored[name] == images[name] for name in (*reversed(ids), *ids[::97]))


def test_facts_stored_in_parquet_equal_those_of_decoding(
    toy_benchmark: Callable[..., Benchmark], tmp_path: Path
) -> None:
    stored = ParquetImages.load(write_images(toy_benchmark(), tmp_path / "images.parquet"))
    assert inspect_images(stored, list(stored)) == inspect_images(dict(stored), list(stored))


def test_changed_bytes_are_found_when_records_are_not_trusted(
    toy_benchmark: Callable[..., Benchmark], tmp_path: Path
) -> None:
    path = write_images(toy_benchmark(), tmp_path / "images.parquet")
    table = pq.read_table(path)
    data = table["bytes"].to_pylist()
    position, field = table.schema.get_field_index("bytes"), table.schema.field("bytes")
    # The pictures of the first two images change places; what is recorded of them stays.
    changed = pa.array([data[1], data[0], *data[2:]], field.type)
    pq.write_table(table.set_column(position, field, changed), path)
    stored = ParquetImages.load(path)
    recorded, found = stored.inspection.readable, inspect_images(stored, stored, trust_records=False).readable
    assert [name for name in stored if recorded[name] != found[name]] == ["a", "b"]


def test_an_id_that_the_parquet_file_has_not_is_a_key_error(
    toy_benchmark: Callable[..., Benchmark], tmp_path: Path
) -> None:
    stored = ParquetImages.load(write_images(toy_benchmark(), tmp_path / "images.parquet"))
    assert "absent" not in stored
    with pytest.raises(KeyError, match="absent"):
        stored["absent"]


# data/README.md: 12 COCO photographs, 372 clothing photographs without duplicates.
@pytest.mark.parametrize(("folder", "count"), [("circo_query_7", 12), ("clothing", 372)])
def test_real_photographs_decode_and_have_distinct_digests(shared: Path, folder: str, count: int) -> None:
    images = ImageFiles.folder(shared / "data" / "photos" / folder)
    inspection = inspect_images(images, images)
    assert inspection.unreadable == {}
    assert len(inspection.readable) == count
    assert len({info.digest for info in inspection.readable.values()}) == count
