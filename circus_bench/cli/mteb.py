"""`circus-bench mteb`: the command `mteb`, with our models, tasks and benchmarks, whatever else is installed."""

from __future__ import annotations

import sys

import typer

PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True}
"""Click's settings of a command that leaves its options to another parser."""


def mteb(context: typer.Context) -> None:
    """Do what `mteb ARGS...` does, knowing our tasks and models even where the start-up hook is switched off."""
    from mteb.cli import main

    from circus_bench.registration import register

    register()
    sys.argv = ["circus-bench mteb", *(context.args or ["--help"])]  # mteb itself fails without a command
    main()
