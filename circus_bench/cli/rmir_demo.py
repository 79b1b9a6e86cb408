"""`circus-bench rmir demo`: run all stages on the synthetic world, offline, and compare them with the ground truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circus_bench.cli.output import bars, number, percent, print_by_group, print_json, print_table
from circus_bench.cli.rmir_audit import print_judges

if TYPE_CHECKING:
    from circus_bench.demo.rmir_demo import DemoReport
    from circus_bench.demo.rmir_ground_truth import LabelQuality


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for everything that the demo makes.")] = Path(
        "rmir-demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the drawings and of the synthetic judges' errors.")] = 0,
    k: Annotated[int, typer.Option("-k", min=1, help="Cut-off of the audit.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Make a benchmark of drawings of known ground truth, with synthetic judges that err at set rates, and audit it.

    Needs no network, no GPU and no account. Leaves the stages' outputs, the benchmark, a dataset folder that mteb
    reads, the audits and demo.json in OUT.
    """
    from circus_bench.demo.rmir_demo import run_demo
    from circus_bench.demo.rmir_setup import DemoSettings

    with bars() as watch:
        report = run_demo(out, settings=DemoSettings(seed=seed), k=k, watch=watch)
    if json:
        print_json(report.to_dict())
        return
    _print_stages(report)
    _print_tsr(report)
    print_judges(report.judges)
    for pool, entry in report.audits.items():
        if entry.audit.chance:
            typer.echo(f"by chance the pool of the {pool} would call {percent(entry.audit.chance)} % a shortcut")
        print_by_group(f"test split, {pool}", entry.by_category)
    typer.echo(f"everything, with intervals: {out / 'demo.json'}; reports: {out}/audit-*/report.html")


def _print_stages(report: DemoReport) -> None:
    drafted = report.drafted
    typer.echo(
        f"{report.images:,} drawings; {drafted.drafts:,} drafts, {percent(drafted.flawed)} % flawed; stage 2 passed "
        f"{drafted.passed:,}, {percent(drafted.flawed_passed)} % flawed, and dropped {percent(drafted.sound_lost)} % "
        f"of the sound ones"
    )
    found = ", ".join(f"{index} {percent(share)}" for index, share in report.found.items())
    typer.echo(f"% of the right pairs of query and image that stage 3 proposed: {found}\n")
    header = ["queries", "images", "positives", "% right", "missed", "rejected", "% missed", "% queries with one"]
    print_table(
        "labels against the ground truth; missed: false negatives of the pool; rejected: of them, seen by judges",
        ["after stage", *header],
        [[name, *_cells(quality)] for name, quality in report.stages.items()],
    )
    print_table(
        "stages 5 and 6 with other judges",
        ["judges", "deleted", *header],
        [[name, str(panel.deleted), *_cells(panel.labels)] for name, panel in report.panels.items()],
    )


def _cells(quality: LabelQuality) -> list[str]:
    counts = [quality.queries, quality.images, quality.positives]
    return [
        *map(str, counts),
        percent(quality.precision),
        str(quality.missed),
        str(quality.rejected),
        percent(quality.missed_share),
        percent(quality.incomplete),
    ]


def _print_tsr(report: DemoReport) -> None:
    rows = []
    for way, check in report.tsr.items():
        for threshold, share in check.missed.thresholds.items():
            unproposed = check.unproposed.thresholds[threshold]
            rows.append([way, f"{threshold:g}", str(share.n), percent(share), percent(unproposed)])
    print_table(
        "queries that reach a TSR, and % of them with a false negative",
        ["list", "least TSR", "queries", "any", "one that no index proposed"],
        rows,
    )
    print_table(
        "chance that a complete query has the greater TSR of two; 0.5 says that TSR tells nothing",
        ["list", "any missed", "missed and not proposed"],
        [
            [way, number(check.missed.concordance), number(check.unproposed.concordance)]
            for way, check in report.tsr.items()
        ],
    )
