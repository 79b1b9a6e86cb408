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
    from circus_bench.rmir.cost_estimate import CostEstimate
    from circus_bench.rmir.pipeline import Pipeline, StageProgress

app = typer.Typer(
    help="Make a reasoning-intensive retrieval benchmark out of a collection of images.", no_args_is_help=True
)


class ExecutorName(StrEnum):
    """Executor of the stages."""

    LOCAL = "local"
    RAY = "ray"


ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The settings.", exists=True, dir_okay=False)]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of everything that is made.", file_okay=False)]
Budget = Annotated[float | None, typer.Option(min=0, help="US dollars that may be spent now; `inf` for no limit.")]
Batch = Annotated[bool, typer.Option("--batch", help="Use the vendors' batch endpoints: half the price, up to a day.")]
ExecutorOption = Annotated[ExecutorName, typer.Option("--engine", help="Executor of the stages.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Ray workers; one per CPU by default.")]
Address = Annotated[str | None, typer.Option(help="Address of a Ray cluster.", envvar="RAY_ADDRESS")]
Allow = Annotated[bool, typer.Option("--allow-unanswered", help="Exit with 0 in spite of failed requests.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_OUT = Path("rmir")
_STAGES = {
    "seed": "Stage 0: deduplicate the collection, and sample the images that queries are made from.",
    "generate": "Stage 1: generate a query for every image and category.",
    "filter": "Stage 2: check every constraint on every query again.",
    "candidates": "Stage 3: find images that may answer each query; captions are written where there are none.",
    "judge": "Stage 4: let the LLM judges vote on every candidate.",
    "keep": "Stage 5: filter candidates by consensus, and exclude every image that was doubted.",
    "pool": "Stage 6: collect the images of the retrieval pool.",
    "split": "Stage 7: assign the most reliable queries to the test split.",
}


def _stage_command(name: str, what: str) -> Callable[..., None]:
    def command(
        config: ConfigFile,
        out: Out = _OUT,
        budget: Budget = None,
        batch: Batch = False,
        executor: ExecutorOption = ExecutorName.LOCAL,
        workers: Workers = None,
        address: Address = None,
        allow_unanswered: Allow = False,
        json: Json = False,
    ) -> None:
        from circus_bench.rmir.config import Config
        from circus_bench.rmir.resources import open_pipeline

        where: dict[str, Any] = {"on_ray": executor is ExecutorName.RAY, "workers": workers, "address": address}
        with open_pipeline(Config.read(config), out, budget=budget, batch=batch, **where) as pipeline:
            _run(pipeline, name)
            _report(pipeline, json=json, allow_unanswered=allow_unanswered)

    command.__doc__ = f"{what}\n\nStages that it depends on run first, unless they are done. A stopped run goes on."
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
    executor: ExecutorOption = ExecutorName.LOCAL,
    workers: Workers = None,
    address: Address = None,
    allow_unanswered: Allow = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Estimate calls, tokens, dollars and hours; call nothing.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seed images of the dry run.")] = None,
    json: Json = False,
) -> None:
    """Run all stages, and write the dataset folder OUT/dataset, which holds the benchmarks rmir and rmir-train.

    A stopped run goes on: no request that has a reply is sent again.
    """
    from circus_bench.rmir.config import Config
    from circus_bench.rmir.cost_estimate import estimate_pipeline_cost
    from circus_bench.rmir.export import write_release
    from circus_bench.rmir.resources import open_pipeline

    if dry_run:
        _print_cost_estimate(estimate_pipeline_cost(Config.read(config), seeds=seeds, batch=batch), json=json)
        return
    where: dict[str, Any] = {"on_ray": executor is ExecutorName.RAY, "workers": workers, "address": address}
    with open_pipeline(Config.read(config), out, budget=budget, batch=batch, **where) as pipeline:
        _run(pipeline, "split")
        with bars() as watch:
            pipeline.watch = watch
            write_release(pipeline, out / "dataset")
        _report(pipeline, json=json, allow_unanswered=allow_unanswered)


@app.command()
def status(config: ConfigFile, out: Out = _OUT, json: Json = False) -> None:
    """Show the progress of every stage, losses and costs. Nothing is run or requested."""
    from circus_bench.rmir.config import Config
    from circus_bench.rmir.resources import open_pipeline

    with open_pipeline(Config.read(config), out) as pipeline:
        _report(pipeline, json=json, allow_unanswered=True)


def _run(pipeline: Pipeline, last: str) -> None:
    from circus_bench.rmir.pipeline import Stage

    def spent() -> str:
        usd = pipeline.budget.usd if pipeline.budget else None
        return "" if usd is None else f"${usd:,.2f}"

    with bars(spent) as watch:
        pipeline.watch = watch
        pipeline.run(Stage(last))


def _report(pipeline: Pipeline, *, json: bool, allow_unanswered: bool) -> None:
    from circus_bench.io import to_plain
    from circus_bench.rmir.report import summarize

    found = summarize(pipeline)
    if json:
        print_json(to_plain(found))
    else:
        rows = [
            [row.stage, row.key, _state(row), ", ".join(f"{n:,} {k}" for k, n in row.rows.items())]
            for row in found.stages
        ]
        print_table(str(pipeline.root), ["stage", "folder", "state", "rows"], rows)
        sizes = {**found.losses, **found.outcome}
        if sizes:
            print_table("losses and output sizes", ["", "number"], [[what, f"{n:,}"] for what, n in sizes.items()])
        cost = "an unknown amount (a price is not known)" if found.usd is None else f"${found.usd:,.2f}"
        typer.echo(f"spent so far, by the replies on disk: {cost}")
    if found.open_questions and not allow_unanswered:
        warn(f"{found.open_questions:,} requests were refused or got an unreadable reply; the tables hold them")
        raise typer.Exit(EXIT_ATTENTION)


def _state(row: StageProgress) -> str:
    if row.done:
        return "done"
    return f"{row.batches[0]:,} of {row.batches[1]:,} batches" if row.batches else ""


def _print_cost_estimate(found: CostEstimate, *, json: bool) -> None:
    from circus_bench.io import to_plain

    if json:
        print_json({"dry_run": True, **to_plain(found), "calls": found.calls, "usd": found.usd, "hours": found.hours})
        return
    rows = [
        [line.stage, line.model, f"{line.calls:,}", f"{line.input_tokens / 1e6:,.1f}",
         f"{line.output_tokens / 1e6:,.1f}", _dollars(line.usd), f"{line.hours:,.1f}"]
        for line in found.lines
    ]  # fmt: skip
    rows.append(["all", "", f"{found.calls:,}", "", "", _dollars(found.usd), f"{found.hours:,.1f}"])
    header = ["stage", "model", "calls", "M tokens in", "M tokens out", "USD", "hours"]
    prices = "batch prices" if found.batch else "full prices"
    print_table(f"dry run of {found.seeds:,} seed images, {prices}", header, rows)
    assumed = ", ".join(f"{name} {value:g}" for name, value in to_plain(found.assumptions).items())
    typer.echo(f"assumed: {assumed}\nencoding images and texts is not included")


def _dollars(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:,.0f}"
