"""A dry run projects what a full run takes, from a part, and leaves nothing that could be taken for a Run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.standins import StandIn
from support.threaded_job import in_job
from typer.testing import CliRunner

from circus_bench.benchmark import Benchmark, Query
from circus_bench.cli import app
from circus_bench.encoding.encoder import EncodeSettings
from circus_bench.errors import CircusError, ImageError
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.images import Inspection, ParquetImages
from circus_bench.runs.dry_run import DryRun, estimate_cost
from circus_bench.sources.scenes import scenes

N_IMAGES, N_QUERIES = 40, 30


@pytest.fixture
def benchmark(toy_benchmark: Callable[..., Benchmark], encode_image: Callable[..., bytes]) -> Benchmark:
    """40 images of 20 different contents and two sizes; 30 queries of 10 references and 15 texts."""
    names = [f"i{number}" for number in range(N_IMAGES)]
    images = {
        name: encode_image(Image.new("RGB", (30 + number % 2, 40), (number % 20, 0, 0)), "PNG")
        for number, name in enumerate(names)
    }
    queries = [Query(f"q{n}", names[n % 10], f"text {n % 15}", (names[n + 5],)) for n in range(N_QUERIES)]
    return toy_benchmark(queries=queries, gallery=names, images=images)


def counts(dry_run: DryRun) -> dict[str, tuple[int, int]]:
    return {part.name: (part.inputs, part.distinct) for part in dry_run.parts}


def test_inputs_are_counted_as_they_would_be_encoded(benchmark: Benchmark, tmp_path: Path) -> None:
    save_benchmark(benchmark, tmp_path)
    dry_run = estimate_cost(StandIn(), load_benchmark(tmp_path), limit=8)
    # Query n has reference n % 10 and text n % 15, so that it repeats after 30 queries: all 30 pairs differ. Of a
    # reference the text-only query sees the size, which is n % 2: again 30 pairs with the 15 texts.
    assert counts(dry_run) == {
        "gallery": (40, 20),
        "multimodal": (30, 30),
        "text_only": (30, 30),
        "image_only": (30, 10),
    }
    assert dry_run.equal_by_content
    assert dry_run.decode_seconds == 0


def test_without_recorded_digests_inputs_are_counted_by_image_id(benchmark: Benchmark) -> None:
    dry_run = estimate_cost(StandIn(), benchmark, limit=8)
    assert not dry_run.equal_by_content
    assert counts(dry_run)["gallery"] == (40, 40)
    assert dry_run.decode_seconds > 0


def test_images_of_a_table_without_recorded_digests_are_counted_by_id(benchmark: Benchmark, tmp_path: Path) -> None:
    images = benchmark.gallery.images or {}
    ParquetImages.write(tmp_path / "images.parquet", images, inspection=benchmark.inspect())
    unknown = ParquetImages([(tmp_path / "images.parquet", "id", "bytes")], inspection=Inspection({}, {}))
    dry_run = estimate_cost(StandIn(), benchmark.with_images(unknown), limit=8)
    assert not dry_run.equal_by_content
    assert counts(dry_run)["gallery"] == (40, 40)


def test_only_the_part_is_decoded_and_encoded(benchmark: Benchmark) -> None:
    read: list[str] = []

    class Counted(dict[str, bytes]):
        def __getitem__(self, name: str) -> bytes:
            read.append(name)
            return super().__getitem__(name)

        def get(self, name: str, default: Any = None) -> Any:
            return self[name]

    encoder = StandIn()
    estimate_cost(encoder, benchmark.with_images(Counted(benchmark.gallery.images or {})), limit=4)
    # Images 0, 10, 20 and 30; queries 0, 7, 15 and 22, whose references are 0, 7, 5 and 2.
    assert set(read) == {f"i{number}" for number in (0, 10, 20, 30, 7, 5, 2)}


def test_the_part_is_measured(benchmark: Benchmark) -> None:
    dry_run = estimate_cost(StandIn(), benchmark, limit=8)
    # Of the images 0, 5, ..., 35 the last four equal the first four. Queries 0, 3, 7, 11, 15, 18, 22
    # and 26 have the references 0, 3, 7, 1, 5, 8, 2 and 6.
    assert {part.name: part.measured for part in dry_run.parts} == {
        "gallery": 4,
        "multimodal": 8,
        "text_only": 8,
        "image_only": 8,
    }
    for part in dry_run.parts:
        assert part.seconds == pytest.approx(part.distinct / part.per_second)
    assert dry_run.seconds > sum(part.seconds for part in dry_run.parts)


def test_disk_and_memory_follow_from_the_counts(benchmark: Benchmark, tmp_path: Path) -> None:
    save_benchmark(benchmark, tmp_path)
    dry_run = estimate_cost(StandIn(), load_benchmark(tmp_path), limit=8, memory=2**20)
    assert dry_run.dim == 16
    # 20 + 30 + 30 + 10 distinct vectors of 16 fp32 numbers, each with a digest of 32 bytes.
    assert dry_run.store_bytes == 90 * (64 + 32)
    assert dry_run.ordered_bytes == (40 + 3 * 30) * 64
    # 1,024 rows of 40 fp32 scores take 160 KiB, which fits; more rows are never taken.
    assert dry_run.scores_bytes == 1024 * 40 * 4
    assert dry_run.peak_bytes > 2**20


def test_a_limit_beyond_the_benchmark_measures_all_of_it(benchmark: Benchmark) -> None:
    assert [part.measured for part in estimate_cost(StandIn(), benchmark, limit=1000).parts] == [20, 30, 30, 10]


def test_processes_share_the_time(benchmark: Benchmark) -> None:
    for dry_run in in_job(2, lambda job: estimate_cost(StandIn(), benchmark, limit=4, job=job)):
        assert dry_run.processes == 2
        for part in dry_run.parts:
            assert part.seconds == pytest.approx(part.distinct / part.per_second / 2)


def test_a_part_with_an_unreadable_image_is_an_error(benchmark: Benchmark) -> None:
    images = {**(benchmark.gallery.images or {}), "i10": b"no image"}
    with pytest.raises(ImageError, match="i10"):
        estimate_cost(StandIn(), benchmark.with_images(images), limit=4)


def test_a_limit_of_nothing_is_refused(benchmark: Benchmark) -> None:
    with pytest.raises(CircusError, match="at least one image"):
        estimate_cost(StandIn(), benchmark, limit=0, settings=EncodeSettings())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    save_benchmark(scenes(7, 12, gallery=120), folder)
    return folder


def command(folder: Path, *options: str) -> Any:
    return CliRunner().invoke(app, ["run", str(folder), "-m", "circus-bench/mini-balanced", *options])


def test_the_command_prints_an_estimate_and_writes_nothing(folder: Path, tmp_path: Path) -> None:
    done = command(folder, "--dry-run", "--limit", "5", "--out", str(tmp_path / "runs"))
    assert done.exit_code == 0, done.output
    assert "projected from a dry run" in done.stdout
    assert "disk: embeddings" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_the_estimate_as_json_says_that_it_comes_from_a_dry_run(folder: Path) -> None:
    done = command(folder, "--dry-run", "--limit", "5", "--json")
    found = json.loads(done.stdout)["circus-bench/mini-balanced"]
    assert found["dry_run"] is True
    assert found["limit"] == 5
    assert [(part["name"], part["inputs"]) for part in found["parts"]] == [
        ("gallery", 120),
        ("multimodal", 12),
        ("text_only", 12),
        ("image_only", 12),
    ]
    assert np.isfinite(found["seconds"])


def test_a_run_without_a_folder_for_it_is_wrong_usage(folder: Path) -> None:
    done = command(folder)
    assert done.exit_code == 2
    assert "--out" in done.stderr
