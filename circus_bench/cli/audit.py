"""`circus-bench audit`: labels, sensitivity, scores and a report from Runs or published minima."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from circus_bench.cli.options import DataOption, ImagesOption, JsonOption, OptionalBenchmarkOption
from circus_bench.cli.output import EXIT_ATTENTION, print_audit, print_by_group, print_json, warn


def audit(
    runs: Annotated[list[Path] | None, typer.Argument(help="Folders of Runs, one a model.", show_default=False)] = None,
    best_ranks: Annotated[
        Path | None, typer.Option(help="CSV of published pool minima instead of Runs.", exists=True, dir_okay=False)
    ] = None,
    benchmark: OptionalBenchmarkOption = None,
    data: DataOption = None,
    images: ImagesOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for labels.parquet and report.html.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Rank up to which a query counts as solved.")] = 10,
    min_unimodal: Annotated[int, typer.Option(min=1, help="Models needed to call a query a shortcut.")] = 1,
    min_multimodal: Annotated[int, typer.Option(min=1, help="Models needed for composition_required.")] = 1,
    json: JsonOption = False,
) -> None:
    """Audit a benchmark: which queries are solved from the text or the image alone?"""
    from circus_bench.audit.audit import audit_best_ranks, audit_runs
    from circus_bench.audit.groups import audit_by_group
    from circus_bench.hub.loading import load_benchmark
    from circus_bench.runs.run import Run, check_matches

    if bool(runs) == bool(best_ranks):
        raise typer.BadParameter("give the folders of Runs, or --best-ranks FILE, and not both")
    if best_ranks and (min_unimodal, min_multimodal) != (1, 1):
        raise typer.BadParameter("published minima do not tell how many models agree; leave out the support thresholds")
    loaded = [Run.load(folder) for folder in runs or ()]
    source = load_benchmark(benchmark, data=data, images=images) if benchmark else None
    if source:
        for run in loaded:
            check_matches(run, source)
    if best_ranks:
        outcome = audit_best_ranks(best_ranks, k=k)
    else:
        outcome = audit_runs(loaded, k=k, min_unimodal=min_unimodal, min_multimodal=min_multimodal)
    if out:
        from circus_bench.audit.report import write_report

        outcome.labels.save(out / "labels.parquet")
        write_report(outcome, out / "report.html", benchmark=source)
    by_group = audit_by_group(outcome, source) if source and any(query.group for query in source.queries) else None
    if json:
        print_json({**outcome.to_dict(), **({"by_group": by_group.to_dict()} if by_group else {})})
    else:
        print_audit(outcome)
        if by_group:
            print_by_group(source.name if source else "", by_group)
        if out:
            typer.echo(f"report: {out / 'report.html'}")
    alarmed = [run.manifest.model.name for run in loaded if run.manifest.alarms]
    if alarmed:
        warn(f"Runs with alarms are in the pool: {', '.join(alarmed)}")
        raise typer.Exit(EXIT_ATTENTION)
