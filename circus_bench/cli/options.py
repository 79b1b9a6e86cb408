"""Define the arguments and options that mean one thing in every command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_NAMES = "a dataset folder, FOLDER#cirr_sf, a protocol id such as cirr/circus, or ORG/NAME@REVISION#cirr_v on the Hub"

BenchmarkArgument = Annotated[str, typer.Argument(metavar="BENCHMARK", help=f"What to take: {_NAMES}.")]
BenchmarkArguments = Annotated[list[str], typer.Argument(metavar="BENCHMARK...", help=f"What to take: {_NAMES}.")]
BenchmarkOption = Annotated[str, typer.Option("--benchmark", metavar="BENCHMARK", help=f"The benchmark: {_NAMES}.")]
OptionalBenchmarkOption = Annotated[
    str | None, typer.Option("--benchmark", metavar="BENCHMARK", help=f"The benchmark: {_NAMES}.")
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Annotation files of a protocol: DATA/cirr, ...; for `dataset` the file or folder."),
]
ImagesOption = Annotated[
    Path | None,
    typer.Option(
        "--images",
        help="Image files to join, jpg, jpeg, png, webp, at any depth; IMAGES/cirr where there is such a folder. An "
        "image's id is its file name without suffix, unless the source has a rule of its own.",
        exists=True,
        file_okay=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; write and send nothing.")]
