"""`circus-bench submit`: results for the CIRR and CIRCO test servers and for leaderboards, and their verification."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circus_bench.cli.options import BenchmarkOption, DataOption, DryRunOption, JsonOption
from circus_bench.cli.output import EXIT_ATTENTION, print_json, print_table

if TYPE_CHECKING:
    from circus_bench.submit.leaderboard import Submission

app = typer.Typer(help="Results for test servers and leaderboards: write them, check them.", no_args_is_help=True)

_Model = Annotated[str, typer.Option(help="The model's repository, ORG/NAME.")]
_Dataset = Annotated[str, typer.Option(help="Repository of the dataset folder, ORG/NAME.")]
_Folder = Annotated[
    Path,
    typer.Option("--benchmark", help="The dataset folder that the Runs were made on.", exists=True, file_okay=False),
]


@app.command()
def server(
    run: Annotated[Path, typer.Argument(help="Folder of a Run.", exists=True, file_okay=False)],
    benchmark: BenchmarkOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the files.")],
    data: DataOption = None,
) -> None:
    """Write what the CIRR or CIRCO test server takes; nothing is written if one of its rules would be broken.

    The benchmark is cirr/test1 or circo/test.
    """
    from circus_bench.errors import CircusError
    from circus_bench.hub.loading import load_benchmark
    from circus_bench.runs.run import Run
    from circus_bench.submit.server_files import CIRCO_TEST, CIRR_TEST1, write_circo_test, write_cirr_test1

    made, source = Run.load(run), load_benchmark(benchmark, data=data)
    paths: tuple[Path, ...]
    if source.protocol.id == CIRR_TEST1:
        paths = write_cirr_test1(made, out, benchmark=source)
    elif source.protocol.id == CIRCO_TEST:
        paths = (out / "circo_test.json",)
        write_circo_test(made, paths[0], benchmark=source)
    else:
        raise CircusError(f"no server takes {source.protocol.id}; there are servers for {CIRR_TEST1} and {CIRCO_TEST}")
    for path in paths:
        typer.echo(path)


@app.command()
def check_server(
    file: Annotated[Path, typer.Argument(help="A submission file.", exists=True, dir_okay=False)],
    benchmark: BenchmarkOption,
    data: DataOption = None,
) -> None:
    """List every rule of the test server that a file breaks, with query and id."""
    from circus_bench.hub.loading import load_benchmark
    from circus_bench.submit.server_files import CIRCO_TEST, check_circo_test, check_cirr_test1

    source = load_benchmark(benchmark, data=data)
    checker = check_circo_test if source.protocol.id == CIRCO_TEST else check_cirr_test1
    problems = checker(file, benchmark=source)
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(EXIT_ATTENTION)
    typer.echo("the server's rules are kept")


@app.command()
def leaderboard(
    runs: Annotated[list[Path], typer.Argument(help="Folders of Runs of one model.", exists=True, file_okay=False)],
    model: _Model,
    dataset: _Dataset,
    benchmark: _Folder = Path("circus"),
    revision: Annotated[
        str, typer.Option(help="Commit of the dataset repository; the newest by default.", show_default=False)
    ] = "",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder that the files are written to.")] = Path(
        "submission"
    ),
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Open a pull request in the model's repository.")
    ] = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Write .eval_results for a model's repository, check them, and open a pull request with them.

    The rank tables go along, so that anybody can compute the values again with `circus-bench submit check-scores`. The
    token is HF_TOKEN, or that of `hf auth login`.
    """
    from circus_bench.errors import CircusError
    from circus_bench.submit.leaderboard import Leaderboard, latest_revision, open_pull_request, write_results
    from circus_bench.submit.verify import require_valid

    if dry_run and not revision:
        raise CircusError("a dry run asks nobody for the newest revision of the dataset; name it with --revision")
    leaderboard = Leaderboard(benchmark, dataset, revision or latest_revision(dataset))
    with tempfile.TemporaryDirectory() as scratch:
        submission = write_results(runs, Path(scratch) if dry_run else out, model=model, leaderboard=leaderboard)
        require_valid(submission.folder, model=model, leaderboard=leaderboard)
    pull_request = open_pull_request(submission) if create_pr and not dry_run else None
    if json:
        print_json({**submission.to_dict(), "pull_request": pull_request})
        return
    _show(submission)
    if dry_run:
        typer.echo("dry run: nothing was written or sent")
    else:
        typer.echo(f"pull request: {pull_request}" if pull_request else f"written to {out}; --create-pr sends them")


@app.command()
def check_scores(
    folder: Annotated[
        Path, typer.Argument(help="Checkout of a model's repository with .eval_results.", exists=True, file_okay=False)
    ],
    model: _Model,
    dataset: _Dataset,
    revision: Annotated[str, typer.Option(help="Commit of the dataset repository that the folder holds.")],
    benchmark: _Folder = Path("circus"),
    json: JsonOption = False,
) -> None:
    """Compute every value of a submission again from its rank tables; exit code 3 when one does not follow."""
    from circus_bench.submit.leaderboard import Leaderboard
    from circus_bench.submit.verify import verify_submission

    violations = verify_submission(folder, model=model, leaderboard=Leaderboard(benchmark, dataset, revision))
    if json:
        print_json({"accepted": not violations, "refusals": [violation.to_dict() for violation in violations]})
    else:
        for violation in violations:
            typer.echo(f"refused: {violation}")
        if not violations:
            typer.echo("every value follows from the rank tables")
    if violations:
        raise typer.Exit(EXIT_ATTENTION)


def _show(submission: Submission) -> None:
    rows = [[entry.task_id, f"{entry.value:.2f}", entry.notes or ""] for entry in submission.entries]
    print_table(f"{submission.model} on {submission.leaderboard.dataset}", ["task", "value", "notes"], rows)
    for path in submission.files:
        typer.echo(path)
