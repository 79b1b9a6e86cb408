"""`circus-bench submission`: files for the CIRR and CIRCO test servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from circus_bench.cli.output import EXIT_ATTENTION

app = typer.Typer(help="Files for the CIRR and CIRCO test servers: write them from a Run, check them.")

_Benchmark = Annotated[
    Path, typer.Option(help="Folder of the benchmark (cirr/test1 or circo/test).", exists=True, file_okay=False)
]


@app.command()
def write(
    run: Annotated[Path, typer.Argument(help="Folder of a Run.", exists=True, file_okay=False)],
    benchmark: _Benchmark,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the files.")],
) -> None:
    """Write what the server takes; nothing is written if one of its rules would be broken."""
    from circus_bench.benchmark import Benchmark
    from circus_bench.errors import CircusError
    from circus_bench.runs.run import Run
    from circus_bench.submit.server_files import CIRCO_TEST, CIRR_TEST1, write_circo_test, write_cirr_test1

    made, source = Run.load(run), Benchmark.load(benchmark)
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
def check(
    file: Annotated[Path, typer.Argument(help="A submission file.", exists=True, dir_okay=False)],
    benchmark: _Benchmark,
) -> None:
    """List every rule of the server that a file breaks, with query and id."""
    from circus_bench.benchmark import Benchmark
    from circus_bench.submit.server_files import CIRCO_TEST, check_circo_test, check_cirr_test1

    source = Benchmark.load(benchmark)
    checker = check_circo_test if source.protocol.id == CIRCO_TEST else check_cirr_test1
    problems = checker(file, benchmark=source)
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(EXIT_ATTENTION)
    typer.echo("the server's rules are kept")
