"""Measure exact ranking: speed and memory against full argsort, faiss and the dict-and-pytrec_eval path in one run.

`python benchmarks/ranking.py` prints one table per job. Embeddings are random unit vectors; every query has one target.
Each contender runs in a process of its own, so that peak memory is its own; times are the best of a few repetitions.
Ours and faiss hold the gallery before the clock starts.

| contender | what it does |
|---|---|
| circus-bench | exact rank of every target, ties, reference position, null rank |
| circus-bench + top 50 | the same, and the top 50 of every query |
| argsort | matrix product, full stable argsort, rank read off |
| faiss flat 1000 | exact search of the best 1,000; a target beyond has no rank |
| mteb | what `mteb run` does: chunks of 50,000, top 1,000 by heap, dictionaries, its metrics by pytrec_eval |
| pytrec_eval, lean | best 1,000 per query as dictionaries, then only recall, nDCG and MRR by pytrec_eval |

"from scores on" is the time from scores in memory to ranks or metrics, without the matrix product that all share; faiss
gives no access to its scores. The sgemm peak is the best rate of a square product of 4,096, measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

JOBS = {"cirr/mbeir": (4170, 21551), "circo/val": (220, 123403), "lasco/val": (30031, 39826)}
ONLY_OURS = ("lasco/val",)  # the peers would take more memory than the machine has
DIM = 1024
TOP = 1000
BLOCK = 512  # queries; all of a full argsort at once would take gigabytes


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
    """Measure the GFLOP/s of a square product."""
    a, b = (np.random.default_rng(i).standard_normal((4096, 4096), dtype=np.float32) for i in (0, 1))
    out = np.empty_like(a)
    return 2 * 4096**3 / best_time(lambda: np.matmul(a, b, out=out), 8) / 1e9


@dataclass(frozen=True)
class Contender:
    """Calls to be timed: `whole` from embeddings on, `after` from a block of 512 queries' scores on."""

    whole: Callable[[], Any]
    after: Callable[[np.ndarray, int], Any] | None


def ours(queries: np.ndarray, gallery: np.ndarray, targets: np.ndarray, top_k: int) -> Contender:
    from circus_bench.ranking.ranker import Ranker, Targets, rank_scores

    def rows(start: int, stop: int) -> Targets:
        own = targets[start:stop]
        return Targets.of(own[:, None].tolist(), ((own + 1) % len(gallery)).tolist())

    whole = rows(0, len(queries))
    blocks = {start: rows(start, start + BLOCK) for start in range(0, len(queries), BLOCK)}
    ranker = Ranker(gallery, max_norm=1.0)
    return Contender(
        lambda: ranker.rank(queries, targets=whole, top_k=top_k),
        lambda scores, start: rank_scores(scores, targets=blocks[start], top_k=top_k),
    )


def in_blocks(queries: np.ndarray, gallery: np.ndarray, after: Callable[[np.ndarray, int], Any]) -> Contender:
    def whole() -> list[Any]:
        starts = range(0, len(queries), BLOCK)
        return [after(queries[start : start + BLOCK] @ gallery.T, start) for start in starts]

    return Contender(whole, after)


def argsort(queries: np.ndarray, gallery: np.ndarray, targets: np.ndarray) -> Contender:
    def after(scores: np.ndarray, start: int) -> np.ndarray:
        order = np.argsort(-scores, axis=1, kind="stable")
        return (order == targets[start : start + len(scores), None]).argmax(axis=1) + 1

    return in_blocks(queries, gallery, after)


def faiss_flat(queries: np.ndarray, gallery: np.ndarray, targets: np.ndarray) -> Contender:
    import faiss

    index = faiss.IndexFlatIP(DIM)
    index.add(gallery)

    def rank() -> np.ndarray:
        found = index.search(queries, TOP)[1] == targets[:, None]
        return np.where(found.any(axis=1), found.argmax(axis=1) + 1, 0)

    return Contender(rank, None)


def mteb_path(queries: np.ndarray, gallery: np.ndarray, targets: np.ndarray) -> Contender:
    """Run mteb's own functions on ready scores: the encoder yields nothing, the similarity is read from the block."""
    from datasets import Dataset
    from mteb import get_task
    from mteb._evaluators.retrieval_metrics import calculate_retrieval_scores, make_score_dict
    from mteb.models.search_wrappers import chunked_full_corpus_search

    names = [f"d{i}" for i in range(len(gallery))]
    corpus = Dataset.from_dict({"id": names, "image": names})  # nothing looks at the images
    metadata = get_task("CIRRIT2IRetrieval").metadata

    def after(scores: np.ndarray, start: int) -> Any:
        starts = iter(range(0, len(gallery), 50_000))
        found = chunked_full_corpus_search(
            task_corpus=corpus,
            corpus_chunk_size=50_000,
            query_idx_to_id={i: f"q{start + i}" for i in range(len(scores))},
            query_embeddings=scores,
            task_metadata=metadata,
            hf_subset="default",
            hf_split="test",
            top_k=TOP,
            encode_kwargs={"show_progress_bar": False},
            encode_fn=lambda *_, **__: next(starts),
            similarity_fn=lambda block, first: block[:, first : first + 50_000],
            search_k_offset=1,
        )
        run = {query: {name: score for score, name in best} for query, best in found.items()}
        qrels = {query: {names[targets[int(query[1:])]]: 1} for query in run}
        result = calculate_retrieval_scores(run, qrels, [1, 3, 5, 10, 20, 100, 1000])
        return make_score_dict(
            ndcg=result.ndcg,
            _map=result.map,
            recall=result.recall,
            precision=result.precision,
            mrr=result.mrr,
            naucs=result.naucs,
            naucs_mrr=result.naucs_mrr,
            task_scores={},
            hit_rate=result.hit_rate,
        )

    return in_blocks(queries, gallery, after)


def pytrec(queries: np.ndarray, gallery: np.ndarray, targets: np.ndarray) -> Contender:
    import pytrec_eval

    names = [f"d{i}" for i in range(len(gallery))]
    qrels = {f"q{i}": {names[target]: 1} for i, target in enumerate(targets)}

    def after(scores: np.ndarray, start: int) -> Any:
        best = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
        values = np.take_along_axis(scores, best, axis=1)
        run = {
            f"q{start + i}": {names[j]: score for j, score in zip(row, of_row, strict=True)}
            for i, (row, of_row) in enumerate(zip(best.tolist(), values.tolist(), strict=True))
        }
        own = {query: qrels[query] for query in run}
        return pytrec_eval.RelevanceEvaluator(own, {"recall.1,5,10,50", "ndcg", "recip_rank"}).evaluate(run)

    return in_blocks(queries, gallery, after)


CONTENDERS: dict[str, Callable[..., Contender]] = {
    "circus-bench": lambda *data: ours(*data, top_k=0),
    "circus-bench + top 50": lambda *data: ours(*data, top_k=50),
    "argsort": argsort,
    "faiss flat 1000": faiss_flat,
    "mteb": mteb_path,
    "pytrec_eval, lean": pytrec,
}


def memory(field: str) -> float:
    """Read the resident memory of this process in MiB: now (`VmRSS`) or at its peak (`VmHWM`)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def measure(name: str, job: str, repetitions: int) -> dict[str, float | None]:
    """Run one contender on one job in this process."""
    n_queries, n_gallery = JOBS[job]
    rng = np.random.default_rng(0)
    queries, gallery = unit(rng, n_queries), unit(rng, n_gallery)
    targets = rng.integers(0, n_gallery, n_queries)
    contender = CONTENDERS[name](queries, gallery, targets)
    # Linux forgets the peak of resident memory on request; what the data took to make is not the contender's.
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    seconds = best_time(contender.whole, repetitions)
    extra = memory("VmHWM") - before
    if contender.after is None:
        return {"seconds": seconds, "extra_mib": extra, "after": None}
    after = 0.0
    for start in range(0, n_queries, BLOCK):
        scores = queries[start : start + BLOCK] @ gallery.T
        after += best_time(partial(contender.after, scores, start), repetitions)
    return {"seconds": seconds, "extra_mib": extra, "after": after}


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
            seconds, after = found["seconds"], found["after"]
            first = first or (seconds, after)
            shown = f"{'':16}{'':9}" if after is None else f"{after:16.3f}{after / first[1]:9.1f}"
            print(
                f"{contender:24}{seconds:9.3f}{flop / seconds / 1e9:9.0f}{flop / seconds / 1e9 / peak:9.0%}"
                f"{seconds / first[0]:9.1f}{shown}{found['extra_mib']:9.0f}"
            )


if __name__ == "__main__":
    main()
