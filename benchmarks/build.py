"""Building a dataset folder of the four benchmarks' sizes without images: time and peak memory.

`python benchmarks/build.py` generates benchmarks of invented annotations with as many queries and gallery images as the
real ones, labels every query, and writes `full`, `sf` and `v` of all four. The build runs in a process of its own; its
peak memory holds the generated benchmarks as well.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SIZES = {
    "cirr": (4170, 21551),
    "fashioniq": (6003, 74381),
    "lasco": (30031, 39826),
    "circo": (220, 123403),
}
WORDS = ("red", "blue", "larger", "sleeve", "two", "without", "background", "dog", "left", "striped", "instead", "of")


def part(name: str, n_queries: int, n_gallery: int):
    from circus_bench.benchmark import Benchmark, Condition, Gallery, Protocol, Query, ReferencePolicy
    from circus_bench.hub.tables import LabeledBenchmark
    from circus_bench.labels.labels import Labels
    from circus_bench.labels.provenance import Provenance
    from circus_bench.labels.query_label import QueryLabel
    from circus_bench.metrics.shortcut import Label

    rng = np.random.default_rng(0)
    ids = [f"{name}-{index:06d}-img" for index in range(n_gallery)]
    picked = np.stack([rng.choice(n_gallery, 8, replace=False) for _ in range(n_queries)])
    words = rng.integers(0, len(WORDS), (n_queries, 12))
    queries = tuple(
        Query(
            str(number),
            ids[of[0]],
            " ".join(WORDS[word] for word in words[number]),
            (ids[of[1]],),
            subset=tuple(ids[i] for i in of[2:]),
            details={"row": number},
        )
        for number, of in enumerate(picked)
    )
    protocol = Protocol(f"{name}/invented", ReferencePolicy.KEPT)
    labels = rng.choice(np.array([label.value for label in Label]), n_queries)
    best = dict.fromkeys(Condition, 20)
    by_query = {
        query.id: QueryLabel(query.id, Label(label), best_rank=best, support=best)
        if label == Label.SHORTCUT
        else QueryLabel(query.id, Label(label), best_rank=best, audited=True, valid=True, stratum=Label(label))
        for query, label in zip(queries, labels, strict=True)
    }
    benchmark = Benchmark(name, protocol, queries, Gallery(tuple(ids)))
    return LabeledBenchmark(benchmark, Labels(name, Provenance(), by_query))


def build() -> None:
    """Build in this process and print the figures as JSON."""
    from circus_bench.hub.writer import n_rows, write_dataset_folder

    start = time.perf_counter()
    parts = [part(name, *size) for name, size in SIZES.items()]
    generated = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "circus"
        write_dataset_folder(parts, out)
        done = time.perf_counter()
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    figures = {
        "generate_s": generated - start,
        "build_s": done - generated,
        "rows": n_rows(parts),
        "folder_mib": size / 2**20,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }
    print(json.dumps(figures))


def main() -> None:
    """Print one table."""
    done = subprocess.run([sys.executable, __file__, "--build"], check=True, capture_output=True, text=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    queries = sum(n_queries for n_queries, _ in SIZES.values())
    gallery = sum(n_gallery for _, n_gallery in SIZES.values())
    print(f"{queries:,} queries, {gallery:,} gallery images, {figures['rows']:,} rows in all tables")
    print("| generate, s | build, s | peak memory, MiB | folder, MiB |")
    print("|---:|---:|---:|---:|")
    shown = [figures[name] for name in ("generate_s", "build_s", "peak_mib", "folder_mib")]
    print("| " + " | ".join(f"{value:,.1f}" for value in shown) + " |")


if __name__ == "__main__":
    build() if "--build" in sys.argv else main()
