"""Saving a benchmark as a dataset folder and loading it: what comes back is what was saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from circus_bench.benchmark import Benchmark, Query, ReferencePolicy
from circus_bench.errors import CircusError
from circus_bench.hub import writer
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.images import ParquetImages, Unreadable

Toy = Callable[..., Benchmark]

FILES = {
    "README.md",
    "croissant.json",
    *(f"data/toy/{table}/00000.parquet" for table in ("corpus", "full", "full-qrels", "full-queries", "images")),
    "eval.yaml",
    "manifest.json",
}


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_benchmark_survives_saving_and_loading(toy_benchmark: Toy, tmp_path: Path) -> None:
    benchmark = toy_benchmark()
    save_benchmark(benchmark, tmp_path)
    loaded = load_benchmark(tmp_path)
    assert loaded == benchmark
    assert loaded.fingerprint == benchmark.fingerprint


def test_images_survive_saving_and_loading(toy_benchmark: Toy, tmp_path: Path) -> None:
    benchmark = toy_benchmark()
    save_benchmark(benchmark, tmp_path)
    loaded = load_benchmark(tmp_path)
    assert loaded.gallery.images is not None
    assert dict(loaded.gallery.images) == benchmark.gallery.images
    assert loaded.inspect() == benchmark.inspect()


def test_details_survive_saving_and_loading(toy_benchmark: Toy, tmp_path: Path) -> None:
    benchmark = toy_benchmark()
    save_benchmark(benchmark, tmp_path)
    # Details take no part in comparisons, so they are compared here.
    loaded = load_benchmark(tmp_path)
    assert [query.details for query in loaded.queries] == [query.details for query in benchmark.queries]


def test_the_order_of_queries_gallery_and_targets_survives(toy_benchmark: Toy, tmp_path: Path) -> None:
    queries = (Query("z", "a", "t", ("d", "b")), Query("y", "a", "t", ("c", "b", "d")))
    save_benchmark(toy_benchmark(queries=queries, gallery=("d", "c", "b", "a")), tmp_path)
    loaded = load_benchmark(tmp_path)
    assert loaded.queries == queries
    assert loaded.gallery.ids == ("d", "c", "b", "a")


@pytest.mark.parametrize("policy", ReferencePolicy)
def test_the_protocol_survives_saving_and_loading(toy_benchmark: Toy, tmp_path: Path, policy: ReferencePolicy) -> None:
    benchmark = toy_benchmark(with_images=False)
    protocol = dataclasses.replace(benchmark.protocol, reference=policy, gallery="all", captions="joined")
    save_benchmark(dataclasses.replace(benchmark, protocol=protocol), tmp_path)
    loaded = load_benchmark(tmp_path).protocol
    assert loaded == protocol
    assert isinstance(loaded.reference, ReferencePolicy)


def test_annotations_alone_survive_saving_and_loading(toy_benchmark: Toy, tmp_path: Path) -> None:
    benchmark = toy_benchmark(with_images=False)
    save_benchmark(benchmark, tmp_path)
    loaded = load_benchmark(tmp_path)
    assert loaded == benchmark
    assert loaded.gallery.images is None
    assert loaded.fingerprint.images is None
    assert not (tmp_path / writer.IMAGE_FACTS.format("toy")).exists()


def test_saving_the_same_benchmark_twice_gives_the_same_bytes(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_benchmark(toy_benchmark(), tmp_path / "one")
    save_benchmark(toy_benchmark(), tmp_path / "two")
    assert tree(tmp_path / "one").keys() == FILES
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_saving_a_loaded_benchmark_gives_the_same_bytes(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_benchmark(toy_benchmark(), tmp_path / "one")
    save_benchmark(load_benchmark(tmp_path / "one"), tmp_path / "two")
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_loading_decodes_no_image(toy_benchmark: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = toy_benchmark()
    save_benchmark(benchmark, tmp_path)

    def refuse(_data: bytes) -> None:
        raise AssertionError("an image was decoded")

    # The recorded facts stand for the images, see `writer.IMAGE_FACTS`.
    monkeypatch.setattr("circus_bench.images.decode", refuse)
    assert load_benchmark(tmp_path).fingerprint == benchmark.fingerprint


def test_loading_reads_no_image(toy_benchmark: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_benchmark(toy_benchmark(), tmp_path)

    def refuse(*_: object) -> None:
        raise AssertionError("an image was read")

    monkeypatch.setattr(ParquetImages, "__getitem__", refuse)
    loaded = load_benchmark(tmp_path)
    assert loaded.fingerprint == toy_benchmark().fingerprint
    assert "a" in (loaded.gallery.images or {})


def test_a_loaded_benchmark_can_be_saved_over_itself(toy_benchmark: Toy, tmp_path: Path) -> None:
    benchmark = toy_benchmark()
    save_benchmark(benchmark, tmp_path)
    save_benchmark(load_benchmark(tmp_path), tmp_path)
    loaded = load_benchmark(tmp_path)
    assert loaded == benchmark
    assert dict(loaded.gallery.images or {}) == benchmark.gallery.images


def test_annotations_saved_over_a_benchmark_with_images_have_no_images(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_benchmark(toy_benchmark(), tmp_path)
    save_benchmark(toy_benchmark(with_images=False), tmp_path)
    assert load_benchmark(tmp_path).gallery.images is None


def test_an_unreadable_image_keeps_its_bytes_and_its_reason(toy_benchmark: Toy, tmp_path: Path) -> None:
    images = {**(toy_benchmark().gallery.images or {}), "b": b"<html>404</html>", "outside": b""}
    save_benchmark(toy_benchmark(images=images), tmp_path)
    loaded = load_benchmark(tmp_path)
    assert dict(loaded.gallery.images or {}) == images
    assert loaded.inspect().unreadable == {"b": Unreadable.NOT_AN_IMAGE, "outside": Unreadable.EMPTY}


@pytest.mark.parametrize("where", ["details", "source"])
def test_a_nan_is_not_saved(toy_benchmark: Toy, tmp_path: Path, where: str) -> None:
    nan = {"score": float("nan")}
    if where == "details":
        benchmark = toy_benchmark(with_images=False, queries=[Query("q1", "a", "make it red", ("b",), details=nan)])
    else:
        benchmark = toy_benchmark(with_images=False, source=nan)
    # JSON has no NaN.
    with pytest.raises((ValueError, CircusError)):
        save_benchmark(benchmark, tmp_path / "toy")
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_is_interrupted_leaves_what_was_there(
    toy_benchmark: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_benchmark(toy_benchmark(), tmp_path / "toy")
    before = tree(tmp_path / "toy")

    def power_cut(*_: object, **__: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(writer, "write_json", power_cut)
    for folder in ("toy", "new"):
        with pytest.raises(RuntimeError, match="power cut"):
            save_benchmark(toy_benchmark(with_images=False), tmp_path / folder)
    assert tree(tmp_path) == {f"toy/{name}": data for name, data in before.items()}
