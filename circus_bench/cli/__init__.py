"""The command `circus-bench`. One file a command; no logic of its own.

Exit codes: 0 done; 2 the command line is wrong; 3 done, but something calls for attention (a defect, an alarm); 4 the
input cannot be used. Heavy imports happen inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from circus_bench._version import __version__
from circus_bench.cli import (
    audit,
    build,
    demo,
    doctor,
    mteb,
    pool,
    prepare,
    publish,
    reproduce,
    rmir,
    run,
    score,
    submission,
    submit,
    validate,
)
from circus_bench.errors import CircusError

EXIT_INPUT = 4

app = typer.Typer(
    name="circus-bench",
    help="Shortcut audits and honest scores for composed image retrieval.",
    epilog="Exit codes: 0 done, 2 wrong usage, 3 done but see the warnings, 4 the input cannot be used.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("demo")(demo.demo)
app.command("prepare")(prepare.prepare)
app.command("run")(run.run)
app.command("audit")(audit.audit)
app.command("score")(score.score)
app.command("doctor")(doctor.doctor)
app.command("build")(build.build)
app.command("publish")(publish.publish)
app.command("reproduce")(reproduce.reproduce)
app.command("mteb", context_settings=mteb.PASS_ON, add_help_option=False)(mteb.mteb)
app.add_typer(pool.app, name="pool")
app.add_typer(rmir.app, name="rmir")
app.add_typer(submission.app, name="submission")
app.add_typer(validate.app, name="validate")
app.command("submit")(submit.submit)
app.command("check-scores")(submit.check_scores)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Shortcut audits and honest scores for composed image retrieval."""


def main() -> None:
    """Entry point of the console script: what is refused, or cannot be read or written, is one line and exit code 4."""
    try:
        app()
    except (CircusError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(EXIT_INPUT)
