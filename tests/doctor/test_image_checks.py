"""The checks of the images: each damaged, peculiar or duplicate file is reported by name."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from circus_bench.benchmark import Benchmark, Defect, Query
from circus_bench.doctor import HashKind, Severity, check_all, diagnose
from circus_bench.doctor.image_checks import target_twins
from circus_bench.errors import MismatchError
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.images import ImageFlag, Unreadable, decode

Encode = Callable[..., bytes]
Noise = Callable[..., Image.Image]
Make = Callable[..., Benchmark]
ALL = frozenset(Defect)


def picture(seed: int) -> Image.Image:
    """A smooth random picture: another one for each seed, to eyes and to perceptual hashes."""
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((120, 90), Image.Resampling.BICUBIC)


@pytest.fixture(scope="session")
def damaged(encode_image: Encode) -> dict[str, bytes]:
    """Images that a folder of downloads may hold; `twin` and `copy` are one file."""
    whole = encode_image(picture(1), "JPEG", quality=90)
    turned = Image.Exif()
    turned[0x0112] = 6
    deep = np.random.default_rng(2).integers(0, 65536, (64, 64), dtype=np.uint16)
    twin = encode_image(picture(3), "PNG")
    return {
        "truncated": whole[: len(whole) * 2 // 3],
        "cmyk": encode_image(picture(4).convert("CMYK"), "JPEG"),
        "nothing": b"",
        "deep": encode_image(Image.fromarray(deep), "PNG"),
        "turned": encode_image(picture(5), "JPEG", exif=turned),
        "page": b"<!doctype html><title>404</title>",
        "twin": twin,
        "copy": twin,
        "fine": encode_image(picture(6), "PNG"),
    }


@pytest.fixture
def over(toy_benchmark: Make) -> Callable[..., Benchmark]:
    """`over(images, targets, gallery=...)`: one query for each target, its reference the first image."""

    def make(images: dict[str, bytes], targets: tuple[str, ...] = ("fine",), **changes: Any) -> Benchmark:
        gallery = changes.pop("gallery", tuple(images))
        queries = tuple(Query(f"q-{target}", gallery[0], f"show {target}", (target,)) for target in targets)
        return toy_benchmark(queries=queries, gallery=gallery, images=images, allow=ALL, **changes)

    return make


@pytest.mark.parametrize(
    ("check", "name", "severity"),
    [
        (Unreadable.TRUNCATED, "truncated", Severity.DEFECT),
        (Unreadable.EMPTY, "nothing", Severity.DEFECT),
        (Unreadable.NOT_AN_IMAGE, "page", Severity.DEFECT),
        (ImageFlag.CMYK, "cmyk", Severity.NOTE),
        (ImageFlag.SIXTEEN_BIT, "deep", Severity.NOTE),
        (ImageFlag.ROTATED, "turned", Severity.NOTE),
    ],
)
def test_each_image_is_reported_by_name(
    check: str, name: str, severity: Severity, over: Make, damaged: dict[str, bytes]
) -> None:
    found = diagnose(over(damaged)).result(check)
    assert found is not None
    assert (found.ids, found.severity) == ((name,), severity)


@pytest.mark.parametrize("check", ["same_bytes", "same_pixels", "same_computed_hash"])
def test_a_copied_file_is_a_duplicate_by_every_measure(check: str, over: Make, damaged: dict[str, bytes]) -> None:
    found = diagnose(over(damaged)).result(check)
    assert found is not None
    assert (found.groups, found.severity) == ((("twin", "copy"),), Severity.NOTE)


def test_the_same_pixels_in_another_format_are_no_copied_file(over: Make, encode_image: Encode) -> None:
    images = {"png": encode_image(picture(1), "PNG"), "fine": encode_image(picture(1), "BMP")}
    found = diagnose(over(images))
    assert found.result("same_bytes") is None
    assert found.duplicates == (("png", "fine"),)


def test_a_recompressed_copy_is_a_candidate_by_hash_alone(over: Make, encode_image: Encode) -> None:
    images = {
        "png": encode_image(picture(1), "PNG"),
        "fine": encode_image(picture(1), "JPEG", quality=80),
        "other": encode_image(picture(2), "PNG"),
    }
    found = diagnose(over(images))
    assert found.duplicates == ()
    assert found.near_duplicates[HashKind.COMPUTED].pairs_within_1 == 1


def test_unreadable_files_are_no_duplicates_of_each_other(over: Make, damaged: dict[str, bytes]) -> None:
    images = {"a": b"", "b": b"", "fine": damaged["fine"]}
    assert diagnose(over(images)).result("same_bytes") is None


def test_an_absent_image_is_reported_once(over: Make, damaged: dict[str, bytes]) -> None:
    made = over({"twin": damaged["twin"], "fine": damaged["fine"]}, gallery=("twin", "fine", "gone"))
    found = diagnose(made)
    assert [(result.check, result.ids) for result in found.defects] == [("missing", ("gone",))]
    assert found.to_dict()["findings"] == {"missing_image": ["gone"]}


def test_an_image_that_was_missing_and_is_there_now_is_no_defect(over: Make, damaged: dict[str, bytes]) -> None:
    there = {"twin": damaged["twin"], "fine": damaged["fine"]}
    incomplete = over(there, gallery=("twin", "fine", "cmyk"))
    assert not diagnose(incomplete).healthy
    assert diagnose(incomplete.with_images(damaged)).healthy


def test_a_query_with_a_target_twin_is_noted(over: Make, damaged: dict[str, bytes]) -> None:
    found = diagnose(over(damaged, ("fine", "twin"))).result("target_twin_by_computed_hash")
    assert found is not None
    assert found.ids == ("q-twin",)


def test_twins_that_are_both_targets_do_not_compete(toy_benchmark: Make) -> None:
    queries = (Query("both", "a", "x", ("b", "c")), Query("one", "a", "y", ("b",)))
    made = toy_benchmark(queries=queries, with_images=False)
    assert target_twins(made, [("b", "c")]) == ("one",)


def test_coverage_counts_what_can_be_decoded(over: Make, damaged: dict[str, bytes]) -> None:
    # Reference and one of three targets can be decoded, and 6 of the 9 gallery images.
    made = over({"fine": damaged["fine"], **damaged}, ("truncated", "nothing", "cmyk"))
    found = {entry.what: (entry.have, entry.total) for entry in diagnose(made).coverage}
    assert found == {"gallery": (6, 9), "references": (1, 1), "targets": (1, 3), "queries": (1, 3)}


def test_annotations_alone_have_no_coverage(toy_benchmark: Make) -> None:
    assert diagnose(toy_benchmark(with_images=False)).coverage == ()


def test_the_share_of_nothing_is_undefined() -> None:
    from circus_bench.doctor import Coverage

    assert Coverage("targets", 0, 0).share is None


def test_published_hashes_find_near_duplicates_without_images(toy_benchmark: Make) -> None:
    found = diagnose(toy_benchmark(with_images=False), hashes={"a": 1, "b": 1, "c": 3, "elsewhere": 1})
    # a and b share a hash; c is one bit from both. q1 has the target b, q3 the targets d and a.
    counted = found.near_duplicates[HashKind.PUBLISHED]
    assert (counted.images, counted.pairs_same, counted.pairs_within_1) == (3, 1, 3)
    twins = found.result("target_twin_by_published_hash")
    assert twins is not None
    assert twins.ids == ("q1", "q3")


def test_hashes_of_other_images_are_refused(toy_benchmark: Make) -> None:
    with pytest.raises(MismatchError, match=r"none of the hashes \(1: 'x'\) is about a gallery image"):
        check_all([toy_benchmark(with_images=False)], hashes={"x": 1})


def test_progress_is_told_image_by_image(toy_benchmark: Make) -> None:
    steps: list[None] = []
    made = toy_benchmark()
    diagnose(made, advance=lambda: steps.append(None))
    assert len(steps) == len(made.image_ids)


def test_a_cmyk_image_keeps_its_flag_in_a_saved_benchmark(
    over: Make, damaged: dict[str, bytes], tmp_path: Path
) -> None:
    save_benchmark(over(damaged), tmp_path)
    assert load_benchmark(tmp_path).inspect().readable["cmyk"].flags == {ImageFlag.CMYK}


def test_an_rgb_jpeg_is_not_flagged_cmyk(encode_image: Encode) -> None:
    assert decode(encode_image(picture(1), "JPEG")).flags == frozenset()


def test_the_truncated_file_would_be_fine_whole(encode_image: Encode) -> None:
    # The fixture cuts a sound file, so that the reason found is the cut.
    whole = encode_image(picture(1), "JPEG", quality=90)
    assert Image.open(io.BytesIO(whole)).size == decode(whole).image.size
