"""`circus-bench doctor`: what is wrong with a benchmark on disk."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from circus_bench.cli.output import EXIT_ATTENTION, print_json, print_table, progress


def doctor(
    benchmark: Annotated[Path, typer.Argument(help="Folder of a benchmark.", exists=True, file_okay=False)],
    json: Annotated[bool, typer.Option("--json", help="Print every id as JSON.")] = False,
) -> None:
    """Check a benchmark: contradictory annotations, images that cannot be decoded, altered or duplicate pixels."""
    from circus_bench.benchmark import Benchmark, Defect
    from circus_bench.doctor import diagnose
    from circus_bench.errors import some

    loaded = Benchmark.load(benchmark, allow=frozenset(Defect))
    with progress("images", len(loaded.image_ids)) as advance:
        found = diagnose(loaded, advance=advance)
    if json:
        print_json(found.to_dict())
    else:
        typer.echo(
            f"{found.protocol}: {found.n_queries:,} queries, {found.n_targets:,} targets, {found.n_gallery:,} gallery "
            f"images, {'no images' if found.n_images is None else f'{found.n_images:,} images decoded'}"
        )

        def row(what: str, ids: Iterable[object], *, defect: bool) -> list[str]:
            return [what, "defect" if defect else "note", some(ids)]

        rows = [row(finding.defect, finding.ids, defect=True) for finding in found.findings]
        rows += [
            row(reason, [i for i, why in found.unreadable.items() if why is reason], defect=True)
            for reason in sorted(set(found.unreadable.values()))
        ]
        if found.altered:
            rows.append(row("altered", found.altered, defect=True))
        rows += [row(flag, ids, defect=False) for flag, ids in found.flagged.items()]
        if found.duplicates:
            rows.append(row("same pixels", found.duplicates, defect=False))
        if found.irreducible:
            rows.append(row("same query, other targets", found.irreducible, defect=False))
        print_table("findings", ["what", "kind", "ids"], rows) if rows else typer.echo("nothing is wrong")
    if not found.healthy:
        raise typer.Exit(EXIT_ATTENTION)
