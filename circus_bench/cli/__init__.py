"""Define the command `circus-bench`: one file per command, no logic of its own.

Exit codes: 0 done; 2 the command line is wrong; 3 done, but something calls for attention (a defect, an alarm); 4 the
input cannot be used. Heavy imports happen inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import typer

from circus_bench._version import __version__
from circus_bench.cli import audit, data, demo, doctor, mteb, pool, reproduce, rmir, run, score, submit, validate
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
app.add_typer(data.app, name="data")
app.command("doctor")(doctor.doctor)
app.command("run")(run.run)
app.command("audit")(audit.audit)
app.command("score")(score.score)
app.command("reproduce")(reproduce.reproduce)
app.command("mteb", context_settings=mteb.PASS_ON, add_help_option=False)(mteb.mteb)
app.add_typer(pool.app, name="pool")
app.add_typer(submit.app, name="submit")
app.add_typer(validate.app, name="validate")
app.add_typer(rmir.app, name="rmir")


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
    """Run the console script: what is refused, or cannot be read or written, is one line and exit code 4."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        app()
    except (CircusError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(EXIT_INPUT)
