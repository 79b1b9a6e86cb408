"""Folders in the form of version 0.1: they load with one line of warning, and damage is noticed."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.damage import drop_column, drop_rows, rewrite_column, rewrite_json, truncate
from support.old_form import OLD_FILES, save_old_form

from circus_bench.benchmark import Benchmark, Defect, ReferencePolicy
from circus_bench.errors import BenchmarkError, CircusError, FormatError
from circus_bench.hub.loading import BenchmarkName, load_benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.images import Unreadable

Toy = Callable[..., Benchmark]

pytestmark = pytest.mark.filterwarnings("ignore:.*has the form of version 0.1:FutureWarning")


def rewrite_head(folder: Path, **changes: Any) -> None:
    rewrite_json(folder / "benchmark.json", **changes)


def test_the_warning_is_one_line_that_names_the_folder_and_the_remedy(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_old_form(toy_benchmark(), tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_benchmark(tmp_path)
    (told,) = caught
    assert told.category is FutureWarning
    assert str(told.message) == (
        f"{tmp_path} has the form of version 0.1; `circus-bench data make {tmp_path} --out NEW` writes it anew"
    )


def test_everything_survives(toy_benchmark: Toy, tmp_path: Path) -> None:
    benchmark = toy_benchmark()
    save_old_form(benchmark, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == OLD_FILES
    loaded = load_benchmark(tmp_path)
    assert loaded == benchmark
    assert loaded.fingerprint == benchmark.fingerprint
    assert [query.details for query in loaded.queries] == [query.details for query in benchmark.queries]
    assert dict(loaded.gallery.images or {}) == benchmark.gallery.images
    assert loaded.inspect() == benchmark.inspect()


@pytest.mark.parametrize("policy", ReferencePolicy)
def test_the_protocol_survives(toy_benchmark: Toy, tmp_path: Path, policy: ReferencePolicy) -> None:
    benchmark = toy_benchmark(with_images=False)
    protocol = dataclasses.replace(benchmark.protocol, reference=policy, gallery="all", captions="joined")
    save_old_form(dataclasses.replace(benchmark, protocol=protocol), tmp_path)
    assert load_benchmark(tmp_path).protocol == protocol


def test_annotations_alone_have_no_images(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_old_form(toy_benchmark(with_images=False), tmp_path)
    loaded = load_benchmark(tmp_path)
    assert loaded.gallery.images is None
    assert loaded.fingerprint.images is None


def test_images_are_joined_to_annotations(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_old_form(toy_benchmark(with_images=False), tmp_path)
    loaded = load_benchmark(tmp_path, images=toy_benchmark().gallery.images)
    assert loaded.fingerprint == toy_benchmark().fingerprint


def test_findings_and_missing_and_broken_images_survive(toy_benchmark: Toy, tmp_path: Path) -> None:
    images = {**(toy_benchmark().gallery.images or {}), "b": b"<html>404</html>"}
    del images["outside"]
    benchmark = toy_benchmark(images=images, allow=frozenset({Defect.MISSING_IMAGE}))
    save_old_form(benchmark, tmp_path)
    loaded = load_benchmark(tmp_path)
    assert loaded.findings == benchmark.findings
    assert dict(loaded.gallery.images or {}) == images
    assert loaded.inspect().unreadable == {"b": Unreadable.NOT_AN_IMAGE, "outside": Unreadable.MISSING}


def test_no_image_is_decoded(toy_benchmark: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = toy_benchmark()
    save_old_form(benchmark, tmp_path)

    def refuse(_data: bytes) -> None:
        raise AssertionError("an image was decoded")

    monkeypatch.setattr("circus_bench.images.decode", refuse)
    assert load_benchmark(tmp_path).fingerprint == benchmark.fingerprint


def test_saved_anew_it_is_a_dataset_folder_like_any_other(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_old_form(toy_benchmark(), tmp_path / "old")
    save_benchmark(load_benchmark(tmp_path / "old"), tmp_path / "new")
    save_benchmark(toy_benchmark(), tmp_path / "fresh")
    for fresh in (path for path in (tmp_path / "fresh").rglob("*") if path.is_file()):
        assert (tmp_path / "new" / fresh.relative_to(tmp_path / "fresh")).read_bytes() == fresh.read_bytes()


def test_a_configuration_of_it_may_be_named(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_old_form(toy_benchmark(), tmp_path / "old")
    assert load_benchmark(f"{tmp_path / 'old'}#toy") == toy_benchmark()
    with pytest.raises(CircusError, match=r"no benchmark or subset 'other'; .* toy, toy_full"):
        load_benchmark(f"{tmp_path / 'old'}#other")


def test_a_dataset_folder_that_also_has_old_files_is_a_dataset_folder(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_benchmark(toy_benchmark(name="new"), tmp_path / "folder")
    save_old_form(toy_benchmark(), tmp_path / "folder")
    assert not BenchmarkName.parse(tmp_path / "folder").is_old_form
    assert load_benchmark(tmp_path / "folder").name == "new"


# Folders that are not what they say


def test_a_folder_without_head_was_not_finished(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_old_form(toy_benchmark(), tmp_path)
    (tmp_path / "benchmark.json").unlink()
    with pytest.raises(FormatError, match=r"no dataset folder .*make one with `circus-bench data make`"):
        load_benchmark(tmp_path)


@pytest.mark.parametrize("version", [2, 0, None, "1"])
def test_another_schema_version_is_an_error_that_names_both(
    toy_benchmark: Toy, tmp_path: Path, version: object
) -> None:
    save_old_form(toy_benchmark(with_images=False), tmp_path)
    rewrite_head(tmp_path, schema_version=version)
    with pytest.raises(FormatError, match=f"schema version {version!r}, expected 1"):
        load_benchmark(tmp_path)


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
    save_old_form(toy_benchmark(), tmp_path)
    rewrite_column(tmp_path / file, column, change)
    with pytest.raises(FormatError, match="changed after they were written") as raised:
        load_benchmark(tmp_path)
    assert str(tmp_path) in str(raised.value)


def test_an_image_taken_out_of_the_gallery_is_noticed(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_old_form(toy_benchmark(gallery=("a", "b", "c", "d", "e"), with_images=False), tmp_path)
    drop_rows(tmp_path / "gallery.parquet", keep=4)
    with pytest.raises(FormatError, match="changed after they were written"):
        load_benchmark(tmp_path)


def test_a_row_missing_from_the_images_is_named(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_old_form(toy_benchmark(), tmp_path)
    drop_rows(tmp_path / "images.parquet", keep=4)
    with pytest.raises(BenchmarkError, match=r"images have no bytes \(1: 'outside'\)"):
        load_benchmark(tmp_path)


def test_a_row_missing_from_the_images_can_be_allowed_but_not_for_the_same_benchmark(
    toy_benchmark: Toy, tmp_path: Path
) -> None:
    save_old_form(toy_benchmark(), tmp_path)
    drop_rows(tmp_path / "images.parquet", keep=4)
    with pytest.raises(FormatError, match="changed after they were written"):
        load_benchmark(tmp_path, allow=frozenset({Defect.MISSING_IMAGE}))


@pytest.mark.parametrize("file", ["queries.parquet", "gallery.parquet"])
def test_a_missing_file_is_an_error_that_names_it(toy_benchmark: Toy, tmp_path: Path, file: str) -> None:
    save_old_form(toy_benchmark(), tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(FormatError, match=f"{file}: no such file"):
        load_benchmark(tmp_path)


@pytest.mark.parametrize("file", ["queries.parquet", "gallery.parquet", "images.parquet"])
def test_a_truncated_file_is_an_error_that_names_it(toy_benchmark: Toy, tmp_path: Path, file: str) -> None:
    save_old_form(toy_benchmark(), tmp_path)
    truncate(tmp_path / file)
    with pytest.raises(FormatError, match=file):
        load_benchmark(tmp_path)


@pytest.mark.parametrize(
    ("file", "column"), [("queries.parquet", "targets"), ("gallery.parquet", "id"), ("images.parquet", "digest")]
)
def test_a_missing_column_is_an_error_that_names_it(toy_benchmark: Toy, tmp_path: Path, file: str, column: str) -> None:
    save_old_form(toy_benchmark(), tmp_path)
    drop_column(tmp_path / file, column)
    with pytest.raises(FormatError, match=f"{file}.*{column}"):
        load_benchmark(tmp_path)


def test_an_image_flag_that_does_not_exist_is_an_error_of_ours(toy_benchmark: Toy, tmp_path: Path) -> None:
    save_old_form(toy_benchmark(), tmp_path)
    rewrite_column(tmp_path / "images.parquet", "flags", lambda flags: [["upside_down"], *flags[1:]])
    with pytest.raises(FormatError, match="upside_down"):
        load_benchmark(tmp_path)


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
    save_old_form(toy_benchmark(with_images=False), tmp_path)
    rewrite_head(tmp_path, **changes)
    with pytest.raises(FormatError, match=r"benchmark\.json: "):
        load_benchmark(tmp_path)


@pytest.mark.parametrize(
    ("column", "value"), [("text", None), ("targets", None), ("details", "{"), ("details", None), ("id", None)]
)
def test_a_broken_cell_of_a_query_is_an_error_of_ours(
    toy_benchmark: Toy, tmp_path: Path, column: str, value: object
) -> None:
    save_old_form(toy_benchmark(with_images=False), tmp_path)
    rewrite_column(tmp_path / "queries.parquet", column, lambda cells: [value, *cells[1:]])
    with pytest.raises(CircusError):
        load_benchmark(tmp_path)
