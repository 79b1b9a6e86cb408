"""`circus-bench build`: sources to a dataset folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circus_bench.cli.output import print_json, print_table, progress

if TYPE_CHECKING:
    from circus_bench.benchmark import Benchmark
    from circus_bench.labels.labels import Verdicts

_PUBLISHED = {"cirr/circus": "cirr", "fashioniq/circus": "fashioniq", "circo/val": "circo", "lasco/val": "lasco"}
"""Protocols that the published verdicts were made under."""


def build(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...", help="Protocol ids, such as cirr/circus or circo/val, or folders of benchmarks."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The dataset folder; made, or added to.")] = Path("circus"),
    data: Annotated[
        Path | None, typer.Option(help="Where the annotation files of BENCHMARK lie: DATA/BENCHMARK.", file_okay=False)
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Where its image files lie: IMAGES/BENCHMARK.", file_okay=False)
    ] = None,
    with_images: Annotated[
        bool, typer.Option("--with-images", help="Put the images into the folder, where their licence allows it.")
    ] = False,
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
    local_only: Annotated[
        bool,
        typer.Option("--local-only", help="Allow images that must not be redistributed; never published then."),
    ] = False,
    date: Annotated[str, typer.Option(help="Date of the release, YYYY-MM-DD.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Write benchmarks and their labelled subsets into a folder that `load_dataset` and mteb read.

    Benchmarks that the folder already holds stay. For cirr/circus, fashioniq/circus, circo/val and lasco/val the
    published labels and human judgements are taken unless --labels or --valid give others.
    """
    from circus_bench.hub.tables import Part
    from circus_bench.hub.writer import n_rows, write_dataset_folder

    benchmarks = [_load(source, data=data, images=images) for source in sources]
    verdicts = _verdicts(benchmarks, labels or [], valid or [])
    parts = [Part(benchmark, verdicts.get(benchmark.name)) for benchmark in benchmarks]
    for benchmark in benchmarks:
        if benchmark.gallery.images is not None:
            with progress(f"{benchmark.name}: images", len(benchmark.image_ids)) as advance:
                benchmark.inspect(advance=advance)
    with progress("rows", n_rows(parts)) as advance:
        manifest = write_dataset_folder(
            parts, out, with_images=with_images, local_only=local_only, date=date, advance=advance
        )
    if json:
        print_json(manifest)
        return
    rows = [
        [name, of["folder"], f"{of['rows']:,}"]
        for entry in manifest["benchmarks"].values()
        for name, of in entry["configs"].items()
    ]
    print_table(str(out), ["configuration", "files", "rows"], rows)
    if not manifest["publishable"]:
        typer.echo("for local use: the folder holds images that must not be redistributed")


def _load(source: str, *, data: Path | None, images: Path | None) -> Benchmark:
    """A benchmark from its folder, or from the annotation files of its source."""
    from circus_bench.benchmark import Benchmark
    from circus_bench.errors import CircusError
    from circus_bench.sources import PROTOCOLS, join_images, load_source

    if source in PROTOCOLS:
        name = source.partition("/")[0]
        if name == "scenes":
            return load_source(source)
        if data is None:
            raise CircusError(f"{source}: --data is missing; the annotation files are looked for in DATA/{name}")
        return load_source(source, data / name, images=images / name if images else None)
    folder = Path(source)
    if not folder.is_dir():
        raise CircusError(f"{source!r} is neither a folder nor one of the protocols {', '.join(PROTOCOLS)}")
    benchmark = Benchmark.load(folder)
    if benchmark.gallery.images is None and images is not None:
        return join_images(benchmark, images / benchmark.name)
    return benchmark


def _verdicts(benchmarks: list[Benchmark], labels: list[Path], valid: list[Path]) -> dict[str, Verdicts]:
    """The verdicts on each benchmark: from its label table, or else the published ones; then human verdicts."""
    from circus_bench.labels.formats import read_verdicts
    from circus_bench.labels.labels import Verdicts, published
    from circus_bench.labels.validation_file import with_validation

    found = _by_benchmark(benchmarks, [(path, Verdicts.of_labels(path)) for path in labels])
    for benchmark in benchmarks:
        name = _PUBLISHED.get(benchmark.protocol.id)
        if name and benchmark.name not in found:
            found[benchmark.name] = published(name)
    judged = _by_benchmark(benchmarks, [(path, read_verdicts(path)) for path in valid])
    for name, verdicts in judged.items():
        found[name] = with_validation(found[name], verdicts) if name in found else verdicts
    return found


def _by_benchmark(benchmarks: list[Benchmark], tables: list[tuple[Path, Verdicts]]) -> dict[str, Verdicts]:
    from circus_bench.errors import MismatchError

    found: dict[str, Verdicts] = {}
    for path, table in tables:
        known = any(benchmark.name == table.benchmark for benchmark in benchmarks)
        if not known or table.benchmark in found:
            wrong = "is the second for its benchmark" if known else "is about a benchmark that is not built here"
            raise MismatchError(f"{path}: {wrong} ({table.benchmark!r})")
        found[table.benchmark] = table
    return found
