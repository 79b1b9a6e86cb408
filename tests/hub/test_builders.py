"""The `datasets` builders give the rows of the dataset folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
from support.parts import FREE, made_benchmark, made_part

from circus_bench.dataset_scripts.builders import make_builder
from circus_bench.errors import CircusError
from circus_bench.hub.tables import LabeledBenchmark, Table, config_name
from circus_bench.hub.writer import write_dataset_folder
from circus_bench.labels.labels import Subset


def plain(dataset: Any) -> list[dict[str, Any]]:
    """Rows with the bytes of their images."""
    if "image" in dataset.column_names:
        dataset = dataset.cast_column("image", datasets.Image(decode=False))
    return [dict(row) for row in dataset]


@pytest.mark.parametrize("table", Table)
@pytest.mark.parametrize("with_images", [True, False])
def test_a_builder_makes_the_rows_of_the_folder(table: Table, with_images: bool, tmp_path: Path) -> None:
    part = made_part()
    write_dataset_folder([part], tmp_path / "circus", with_images=with_images)
    name = config_name("made", Subset.SF, table)
    cache = str(tmp_path / "cache")
    loaded = datasets.load_dataset(str(tmp_path / "circus"), name, split="test", cache_dir=cache)
    builder = make_builder(part, Subset.SF, table=table, with_images=with_images, cache_dir=tmp_path / "cache")
    builder.download_and_prepare()
    made = builder.as_dataset("test")
    assert made.features == loaded.features
    assert plain(made) == plain(loaded)


def test_streaming_makes_the_same_rows(tmp_path: Path) -> None:
    builder = make_builder(made_part(), Subset.V, cache_dir=tmp_path)
    builder.download_and_prepare()
    assert list(builder.as_streaming_dataset("test")) == plain(builder.as_dataset("test"))


def test_parquet_holds_the_bytes_of_the_images(tmp_path: Path) -> None:
    builder = make_builder(made_part(), with_images=True, cache_dir=tmp_path / "cache")
    builder.download_and_prepare(str(tmp_path / "out"), file_format="parquet")
    files = [str(path) for path in (tmp_path / "out").glob("*.parquet")]
    read = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "read"))
    write_dataset_folder([made_part()], tmp_path / "circus", with_images=True)
    folder = datasets.load_dataset(str(tmp_path / "circus"), "made_full", split="test", cache_dir=str(tmp_path / "c"))
    assert plain(read) == plain(folder)


def test_another_benchmark_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    first = make_builder(LabeledBenchmark(made_benchmark()), cache_dir=tmp_path)
    queries = made_benchmark().queries[:2]
    second = make_builder(LabeledBenchmark(made_benchmark(queries=queries)), cache_dir=tmp_path)
    for builder in (first, second):
        builder.download_and_prepare()
    assert (len(first.as_dataset("test")), len(second.as_dataset("test"))) == (4, 2)


def test_other_verdicts_are_not_taken_from_the_cache() -> None:
    labeled, bare = made_part(), LabeledBenchmark(made_benchmark(source=FREE))
    assert make_builder(labeled).config_id != make_builder(bare).config_id


def test_the_same_part_is_taken_from_the_cache() -> None:
    assert make_builder(made_part()).config_id == make_builder(made_part()).config_id


def test_a_subset_that_is_not_known_is_refused(tmp_path: Path) -> None:
    builder = make_builder(LabeledBenchmark(made_benchmark()), Subset.SF, cache_dir=tmp_path)
    with pytest.raises(Exception, match="generating") as raised:
        builder.download_and_prepare()
    assert isinstance(raised.value.__cause__, CircusError)
