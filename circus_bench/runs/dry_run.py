"""Estimate the cost of a run by a dry run on a small part of a benchmark, which leaves nothing behind."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from circus_bench.benchmark import Benchmark, Condition, Defect
from circus_bench.distributed import DistributedJob, current_job
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.encoder import BenchmarkEncoder, EncodeSettings, ModelIdentity
from circus_bench.errors import CircusError
from circus_bench.images import ImageInfo, ParquetImages
from circus_bench.ranking.backends import Backend
from circus_bench.ranking.ranker import DEFAULT_MEMORY, Targets, block_rows, rank_targets
from circus_bench.runs.run import DEFAULT_TOP_K

if TYPE_CHECKING:
    from mteb.models.models_protocols import EncoderProtocol

T = TypeVar("T")

_DIGEST_BYTES = 32  # beside each vector of the store
_SAMPLE_BYTES = 64 * 2**20  # of the random gallery that ranking is timed on
_SAMPLE_QUERIES = 255  # with the check row they fill a block of 256


@dataclass(frozen=True)
class StageEstimate:
    """Estimate for encoding the gallery, or the queries under a condition.

    Attributes:
        name: `gallery`, or the condition.
        inputs: number of inputs.
        distinct: inputs to be encoded, after deduplication.
        measured: distinct inputs that the dry run encoded.
        per_second: inputs encoded per second by one process.
        seconds: time to encode all of them, by all processes.
    """

    name: str
    inputs: int
    distinct: int
    measured: int
    per_second: float
    seconds: float


@dataclass(frozen=True)
class DryRun:
    """Estimate of the time, disk and memory of a full run.

    Attributes:
        model: the weights.
        benchmark: name of the benchmark.
        limit: gallery images and queries that the dry run took at most.
        processes: number of processes that share the work.
        parts: what is to be encoded.
        equal_by_content: whether distinct inputs were counted by their pixels. Where the digests of the images are not
            recorded they were counted by image id, and may be fewer.
        dim: dimensions of the embeddings.
        decode_seconds: decoding every image once before the encode; 0 where the digests are recorded.
        rank_seconds: ranking under three conditions, by all processes.
        store_bytes: embeddings on disk.
        ordered_bytes: the same once more, in the order of gallery and queries, to be memory-mapped.
        scores_bytes: the block of scores in memory, per process.
        peak_bytes: the most memory that this process has had, model included.
        gpu_peak_bytes: the most GPU memory that torch has had in this process.
    """

    model: ModelIdentity
    benchmark: str
    limit: int
    processes: int
    parts: tuple[StageEstimate, ...]
    equal_by_content: bool
    dim: int
    decode_seconds: float
    rank_seconds: float
    store_bytes: int
    ordered_bytes: int
    scores_bytes: int
    peak_bytes: int
    gpu_peak_bytes: int

    @property
    def seconds(self) -> float:
        """Time of the whole run: decoding, encoding, ranking."""
        return self.decode_seconds + sum(part.seconds for part in self.parts) + self.rank_seconds


def estimate_cost(
    encoder: EncoderProtocol,
    benchmark: Benchmark,
    *,
    limit: int,
    settings: EncodeSettings | None = None,
    top_k: int = DEFAULT_TOP_K,
    backend: Backend = Backend.NUMPY,
    device: str | None = None,
    memory: int = DEFAULT_MEMORY,
    job: DistributedJob | None = None,
) -> DryRun:
    """Encode a small part of a benchmark, and estimate the cost of `run_benchmark`. No Run comes of it.

    The part is spread evenly over the gallery and the queries. It is encoded into a temporary store.

    Args:
        encoder: as for `run_benchmark`.
        benchmark: the whole benchmark.
        limit: gallery images and queries to take, at most.
        settings: as for `run_benchmark`; likewise `top_k`, `backend`, `device` and `memory`.
        top_k: see there.
        backend: see there.
        device: see there.
        memory: see there.
        job: the processes that would share the work. Each measures itself, at the same time as the others.

    Raises:
        ImageError: an image of the part cannot be decoded.
        EmbeddingError: the encoder's vectors cannot be ranked.
    """
    job = job or current_job()
    settings = settings or EncodeSettings()
    images = benchmark.gallery.images
    recorded = isinstance(images, ParquetImages) and images.inspection.covers(benchmark.image_ids)
    part = _part(benchmark, limit)
    decoding, inspection = _timed(part.inspect)  # by every process, for all of the part is encoded by each
    model, dim, seconds = _encode(encoder, part, settings)
    parts = []
    inputs = _inputs(benchmark, benchmark.inspect().readable if recorded else {})
    measured = _inputs(part, inspection.readable)
    for condition, of_condition in inputs.items():
        distinct, sample = len(set(of_condition)), len(set(measured[condition]))
        rate = sample / seconds[condition]
        name = condition or "gallery"
        parts.append(StageEstimate(name, len(of_condition), distinct, sample, rate, distinct / rate / job.count))
    n_queries, n_gallery = len(benchmark.queries), len(benchmark.gallery.ids)

    rank = partial(rank_targets, top_k=top_k, backend=backend, device=device, memory=memory)
    return DryRun(
        model=model,
        benchmark=benchmark.name,
        limit=limit,
        processes=job.count,
        parts=tuple(parts),
        equal_by_content=recorded,
        dim=dim,
        decode_seconds=0 if recorded else decoding * len(benchmark.image_ids) / len(part.image_ids) / job.count,
        rank_seconds=len(Condition) * _rank_seconds(rank, n_queries, n_gallery, dim) / job.count,
        store_bytes=sum(part.distinct for part in parts) * (4 * dim + _DIGEST_BYTES),
        ordered_bytes=sum(part.inputs for part in parts) * 4 * dim,
        scores_bytes=4 * n_gallery * block_rows(n_gallery, memory),
        peak_bytes=_peak_memory(),
        gpu_peak_bytes=_gpu_peak(),
    )


def _encode(
    encoder: EncoderProtocol, part: Benchmark, settings: EncodeSettings
) -> tuple[ModelIdentity, int, dict[Condition | None, float]]:
    """Encode a part into a temporary store; returns the model, its dimensions, and the seconds per condition."""
    with tempfile.TemporaryDirectory() as folder:
        driver = BenchmarkEncoder(encoder, part, store=EmbeddingStore(Path(folder)), settings=settings)
        driver.sanity_check()  # as a run does; and it warms the encoder up
        seconds: dict[Condition | None, float] = {}
        seconds[None], gallery = _timed(driver.gallery)
        for condition in Condition:
            seconds[condition], _ = _timed(partial(driver.queries, condition))
        return driver.model, gallery.shape[1], seconds


def _part(benchmark: Benchmark, limit: int) -> Benchmark:
    """Take a part of a benchmark, under a name of its own."""
    if limit < 1:
        raise CircusError(f"a dry run needs at least one image and one query, not {limit}")
    gallery = dataclasses.replace(benchmark.gallery, ids=_spread(benchmark.gallery.ids, limit))
    return dataclasses.replace(
        benchmark,
        name=f"{benchmark.name}, a part",
        gallery=gallery,
        queries=_spread(benchmark.queries, limit),
        allow=benchmark.allow | {Defect.DANGLING_TARGET, Defect.DANGLING_SUBSET},
    )


def _spread(items: Sequence[T], limit: int) -> tuple[T, ...]:
    """Take at most `limit` items, at equal distances."""
    count = min(limit, len(items))
    return tuple(items[position * len(items) // count] for position in range(count))


def _inputs(benchmark: Benchmark, known: Mapping[str, ImageInfo]) -> dict[Condition | None, list[object]]:
    """List the content of the inputs of the gallery and under each condition; equal ones are deduplicated."""

    def content(image_id: str) -> object:
        return known[image_id].digest if image_id in known else image_id

    def size(image_id: str) -> object:
        return known[image_id].size if image_id in known else image_id

    queries = benchmark.queries
    return {
        None: [content(image_id) for image_id in benchmark.gallery.ids],
        Condition.MULTIMODAL: [(content(query.reference), query.text) for query in queries],
        Condition.TEXT_ONLY: [(size(query.reference), query.text) for query in queries],
        Condition.IMAGE_ONLY: [content(query.reference) for query in queries],
    }


def _rank_seconds(rank: Callable[..., object], n_queries: int, n_gallery: int, dim: int) -> float:
    """Estimate ranking under one condition from the time that fewer random vectors of the same dimensions take."""
    rng = np.random.default_rng(0)
    rows, columns = min(n_queries, _SAMPLE_QUERIES), min(n_gallery, max(1, _SAMPLE_BYTES // (4 * dim)))
    queries, gallery = (rng.standard_normal((n, dim), np.float32) for n in (rows, columns))
    targets = Targets.of(rng.integers(0, columns, (rows, 1)).tolist(), [0] * rows)
    seconds, _ = _timed(partial(rank, queries, gallery, targets=targets))
    return seconds * (n_queries / rows) * (n_gallery / columns)


def _peak_memory() -> int:
    if sys.platform == "win32":
        import psutil  # type: ignore[import-untyped]  # comes with accelerate

        return int(psutil.Process().memory_info().peak_wset)
    else:  # noqa: RET505  # without it mypy sees code that Windows does not reach
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _gpu_peak() -> int:
    import torch

    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    done = work()
    return time.perf_counter() - start, done
