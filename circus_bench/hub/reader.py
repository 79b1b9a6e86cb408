"""From a dataset folder back to Benchmarks and Verdicts, and images into a folder without them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from circus_bench import sources
from circus_bench.benchmark import (
    Benchmark,
    Defect,
    Finding,
    Fingerprint,
    Gallery,
    Protocol,
    Query,
    ReferencePolicy,
)
from circus_bench.errors import CircusError, FormatError, MismatchError, some
from circus_bench.hub.tables import Part, Table, config_name, features, verdict_from
from circus_bench.hub.writer import data_files, read_manifest, write_dataset_folder
from circus_bench.io import open_parquet
from circus_bench.labels.label_table import Subset
from circus_bench.labels.labels import Origin, Verdicts


def benchmark_of(folder: Path, name: str, subset: Subset | str = Subset.FULL) -> Benchmark:
    """Read a benchmark from a dataset folder.

    A subset has its own fingerprint, so that its runs are never mixed with those of the whole benchmark.

    Args:
        folder: the dataset folder.
        name: the benchmark's name in it, such as `cirr`.
        subset: its queries; the gallery is always whole.

    Raises:
        CircusError: the folder has no such benchmark or subset.
        FormatError: the files do not hold what the manifest says.
    """
    subset = Subset(subset)
    manifest, entry = _entry(folder, name)
    try:
        benchmark = Benchmark(
            name=entry["name"],
            protocol=Protocol(**{**entry["protocol"], "reference": ReferencePolicy(entry["protocol"]["reference"])}),
            queries=tuple(map(_query, _rows(folder, manifest, name, Subset.FULL))),
            gallery=Gallery(
                ids=tuple(_column(folder, manifest, config_name(name, Subset.FULL, Table.CORPUS), "id")),
                images=FolderImages(folder, name) if entry["pixels"] else None,
            ),
            source=entry["source"],
            allow=frozenset(map(Defect, entry["allow"])),
            findings=tuple(Finding(Defect(f["defect"]), tuple(f["ids"])) for f in entry["findings"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{folder}: the manifest's entry of {name!r} is not readable ({error!r})") from error
    written = Fingerprint(entry["fingerprint"]["annotations"], None)
    bare = dataclasses.replace(benchmark, gallery=Gallery(benchmark.gallery.ids))
    if not written.matches(bare.fingerprint):
        raise FormatError(f"{folder}: {name!r} was changed after it was written (fingerprint differs)")
    if subset is Subset.FULL:
        return benchmark
    chosen = frozenset(_column(folder, manifest, config_name(name, subset), "query_id"))
    queries = tuple(query for query in benchmark.queries if query.id in chosen)
    # The findings of the whole benchmark name queries that are gone; those that remain are found again.
    source = {**benchmark.source, "subset": subset.value}
    return dataclasses.replace(benchmark, queries=queries, source=source, findings=())


def verdicts_of(folder: Path, name: str) -> Verdicts | None:
    """Read the labels and human judgements of a benchmark; None where the folder was built without.

    Raises:
        CircusError: the folder has no such benchmark.
        FormatError: the files do not hold what the manifest says.
    """
    manifest, entry = _entry(folder, name)
    about = entry["verdicts"]
    if about is None:
        return None
    origin = Origin.from_dict(about)
    # A query without a verdict has nothing in `human_audited`; a verdict always says yes or no.
    judged = (row for row in _rows(folder, manifest, name, Subset.FULL) if row["human_audited"] is not None)
    return Verdicts(entry["name"], origin, {row["query_id"]: verdict_from(row) for row in judged})


def join_images(
    folder: Path | str,
    name: str,
    images: Mapping[str, bytes] | Path | str,
    *,
    out: Path | str,
    advance: Callable[[], object] = lambda: None,
) -> Benchmark:
    """Give a benchmark of a dataset folder its images from a local folder, as a new dataset folder.

    The new folder is for local use: it cannot be published when the images must not be redistributed.

    Args:
        folder: the dataset folder.
        name: the benchmark's name in it.
        images: a folder of image files (see `circus_bench.sources.join_images`), or image id to the bytes of its file.
        out: the new dataset folder, or one that the benchmark is added to.
        advance: called after each row written.

    Returns:
        The benchmark with its images.

    Raises:
        BenchmarkError: images are missing.
        ImageError: images cannot be decoded.
        MismatchError: images are others than those whose digests the folder holds.
    """
    folder, out = Path(folder), Path(out)
    bare = benchmark_of(folder, name)
    benchmark = bare.with_images(images) if isinstance(images, Mapping) else sources.join_images(bare, Path(images))
    manifest, _ = _entry(folder, name)
    corpus = config_name(name, Subset.FULL, Table.CORPUS)
    ids, digests = (_column(folder, manifest, corpus, column) for column in ("id", "digest"))
    readable = benchmark.inspect().readable
    other = [
        i for i, digest in zip(ids, digests, strict=True) if digest and i in readable and readable[i].digest != digest
    ]
    if other:
        raise MismatchError(f"{name}: images have other pixels than the dataset was built with ({some(other)})")
    part = Part(benchmark, verdicts_of(folder, name))
    write_dataset_folder([part], out, with_images=True, local_only=True, advance=advance)
    return benchmark_of(out, name)


class FolderImages(Mapping[str, bytes]):
    """The images of a benchmark in a dataset folder, those of references too. A few row groups are in memory."""

    _KEPT_GROUPS = 8

    def __init__(self, folder: Path, name: str) -> None:
        manifest, _ = _entry(folder, name)
        self._files: list[Any] = []
        self._place: dict[str, tuple[int, int]] = {}
        self._groups: dict[tuple[int, int], dict[str, bytes]] = {}
        self._id_columns: list[str] = []
        for table, id_column in ((Table.CORPUS, "id"), (Table.ROWS, "reference")):
            schema = features(table, with_images=True).arrow_schema
            for path in data_files(folder, manifest, config_name(name, Subset.FULL, table)):
                file = open_parquet(path, schema=schema)
                for group in range(file.num_row_groups):
                    for image_id in file.read_row_group(group, columns=[id_column])[id_column].to_pylist():
                        self._place.setdefault(image_id, (len(self._files), group))
                self._files.append(file)
                self._id_columns.append(id_column)

    def __getitem__(self, image_id: str) -> bytes:
        place = self._place[image_id]
        if place not in self._groups:
            while len(self._groups) >= self._KEPT_GROUPS:
                self._groups.pop(next(iter(self._groups)))
            number, group = place
            id_column = self._id_columns[number]
            table = self._files[number].read_row_group(group, columns=[id_column, "image"])
            held = (image["bytes"] for image in table["image"].to_pylist())
            self._groups[place] = dict(zip(table[id_column].to_pylist(), held, strict=True))
        return self._groups[place][image_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)


def _entry(folder: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    manifest = read_manifest(folder)
    if name not in manifest["benchmarks"]:
        raise CircusError(f"{folder}: no benchmark {name!r}; it has {sorted(manifest['benchmarks'])}")
    return manifest, manifest["benchmarks"][name]


def _rows(folder: Path, manifest: dict[str, Any], name: str, subset: Subset) -> Iterator[dict[str, Any]]:
    """The rows of a configuration without the images."""
    schema = features(Table.ROWS, with_images=False).arrow_schema
    for path in data_files(folder, manifest, config_name(name, subset)):
        for batch in open_parquet(path, schema=schema).iter_batches(columns=schema.names):
            yield from batch.to_pylist()


def _column(folder: Path, manifest: dict[str, Any], config: str, column: str) -> list[Any]:
    import pyarrow as pa

    schema = pa.schema([(column, pa.string())])
    files = data_files(folder, manifest, config)
    return [value for path in files for value in open_parquet(path, schema=schema).read([column])[column].to_pylist()]


def _query(row: Mapping[str, Any]) -> Query:
    return Query(
        id=row["query_id"],
        reference=row["reference"],
        text=row["text"],
        targets=tuple(row["targets"]),
        group=row["group"],
        subset=tuple(row["subset"]),
        details=json.loads(row["details"]),
    )
