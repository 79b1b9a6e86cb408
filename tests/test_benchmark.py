"""Benchmarks: what a fingerprint covers, saving and loading, and leaving images out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from circus_bench.benchmark import SCHEMA_VERSION, Benchmark, Defect, Finding, Fingerprint, Query, ReferencePolicy
from circus_bench.errors import BenchmarkError, CircusError, FormatError, ImageError
from circus_bench.images import ParquetImages, Unreadable

Toy = Callable[..., Benchmark]
Encode = Callable[..., bytes]
Noise = Callable[..., Image.Image]

FILES = ["benchmark.json", "gallery.parquet", "images.parquet", "queries.parquet"]


def with_query(benchmark: Benchmark, position: int, **changes: Any) -> Benchmark:
    queries = list(benchmark.queries)
    queries[position] = dataclasses.replace(queries[position], **changes)
    return dataclasses.replace(benchmark, queries=tuple(queries))


def rewrite_column(path: Path, column: str, change: Callable[[list[Any]], list[Any]]) -> None:
    """Tamper with one column of a parquet file."""
    table = pq.read_table(path)
    position = table.schema.get_field_index(column)
    field = table.schema.field(position)
    changed = pa.array(change(table[column].to_pylist()), field.type)
    pq.write_table(table.set_column(position, field, changed), path)


def rewrite_head(folder: Path, **changes: Any) -> None:
    head = json.loads((folder / "benchmark.json").read_text())
    (folder / "benchmark.json").write_text(json.dumps({**head, **changes}))


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


def test_images_are_decoded_once(toy_benchmark: Toy) -> None:
    benchmark = toy_benchmark()
    steps: list[int] = []
    first = benchmark.inspect(advance=lambda: steps.append(1))
    assert benchmark.inspect(advance=lambda: steps.append(1)) is first
    # 4 gallery images and 1 reference outside.
    assert len(steps) == 5


# Saving and loading


def test_a_benchmark_survives_saving_and_loading(toy_benchmark: Toy, tmp_path: Path) -> None:
    benchmark = toy_benchmark()
    benchmark.save(tmp_path)
    loaded = Benchmark.load(tmp_path)
    assert loaded == benchmark
    assert loaded.fingerprint == benchmark.fingerprint


def test_images_survive_saving_and_loading(toy_benchmark: Toy, tmp_path: Path) -> None:
    benchmark = toy_benchmark()
    benchmark.save(tmp_path)
    loaded = Benchmark.load(tmp_path)
    assert loaded.gallery.images is not None
    assert dict(loaded.gallery.images) == benchmark.gallery.images
    assert loaded.inspect() == benchmark.inspect()


def test_details_survive_saving_and_loading(toy_benchmark: Toy, tmp_path: Path) -> None:
    benchmark = toy_benchmark()
    benchmark.save(tmp_path)
    # Details take no part in comparisons, so they are compared here.
    loaded = Benchmark.load(tmp_path)
    assert [query.details for query in loaded.queries] == [query.details for query in benchmark.queries]


def test_the_order_of_queries_gallery_and_targets_survives(toy_benchmark: Toy, tmp_path: Path) -> None:
    queries = (Query("z", "a", "t", ("d", "b")), Query("y", "a", "t", ("c", "b", "d")))
    toy_benchmark(queries=queries, gallery=("d", "c", "b", "a")).save(tmp_path)
    loaded = Benchmark.load(tmp_path)
    assert loaded.queries == queries
    assert loaded.gallery.ids == ("d", "c", "b", "a")


@pytest.mark.parametrize("policy", ReferencePolicy)
def test_the_protocol_survives_saving_and_loading(toy_benchmark: Toy, tmp_path: Path, policy: ReferencePolicy) -> None:
    benchmark = toy_benchmark(with_images=False)
    protocol = dataclasses.replace(benchmark.protocol, reference=policy, gallery="all", captions="joined")
    dataclasses.replace(benchmark, protocol=protocol).save(tmp_path)
    loaded = Benchmark.load(tmp_path).protocol
    assert loaded == protocol
    assert isinstance(loaded.reference, ReferencePolicy)


def test_annotations_alone_survive_saving_and_loading(toy_benchmark: Toy, tmp_path: Path) -> None:
    benchmark = toy_benchmark(with_images=False)
    benchmark.save(tmp_path)
    loaded = Benchmark.load(tmp_path)
    assert loaded == benchmark
    assert loaded.gallery.images is None
    assert loaded.fingerprint.images is None
    assert not (tmp_path / "images.parquet").exists()


def test_annotations_alone_cannot_be_inspected(toy_benchmark: Toy) -> None:
    with pytest.raises(ImageError, match="'toy' has annotations only"):
        toy_benchmark(with_images=False).inspect()


def test_annotations_alone_match_the_whole_benchmark(toy_benchmark: Toy) -> None:
    assert toy_benchmark(with_images=False).fingerprint.matches(toy_benchmark().fingerprint)


@pytest.mark.parametrize("name", FILES)
def test_saving_the_same_benchmark_twice_gives_the_same_bytes(toy_benchmark: Toy, tmp_path: Path, name: str) -> None:
    toy_benchmark().save(tmp_path / "one")
    toy_benchmark().save(tmp_path / "two")
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == FILES
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_saving_a_loaded_benchmark_gives_the_same_bytes(toy_benchmark: Toy, tmp_path: Path, name: str) -> None:
    toy_benchmark().save(tmp_path / "one")
    Benchmark.load(tmp_path / "one").save(tmp_path / "two")
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_loading_decodes_no_image(toy_benchmark: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = toy_benchmark()
    benchmark.save(tmp_path)

    def refuse(_data: bytes) -> None:
        raise AssertionError("an image was decoded")

    # The recorded facts stand for the images, see `ParquetImages`.
    monkeypatch.setattr("circus_bench.images.decode", refuse)
    assert Benchmark.load(tmp_path).fingerprint == benchmark.fingerprint


def test_a_loaded_benchmark_can_be_saved_over_itself(toy_benchmark: Toy, tmp_path: Path) -> None:
    benchmark = toy_benchmark()
    benchmark.save(tmp_path)
    Benchmark.load(tmp_path).save(tmp_path)
    loaded = Benchmark.load(tmp_path)
    assert loaded == benchmark
    assert dict(loaded.gallery.images or {}) == benchmark.gallery.images


def test_annotations_saved_over_a_benchmark_with_images_have_no_images(toy_benchmark: Toy, tmp_path: Path) -> None:
    toy_benchmark().save(tmp_path)
    toy_benchmark(with_images=False).save(tmp_path)
    assert Benchmark.load(tmp_path).gallery.images is None


def test_an_unreadable_image_keeps_its_bytes_and_its_reason(toy_benchmark: Toy, tmp_path: Path) -> None:
    images = {**(toy_benchmark().gallery.images or {}), "b": b"<html>404</html>", "outside": b""}
    toy_benchmark(images=images).save(tmp_path)
    loaded = Benchmark.load(tmp_path)
    assert dict(loaded.gallery.images or {}) == images
    assert loaded.inspect().unreadable == {"b": Unreadable.NOT_AN_IMAGE, "outside": Unreadable.EMPTY}


@pytest.mark.parametrize("where", ["details", "source"])
def test_a_nan_is_not_saved(toy_benchmark: Toy, tmp_path: Path, where: str) -> None:
    nan = {"score": float("nan")}
    if where == "details":
        benchmark = with_query(toy_benchmark(with_images=False), 0, details=nan)
    else:
        benchmark = toy_benchmark(with_images=False, source=nan)
    # JSON has no NaN.
    with pytest.raises((ValueError, CircusError)):
        benchmark.save(tmp_path)


# Folders that are not what they say


def test_a_folder_without_head_was_not_finished(toy_benchmark: Toy, tmp_path: Path) -> None:
    toy_benchmark().save(tmp_path)
    (tmp_path / "benchmark.json").unlink()
    with pytest.raises(FormatError, match=r"benchmark\.json: no such file"):
        Benchmark.load(tmp_path)


def test_a_save_that_is_interrupted_leaves_no_head(
    toy_benchmark: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut(*_: object, **__: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(ParquetImages, "write", power_cut)
    with pytest.raises(RuntimeError, match="power cut"):
        toy_benchmark().save(tmp_path)
    assert not (tmp_path / "benchmark.json").exists()


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 0, None, "1"])
def test_another_schema_version_is_an_error_that_names_both(
    toy_benchmark: Toy, tmp_path: Path, version: object
) -> None:
    toy_benchmark(with_images=False).save(tmp_path)
    rewrite_head(tmp_path, schema_version=version)
    with pytest.raises(FormatError, match=f"schema version {version!r}, expected {SCHEMA_VERSION}"):
        Benchmark.load(tmp_path)


@pytest.mark.parametrize(
    ("file", "column", "change"),
    [
        ("queries.parquet", "text", lambda texts: [text + "!" for text in texts]),
        ("queries.parquet", "targets", lambda targets: [["c"], *targets[1:]]),
        ("queries.parquet", "reference", lambda references: ["c", *references[1:]]),
        ("queries.parquet", "id", lambda ids: [f"{name}x" for name in ids]),
        ("images.parquet", "digest", lambda digests: [*digests[1:], digests[0]]),
    ],
)
def test_a_file_that_was_changed_is_an_error_that_names_the_folder(
    toy_benchmark: Toy, tmp_path: Path, file: str, column: str, change: Callable[[list[Any]], list[Any]]
) -> None:
    toy_benchmark().save(tmp_path)
    rewrite_column(tmp_path / file, column, change)
    with pytest.raises(FormatError, match="changed after they were written") as raised:
        Benchmark.load(tmp_path)
    assert str(tmp_path) in str(raised.value)


def test_an_image_taken_out_of_the_gallery_is_noticed(toy_benchmark: Toy, tmp_path: Path) -> None:
    toy_benchmark(gallery=("a", "b", "c", "d", "e"), with_images=False).save(tmp_path)
    pq.write_table(pq.read_table(tmp_path / "gallery.parquet").slice(0, 4), tmp_path / "gallery.parquet")
    with pytest.raises(FormatError, match="changed after they were written"):
        Benchmark.load(tmp_path)


def test_a_row_missing_from_the_images_is_named(toy_benchmark: Toy, tmp_path: Path) -> None:
    toy_benchmark().save(tmp_path)
    pq.write_table(pq.read_table(tmp_path / "images.parquet").slice(0, 4), tmp_path / "images.parquet")
    with pytest.raises(BenchmarkError, match=r"images have no bytes \(1: 'outside'\)"):
        Benchmark.load(tmp_path)


def test_a_row_missing_from_the_images_can_be_allowed_but_not_for_the_same_benchmark(
    toy_benchmark: Toy, tmp_path: Path
) -> None:
    toy_benchmark().save(tmp_path)
    pq.write_table(pq.read_table(tmp_path / "images.parquet").slice(0, 4), tmp_path / "images.parquet")
    with pytest.raises(FormatError, match="changed after they were written"):
        Benchmark.load(tmp_path, allow=frozenset({Defect.MISSING_IMAGE}))


@pytest.mark.parametrize("file", ["queries.parquet", "gallery.parquet"])
def test_a_missing_file_is_an_error_that_names_it(toy_benchmark: Toy, tmp_path: Path, file: str) -> None:
    toy_benchmark().save(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(FormatError, match=f"{file}: no such file"):
        Benchmark.load(tmp_path)


@pytest.mark.parametrize("file", ["queries.parquet", "gallery.parquet", "images.parquet"])
def test_a_truncated_file_is_an_error_that_names_it(toy_benchmark: Toy, tmp_path: Path, file: str) -> None:
    toy_benchmark().save(tmp_path)
    (tmp_path / file).write_bytes((tmp_path / file).read_bytes()[:-10])
    with pytest.raises(FormatError, match=file):
        Benchmark.load(tmp_path)


@pytest.mark.parametrize(
    ("file", "column"), [("queries.parquet", "targets"), ("gallery.parquet", "id"), ("images.parquet", "digest")]
)
def test_a_missing_column_is_an_error_that_names_it(toy_benchmark: Toy, tmp_path: Path, file: str, column: str) -> None:
    toy_benchmark().save(tmp_path)
    table = pq.read_table(tmp_path / file).drop_columns([column])
    # A parquet file keeps one column at least.
    pq.write_table(table.append_column("other", pa.nulls(len(table), pa.string())), tmp_path / file)
    with pytest.raises(FormatError, match=f"{file}.*{column}"):
        Benchmark.load(tmp_path)


def test_an_image_flag_that_does_not_exist_is_an_error_of_ours(toy_benchmark: Toy, tmp_path: Path) -> None:
    toy_benchmark().save(tmp_path)
    rewrite_column(tmp_path / "images.parquet", "flags", lambda flags: [["upside_down"], *flags[1:]])
    with pytest.raises(FormatError, match="upside_down"):
        Benchmark.load(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": {"id": "toy/test"}},
        {"protocol": {"id": "toy/test", "reference": "sometimes"}},
        {"protocol": {"id": "toy/test", "reference": "kept", "more": 1}},
        {"protocol": None},
        {"allow": ["anything"]},
        {"findings": [{"defect": "no_target"}]},
        {"fingerprint": {}},
        {"fingerprint": None},
    ],
    ids=str,
)
def test_a_head_of_another_form_is_an_error_that_names_it(
    toy_benchmark: Toy, tmp_path: Path, changes: dict[str, Any]
) -> None:
    toy_benchmark(with_images=False).save(tmp_path)
    rewrite_head(tmp_path, **changes)
    with pytest.raises(FormatError, match=r"benchmark\.json: "):
        Benchmark.load(tmp_path)


@pytest.mark.parametrize(
    ("column", "value"), [("text", None), ("targets", None), ("details", "{"), ("details", None), ("id", None)]
)
def test_a_broken_cell_of_a_query_is_an_error_of_ours(
    toy_benchmark: Toy, tmp_path: Path, column: str, value: object
) -> None:
    toy_benchmark(with_images=False).save(tmp_path)
    rewrite_column(tmp_path / "queries.parquet", column, lambda cells: [value, *cells[1:]])
    with pytest.raises(CircusError):
        Benchmark.load(tmp_path)


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
    left.save(tmp_path)
    loaded = Benchmark.load(tmp_path)
    assert loaded == left
    assert loaded.inspect().unreadable == {}


def test_a_missing_image_can_be_left_out(toy_benchmark: Toy, tmp_path: Path) -> None:
    images = {name: data for name, data in (toy_benchmark().gallery.images or {}).items() if name != "c"}
    broken = toy_benchmark(images=images, allow=frozenset({Defect.MISSING_IMAGE}))
    assert broken.findings == (Finding(Defect.MISSING_IMAGE, ("c",)),)
    left = broken.without_images(["c"])
    left.save(tmp_path)
    assert Benchmark.load(tmp_path).gallery.ids == ("a", "b", "d")


def test_leaving_out_the_whole_gallery_is_an_error(toy_benchmark: Toy) -> None:
    with pytest.raises(BenchmarkError, match="the gallery is empty"):
        toy_benchmark().without_images(["a", "b", "c", "d"])
