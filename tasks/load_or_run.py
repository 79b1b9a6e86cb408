"""Load the finished Run of a model on a task, or make a new one and keep it beside mteb's results."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from circus_bench.benchmark import Benchmark
from circus_bench.distributed import DistributedJob, current_job
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.encoder import EncodeSettings, ModelIdentity
from circus_bench.errors import FormatError
from circus_bench.progress import progress_bar
from circus_bench.runs.manifest import MANIFEST_FILE
from circus_bench.runs.run import Run, n_inputs, run_benchmark
from circus_bench.tasks.data import require_images
from circus_bench.tasks.output_paths import RUNS_VARIABLE, output_paths, redirect_results_to_temp

if TYPE_CHECKING:
    from mteb.models.models_protocols import EncoderProtocol

    from circus_bench.hub.tables import LabeledBenchmark

logger = logging.getLogger("mteb.circus_bench.tasks")  # below "mteb", whose verbosity the command line sets


def load_or_run(
    model: EncoderProtocol,
    labeled: LabeledBenchmark,
    *,
    cached: Run | None,
    task: str,
    folder: Path | None,
    prediction_folder: Path | None,
    settings: EncodeSettings,
    shown: bool,
) -> Run:
    """Load or make the Run of a model on all queries of a benchmark.

    The processes of a job (`accelerate launch`) share the work; the main one alone writes, mteb's results too.

    Args:
        model: follows mteb's `EncoderProtocol`.
        labeled: the benchmark.
        cached: a Run at hand; it is taken if it is of this model on this benchmark.
        task: the task's name.
        folder: the dataset folder, for messages.
        prediction_folder: what mteb was told.
        settings: how the encode is cut.
        shown: whether to show progress bars.

    Raises:
        ImageError: images are missing or cannot be decoded.
        EmbeddingError: the vectors cannot be ranked.
    """
    benchmark, identity = labeled.benchmark, ModelIdentity.of(model)
    if cached is not None and _is_of(cached, identity, benchmark):
        return cached
    require_images(labeled, folder)
    job = current_job()
    paths = output_paths(task, identity, prediction_folder=prediction_folder)
    if not job.is_main:
        redirect_results_to_temp()
    shown = shown and job.is_main
    with progress_bar("images", len(benchmark.image_ids), shown=shown) as advance:
        benchmark.inspect(advance=advance, job=job)
    run = job.run_on_main("looking for a finished Run", lambda: _finished(paths.run, identity, benchmark))
    if run is None:
        with (
            _store(paths.store, job) as store,
            progress_bar("encoding", n_inputs(benchmark), shown=shown) as advance,
        ):
            run = run_benchmark(model, benchmark, store=store, settings=settings, job=job, advance=advance)
        job.run_on_main("saving the Run", lambda: _save(run, paths.run))
    if job.is_main and paths.run is not None:
        logger.info("%s: the Run is in %s", task, paths.run)
    elif job.is_main:
        logger.warning("%s: the Run is not kept, for mteb keeps no results; set %s to a folder", task, RUNS_VARIABLE)
    return run


def _finished(folder: Path | None, model: ModelIdentity, benchmark: Benchmark) -> Run | None:
    """Load the Run in a folder, if it is whole and of this model on this benchmark."""
    if folder is None or not (folder / MANIFEST_FILE).exists():
        return None
    try:
        run = Run.load(folder)
    except FormatError as error:
        logger.warning("%s; it is made again", error)
        return None
    if _is_of(run, model, benchmark):
        return run
    logger.warning("%s: a Run of another model, dataset or protocol; it is replaced", folder)
    return None


def _is_of(run: Run, model: ModelIdentity, benchmark: Benchmark) -> bool:
    manifest = run.manifest
    return (
        manifest.model == model
        and manifest.fingerprint == benchmark.fingerprint
        and dict(manifest.protocol) == dataclasses.asdict(benchmark.protocol)
    )


def _save(run: Run, folder: Path | None) -> None:
    if folder is not None:
        run.save(folder)


@contextmanager
def _store(folder: Path | None, job: DistributedJob) -> Iterator[EmbeddingStore]:
    """Open the store in a folder, or one that is gone afterwards; the processes of a job share it."""
    if folder is not None:
        yield EmbeddingStore(folder)
        return
    with tempfile.TemporaryDirectory() as own:
        yield EmbeddingStore(Path(job.run_on_main("choosing a place for embeddings", lambda: own)))
        job.assert_equal("the end of the encode", True)  # the main process must not remove it earlier
