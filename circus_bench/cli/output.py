"""Print to a terminal, as all commands do it: tables, numbers, progress, JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from circus_bench.audit.audit import Audit
    from circus_bench.audit.groups import Grouped, GroupedAudit
    from circus_bench.audit.scores import Scores
    from circus_bench.audit.sensitivity import LabelShares
    from circus_bench.audit.statistics import Estimate

EXIT_ATTENTION = 3
_SHOWN_GROUPS = 12  # columns of a table


def print_json(content: Mapping[str, Any]) -> None:
    """Print strict JSON on standard output."""
    from circus_bench.io import to_json

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


@contextmanager
def bars(note: Callable[[], str] = lambda: "") -> Iterator[Callable[[str, int, int], None]]:
    """Show several progress bars on standard error; yields a function of a step's name, how much is done, and of what.

    Args:
        note: what to write behind the bar that moves, such as what was spent.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as shown:
        tasks: dict[str, TaskID] = {}

        def watch(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = shown.add_task(step, total=total, note="")
            shown.update(tasks[step], completed=done, total=total, note=note())

        yield watch


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
    """Format a share with its interval, in percent."""
    if math.isnan(estimate.value):
        return "undefined"
    return f"{100 * estimate.value:.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def number(estimate: Estimate) -> str:
    """Format a number with its interval, to three decimals."""
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
    if weighted := sorted({entry.subset for entry in scores if entry.weighted}):
        typer.echo(f"{', '.join(weighted)} is weighted: each query counts for those that it was drawn to stand for")


def print_audit(audit: Audit) -> None:
    """Print an audit: the labels, their sensitivity, and the scores on full and sf."""
    labels = audit.shortcut_labels
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


def print_by_group(title: str, audit: GroupedAudit) -> None:
    """Print labels and hit rates by query group, and both averages: micro over queries, macro over groups."""
    groups = next(iter(audit.labels.values())).groups
    if len(groups) > _SHOWN_GROUPS:
        typer.echo(f"{title}: {len(groups):,} query groups are too many for a table; --json has them")
        return
    averages = "% [95 %]; micro: mean over queries, macro: plain mean of the groups"
    _print_grouped(f"{title}, labels in {averages}", "label", {label.value: of for label, of in audit.labels.items()})
    rates = {
        f"{model}, {condition}": shares
        for model, of_model in audit.hit_rates.items()
        for condition, shares in of_model.items()
    }
    if rates:
        _print_grouped(f"{title}, hit rate@{audit.k} in {averages}", "model, condition", rates)


def _print_grouped(title: str, what: str, rows: Mapping[str, Grouped]) -> None:
    first = next(iter(rows.values()))
    sizes = [f"{group or '(no group)'} ({share.n:,})" for group, share in first.groups.items()]
    print_table(
        title,
        [what, *sizes, "micro", "macro"],
        [
            [name, *(percent(share) for share in (*shares.groups.values(), shares.micro, shares.macro))]
            for name, shares in rows.items()
        ],
    )
