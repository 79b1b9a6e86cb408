"""Benchmarks: what a fingerprint covers, and leaving images out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from circus_bench.benchmark import Benchmark, Defect, Finding, Fingerprint
from circus_bench.errors import BenchmarkError, ImageError
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.images import decode

Toy = Callable[..., Benchmark]
Encode = Callable[..., bytes]
Noise = Callable[..., Image.Image]


def with_query(benchmark: Benchmark, position: int, **changes: Any) -> Benchmark:
    queries = list(benchmark.queries)
    queries[position] = dataclasses.replace(queries[position], **changes)
    return dataclasses.replace(benchmark, queries=tuple(queries))


# Fingerprint


@given(data=st.data())
def test_the_fingerprint_does_not_depend_on_the_order_of_queries_and_gallery(toy_benchmark: Toy, data: Any) -> None:
    benchmark = toy_benchmark(with_images=False)
    queries = data.draw(st.permutations(benchmark.queries))
    gallery = data.draw(st.permutations(benchmark.gallery.ids))
    shuffled = toy_benchmark(queries=queries, gallery=gallery, with_images=False)
    assert shuffled.fingerprint == benchmark.fingerprint


def test_the_fingerprint_of_the_images_does_not_depend_on_their_order(toy_benchmark: Toy) -> None:
    benchmark = toy_benchmark()
    assert benchmark.gallery.images is not None
    turned = dict(reversed(benchmark.gallery.images.items()))
    shuffled = toy_benchmark(gallery=reversed(benchmark.gallery.ids), images=turned)
    assert shuffled.fingerprint == benchmark.fingerprint


@pytest.mark.parametrize(
    "changes",
    [{"id": "q0"}, {"text": "make it blue"}, {"text": "make it red "}, {"targets": ("c",)}, {"reference": "d"}],
    ids=lambda changes: "-".join(f"{key} {value}" for key, value in changes.items()),
)
def test_the_fingerprint_changes_with_a_query(toy_benchmark: Toy, changes: dict[str, Any]) -> None:
    benchmark = toy_benchmark(with_images=False)
    assert with_query(benchmark, 0, **changes).fingerprint.annotations != benchmark.fingerprint.annotations


def test_the_fingerprint_changes_when_two_queries_swap_their_texts(toy_benchmark: Toy) -> None:
    benchmark = toy_benchmark(with_images=False)
    texts = [query.text for query in benchmark.queries]
    swapped = with_query(with_query(benchmark, 0, text=texts[1]), 1, text=texts[0])
    assert swapped.fingerprint != benchmark.fingerprint


def test_the_fingerprint_changes_with_the_gallery(toy_benchmark: Toy) -> None:
    larger = toy_benchmark(gallery=("a", "b", "c", "d", "e"), with_images=False)
    assert larger.fingerprint != toy_benchmark(with_images=False).fingerprint


@pytest.mark.parametrize("image_id", ["a", "outside"], ids=["gallery", "reference outside the gallery"])
def test_the_fingerprint_changes_with_the_pixels_of_an_image(
    toy_benchmark: Toy, encode_image: Encode, noise: Noise, image_id: str
) -> None:
    benchmark = toy_benchmark()
    assert benchmark.gallery.images is not None
    images = {**benchmark.gallery.images, image_id: encode_image(noise((32, 32), 99), "PNG")}
    changed = toy_benchmark(images=images).fingerprint
    assert changed.annotations == benchmark.fingerprint.annotations
    assert changed.images != benchmark.fingerprint.images


def test_the_fingerprint_changes_when_two_images_are_swapped(toy_benchmark: Toy) -> None:
    benchmark = toy_benchmark()
    assert benchmark.gallery.images is not None
    images = dict(benchmark.gallery.images)
    images["a"], images["b"] = images["b"], images["a"]
    assert toy_benchmark(images=images).fingerprint.images != benchmark.fingerprint.images


def test_the_fingerprint_depends_on_pixels_and_not_on_the_file(
    toy_benchmark: Toy, encode_image: Encode, noise: Noise
) -> None:
    benchmark = toy_benchmark()
    assert benchmark.gallery.images is not None
    # Image `a` is the noise of seed 0, see `toy_benchmark`.
    images = {**benchmark.gallery.images, "a": encode_image(noise((32, 32), 0), "BMP")}
    assert images["a"] != benchmark.gallery.images["a"]
    assert toy_benchmark(images=images).fingerprint == benchmark.fingerprint


def test_an_unneeded_image_does_not_enter_the_fingerprint(toy_benchmark: Toy) -> None:
    benchmark = toy_benchmark()
    assert benchmark.gallery.images is not None
    assert toy_benchmark(images={**benchmark.gallery.images, "z": b""}).fingerprint == benchmark.fingerprint


def test_an_unreadable_image_has_a_fingerprint_of_its_own(toy_benchmark: Toy) -> None:
    benchmark = toy_benchmark()
    assert benchmark.gallery.images is not None
    broken = toy_benchmark(images={**benchmark.gallery.images, "a": b""}).fingerprint
    assert broken.images not in (None, benchmark.fingerprint.images)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Fingerprint("a", "i"), Fingerprint("a", "i"), True),
        (Fingerprint("a", "i"), Fingerprint("a", "j"), False),
        (Fingerprint("a", "i"), Fingerprint("b", "i"), False),
        (Fingerprint("a", "i"), Fingerprint("a", None), True),
        (Fingerprint("a", None), Fingerprint("b", None), False),
    ],
)
def test_fingerprints_match_as_far_as_both_know(one: Fingerprint, other: Fingerprint, expected: bool) -> None:
    assert one.matches(other) is expected
    assert other.matches(one) is expected


# Construction


def test_a_benchmark_cannot_be_changed(toy_benchmark: Toy) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        toy_benchmark(with_images=False).name = "other"  # type: ignore[misc]


def test_image_ids_are_the_gallery_and_then_references_outside_it(toy_benchmark: Toy) -> None:
    assert toy_benchmark(with_images=False).image_ids == ("a", "b", "c", "d", "outside")


def test_images_are_decoded_once_and_a_progress_bar_still_fills(
    toy_benchmark: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = toy_benchmark()
    decoded, steps = list[bytes](), list[int]()
    monkeypatch.setattr("circus_bench.images.decode", lambda data: decoded.append(data) or decode(data))
    first = benchmark.inspect(advance=lambda: steps.append(1))
    # 4 gallery images and 1 reference outside.
    assert (len(decoded), len(steps)) == (5, 5)
    assert benchmark.inspect(advance=lambda: steps.append(1)) is first
    assert (len(decoded), len(steps)) == (5, 10)


def test_annotations_alone_cannot_be_inspected(toy_benchmark: Toy) -> None:
    with pytest.raises(ImageError, match="'toy' has annotations only"):
        toy_benchmark(with_images=False).inspect()


def test_annotations_alone_match_the_whole_benchmark(toy_benchmark: Toy) -> None:
    assert toy_benchmark(with_images=False).fingerprint.matches(toy_benchmark().fingerprint)


# Leaving images out


def test_an_image_left_out_leaves_the_gallery(toy_benchmark: Toy) -> None:
    assert toy_benchmark(gallery=("a", "b", "c", "d", "e")).without_images(["e"]).gallery.ids == ("a", "b", "c", "d")


def test_a_query_goes_with_its_reference(toy_benchmark: Toy) -> None:
    left = toy_benchmark().without_images(["outside"])
    assert [query.id for query in left.queries] == ["q1", "q2"]


def test_a_query_goes_with_its_last_target(toy_benchmark: Toy) -> None:
    # `c` is the only target of q2.
    assert [query.id for query in toy_benchmark().without_images(["c"]).queries] == ["q1", "q3"]


def test_a_query_stays_with_its_other_targets(toy_benchmark: Toy) -> None:
    # q3 has the targets d and a; q1 and q2 need no d.
    left = toy_benchmark().without_images(["d"])
    assert left.queries[2].targets == ("a",)
    assert [query.id for query in left.queries] == ["q1", "q2", "q3"]


def test_what_is_left_has_a_fingerprint_of_its_own(toy_benchmark: Toy) -> None:
    benchmark = toy_benchmark()
    assert not benchmark.without_images(["d"]).fingerprint.matches(benchmark.fingerprint)


def test_left_out_images_are_recorded(toy_benchmark: Toy) -> None:
    source = toy_benchmark().without_images(["outside", "d"]).source
    assert source == {"licence": "CC0-1.0", "seed": 0, "left_out_images": ["d", "outside"]}


def test_images_left_out_in_two_steps_are_all_recorded(toy_benchmark: Toy) -> None:
    left = toy_benchmark().without_images(["outside"]).without_images(["d"])
    assert left.source["left_out_images"] == ["d", "outside"]


def test_leaving_images_out_in_two_steps_or_one_is_the_same(toy_benchmark: Toy) -> None:
    twice = toy_benchmark().without_images(["outside"]).without_images(["d"])
    once = toy_benchmark().without_images(["d", "outside"])
    assert (twice.queries, twice.gallery) == (once.queries, once.gallery)


def test_the_whole_benchmark_is_unchanged(toy_benchmark: Toy) -> None:
    benchmark = toy_benchmark()
    benchmark.without_images(["d"])
    assert benchmark == toy_benchmark()


def test_without_its_unreadable_images_every_image_is_readable(toy_benchmark: Toy, tmp_path: Path) -> None:
    images = {**(toy_benchmark().gallery.images or {}), "c": b""}
    broken = toy_benchmark(images=images)
    left = broken.without_images(broken.inspect().unreadable)
    save_benchmark(left, tmp_path)
    loaded = load_benchmark(tmp_path)
    assert loaded == left
    assert loaded.inspect().unreadable == {}


def test_a_missing_image_can_be_left_out(toy_benchmark: Toy, tmp_path: Path) -> None:
    images = {name: data for name, data in (toy_benchmark().gallery.images or {}).items() if name != "c"}
    broken = toy_benchmark(images=images, allow=frozenset({Defect.MISSING_IMAGE}))
    assert broken.findings == (Finding(Defect.MISSING_IMAGE, ("c",)),)
    left = broken.without_images(["c"])
    save_benchmark(left, tmp_path)
    assert load_benchmark(tmp_path).gallery.ids == ("a", "b", "d")


def test_leaving_out_the_whole_gallery_is_an_error(toy_benchmark: Toy) -> None:
    with pytest.raises(BenchmarkError, match="the gallery is empty"):
        toy_benchmark().without_images(["a", "b", "c", "d"])
