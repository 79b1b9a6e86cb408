"""Name the benchmarks of a study so that it can be moved, and load them."""

from __future__ import annotations

import os
from pathlib import Path

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark
from circus_bench.hub.loading import BenchmarkName, load_benchmark
from circus_bench.hub.tables import LabeledBenchmark
from circus_bench.hub.writer import write_dataset_folder
from circus_bench.validation.study import Study


def place_in_study(name: StrPath, part: LabeledBenchmark, folder: StrPath) -> str:
    """Return the name under which a study saved in a folder finds a benchmark.

    A folder is named relative to the study's, so that both can be moved together; a repository at a revision keeps its
    name. What can be loaded with further arguments only is written into the study's folder.

    Args:
        name: as `circus_bench.hub.loading.load_benchmark` takes it.
        part: what was loaded by that name.
        folder: where the study is saved.
    """
    named = BenchmarkName.parse(name)
    if named.is_pinned:
        return str(name)
    if not Path(named.place).is_dir() or (part.benchmark.gallery.images is not None and not named.has_images):
        named = BenchmarkName(str(Path(folder) / "benchmarks"), part.name)
        write_dataset_folder([part], named.place)
    place = Path(os.path.relpath(Path(named.place).resolve(), Path(folder).resolve())).as_posix()
    return str(BenchmarkName(place, named.config))


def load_benchmarks(study: Study, folder: StrPath) -> dict[str, Benchmark]:
    """Load the benchmarks of a study by the names that it has for them.

    Args:
        study: the study.
        folder: where it is saved.

    Raises:
        CircusError: a folder or repository holds no such benchmark.
    """

    def full(name: str) -> str:
        named = BenchmarkName.parse(name)
        return name if named.is_pinned else str(BenchmarkName(str(Path(folder) / named.place), named.config))

    return {benchmark: load_benchmark(full(name)) for benchmark, name in study.benchmarks.items()}
