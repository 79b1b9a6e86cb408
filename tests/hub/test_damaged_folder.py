"""Dataset folders that are not what they say: every damage ends in an error that names the file and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.damage import drop_column, drop_rows, rewrite_column, rewrite_json, spoil_pages, truncate
from support.parts import made_benchmark, made_part

from circus_bench.benchmark import Defect, Finding
from circus_bench.errors import BenchmarkError, CircusError, FormatError, MismatchError
from circus_bench.hub.loading import load_benchmark, load_labeled_benchmark
from circus_bench.hub.writer import read_manifest, save_benchmark, verify, write_dataset_folder
from circus_bench.io import read_json, write_json

Change = Callable[[list[Any]], list[Any]]

CORPUS, ROWS, FACTS = (f"data/made/{table}/00000.parquet" for table in ("corpus", "full", "images"))
REMEDY = "make the folder again with `circus-bench data make`, or download it again"


@pytest.fixture
def circus(tmp_path: Path) -> Path:
    """A dataset folder of `made_part`, with images."""
    write_dataset_folder([made_part()], tmp_path / "circus")
    return tmp_path / "circus"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The same without images, but with what was found about them."""
    write_dataset_folder([made_part()], tmp_path / "bare", with_images=False)
    return tmp_path / "bare"


def first(value: object) -> Change:
    return lambda cells: [value, *cells[1:]]


def refused(folder: Path, *named: str) -> None:
    """Loading fails with an error that names these, and what to do."""
    with pytest.raises(FormatError) as raised:
        load_labeled_benchmark(folder)
    for part in (str(folder), *named, REMEDY):
        assert part in str(raised.value)


@pytest.mark.parametrize("file", [CORPUS, ROWS, FACTS])
def test_a_missing_file_is_named(circus: Path, file: str) -> None:
    (circus / file).unlink()
    refused(circus, f"{file}: no such file")


@pytest.mark.parametrize("file", [CORPUS, ROWS, FACTS])
def test_a_truncated_file_is_named(circus: Path, file: str) -> None:
    truncate(circus / file)
    refused(circus, f"{file}: not a parquet file")


@pytest.mark.parametrize("file", [CORPUS, ROWS, FACTS])
def test_a_file_whose_pages_are_spoiled_is_named(circus: Path, file: str) -> None:
    spoil_pages(circus / file)
    refused(circus, file)


def test_spoiled_images_are_named_when_they_are_read(circus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = load_benchmark(circus)
    images = benchmark.gallery.images
    assert images is not None

    def spoiled(*_: object, **__: object) -> None:
        raise OSError("checksum of a page")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read_row_group", spoiled)
    with pytest.raises(FormatError, match=r"corpus.00000\.parquet: damaged .*checksum of a page"):
        images["g0"]


@pytest.mark.parametrize(
    ("file", "column"), [(CORPUS, "id"), (CORPUS, "image"), (ROWS, "targets"), (ROWS, "label"), (FACTS, "digest")]
)
def test_a_missing_column_is_named(circus: Path, file: str, column: str) -> None:
    drop_column(circus / file, column)
    refused(circus, f"{file}: lacks the columns ['{column}']")


@pytest.mark.parametrize(
    ("file", "column", "change"),
    [
        (ROWS, "text", lambda texts: [text + "!" for text in texts]),
        (ROWS, "targets", first(["g2"])),
        (ROWS, "reference", first("g2")),
        (ROWS, "query_id", lambda ids: [f"{name}x" for name in ids]),
        (ROWS, "subset", first(["g1", "g2"])),
        (CORPUS, "digest", lambda digests: [*digests[1:], digests[0]]),
        (CORPUS, "digest", first(None)),
        (FACTS, "digest", lambda digests: [*digests[1:], digests[0]]),
        (FACTS, "unreadable", first("corrupt")),
    ],
)
def test_what_was_changed_is_noticed(circus: Path, file: str, column: str, change: Change) -> None:
    rewrite_column(circus / file, column, change)
    refused(circus, "'made' was changed after it was written")


@pytest.mark.parametrize("file", [CORPUS, FACTS])
def test_changed_digests_are_noticed_without_images_too(bare: Path, file: str) -> None:
    rewrite_column(bare / file, "digest", lambda digests: [*digests[1:], digests[0]])
    refused(bare, "was changed after it was written (digests of ")


def test_an_image_exchanged_in_the_gallery_is_noticed(tmp_path: Path) -> None:
    # No query mentions g0.
    benchmark = made_benchmark(queries=made_benchmark().queries[1:3])
    save_benchmark(benchmark, tmp_path / "circus")
    rewrite_column(tmp_path / "circus" / CORPUS, "id", first("other"))
    refused(tmp_path / "circus", "'made' was changed after it was written")


def test_a_gallery_id_that_repeats_another_is_noticed(circus: Path) -> None:
    rewrite_column(circus / CORPUS, "id", first("g5"))
    with pytest.raises(CircusError, match="circus"):
        load_benchmark(circus)


def test_a_row_missing_from_the_gallery_is_named(circus: Path) -> None:
    drop_rows(circus / CORPUS, keep=5)
    with pytest.raises(BenchmarkError, match=r"circus: .*targets are not in the gallery \(1: 'g5'\)"):
        load_benchmark(circus)
    with pytest.raises(FormatError, match="was changed after it was written"):
        load_benchmark(circus, allow=tuple(Defect))


def test_a_row_missing_from_the_queries_is_noticed(circus: Path) -> None:
    drop_rows(circus / ROWS, keep=3)
    refused(circus, "'made' was changed after it was written")


def test_a_row_missing_from_the_facts_is_decoded_again(circus: Path) -> None:
    drop_rows(circus / FACTS, keep=5)
    assert load_benchmark(circus).fingerprint == made_benchmark().fingerprint


@pytest.mark.parametrize("gone", [None, {"bytes": None, "path": "g3.png"}])
def test_an_image_that_is_gone_is_named(circus: Path, gone: object) -> None:
    rewrite_column(circus / CORPUS, "image", lambda images: [*images[:3], gone, *images[4:]])
    with pytest.raises(BenchmarkError, match=r"circus: .*images have no bytes \(1: 'g3'\)"):
        load_benchmark(circus)


def test_an_image_that_is_gone_can_be_allowed(circus: Path) -> None:
    rewrite_column(circus / CORPUS, "image", lambda images: [*images[:3], None, *images[4:]])
    loaded = load_benchmark(circus, allow=["missing_image"])
    assert loaded.findings == (Finding(Defect.MISSING_IMAGE, ("g3",)),)
    assert loaded.gallery.images is not None
    assert "g3" not in loaded.gallery.images
    assert loaded.gallery.images.get("g3") is None
    assert loaded.gallery.images["g4"] == (made_benchmark().gallery.images or {})["g4"]


def test_an_image_flag_that_does_not_exist_is_named(circus: Path) -> None:
    rewrite_column(circus / FACTS, "flags", first(["upside_down"]))
    refused(circus, FACTS, "upside_down")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("targets", None),
        ("details", "{"),
        ("details", None),
        ("label", "obvious"),
        ("detail", "obvious"),
        ("stratum", "obvious"),
    ],
)
def test_a_broken_cell_names_the_file_and_the_query(circus: Path, column: str, value: object) -> None:
    rewrite_column(circus / ROWS, column, first(value))
    refused(circus, ROWS, "the row of query 'q0' is not readable")


@pytest.mark.parametrize("column", ["text", "query_id", "reference"])
def test_an_empty_cell_names_the_folder_and_the_query(circus: Path, column: str) -> None:
    rewrite_column(circus / ROWS, column, first(None))
    with pytest.raises(BenchmarkError, match=r"circus: .*not strings \(1: (None|'q0')\)"):
        load_benchmark(circus)


@pytest.mark.parametrize("version", [2, 0, None, "1"])
def test_another_schema_version_is_an_error_that_names_both(circus: Path, version: object) -> None:
    rewrite_json(circus / "manifest.json", schema_version=version)
    with pytest.raises(FormatError, match=rf"manifest\.json: schema version {version!r}, expected 1"):
        load_benchmark(circus)


@pytest.mark.parametrize(
    "changes",
    [{"benchmarks": None}, {"benchmarks": {}}, {"benchmarks": ["made"]}, {"files": None}, {"files": ["README.md"]}],
    ids=str,
)
def test_a_manifest_of_another_form_is_named(circus: Path, changes: dict[str, Any]) -> None:
    rewrite_json(circus / "manifest.json", **changes)
    with pytest.raises(FormatError, match=r"manifest\.json: names no benchmarks and files.*circus-bench data make"):
        load_benchmark(circus)


def test_a_manifest_that_is_no_json_is_named(circus: Path) -> None:
    truncate(circus / "manifest.json")
    with pytest.raises(FormatError, match=r"manifest\.json: not UTF-8 JSON"):
        load_benchmark(circus)


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": {"id": "toy/test"}},
        {"protocol": {"id": "toy/test", "reference": "sometimes"}},
        {"protocol": {"id": "toy/test", "reference": "kept", "more": 1}},
        {"protocol": None},
        {"name": "other"},
        {"name": None},
        {"source": None},
        {"allow": ["anything"]},
        {"allow": None},
        {"findings": [{"defect": "no_target"}]},
        {"fingerprint": {}},
        {"fingerprint": None},
        {"fingerprint": {"annotations": "0" * 64, "images": None}},
        {"verdicts": {"source": "made up"}},
        {"verdicts": "made up"},
        {"configs": None},
    ],
    ids=str,
)
def test_a_changed_entry_names_the_folder_and_the_benchmark(circus: Path, changes: dict[str, Any]) -> None:
    manifest = read_manifest(circus)
    entry = {**manifest["benchmarks"]["made"], **changes}
    write_json(circus / "manifest.json", {**manifest, "benchmarks": {"made": entry}})
    refused(circus, "'made'")


@pytest.mark.parametrize(
    "key", ["name", "protocol", "source", "allow", "findings", "fingerprint", "verdicts", "pixels", "configs"]
)
def test_an_entry_that_lacks_something_names_it(circus: Path, key: str) -> None:
    manifest = read_manifest(circus)
    del manifest["benchmarks"]["made"][key]
    write_json(circus / "manifest.json", manifest)
    refused(circus, "the entry of 'made' in manifest.json is not readable", key)


def test_a_configuration_that_the_manifest_lost_is_named(circus: Path) -> None:
    manifest = read_manifest(circus)
    del manifest["benchmarks"]["made"]["configs"]["made_full-corpus"]
    write_json(circus / "manifest.json", manifest)
    with pytest.raises(CircusError, match=r"circus: no configuration 'made_full-corpus'; it has \['made_full', "):
        load_benchmark(circus)


def test_images_that_the_manifest_promises_and_the_files_lack_are_noticed(bare: Path) -> None:
    manifest = read_manifest(bare)
    manifest["benchmarks"]["made"]["pixels"] = True
    write_json(bare / "manifest.json", manifest)
    refused(bare, f"{CORPUS}: lacks the columns ['image']")


@pytest.mark.parametrize("image_id", ["g3", "outside"])
def test_joined_images_are_held_against_the_recorded_ones(bare: Path, image_id: str) -> None:
    held = dict(made_benchmark().gallery.images or {})
    assert load_benchmark(bare, images=held).fingerprint == made_benchmark().fingerprint
    with pytest.raises(MismatchError, match=rf"other pixels .*\(1: '{image_id}'\)"):
        load_benchmark(bare, images={**held, image_id: held["g1"]})


@pytest.mark.parametrize("table", ["sf", "v-queries", "full-qrels"])
def test_damage_to_what_only_others_read_is_found_by_the_checksums(circus: Path, table: str) -> None:
    truncate(circus / f"data/made/{table}/00000.parquet")
    load_labeled_benchmark(circus)
    with pytest.raises(FormatError, match=rf"were changed \(1: 'data/made/{table}/00000\.parquet'\); make the folder"):
        verify(circus)


def test_a_folder_of_before_there_were_recorded_facts_loads(circus: Path) -> None:
    (circus / FACTS).unlink()
    manifest = read_json(circus / "manifest.json")
    del manifest["files"][FACTS]
    write_json(circus / "manifest.json", manifest)
    loaded = load_benchmark(circus)
    assert loaded == made_benchmark()
    assert loaded.fingerprint == made_benchmark().fingerprint
