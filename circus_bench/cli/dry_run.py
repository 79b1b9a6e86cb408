"""Printing what a dry run projects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from circus_bench.cli.output import print_json, print_table

if TYPE_CHECKING:
    from circus_bench.runs.dry_run import DryRun


def print_dry_runs(projections: Sequence[DryRun], *, json: bool) -> None:
    """Print projections as tables, or as JSON that says that it comes from a dry run."""
    if json:
        print_json({projection.model.name: _figures(projection) for projection in projections})
        return
    for projection in projections:
        rows = [
            [
                part.name,
                f"{part.inputs:,}",
                f"{part.distinct:,}",
                f"{part.measured:,}",
                f"{part.per_second:,.1f}",
                _duration(part.seconds),
            ]
            for part in projection.parts
        ]
        count = projection.processes
        shared = f" by {count} processes" if count > 1 else ""
        title = f"{projection.model.name} on {projection.benchmark}{shared}, projected from a dry run"
        print_table(title, ["", "inputs", "distinct", "measured", "inputs/s a process", "time"], rows)
        if not projection.equal_by_content:
            typer.echo("distinct inputs were counted by image id; equal images are encoded once, so they may be fewer")
        gpu = f", {_size(projection.gpu_peak_bytes)} on the GPU" if projection.gpu_peak_bytes else ""
        typer.echo(
            f"decoding {_duration(projection.decode_seconds)}, ranking {_duration(projection.rank_seconds)}, "
            f"all {_duration(projection.seconds)}\n"
            f"disk: embeddings {_size(projection.store_bytes)}, in order {_size(projection.ordered_bytes)} "
            f"({projection.dim} dimensions)\n"
            f"memory a process: {_size(projection.peak_bytes)} so far{gpu}, "
            f"and {_size(projection.scores_bytes)} for a block of scores"
        )


def _figures(projection: DryRun) -> dict[str, Any]:
    return {"dry_run": True, **asdict(projection), "seconds": projection.seconds}


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.1f} MiB"
