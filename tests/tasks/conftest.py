"""A small dataset folder for the CIRCUS tasks, and an encoder that counts what it is shown."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mteb.types import PromptType
from support.parts import without_images
from support.standins import digest_of

from circus_bench.benchmark import Benchmark, Protocol
from circus_bench.hub.tables import LabeledBenchmark
from circus_bench.hub.writer import write_dataset_folder
from circus_bench.labels.labels import Labels
from circus_bench.labels.provenance import Provenance
from circus_bench.labels.query_label import QueryLabel
from circus_bench.metrics.shortcut import Label
from circus_bench.models import load_encoder
from circus_bench.sources.cirr import PROTOCOLS
from circus_bench.sources.scenes import scenes


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CIRCUS_DATA", "CIRCUS_RUNS", "CIRCUS_STORE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def stand_in_images() -> ModuleType:
    """The script benchmarks/stand_in_images.py as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / "stand_in_images.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def small_cirr() -> Callable[..., LabeledBenchmark]:
    """`small_cirr(protocol, audited=True)`: a benchmark that goes for CIRR, without images.

    40 queries search 400 images. Those at odd positions are shortcut-free (20), every second of these is valid (10).
    """
    drawn = without_images(scenes(queries=40, gallery=400))

    def make(protocol: Protocol = PROTOCOLS["cirr/circus"], *, audited: bool = True) -> LabeledBenchmark:
        benchmark = dataclasses.replace(drawn, name="cirr", protocol=protocol, source={})
        return LabeledBenchmark(benchmark, _verdicts(benchmark) if audited else None)

    return make


@pytest.fixture(scope="session")
def bare_folder(small_cirr: Callable[..., LabeledBenchmark], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder of annotations."""
    folder = tmp_path_factory.mktemp("bare") / "circus"
    write_dataset_folder([small_cirr()], folder)
    return folder


@pytest.fixture(scope="session")
def folder(bare_folder: Path, stand_in_images: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with stand-in images."""
    out = tmp_path_factory.mktemp("joined") / "circus"
    stand_in_images.join_stand_ins(bare_folder, "cirr", out=out)
    return out


class Counting:
    """A mini encoder that counts the images it is shown as documents and as queries, by content."""

    def __init__(self) -> None:
        self._encoder: Any = load_encoder("circus-bench/mini-balanced", device="cpu")
        self.mteb_model_meta = self._encoder.mteb_model_meta
        self.model = self._encoder.model
        self.documents: Counter[str] = Counter()
        self.queries: Counter[str] = Counter()

    def encode(self, inputs: Any, *, prompt_type: PromptType, **options: Any) -> Any:
        seen = self.documents if prompt_type is PromptType.document else self.queries
        return self._encoder.encode(_counted(inputs, seen), prompt_type=prompt_type, **options)

    def similarity(self, first: Any, second: Any) -> Any:
        return self._encoder.similarity(first, second)

    def similarity_pairwise(self, first: Any, second: Any) -> Any:
        return self._encoder.similarity_pairwise(first, second)


@pytest.fixture(scope="session")
def make_counting() -> type[Counting]:
    """`make_counting()`: a fresh counting encoder."""
    return Counting


def _counted(batches: Any, seen: Counter[str]) -> Iterator[Any]:
    for batch in batches:
        seen.update(map(digest_of, batch["image"]))
        yield batch


def _verdicts(benchmark: Benchmark) -> Labels:
    verdicts = {}
    for number, query in enumerate(benchmark.queries):
        free = number % 2 == 1
        label = Label.UNRESOLVED if free else Label.SHORTCUT
        verdicts[query.id] = QueryLabel(query.id, label, audited=free, valid=number % 4 == 1 if free else None)
    return Labels(benchmark.name, Provenance(source="made up", k=10), verdicts)
