"""`circus-bench prepare`: a source to the benchmark folder that the other commands read."""

from __future__ import annotations

from json import loads as parse_json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circus_bench.cli.output import EXIT_ATTENTION, print_json, print_table, progress, warn

if TYPE_CHECKING:
    from circus_bench.benchmark import Benchmark


def prepare(
    source: Annotated[str, typer.Argument(help="A protocol id such as cirr/circus, or the folder of a benchmark.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder; one a category for a protocol that comes in categories.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the official files of a protocol, DATA/cirr, ...; or the file of a dataset."),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of image files to join.", exists=True, file_okay=False)
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="A defect to write down instead of refusing it; repeatable.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An option of the source, as text or JSON; repeatable."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a benchmark as a folder that `run`, `audit`, `submission` and `validate` read.

    Images keep their original bytes. Without --images the folder holds annotations, and Runs can be scored but not
    made. The exit code is 3 when an image is missing or cannot be decoded.

    Any dataset of triplets becomes a benchmark by the source `dataset`, which needs a name and the columns:
    `prepare dataset --data triplets.parquet --set name=mine
    --set columns='{"reference": "ref", "text": "caption", "targets": "target"}' --images IMAGES --out mine`
    """
    from circus_bench.benchmark import Defect
    from circus_bench.errors import some
    from circus_bench.sources.loading import load_parts

    unknown = sorted({*(allow or ())} - set(Defect))
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}; known: {', '.join(Defect)}", param_hint="--allow")
    if out.resolve() == Path(source).resolve():
        raise typer.BadParameter("the folder is the source itself", param_hint="--out")
    parts = load_parts(
        source,
        data=data,
        images=images,
        allow=[Defect(name) for name in allow or ()],
        options=dict(_option(text) for text in options or ()),
    )
    unreadable: set[str] = set()
    written: dict[Path, Benchmark] = {}
    for part in parts:
        folder = out if len(parts) == 1 else out / part.name.rpartition("-")[2]
        if part.gallery.images is not None:
            with progress(f"{part.name}: images", len(part.image_ids)) as advance:
                unreadable |= set(part.inspect(advance=advance).unreadable)
        part.save(folder)
        written[folder] = part
    if json:
        print_json({str(folder): _described(part) for folder, part in written.items()})
    else:
        header = ["folder", "protocol", *_counts(parts[0]), "allowed defects"]
        print_table("benchmarks", header, [_row(folder, part) for folder, part in written.items()])
    if unreadable:
        warn(f"images missing or not to be decoded, {some(sorted(unreadable))}; see `run --leave-out-unreadable`")
        raise typer.Exit(EXIT_ATTENTION)


def _option(text: str) -> tuple[str, Any]:
    name, given, value = text.partition("=")
    if not given:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
    try:
        return name, parse_json(value)
    except ValueError:
        return name, value


def _described(part: Benchmark) -> dict[str, Any]:
    findings = {finding.defect: list(finding.ids) for finding in part.findings}
    return {"name": part.name, "protocol": part.protocol.id, **_counts(part), "findings": findings}


def _row(folder: Path, part: Benchmark) -> list[str]:
    allowed = ", ".join(f"{len(finding.ids):,} {finding.defect}" for finding in part.findings)
    return [str(folder), part.protocol.id, *(f"{count:,}" for count in _counts(part).values()), allowed]


def _counts(part: Benchmark) -> dict[str, int]:
    with_images = part.gallery.images is not None
    return {
        "queries": len(part.queries),
        "gallery": len(part.gallery.ids),
        "images": len(part.inspect().readable) if with_images else 0,
    }
