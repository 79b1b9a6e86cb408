"""`circus-bench run`: encode a benchmark with models, rank, and write Runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circus_bench.cli.dry_run import print_dry_runs
from circus_bench.cli.options import BenchmarkArgument, DataOption, ImagesOption, JsonOption
from circus_bench.cli.output import EXIT_ATTENTION, print_json, progress, warn
from circus_bench.ranking.backends import Backend

if TYPE_CHECKING:
    from circus_bench.benchmark import Benchmark
    from circus_bench.distributed import DistributedJob
    from circus_bench.runs.run import Run


def run(
    benchmark: BenchmarkArgument,
    model: Annotated[list[str], typer.Option("--model", "-m", help="Model name; may be repeated.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder that gets one folder per model, or OUT/BENCHMARK for several."),
    ] = None,
    data: DataOption = None,
    images: ImagesOption = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder of the embedding store.", show_default="OUT/.embeddings")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Inputs a forward pass.")] = 32,
    checkpoint_every: Annotated[
        int, typer.Option(min=1, help="Inputs that a killed run may lose, for each process.")
    ] = 256,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode images.")] = 0,
    top_k: Annotated[int, typer.Option(min=1, help="Gallery images kept per query and condition.")] = 51,
    seed: Annotated[int, typer.Option(help="Seed of the null targets.")] = 0,
    backend: Annotated[Backend, typer.Option(help="What computes the scores.")] = Backend.NUMPY,
    device: Annotated[str | None, typer.Option(help="Torch device of the model, and of the torch back end.")] = None,
    memory: Annotated[int, typer.Option(min=1, help="MiB that a block of scores may take.")] = 512,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Estimate time, memory and disk from --limit inputs; write nothing.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Images and queries of a dry run.")] = 64,
    leave_out_unreadable: Annotated[
        bool, typer.Option(help="Run without images that cannot be decoded and the queries that need them.")
    ] = False,
    allow_alarms: Annotated[bool, typer.Option(help="Exit with 0 in spite of alarms.")] = False,
    json: JsonOption = False,
) -> None:
    """Encode a benchmark under the three conditions, rank every target in the whole gallery, write Runs.

    A run that was stopped goes on from its last shard. Under `accelerate launch` the processes share the work.
    """
    from circus_bench.distributed import claim_device, current_job
    from circus_bench.encoding.embedding_store import EmbeddingStore
    from circus_bench.encoding.encoder import EncodeSettings
    from circus_bench.hub.loading import load_labeled_benchmarks
    from circus_bench.io import slug
    from circus_bench.models import check_known, load_encoder
    from circus_bench.runs.dry_run import estimate_cost
    from circus_bench.runs.run import n_inputs, run_benchmark

    check_known(model)
    job, device = current_job(), claim_device(device)
    settings = EncodeSettings(batch_size=batch_size, checkpoint_every=checkpoint_every, workers=workers)
    ranking: dict[str, Any] = {"top_k": top_k, "backend": backend, "device": device, "memory": memory * 2**20}
    loaded = [part.benchmark for part in load_labeled_benchmarks(benchmark, data=data, images=images)]
    if dry_run:
        encoders = [load_encoder(name, device=device) for name in model]
        found = [
            estimate_cost(encoder, whole, limit=limit, settings=settings, **ranking)
            for whole in loaded
            for encoder in encoders
        ]
        if job.is_main:
            print_dry_runs(found, json=json)
        return
    if out is None:
        raise typer.BadParameter("a folder for the Runs is needed", param_hint="--out")
    folders = [out if len(loaded) == 1 else out / slug(of.name) for of in loaded]
    chosen = [_readable(whole, job, leave_out=leave_out_unreadable) for whole in loaded]
    for name, (folder, of) in product(model, zip(folders, chosen, strict=True)):
        _check_free(folder / slug(name), of)
    embeddings = EmbeddingStore(store or out / ".embeddings")  # hidden, so that OUT/* are the Runs
    runs: dict[Path, Run] = {}
    for name in model:
        encoder = load_encoder(name, device=device)
        for folder, of in zip(folders, chosen, strict=True):
            with _progress(job, name, n_inputs(of)) as advance:
                made = run_benchmark(
                    encoder, of, store=embeddings, settings=settings, seed=seed, advance=advance, **ranking
                )
            job.run_on_main("saving the run", partial(made.save, folder / slug(name)))
            runs[folder / slug(name)] = made
    if job.is_main:
        _report(runs, left_out=[i for of in chosen for i in of.source.get("left_out_images", ())], json=json)
    if any(made.manifest.alarms for made in runs.values()) and not allow_alarms:
        raise typer.Exit(EXIT_ATTENTION)


def _readable(benchmark: Benchmark, job: DistributedJob, *, leave_out: bool) -> Benchmark:
    """Leave unreadable images out, if that was asked for; else encoding names them."""
    with _progress(job, "images", len(benchmark.image_ids)) as advance:
        unreadable = benchmark.inspect(advance=advance, job=job).unreadable
    return benchmark.without_images(unreadable) if unreadable and leave_out else benchmark


def _check_free(folder: Path, benchmark: Benchmark) -> None:
    """Refuse to replace a Run on something else."""
    from circus_bench.errors import FormatError, MismatchError
    from circus_bench.runs.manifest import MANIFEST_FILE, Manifest

    if not (folder / MANIFEST_FILE).is_file():
        return
    try:
        held = Manifest.load(folder)
    except FormatError:
        return  # it was not written to the end
    if (held.benchmark, held.protocol["id"]) != (benchmark.name, benchmark.protocol.id):
        raise MismatchError(
            f"{folder} holds a Run on {held.benchmark} ({held.protocol['id']}); "
            f"choose another --out for {benchmark.name} ({benchmark.protocol.id})"
        )


def _progress(job: DistributedJob, what: str, total: int) -> AbstractContextManager[Callable[..., None]]:
    """Show a progress bar, in the main process alone."""
    return progress(what, total) if job.is_main else nullcontext(lambda _=1: None)


def _report(runs: Mapping[Path, Run], *, left_out: Sequence[str], json: bool) -> None:
    from circus_bench.errors import format_ids

    if json:
        several = len({made.manifest.benchmark for made in runs.values()}) > 1
        names = [f"{made.manifest.benchmark}/" * several + made.manifest.model.name for made in runs.values()]
        print_json(dict(zip(names, map(_summary, runs.values()), strict=True)))
    else:
        for folder, made in runs.items():
            typer.echo(f"{made.manifest.model.name}: {folder}")
    for made in runs.values():
        if made.manifest.alarms:
            warn(f"{made.manifest.model.name}: {', '.join(made.manifest.alarms)}; do not trust this Run")
    if left_out:
        remaining = {made.manifest.benchmark: made.manifest.n_queries for made in runs.values()}
        warn(f"images were left out ({format_ids(left_out)}); {sum(remaining.values()):,} queries remain")


def _summary(run: Run) -> dict[str, object]:
    manifest = run.manifest
    return {
        "revision": manifest.model.revision,
        "benchmark": manifest.benchmark,
        "protocol": manifest.protocol["id"],
        "n_queries": manifest.n_queries,
        "n_gallery": manifest.n_gallery,
        "dim": manifest.dim,
        "alarms": list(manifest.alarms),
        "batch_deviation": manifest.batch_deviation,
    }
