"""`circus-bench submit` and `check-scores`: results for a leaderboard, and whether they follow from the rank tables."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circus_bench.cli.output import EXIT_ATTENTION, print_json, print_table

if TYPE_CHECKING:
    from circus_bench.submit.leaderboard import Submission

_Model = Annotated[str, typer.Option(help="The model's repository, ORG/NAME.")]
_Data = Annotated[
    Path,
    typer.Option(help="Dataset folder that `circus-bench build` wrote.", exists=True, file_okay=False),
]
_Dataset = Annotated[str, typer.Option(help="Repository of that folder, ORG/NAME.")]


def submit(
    runs: Annotated[list[Path], typer.Argument(help="Folders of Runs of one model.", exists=True, file_okay=False)],
    model: _Model,
    dataset: _Dataset,
    data: _Data = Path("circus"),
    revision: Annotated[
        str, typer.Option(help="Commit of the dataset repository; the newest by default.", show_default=False)
    ] = "",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder that the files are written to.")] = Path(
        "submission"
    ),
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Open a pull request in the model's repository.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and show; write and send nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print files and entries as JSON.")] = False,
) -> None:
    """Write .eval_results for a model's repository, check them, and open a pull request with them.

    The rank tables go along, so that anybody can compute the values again with `circus-bench check-scores`. The token
    is HF_TOKEN, or that of `hf auth login`.
    """
    from circus_bench.errors import CircusError
    from circus_bench.submit.leaderboard import Board, head_of, open_pull_request, write_results
    from circus_bench.submit.verify import require_sound

    if dry_run and not revision:
        raise CircusError("a dry run asks nobody for the newest revision of the dataset; name it with --revision")
    board = Board(data, dataset, revision or head_of(dataset))
    with tempfile.TemporaryDirectory() as scratch:
        submission = write_results(runs, Path(scratch) if dry_run else out, model=model, board=board)
        require_sound(submission.folder, model=model, board=board)
    pull_request = open_pull_request(submission) if create_pr and not dry_run else None
    if json:
        print_json({**submission.to_dict(), "pull_request": pull_request})
        return
    _show(submission)
    if dry_run:
        typer.echo("dry run: nothing was written or sent")
    else:
        typer.echo(f"pull request: {pull_request}" if pull_request else f"written to {out}; --create-pr sends them")


def check_scores(
    folder: Annotated[
        Path, typer.Argument(help="Checkout of a model's repository with .eval_results.", exists=True, file_okay=False)
    ],
    model: _Model,
    dataset: _Dataset,
    revision: Annotated[str, typer.Option(help="Commit of the dataset repository that the folder holds.")],
    data: _Data = Path("circus"),
    json: Annotated[bool, typer.Option("--json", help="Print the refusals as JSON.")] = False,
) -> None:
    """Compute every value of a submission again from its rank tables; exit code 3 when one does not follow."""
    from circus_bench.submit.leaderboard import Board
    from circus_bench.submit.verify import check_submission

    refusals = check_submission(folder, model=model, board=Board(data, dataset, revision))
    if json:
        print_json({"accepted": not refusals, "refusals": [refusal.to_dict() for refusal in refusals]})
    else:
        for refusal in refusals:
            typer.echo(f"refused: {refusal}")
        if not refusals:
            typer.echo("every value follows from the rank tables")
    if refusals:
        raise typer.Exit(EXIT_ATTENTION)


def _show(submission: Submission) -> None:
    rows = [[entry.task_id, f"{entry.value:.2f}", entry.notes or ""] for entry in submission.entries]
    print_table(f"{submission.model} on {submission.board.dataset}", ["task", "value", "notes"], rows)
    for path in submission.files:
        typer.echo(path)
