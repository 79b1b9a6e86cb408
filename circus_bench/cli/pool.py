"""Run `circus-bench pool`: list the models of published audits, and whether this environment can run them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circus_bench.cli.output import EXIT_ATTENTION, print_json, print_table

if TYPE_CHECKING:
    from circus_bench.models.registry import Need, PoolModel

app = typer.Typer(
    help="The models of published audits: what each needs, and whether it runs here.", no_args_is_help=True
)


@app.command("list")
def list_models(
    pool: Annotated[str | None, typer.Option(help="circus or rmir.", show_default="both")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models, with what each needs."""
    from circus_bench.models.registry import needs, size
    from circus_bench.models.registry import pool as models_of

    found = [(model, needs(model)) for model in models_of(pool)]
    if json:
        print_json({"models": [_content(model, needed) for model, needed in found]})
        return
    rows = [
        [
            model.name,
            model.title,
            ", ".join(model.pools),
            f"{model.parameters / 1e9:.1f} B" if model.parameters else "",
            size(model.memory) if model.memory else "",
            ", ".join(model.extras),
            ", ".join(model.keys),
            _state(needed),
        ]
        for model, needed in found
    ]
    header = ["model", "in the paper", "pool", "parameters", "bf16 weights", "extras", "key", "runs here"]
    print_table("pool", header, rows)


@app.command()
def check(
    model: Annotated[str, typer.Argument(help="Its id, or its name in the paper.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a model needs and what there is of it. Exit code 3 if something is missing."""
    from circus_bench.models.registry import needs, pool_model

    chosen = pool_model(model)
    needed = needs(chosen)
    if json:
        print_json(_content(chosen, needed))
    else:
        rows = [[need.what, need.wanted, need.found, "yes" if need.met else "NO"] for need in needed]
        print_table(f"{chosen.title}: {chosen.name}", ["what", "needed", "found", "enough"], rows)
    if _unmet(needed):
        raise typer.Exit(EXIT_ATTENTION)


def _content(model: PoolModel, needed: Sequence[Need]) -> dict[str, Any]:
    return {
        **dataclasses.asdict(model),
        "memory_bytes": model.memory,
        "runs_here": not _unmet(needed),
        "needs": [dataclasses.asdict(need) for need in needed],
    }


def _state(needed: Sequence[Need]) -> str:
    unmet = _unmet(needed)
    return f"no: {', '.join(unmet)}" if unmet else "yes"


def _unmet(needed: Sequence[Need]) -> list[str]:
    return [need.what for need in needed if not need.met]
