"""`circus-bench doctor`: check a benchmark for defects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circus_bench.cli.options import BenchmarkArgument, DataOption, ImagesOption, JsonOption
from circus_bench.cli.output import EXIT_ATTENTION, print_json, print_table, progress

if TYPE_CHECKING:
    from circus_bench.doctor import Diagnosis, Result


def doctor(
    benchmark: BenchmarkArgument,
    data: DataOption = None,
    images: ImagesOption = None,
    hashes: Annotated[
        Path | None,
        typer.Option(help="JSON of published 64-bit perceptual hashes by file name.", exists=True, dir_okay=False),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page, too.", dir_okay=False)] = None,
    json: JsonOption = False,
) -> None:
    """Check a benchmark: counts against the published ones, contradictory annotations, damaged or duplicate images.

    The exit code is 3 when there is a defect or a count differs from the published one; notes leave it at 0.
    """
    from circus_bench.benchmark import Defect
    from circus_bench.doctor import check_all, read_hashes, write_report
    from circus_bench.hub.loading import load_labeled_benchmarks

    # Every defect is allowed, so that all of them are found.
    loaded = load_labeled_benchmarks(benchmark, data=data, images=images, allow=tuple(Defect))
    parts = [part.benchmark for part in loaded]
    known = read_hashes(hashes) if hashes else None
    with progress("images", sum(len(part.image_ids) for part in parts if part.gallery.images is not None)) as advance:
        found = check_all(parts, hashes=known, advance=advance)
    if html:
        write_report(found, html, subject=found.diagnoses[0].title if len(parts) == 1 else benchmark)
    if json:
        print_json(found.to_dict())
    else:
        for diagnosis in found.diagnoses:
            _print(diagnosis)
        if found.shared:
            _print_results("images in two galleries", found.shared)
        if html:
            typer.echo(f"report: {html}")
    if not found.healthy:
        raise typer.Exit(EXIT_ATTENTION)


def _print(found: Diagnosis) -> None:
    typer.echo(
        f"{found.title}: {found.n_queries:,} queries, {found.n_targets:,} targets, {found.n_gallery:,} gallery "
        f"images, {'no images' if found.n_images is None else f'{found.n_images:,} images decoded'}"
    )
    published = [count for count in found.counts if count.published is not None]
    if published:
        rows = [[c.what, f"{c.found:,}", f"{c.published:,}", c.agreement, c.source] for c in published]
        print_table("counts", ["what", "here", "published", "they", "source"], rows)
    if any(number > 1 for number in found.positives):
        spread = ", ".join(f"{number}: {queries:,}" for number, queries in found.positives.items())
        typer.echo(f"positives a query, and queries that have so many: {spread}\n")
    if found.coverage and any(entry.have < entry.total for entry in found.coverage):
        rows = [[c.what, f"{c.have:,}", f"{c.total:,}", f"{100 * (c.share or 0):.1f} %"] for c in found.coverage]
        print_table("coverage: what has images that can be decoded", ["of the", "have", "all", "share"], rows)
    for kind, count in found.near_duplicates.items():
        typer.echo(
            f"near-duplicate candidates by {kind} hash, in {count.images:,} gallery images: "
            f"pairs with the same hash {count.pairs_same:,}, within one bit {count.pairs_within_1:,}"
        )
    if found.results:
        _print_results("findings", found.results)
    if found.healthy:
        typer.echo("nothing is wrong" + (" (notes are no defects)" if found.notes else ""))
    elif any(count.differs for count in found.counts):
        typer.echo("the counts are not the published ones: this is another set of queries or images")


def _print_results(title: str, results: tuple[Result, ...]) -> None:
    from circus_bench.errors import format_ids

    print_table(title, ["what", "kind", "ids"], [[r.check, r.severity, format_ids(r.items)] for r in results])
    for result in results:
        typer.echo(f"{result.check}: {result.meaning}.")
    typer.echo("")
