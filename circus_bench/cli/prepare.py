"""`circus-bench prepare`: a source to the benchmark folder that the other commands read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circus_bench.cli.output import EXIT_ATTENTION, print_json, print_table, progress, warn

if TYPE_CHECKING:
    from circus_bench.benchmark import Benchmark


_FILES = frozenset({"benchmark.json", "queries.parquet", "gallery.parquet", "images.parquet"})


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
        Path | None,
        typer.Option(
            help="Folder of image files to join: jpg, jpeg, png, webp, at any depth. An image's id is its file name "
            "without suffix, unless the source has a rule of its own.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="A defect to write down instead of refusing it; repeatable.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="An option of the source; a wrong one lists them; repeatable."
        ),
    ] = None,
    leave_out_unreadable: Annotated[
        bool, typer.Option(help="Without images that cannot be decoded and the queries that need them.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the benchmark that --out holds.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a benchmark as a folder that `run`, `audit`, `submission` and `validate` read.

    Images keep their original bytes. Without --images the folder holds annotations, and Runs can be scored but not
    made. A missing image is an error; with --allow missing_image it is written down, and the exit code is 3, as for
    images that cannot be decoded.

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
    parts = load_parts(
        source,
        data=data,
        images=images,
        allow=[Defect(name) for name in allow or ()],
        options=_options(source, options or ()),
    )
    folders = [out] if len(parts) == 1 else [out / part.name.rpartition("-")[2] for part in parts]
    for folder in folders:
        _check_free(folder, inputs=(Path(source), data, images), overwrite=overwrite)
    unreadable: set[str] = set()
    written: dict[Path, Benchmark] = {}
    for folder, part in zip(folders, parts, strict=True):
        kept = part
        if part.gallery.images is not None:
            with progress(f"{part.name}: images", len(part.image_ids)) as advance:
                found = set(part.inspect(advance=advance).unreadable)
            kept = part.without_images(found) if leave_out_unreadable and found else part
            unreadable |= found
        kept.save(folder)
        written[folder] = kept
    if json:
        print_json({str(folder): _described(part) for folder, part in written.items()})
    else:
        header = ["folder", "protocol", *_counts(parts[0]), "allowed defects"]
        print_table("benchmarks", header, [_row(folder, part) for folder, part in written.items()])
    if unreadable:
        done = "left out" if leave_out_unreadable else "use --leave-out-unreadable to go without them"
        warn(f"images missing or not to be decoded, {some(sorted(unreadable))}: {done}")
        raise typer.Exit(EXIT_ATTENTION)


def _check_free(out: Path, *, inputs: Sequence[Path | None], overwrite: bool) -> None:
    """Refuse to write where something lies that is not ours, or that the benchmark is made from."""
    held = {path.name for path in out.iterdir() if path.suffix != ".part"} if out.is_dir() else set()
    given = {path.resolve() for path in inputs if path is not None}
    if out.resolve() in given | {path.parent for path in given if path.is_file()}:
        wrong = "holds what the benchmark is made from"
    elif held - _FILES:
        wrong = f"holds other files, such as {min(held - _FILES)}"
    elif held and not overwrite:
        wrong = "is not empty; --overwrite replaces the benchmark in it"
    else:
        return
    raise typer.BadParameter(f"{out} {wrong}", param_hint="--out")


def _options(source: str, texts: Sequence[str]) -> dict[str, Any]:
    from circus_bench.sources import PROTOCOLS, parse_options

    pairs = [text.partition("=") for text in texts]
    for name, given, _ in pairs:
        if not given:
            raise typer.BadParameter(f"{name!r} is not NAME=VALUE", param_hint="--set")
    found = {name: value for name, _, value in pairs}
    return parse_options(source, found) if source in PROTOCOLS else dict(found)


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
