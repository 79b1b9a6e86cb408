"""`circus-bench rmir`: make a reasoning-intensive retrieval benchmark out of a collection of images."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circus_bench.cli import rmir_audit, rmir_demo
from circus_bench.cli.output import EXIT_ATTENTION, bars, print_json, print_table, warn

if TYPE_CHECKING:
    from circus_bench.rmir.cost_estimate import Forecast
    from circus_bench.rmir.pipeline import Pipeline, Progress

app = typer.Typer(
    help="Make a reasoning-intensive retrieval benchmark out of a collection of images.", no_args_is_help=True
)


class EngineName(StrEnum):
    """Where the work is done."""

    LOCAL = "local"
    RAY = "ray"


ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The settings.", exists=True, dir_okay=False)]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of everything that is made.", file_okay=False)]
Budget = Annotated[float | None, typer.Option(min=0, help="US dollars that may be spent now; `inf` for no limit.")]
Batch = Annotated[bool, typer.Option("--batch", help="Use the vendors' batch endpoints: half the price, up to a day.")]
EngineOption = Annotated[EngineName, typer.Option(help="Where the work is done.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Ray workers; one a CPU by default.")]
Address = Annotated[str | None, typer.Option(help="Address of a Ray cluster.", envvar="RAY_ADDRESS")]
Allow = Annotated[bool, typer.Option("--allow-unanswered", help="Exit with 0 in spite of questions without answer.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_OUT = Path("rmir")
_STAGES = {
    "seed": "Stage 0: draw the images that queries are made from.",
    "generate": "Stage 1: write a query for every image and category.",
    "filter": "Stage 2: check every constraint on every query again.",
    "candidates": "Stage 3: find images that may answer each query; captions are written where there are none.",
    "judge": "Stage 4: let the judges vote on every candidate.",
    "keep": "Stage 5: keep what is beyond doubt, and delete every image that was doubted.",
    "pool": "Stage 6: collect the images of the retrieval pool.",
    "split": "Stage 7: send the most reliable queries to the test split.",
}


def _stage_command(name: str, what: str) -> Callable[..., None]:
    def command(
        config: ConfigFile,
        out: Out = _OUT,
        budget: Budget = None,
        batch: Batch = False,
        engine: EngineOption = EngineName.LOCAL,
        workers: Workers = None,
        address: Address = None,
        allow_unanswered: Allow = False,
        json: Json = False,
    ) -> None:
        from circus_bench.rmir.config import Config
        from circus_bench.rmir.resources import open_pipeline

        where: dict[str, Any] = {"on_ray": engine is EngineName.RAY, "workers": workers, "address": address}
        with open_pipeline(Config.read(config), out, budget=budget, batch=batch, **where) as pipeline:
            _run(pipeline, name)
            _report(pipeline, json=json, allow_unanswered=allow_unanswered)

    command.__doc__ = f"{what}\n\nWhat it depends on is done first, as far as it is not there. A stopped run goes on."
    return command


for _name, _what in _STAGES.items():
    app.command(_name)(_stage_command(_name, _what))

app.command("demo")(rmir_demo.demo)
app.command("compare-judges")(rmir_audit.compare_judges)
app.command("check")(rmir_audit.check)
app.command("calibrate")(rmir_audit.calibrate)


@app.command()
def run(
    config: ConfigFile,
    out: Out = _OUT,
    budget: Budget = None,
    batch: Batch = False,
    engine: EngineOption = EngineName.LOCAL,
    workers: Workers = None,
    address: Address = None,
    allow_unanswered: Allow = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Project calls, tokens, dollars and hours; call nothing.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seed images of the dry run.")] = None,
    json: Json = False,
) -> None:
    """Run all stages, and write the benchmark (OUT/benchmark) and a dataset folder that mteb reads (OUT/dataset).

    A stopped run goes on: what was answered is not asked again.
    """
    from circus_bench.rmir.config import Config
    from circus_bench.rmir.cost_estimate import forecast
    from circus_bench.rmir.export import save_all
    from circus_bench.rmir.resources import open_pipeline

    if dry_run:
        _print_forecast(forecast(Config.read(config), seeds=seeds, batch=batch), json=json)
        return
    where: dict[str, Any] = {"on_ray": engine is EngineName.RAY, "workers": workers, "address": address}
    with open_pipeline(Config.read(config), out, budget=budget, batch=batch, **where) as pipeline:
        _run(pipeline, "split")
        with bars() as watch:
            pipeline.watch = watch
            save_all(pipeline, out)
        _report(pipeline, json=json, allow_unanswered=allow_unanswered)


@app.command()
def status(config: ConfigFile, out: Out = _OUT, json: Json = False) -> None:
    """Say how far every stage is, and what was spent. Nothing is run or asked."""
    from circus_bench.rmir.config import Config
    from circus_bench.rmir.resources import open_pipeline

    with open_pipeline(Config.read(config), out) as pipeline:
        _report(pipeline, json=json, allow_unanswered=True)


def _run(pipeline: Pipeline, last: str) -> None:
    from circus_bench.rmir.pipeline import Stage

    def spent() -> str:
        usd = pipeline.meter.usd if pipeline.meter else None
        return "" if usd is None else f"${usd:,.2f}"

    with bars(spent) as watch:
        pipeline.watch = watch
        pipeline.run(Stage(last))


def _report(pipeline: Pipeline, *, json: bool, allow_unanswered: bool) -> None:
    from circus_bench.rmir.report import summarise

    found = summarise(pipeline)
    if json:
        print_json(found.to_dict())
    else:
        rows = [
            [row.stage, row.key, _state(row), ", ".join(f"{n:,} {k}" for k, n in row.rows.items())]
            for row in found.stages
        ]
        print_table(str(pipeline.root), ["stage", "folder", "state", "rows"], rows)
        sizes = {**found.losses, **found.outcome}
        if sizes:
            print_table("what became of it", ["", "number"], [[what, f"{n:,}"] for what, n in sizes.items()])
        cost = "an unknown amount (a price is not known)" if found.usd is None else f"${found.usd:,.2f}"
        typer.echo(f"spent so far, by the replies on disk: {cost}")
    if found.open_questions and not allow_unanswered:
        warn(f"{found.open_questions:,} questions were refused or got an unreadable reply; the tables hold them")
        raise typer.Exit(EXIT_ATTENTION)


def _state(row: Progress) -> str:
    if row.done:
        return "done"
    return f"{row.batches[0]:,} of {row.batches[1]:,} batches" if row.batches else ""


def _print_forecast(found: Forecast, *, json: bool) -> None:
    from dataclasses import asdict

    if json:
        print_json({"dry_run": True, **asdict(found), "calls": found.calls, "usd": found.usd, "hours": found.hours})
        return
    rows = [
        [
            line.stage,
            line.model,
            f"{line.calls:,}",
            f"{line.input_tokens / 1e6:,.1f}",
            f"{line.output_tokens / 1e6:,.1f}",
            _dollars(line.usd),
            f"{line.hours:,.1f}",
        ]
        for line in found.lines
    ]
    rows.append(["all", "", f"{found.calls:,}", "", "", _dollars(found.usd), f"{found.hours:,.1f}"])
    header = ["stage", "model", "calls", "M tokens in", "M tokens out", "USD", "hours"]
    prices = "batch prices" if found.batch else "full prices"
    print_table(f"dry run of {found.seeds:,} seed images, {prices}", header, rows)
    assumed = ", ".join(f"{name} {value:g}" for name, value in asdict(found.assumptions).items())
    typer.echo(f"assumed: {assumed}\nencoding images and texts is not included")


def _dollars(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:,.0f}"
