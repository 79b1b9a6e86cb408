"""What the commands share in talking to a terminal: tables, numbers, progress, JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from circus_bench.audit.audit import Audit
    from circus_bench.audit.scores import Scores
    from circus_bench.audit.sensitivity import LabelShares
    from circus_bench.audit.statistics import Estimate

EXIT_ATTENTION = 3


def print_json(content: Mapping[str, Any]) -> None:
    """Print strict JSON on standard output."""
    from circus_bench.files import to_json

    typer.echo(to_json(content))


def warn(message: str) -> None:
    """Print a warning on standard error."""
    typer.secho(f"warning: {message}", err=True, fg=typer.colors.YELLOW)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a progress bar on standard error; yields the function that advances it (by 1, or by its argument)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps=1: bar.advance(task, steps)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is left-aligned, the others right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for position, name in enumerate(header):
        table.add_column(name, justify="right" if position else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    # A pipe has no width of its own: tables are then printed in full.
    console = Console()
    if not console.is_terminal:
        console.width = 200
    console.print(table)


def percent(estimate: Estimate) -> str:
    """A share with its interval, in per cent."""
    if math.isnan(estimate.value):
        return "undefined"
    return f"{100 * estimate.value:.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def number(estimate: Estimate) -> str:
    """A number with its interval, to three decimals."""
    if math.isnan(estimate.value):
        return "undefined"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def print_labels(title: str, what: str, settings: Mapping[Any, LabelShares]) -> None:
    """Print the label shares of several settings; `what` is set."""
    rows = [
        [
            str(setting),
            *(f"{entry.counts[label]}: {percent(share)}" for label, share in entry.shares.items()),
            str(entry.changed),
        ]
        for setting, entry in settings.items()
    ]
    labels = next(iter(settings.values())).shares
    print_table(f"{title}: queries, % [95 %]", [what, *labels, "changed"], rows)


def print_scores(title: str, scores: Sequence[Scores], *, k: int) -> None:
    """Print hit rates under the three conditions and the composition gap of several models."""
    rows = [
        [
            entry.model,
            entry.subset,
            str(entry.n_queries),
            *(percent(metrics[f"hit_rate@{k}"]) for metrics in entry.by_condition.values()),
            percent(entry.either_unimodal),
            *(f"{100 * chance.value:.1f}" for chance in list(entry.chance.values())[:1]),
            number(entry.comp_gap),
        ]
        for entry in scores
    ]
    chance = ["chance"] if scores[0].chance else []
    header = ["model", "subset", "queries", *scores[0].by_condition, "either unimodal", *chance, "CompGap"]
    print_table(title, header, rows)


def print_audit(audit: Audit) -> None:
    """Print an audit: the labels, their sensitivity, and the scores on full and sf."""
    labels = audit.labels
    about = audit.about.get("protocol", {}).get("id") or audit.about.get("best_ranks")
    print_labels(f"{about}, labels of {len(audit.pool.models)} models", "K", audit.k_sweep)
    details = ", ".join(f"{detail} {count}" for detail, count in labels.detail_counts().items())
    typer.echo(f"shortcuts: {details}")
    if audit.chance:
        typer.echo(f"by chance the pool would call {percent(audit.chance)} % of the queries a shortcut\n")
    if audit.leave_one_out:
        print_labels("labels when m models must agree", "m", audit.support_sweep)
        print_labels("labels of smaller pools", "model left out", audit.leave_one_out)
    if audit.scores:
        policy = audit.about["protocol"]["reference"]
        print_scores(f"hit rate@{labels.k} in %, {about}, reference {policy}", audit.scores, k=labels.k)
        for subset, gap in audit.comp_gap.items():
            typer.echo(f"pool CompGap on {subset}: {number(gap)}")
