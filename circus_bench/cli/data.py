"""`circus-bench data make`: sources, folders and images to a dataset folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circus_bench.cli.options import BenchmarkArguments, DataOption, ImagesOption, JsonOption
from circus_bench.cli.output import EXIT_ATTENTION, print_json, print_table, progress, warn
from circus_bench.cli.publish import publish

if TYPE_CHECKING:
    from circus_bench.hub.tables import LabeledBenchmark
    from circus_bench.labels.labels import Labels

app = typer.Typer(help="Dataset folders: make one of any source, publish it on the Hub.", no_args_is_help=True)
app.command()(publish)


@app.command()
def make(
    benchmarks: BenchmarkArguments,
    out: Annotated[Path, typer.Option("--out", "-o", help="The dataset folder; made, or added to.")],
    data: DataOption = None,
    images: ImagesOption = None,
    with_images: Annotated[
        bool,
        typer.Option(
            "--with-images/--without-images",
            help="Put images into the folder. With images that must not be redistributed it is for local use.",
        ),
    ] = True,
    labels: Annotated[
        list[Path] | None,
        typer.Option(help="labels.parquet of an audit, instead of published labels; repeatable.", dir_okay=False),
    ] = None,
    valid: Annotated[
        list[Path] | None,
        typer.Option(
            help="Human verdicts (validate export), added to the labels in place of others; repeatable.", dir_okay=False
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
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace benchmarks of the same name that --out holds.")
    ] = False,
    date: Annotated[str, typer.Option(help="Date of the release, YYYY-MM-DD.")] = "",
    json: JsonOption = False,
) -> None:
    """Write benchmarks as a folder that every command, `load_dataset` and mteb read.

    Benchmarks that the folder already holds stay. For cirr/circus, fashioniq/circus, circo/val and lasco/val the
    published labels and human judgments are taken unless --labels or --valid give others. Images keep their original
    bytes. Without images the folder holds annotations, and Runs can be scored but not made. A missing image is an
    error; with --allow missing_image it is written down, and the exit code is 3, as for images that cannot be decoded.

    Any dataset of triplets becomes a benchmark by the source `dataset`, which needs a name and the columns:
    `data make dataset --data triplets.parquet --set name=mine
    --set columns='{"reference": "ref", "text": "caption", "targets": "target"}' --images IMAGES --out mine`
    """
    from circus_bench.benchmark import Defect
    from circus_bench.errors import format_ids
    from circus_bench.hub.loading import BenchmarkName, load_labeled_benchmarks
    from circus_bench.hub.tables import LabeledBenchmark
    from circus_bench.hub.writer import n_rows, write_dataset_folder

    unknown = sorted({*(allow or ())} - {*Defect})
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}; known: {', '.join(Defect)}", param_hint="--allow")
    loaded = [
        part
        for name in benchmarks
        for part in load_labeled_benchmarks(
            name, data=data, images=images, allow=allow or (), **_options(name, options or ())
        )
    ]
    verdicts = _verdicts(loaded, labels or [], valid or [])
    inputs = [
        *(Path(BenchmarkName.parse(name).place) for name in benchmarks),
        *(path for path in (data, images) if path),
    ]
    parts, unreadable = [], set[str]()
    for part in (LabeledBenchmark(part.benchmark, verdicts.get(part.name)) for part in loaded):
        benchmark = part.benchmark
        found = set[str]()
        if benchmark.gallery.images is not None:
            with progress(f"{part.name}: images", len(benchmark.image_ids)) as advance:
                found = set(benchmark.inspect(advance=advance).unreadable)
        unreadable |= found
        parts.append(part.restrict(benchmark.without_images(found)) if leave_out_unreadable and found else part)
    _check_free(out, parts, inputs=inputs, with_images=with_images, overwrite=overwrite)
    with progress("rows", n_rows(parts)) as advance:
        manifest = write_dataset_folder(parts, out, with_images=with_images, date=date, advance=advance)
    if json:
        print_json(manifest)
    else:
        header = ["benchmark", "protocol", "queries", "gallery", "images", "subsets", "allowed defects"]
        print_table(str(out), header, [_row(name, entry) for name, entry in manifest["benchmarks"].items()])
        if not manifest["publishable"]:
            typer.echo("for local use: the folder holds images that must not or cannot be passed on")
    if unreadable:
        done = "left out" if leave_out_unreadable else "use --leave-out-unreadable to go without them"
        warn(f"images missing or not to be decoded, {format_ids(sorted(unreadable))}: {done}")
        raise typer.Exit(EXIT_ATTENTION)


def _options(name: str, texts: Sequence[str]) -> dict[str, Any]:
    from circus_bench.hub.loading import BenchmarkName
    from circus_bench.sources import parse_options

    pairs = [text.partition("=") for text in texts]
    for option, given, _ in pairs:
        if not given:
            raise typer.BadParameter(f"{option!r} is not NAME=VALUE", param_hint="--set")
    found = {option: value for option, _, value in pairs}
    named = BenchmarkName.parse(name)
    return parse_options(named.place, found) if named.is_protocol else dict(found)


def _check_free(
    out: Path, parts: Sequence[LabeledBenchmark], *, inputs: Sequence[Path], with_images: bool, overwrite: bool
) -> None:
    """Refuse to write over what the benchmarks are made from, over other benchmarks, and over images with none."""
    from circus_bench.hub.writer import MANIFEST, read_manifest

    given = {path.resolve() for path in inputs}
    if out.resolve() in given | {path.parent for path in given if path.is_file()}:
        raise typer.BadParameter(f"{out} holds what the benchmark is made from", param_hint="--out")
    held = read_manifest(out)["benchmarks"] if (out / MANIFEST).is_file() else {}
    other = [
        part.name
        for part in parts
        if part.name in held
        and held[part.name]["fingerprint"]["annotations"] != part.benchmark.annotations_only().fingerprint.annotations
    ]
    if other and not overwrite:
        raise typer.BadParameter(
            f"{out} holds other benchmarks named {', '.join(other)}; --overwrite replaces them", param_hint="--out"
        )
    bare = [part.name for part in parts if not with_images or part.benchmark.gallery.images is None]
    lost = [name for name in bare if name in held and held[name]["pixels"]]
    if lost and not overwrite:
        raise typer.BadParameter(
            f"{out} holds the images of {', '.join(lost)}; --overwrite leaves them out", param_hint="--out"
        )


def _verdicts(parts: Sequence[LabeledBenchmark], labels: Sequence[Path], valid: Sequence[Path]) -> dict[str, Labels]:
    """Collect the labels of each benchmark: its label table, else those that came with it; then human verdicts."""
    from circus_bench.labels.formats import load_labels
    from circus_bench.labels.labels import Labels

    found = _by_benchmark(parts, [(path, Labels.load(path)) for path in labels])
    for part in parts:
        if part.labels is not None:
            found.setdefault(part.name, part.labels)
    for name, validation in _by_benchmark(parts, [(path, load_labels(path)) for path in valid]).items():
        found[name] = found[name].with_validation(validation) if name in found else validation
    return found


def _by_benchmark(parts: Sequence[LabeledBenchmark], tables: Sequence[tuple[Path, Labels]]) -> dict[str, Labels]:
    from circus_bench.errors import MismatchError

    names = {part.benchmark.name: part.name for part in parts}
    found: dict[str, Labels] = {}
    for path, table in tables:
        name = names.get(table.benchmark)
        if name is None or name in found:
            wrong = "is about a benchmark that is not made here" if name is None else "is the second for its benchmark"
            raise MismatchError(f"{path}: {wrong} ({table.benchmark!r})")
        found[name] = table
    return found


def _row(name: str, entry: Mapping[str, Any]) -> list[str]:
    rows = {(of["subset"], of["table"]): of["rows"] for of in entry["configs"].values()}
    subsets = [f"{subset} {n:,}" for (subset, table), n in rows.items() if table == "rows" and subset != "full"]
    unreadable = entry.get("unreadable_images", 0)
    pixels = ("yes" + (f", {unreadable:,} unreadable" if unreadable else "")) if entry["pixels"] else "no"
    allowed = ", ".join(f"{len(finding['ids']):,} {finding['defect']}" for finding in entry["findings"])
    counts = [f"{rows['full', table]:,}" for table in ("rows", "corpus")]
    return [name, entry["protocol"]["id"], *counts, pixels, ", ".join(subsets), allowed]
