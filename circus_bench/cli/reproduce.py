"""`circus-bench reproduce`: measured scores beside published ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circus_bench.cli.options import JsonOption
from circus_bench.cli.output import EXIT_ATTENTION, number, percent, print_json, print_table, warn

if TYPE_CHECKING:
    from circus_bench.audit.reproduction import Comparison, Reproduction


def reproduce(
    runs: Annotated[list[Path], typer.Argument(help="Folders of Runs.", exists=True, file_okay=False)],
    benchmark: Annotated[
        Path | None,
        typer.Option(
            help="Dataset folder of the Runs' benchmarks; else published labels.", exists=True, file_okay=False
        ),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="labels.parquet of an audit, for sf.", exists=True, dir_okay=False)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare Runs with the published scores of their models, and say which of those cannot be found again and why.

    Exit code 3 when a published number lies outside the measured interval, or a Run may not be of what was published.
    """
    from circus_bench.audit.published_scores import PublishedScores
    from circus_bench.audit.reproduction import Outcome, by_protocol, reproduce
    from circus_bench.hub.subsets import subsets_of_run
    from circus_bench.io import to_plain
    from circus_bench.runs.run import Run

    published = PublishedScores.load()
    found = [
        reproduce(group, published=published, masks=subsets_of_run(group[0], folder=benchmark, labels=labels))
        for group in by_protocol([Run.load(folder) for folder in runs])
    ]
    if json:
        print_json({"sources": list(published.sources), "benchmarks": to_plain(found)})
    else:
        for outcome in found:
            _show(outcome)
    outside = any(comparison.outcome is Outcome.OUTSIDE for outcome in found for comparison in outcome.comparisons)
    if outside or any(outcome.warnings for outcome in found):
        raise typer.Exit(EXIT_ATTENTION)


def _show(found: Reproduction) -> None:
    header = ["model", "subset", "quantity", "measured [95 %]", "published", "difference", "queries", "", "see"]
    marks = {caveat.id: str(place) for place, caveat in enumerate(found.caveats, start=1)}
    rows = [_row(comparison, marks) for comparison in found.comparisons]
    print_table(f"{found.benchmark}, {found.protocol}: shares in %, CompGap as it is", header, rows)
    for caveat in found.caveats:
        typer.echo(f"{marks[caveat.id]}. {caveat.id} ({caveat.effect.replace('_', ' ')}): {caveat.what}")
        typer.echo(f"   {caveat.why} [{caveat.source}]")
    for line in found.not_compared:
        typer.echo(f"not compared: {line}")
    for line in found.warnings:
        warn(line)


def _row(comparison: Comparison, marks: dict[str, str]) -> list[str]:
    published, measured = comparison.published, comparison.measured
    gap = published.is_gap
    scale, digits = (1, 3) if gap else (100, 2)
    return [
        published.model or "the pool",
        published.subset.value,
        published.name,
        number(measured) if gap else percent(measured),
        f"{scale * published.value:.{published.digits}f}",
        _signed(scale * comparison.difference, digits),
        "" if gap else _signed(comparison.difference * measured.n, 0),
        comparison.outcome.value,
        ", ".join(marks[caveat] for caveat in comparison.caveats),
    ]


def _signed(value: float, digits: int) -> str:
    """Format a number with its sign; none for one that rounds to zero."""
    text = f"{value:+.{digits}f}"
    return text if text.strip("+-0.") else text[1:]
