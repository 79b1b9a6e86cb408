"""Exact ranks: speed and memory against full argsort, faiss and the dict-and-pytrec_eval path, all in one run.

`python benchmarks/ranking.py` prints one table a job. Embeddings are random unit vectors; every query has one target.
Each contender runs in a process of its own, so that peak memory is its own; times are the best of a few repetitions.

| contender | what it does |
|---|---|
| circus-bench | exact rank of every target, ties, reference place, null rank |
| circus-bench + top 50 | the same, and the top 50 of every query |
| argsort | matrix product, full stable argsort, rank read off |
| faiss flat 1000 | exact search of the best 1,000; a target beyond has no rank |
| pytrec_eval | best 1,000 per query as dictionaries, then recall, nDCG and MRR by pytrec_eval |

"from scores on" is the time without the matrix product, which all contenders share. The sgemm peak is the best rate of a
square product of 4,096, measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

JOBS = {"cirr/mbeir": (4170, 21551), "circo/val": (220, 123403), "lasco/val": (30031, 39826)}
ONLY_OURS = ("lasco/val",)  # the peers would take more memory than the machine has
DIM = 1024
TOP = 1000


def unit(rng: np.random.Generator, n: int) -> np.ndarray:
    vectors = rng.standard_normal((n, DIM), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def best_time(function: Callable[[], Any], repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def sgemm_peak() -> float:
    """GFLOP/s of a square product."""
    a, b = (np.random.default_rng(i).standard_normal((4096, 4096), dtype=np.float32) for i in (0, 1))
    out = np.empty_like(a)
    return 2 * 4096**3 / best_time(lambda: np.matmul(a, b, out=out), 8) / 1e9


def ours(queries: np.ndarray, gallery: np.ndarray, targets: np.ndarray, top_k: int) -> Callable[[], Any]:
    from circus_bench.ranking import Targets, rank_targets

    rows = Targets.of(targets[:, None].tolist(), ((targets + 1) % len(gallery)).tolist())
    return lambda: rank_targets(queries, gallery, targets=rows, top_k=top_k)


def argsort(queries: np.ndarray, gallery: np.ndarray, targets: np.ndarray) -> Callable[[], Any]:
    def rank() -> np.ndarray:
        ranks = []
        for start in range(0, len(queries), 512):  # in blocks, or the int64 order alone would take gigabytes
            order = np.argsort(-(queries[start : start + 512] @ gallery.T), axis=1, kind="stable")
            ranks.append((order == targets[start : start + 512, None]).argmax(axis=1) + 1)
        return np.concatenate(ranks)

    return rank


def faiss_flat(queries: np.ndarray, gallery: np.ndarray, targets: np.ndarray) -> Callable[[], Any]:
    import faiss

    index = faiss.IndexFlatIP(DIM)
    index.add(gallery)

    def rank() -> np.ndarray:
        found = index.search(queries, TOP)[1] == targets[:, None]
        return np.where(found.any(axis=1), found.argmax(axis=1) + 1, 0)

    return rank


def pytrec(queries: np.ndarray, gallery: np.ndarray, targets: np.ndarray) -> Callable[[], Any]:
    import pytrec_eval

    names = [f"d{i}" for i in range(len(gallery))]
    qrels = {f"q{i}": {names[target]: 1} for i, target in enumerate(targets)}

    def evaluate() -> Any:
        run = {}
        for start in range(0, len(queries), 512):
            scores = queries[start : start + 512] @ gallery.T
            best = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
            values = np.take_along_axis(scores, best, axis=1)
            for i, (row, of_row) in enumerate(zip(best.tolist(), values.tolist(), strict=True)):
                run[f"q{start + i}"] = {names[j]: score for j, score in zip(row, of_row, strict=True)}
        return pytrec_eval.RelevanceEvaluator(qrels, {"recall.1,5,10,50", "ndcg", "recip_rank"}).evaluate(run)

    return evaluate


CONTENDERS: dict[str, Callable[..., Callable[[], Any]]] = {
    "circus-bench": lambda *data: ours(*data, top_k=0),
    "circus-bench + top 50": lambda *data: ours(*data, top_k=50),
    "argsort": argsort,
    "faiss flat 1000": faiss_flat,
    "pytrec_eval": pytrec,
}


def measure(contender: str, job: str, repetitions: int) -> dict[str, float]:
    """Run one contender on one job in this process."""
    n_queries, n_gallery = JOBS[job]
    rng = np.random.default_rng(0)
    queries, gallery = unit(rng, n_queries), unit(rng, n_gallery)
    targets = rng.integers(0, n_gallery, n_queries)
    function = CONTENDERS[contender](queries, gallery, targets)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = best_time(function, repetitions)
    extra = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    out = np.empty((min(n_queries, 1024), n_gallery), np.float32)

    def product() -> None:
        for start in range(0, n_queries, 1024):
            block = queries[start : start + 1024]
            np.matmul(block, gallery.T, out=out[: len(block)])

    return {"seconds": seconds, "extra_mib": extra / 1024, "product": best_time(product, repetitions)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs=2, metavar=("CONTENDER", "JOB"), help=argparse.SUPPRESS)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure, options.repetitions)))
        return
    for job in options.jobs:
        n_queries, n_gallery = JOBS[job]
        peak = sgemm_peak()
        flop = 2 * n_queries * n_gallery * DIM
        print(f"\n{job}: {n_queries:,} x {n_gallery:,} x {DIM}, sgemm peak {peak:.0f} GFLOP/s")
        header = ("seconds", "GFLOP/s", "of peak", "slower", "from scores on", "slower", "MiB")
        print(" " * 24 + "".join(f"{name:>{16 if len(name) > 9 else 9}}" for name in header))
        first = None
        for contender in CONTENDERS if job not in ONLY_OURS else list(CONTENDERS)[:2]:
            command = [sys.executable, __file__, "--repetitions", str(options.repetitions), "--measure", contender, job]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            seconds = found["seconds"]
            beyond = seconds - found["product"]
            first = first or (seconds, beyond)
            print(
                f"{contender:24}{seconds:9.3f}{flop / seconds / 1e9:9.0f}{flop / seconds / 1e9 / peak:9.0%}"
                f"{seconds / first[0]:9.1f}{beyond:16.3f}{beyond / first[1]:9.1f}{found['extra_mib']:9.0f}"
            )


if __name__ == "__main__":
    main()
