"""`python -m circus_bench.dataset_scripts.publish DIR --repo ORG/circus`: `circus-bench data publish` by itself."""

from __future__ import annotations

import typer

from circus_bench.cli.publish import publish
from circus_bench.errors import CircusError


def main() -> None:
    """Run the command; an error that circus-bench raises on purpose becomes one line and exit code 4."""
    try:
        typer.run(publish)
    except CircusError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(4) from None


if __name__ == "__main__":
    main()
