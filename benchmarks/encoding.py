"""Measure image encodes and wall time of nine evaluations, three conditions on full, sf and v, by our task and by mteb.

Both evaluate the same encoder on the same dataset folder, a small benchmark of drawn scenes, and keep nothing from each
other. The peer is mteb's own retrieval task over the -corpus, -queries and -qrels configurations of the folder, three
times (image and text, text, image) on three subsets. Its text-only queries have no image at all, which spares it the
black ones; and it ranks no further than 1,000, gives no intervals, and decodes no image before it is encoded.

    python benchmarks/encoding.py [--queries N] [--gallery N]
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = tempfile.TemporaryDirectory(prefix="circus-bench-encoding-")
# The libraries read these on import; nothing of an earlier run may be found again.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": ROOT.name, "HF_DATASETS_CACHE": f"{ROOT.name}/datasets"}

import mteb  # noqa: E402
from mteb.abstasks.retrieval import AbsTaskRetrieval  # noqa: E402
from mteb.cache import ResultCache  # noqa: E402

from circus_bench.hub.tables import LabeledBenchmark  # noqa: E402
from circus_bench.hub.writer import write_dataset_folder  # noqa: E402
from circus_bench.labels.labels import Labels  # noqa: E402
from circus_bench.labels.provenance import Provenance  # noqa: E402
from circus_bench.labels.query_label import QueryLabel  # noqa: E402
from circus_bench.metrics.shortcut import Label  # noqa: E402
from circus_bench.models import load_encoder  # noqa: E402
from circus_bench.sources.cirr import PROTOCOLS  # noqa: E402
from circus_bench.sources.scenes import expected_label, scenes  # noqa: E402
from circus_bench.tasks.circus_cirr import CircusCIRR  # noqa: E402

MODEL = "circus-bench/mini-balanced"
CATEGORIES = ("it2i", "t2i", "i2i")
TARGET_ENCODES, TARGET_TIME = 4, 3


class Counting:
    """Encoder that counts the images that it gets."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self.mteb_model_meta, self.model = encoder.mteb_model_meta, encoder.model
        self.similarity, self.similarity_pairwise = encoder.similarity, encoder.similarity_pairwise
        self.images = 0

    def encode(self, inputs: Any, **options: Any) -> Any:
        """Encode, as the encoder does."""
        return self._encoder.encode(self._counted(inputs), **options)

    def _counted(self, batches: Any) -> Iterator[Any]:
        for batch in batches:
            self.images += len(batch.get("image", ()))
            yield batch


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Cost of the evaluations."""

    images: int
    seconds: float


def write_folder(folder: Path, *, queries: int, gallery: int) -> None:
    """Write a dataset folder of drawn scenes that go for CIRR; half of the planted shortcut-free queries are valid."""
    drawn = scenes(queries=queries, gallery=gallery)
    benchmark = dataclasses.replace(drawn, name="cirr", protocol=PROTOCOLS["cirr/circus"])
    verdicts: dict[str, QueryLabel] = {}
    for number, query in enumerate(benchmark.queries):
        free = expected_label(query, 10) != Label.SHORTCUT
        label = Label.UNRESOLVED if free else Label.SHORTCUT
        verdicts[query.id] = QueryLabel(query.id, label, audited=free, valid=number % 2 == 0 if free else None)
    labeled = LabeledBenchmark(benchmark, Labels("cirr", Provenance(source="planted", k=10), verdicts))
    write_dataset_folder([labeled], folder, with_images=True, local_only=True)


def stock_tasks(folder: Path) -> list[AbsTaskRetrieval]:
    """Build mteb's retrieval task for each condition, on the three subsets."""
    return [_stock_task(folder, category) for category in CATEGORIES]


def _stock_task(folder: Path, category: Any) -> AbsTaskRetrieval:
    class Stock(AbsTaskRetrieval):
        metadata = mteb.TaskMetadata(
            name=f"Stock-{category}",
            description="mteb's own retrieval task.",
            dataset={"path": str(folder), "revision": "1"},
            type="Any2AnyRetrieval",
            category=category,
            modalities=["text", "image"],
            eval_langs={f"cirr_{subset}": ["eng-Latn"] for subset in ("full", "sf", "v")},
            main_score="hit_rate_at_10",
        )

    return Stock()


def measure(tasks: Sequence[Any], out: Path) -> Outcome:
    """Evaluate the encoder on tasks, from an empty output folder; the model is loaded and warm."""
    encoder = Counting(load_encoder(MODEL, device="cpu"))
    start = time.perf_counter()
    mteb.evaluate(encoder, tasks, cache=ResultCache(out), co2_tracker=False, show_progress_bar=False)
    return Outcome(encoder.images, time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--gallery", type=int, default=1500)
    given = parser.parse_args()
    root = Path(ROOT.name)
    write_folder(root / "warm-up", queries=40, gallery=400)
    write_folder(root / "circus", queries=given.queries, gallery=given.gallery)
    for name in ("warm-up", "circus"):  # imports and first calls are no part of the comparison
        os.environ["CIRCUS_DATA"] = str(root / name)
        ours = measure([CircusCIRR()], root / name / "ours")
        stock = measure(stock_tasks(root / name), root / name / "stock")
    encodes, seconds = stock.images / ours.images, stock.seconds / ours.seconds
    print(f"nine evaluations of {MODEL}: {given.queries:,} queries, {given.gallery:,} gallery images")
    print(f"{'':24}{'image encodes':>14}{'seconds':>10}")
    print(f"{'stock mteb tasks':24}{stock.images:14,}{stock.seconds:10.1f}")
    print(f"{'CIRCUS task':24}{ours.images:14,}{ours.seconds:10.1f}")
    print(f"{'ratio':24}{encodes:14.1f}{seconds:10.1f}")
    print(f"{'target':24}{TARGET_ENCODES:14}{TARGET_TIME:10}")


if __name__ == "__main__":
    main()
