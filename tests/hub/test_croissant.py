"""Croissant metadata: validated and read with `mlcroissant`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.parts import IN_SUBSET, made_part, png

from circus_bench.hub import writer
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import read_manifest, write_dataset_folder
from circus_bench.io import read_json
from circus_bench.labels.labels import Subset

mlcroissant = pytest.importorskip("mlcroissant")


@pytest.fixture(scope="module")
def circus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With images, a release date, and a corpus in three shards."""
    out = tmp_path_factory.mktemp("built") / "circus"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "_GROUP_ROWS", {True: 2, False: 2})
        write_dataset_folder([made_part(size=64)], out, with_images=True, shard_bytes=30_000, date="2026-12-01")
    return out


@pytest.fixture(scope="module")
def dataset(circus: Path) -> Any:
    return mlcroissant.Dataset(jsonld=str(circus / "croissant.json"))


def test_it_validates_without_errors_or_warnings(dataset: Any) -> None:
    issues = dataset.metadata.ctx.issues
    assert (sorted(issues.errors), sorted(issues.warnings)) == ([], [])


def test_it_conforms_to_croissant_and_its_responsible_ai_extension(circus: Path) -> None:
    assert read_json(circus / "croissant.json")["conformsTo"] == [
        "http://mlcommons.org/croissant/1.1",
        "http://mlcommons.org/croissant/RAI/1.0",
    ]


def test_without_a_date_the_date_alone_is_missing(tmp_path: Path) -> None:
    write_dataset_folder([made_part()], tmp_path / "circus")
    issues = mlcroissant.Dataset(jsonld=str(tmp_path / "circus/croissant.json")).metadata.ctx.issues
    assert (len(issues.errors), [warning for warning in issues.warnings if "datePublished" not in warning]) == (0, [])


def test_the_responsible_ai_fields_are_understood(dataset: Any) -> None:
    metadata = dataset.metadata
    for name in (
        "data_collection",
        "data_biases",
        "data_limitations",
        "data_use_cases",
        "data_annotation_protocol",
        "personal_sensitive_information",
        "data_social_impact",
        "data_release_maintenance_plan",
    ):
        assert getattr(metadata, name), name


def test_a_record_can_be_read(dataset: Any) -> None:
    records = list(dataset.records("made_v"))
    assert [record["made_v/query_id"].decode() for record in records] == IN_SUBSET[Subset.V]
    assert [list(record["made_v/targets"]) for record in records] == [[b"g2"], [b"g5"]]


def test_an_image_can_be_read(dataset: Any) -> None:
    record = next(iter(dataset.records("made_full-queries")))
    assert record["made_full-queries/image"].size == (64, 64)


def test_the_shards_of_a_table_are_one_record_set(dataset: Any) -> None:
    ids = [record["made_full-corpus/id"].decode() for record in dataset.records("made_full-corpus")]
    assert sorted(ids) == [f"g{i}" for i in range(6)]


def test_every_parquet_file_is_listed_with_its_checksum(circus: Path) -> None:
    listed = {
        entry["contentUrl"]: entry["sha256"]
        for entry in read_json(circus / "croissant.json")["distribution"]
        if entry["@type"] == "cr:FileObject"
    }
    files = read_manifest(circus)["files"]
    assert listed == {name: of["sha256"] for name, of in files.items() if name.endswith(".parquet")}


def test_shards_hold_the_images_of_the_benchmark(circus: Path) -> None:
    images = load_benchmark(circus).gallery.images
    assert images is not None
    assert [images[f"g{i}"] for i in range(6)] == [png(i, 64) for i in range(6)]
