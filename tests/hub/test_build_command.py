"""`circus-bench build`: from sources, labels and images to a dataset folder."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from click.testing import Result
from support.parts import made_benchmark, without_images
from typer.testing import CliRunner

from circus_bench.benchmark import Benchmark, Condition
from circus_bench.cli.build import build
from circus_bench.errors import CircusError, MismatchError
from circus_bench.hub.reader import benchmark_of, verdicts_of
from circus_bench.hub.writer import read_manifest, verify
from circus_bench.labels.label_table import save_labels
from circus_bench.labels.pool import Pool
from circus_bench.sources.scenes import scenes

app = typer.Typer()
app.command()(build)


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, CircusError):
        raise result.exception
    return result


def write_labels(benchmark: Benchmark, path: Path) -> None:
    """Every second query a text shortcut, by a pool of one model."""
    queries = tuple(query.id for query in benchmark.queries)
    far = np.full((1, len(queries)), 99.0)
    text = far.copy()
    text[:, ::2] = 1
    best = {Condition.MULTIMODAL: far, Condition.TEXT_ONLY: text, Condition.IMAGE_ONLY: far}
    pool = Pool(("tests/a",), queries, best)
    origin = {
        "benchmark": benchmark.name,
        "protocol": dataclasses.asdict(benchmark.protocol),
        "fingerprint": dataclasses.asdict(benchmark.fingerprint),
    }
    save_labels(path, pool, pool.label(k=10), origin=origin)


def configs(manifest: dict[str, Any], name: str) -> dict[str, int]:
    entry = manifest["benchmarks"][name]
    return {of["subset"]: of["rows"] for of in entry["configs"].values() if of["table"] == "rows"}


def test_the_demo_benchmark_is_built_from_its_folder_with_labels_and_images(tmp_path: Path) -> None:
    benchmark = scenes(queries=40, gallery=400)
    benchmark.save(tmp_path / "benchmark")
    write_labels(benchmark, tmp_path / "labels.parquet")
    out = tmp_path / "circus"
    done = run(tmp_path / "benchmark", "--labels", tmp_path / "labels.parquet", "--with-images", "--out", out)
    assert done.exit_code == 0, done.output
    manifest = verify(out)
    assert configs(manifest, "scenes") == {"full": 40, "sf": 20}
    assert manifest["publishable"] is True
    assert benchmark_of(out, "scenes").fingerprint == benchmark.fingerprint


def test_published_verdicts_are_taken_by_default(shared: Path, tmp_path: Path) -> None:
    done = run("circo/val", "--data", shared / "data", "--out", tmp_path / "circus", "--json")
    assert done.exit_code == 0, done.output
    # 53 + 3 shortcut-free queries, of which people found 39 + 3 valid.
    assert configs(json.loads(done.stdout), "circo") == {"full": 220, "sf": 56, "v": 42}


def test_own_labels_replace_the_published_ones(shared: Path, tmp_path: Path) -> None:
    from circus_bench.sources import load_source

    write_labels(load_source("circo/val", shared / "data" / "circo"), tmp_path / "labels.parquet")
    run("circo/val", "--data", shared / "data", "--labels", tmp_path / "labels.parquet", "--out", tmp_path / "circus")
    assert configs(read_manifest(tmp_path / "circus"), "circo") == {"full": 220, "sf": 110}
    verdicts = verdicts_of(tmp_path / "circus", "circo")
    assert verdicts is not None
    assert verdicts.origin.pool == ("tests/a",)


def test_images_are_joined_to_a_folder_of_annotations(tmp_path: Path) -> None:
    without_images(made_benchmark()).save(tmp_path / "benchmark")
    held = made_benchmark().gallery.images
    assert held is not None
    (tmp_path / "images/made").mkdir(parents=True)
    for image_id, data in held.items():
        (tmp_path / "images/made" / f"{image_id}.png").write_bytes(data)
    run(tmp_path / "benchmark", "--images", tmp_path / "images", "--with-images", "--out", tmp_path / "circus")
    assert benchmark_of(tmp_path / "circus", "made").fingerprint == made_benchmark().fingerprint


def test_the_date_of_the_release_is_kept(tmp_path: Path) -> None:
    made_benchmark().save(tmp_path / "benchmark")
    run(tmp_path / "benchmark", "--out", tmp_path / "circus", "--date", "2026-12-01")
    run(tmp_path / "benchmark", "--out", tmp_path / "circus")
    assert read_manifest(tmp_path / "circus")["date"] == "2026-12-01"


class TestRefusals:
    def test_labels_of_a_benchmark_that_is_not_built_are_refused(self, tmp_path: Path) -> None:
        made_benchmark().save(tmp_path / "benchmark")
        write_labels(made_benchmark(name="other"), tmp_path / "labels.parquet")
        with pytest.raises(MismatchError, match="'other'"):
            run(tmp_path / "benchmark", "--labels", tmp_path / "labels.parquet", "--out", tmp_path / "circus")

    def test_labels_of_another_version_are_refused(self, tmp_path: Path) -> None:
        made_benchmark().save(tmp_path / "benchmark")
        write_labels(made_benchmark(queries=made_benchmark().queries[:3]), tmp_path / "labels.parquet")
        with pytest.raises(MismatchError, match="another version"):
            run(tmp_path / "benchmark", "--labels", tmp_path / "labels.parquet", "--out", tmp_path / "circus")
        assert not (tmp_path / "circus").exists()

    def test_what_is_neither_folder_nor_protocol_is_refused_with_the_protocols(self, tmp_path: Path) -> None:
        with pytest.raises(CircusError, match="cirr/circus"):
            run("cirr/nonsense", "--out", tmp_path / "circus")

    def test_annotation_files_without_a_place_are_asked_for(self, tmp_path: Path) -> None:
        with pytest.raises(CircusError, match="--data"):
            run("cirr/circus", "--out", tmp_path / "circus")

    def test_a_date_that_is_none_is_refused(self, tmp_path: Path) -> None:
        made_benchmark().save(tmp_path / "benchmark")
        with pytest.raises(CircusError, match="YYYY-MM-DD"):
            run(tmp_path / "benchmark", "--out", tmp_path / "circus", "--date", "tomorrow")
