"""Read benchmarks, their images and their labels from a dataset folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from circus_bench._typing import StrPath
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
from circus_bench.errors import BenchmarkError, CircusError, FormatError, format_ids
from circus_bench.hub.tables import Table, config_name, features
from circus_bench.hub.writer import IMAGE_FACTS, MANIFEST, data_files, read_manifest
from circus_bench.images import Inspection, ParquetImages, read_image_facts
from circus_bench.io import read_parquet, slug
from circus_bench.labels.labels import Labels, Subset
from circus_bench.labels.provenance import Provenance
from circus_bench.labels.query_label import QueryLabel

T = TypeVar("T")


def read_benchmark(folder: StrPath, name: str, *, allow: Collection[Defect] = ()) -> Benchmark:
    """Read a benchmark from a dataset folder. Images are read when asked for.

    Args:
        folder: the dataset folder.
        name: the benchmark's name in it, such as `cirr`.
        allow: defects to allow besides those that the benchmark was made with.

    Raises:
        CircusError: the folder has no such benchmark.
        BenchmarkError: the files contradict each other.
        FormatError: the files do not hold what the manifest says.
    """
    folder = Path(folder)
    manifest, entry = _entry(folder, name)
    with _explained(folder, name):
        gallery = dict(_columns(folder, manifest, config_name(name, Subset.FULL, Table.CORPUS), "id", "digest"))
        inspection = _facts(folder, manifest, name)
        benchmark = Benchmark(
            name=entry["name"],
            protocol=Protocol(**{**entry["protocol"], "reference": ReferencePolicy(entry["protocol"]["reference"])}),
            queries=tuple(_parse(folder, manifest, name, query_from)),
            gallery=Gallery(
                ids=tuple(gallery), images=_images(folder, manifest, name, inspection) if entry["pixels"] else None
            ),
            source=dict(entry["source"]),
            allow=frozenset(allow) | {Defect(defect) for defect in entry["allow"]},
            findings=tuple(Finding(Defect(f["defect"]), tuple(f["ids"])) for f in entry["findings"]),
        )
        written = Fingerprint(**entry["fingerprint"])
        # Without recorded facts the digests of the images would have to be computed: every image decoded.
        known = benchmark if inspection is not None else benchmark.annotations_only()
        if slug(benchmark.name) != name:
            raise FormatError(f"{folder}: {name!r} was changed after it was written (its name is {benchmark.name!r})")
        if not written.matches(known.fingerprint):
            raise FormatError(f"{folder}: {name!r} was changed after it was written (fingerprint differs)")
        facts = inspection.readable if inspection is not None else {}
        other = [i for i, digest in gallery.items() if i in facts and facts[i].digest != digest]
        if other:
            raise FormatError(f"{folder}: {name!r} was changed after it was written (digests of {format_ids(other)})")
    return benchmark


def recorded_digests(folder: StrPath, name: str) -> dict[str, str]:
    """Return the digests of a benchmark's images, as far as they were recorded: image id to digest."""
    folder = Path(folder)
    manifest, _ = _entry(folder, name)
    with _explained(folder, name):
        inspection = _facts(folder, manifest, name)
        if inspection is not None:
            return {image_id: info.digest for image_id, info in inspection.readable.items()}
        corpus = config_name(name, Subset.FULL, Table.CORPUS)
        return {image_id: digest for image_id, digest in _columns(folder, manifest, corpus, "id", "digest") if digest}


def read_labels(folder: StrPath, name: str) -> Labels | None:
    """Read the labels and human judgments of a benchmark; None where the folder was built without.

    Raises:
        CircusError: the folder has no such benchmark.
        FormatError: the files do not hold what the manifest says.
    """
    folder = Path(folder)
    manifest, entry = _entry(folder, name)
    with _explained(folder, name):
        about = entry["verdicts"]
        if about is None:
            return None
        found = (label for label in _parse(folder, manifest, name, _label_from) if label is not None)
        return Labels(entry["name"], Provenance.from_dict(about), {label.query: label for label in found})


@contextmanager
def _explained(folder: Path, name: str) -> Iterator[None]:
    """Turn what a damaged folder ends in into an error that names the folder and says what to do."""
    remedy = "make the folder again with `circus-bench data make`, or download it again"
    try:
        yield
    except BenchmarkError as error:
        raise BenchmarkError(f"{folder}: {error}") from error
    except FormatError as error:
        raise FormatError(f"{error}; {remedy}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"the entry of {name!r} in {MANIFEST} is not readable ({error!r})"
        raise FormatError(f"{folder}: {what}; {remedy}") from error


def _facts(folder: Path, manifest: dict[str, Any], name: str) -> Inspection | None:
    """Read what is recorded about the images of a benchmark; None in a folder of before there were such records."""
    facts = IMAGE_FACTS.format(name)
    return read_image_facts(folder / facts) if facts in manifest["files"] else None


def _images(folder: Path, manifest: dict[str, Any], name: str, inspection: Inspection | None) -> ParquetImages:
    """Open the images of a benchmark, those of references outside the gallery too."""
    columns = [
        (path, ids, "image")
        for table, ids in ((Table.CORPUS, "id"), (Table.ROWS, "reference"))
        for path in data_files(folder, manifest, config_name(name, Subset.FULL, table))
    ]
    return ParquetImages(columns, inspection=inspection or Inspection({}, {}))


def _entry(folder: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    manifest = read_manifest(folder)
    if name not in manifest["benchmarks"]:
        raise CircusError(f"{folder}: no benchmark {name!r}; it has {sorted(manifest['benchmarks'])}")
    return manifest, manifest["benchmarks"][name]


def _parse(folder: Path, manifest: dict[str, Any], name: str, read: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """Read something of each query's row."""
    schema = features(Table.ROWS, with_images=False).arrow_schema
    for path in data_files(folder, manifest, config_name(name, Subset.FULL)):
        for row in read_parquet(path, schema=schema).to_pylist():
            try:
                yield read(row)
            except (KeyError, TypeError, ValueError, FormatError) as error:
                raise FormatError(f"{path}: the row of query {row['query_id']!r} is not readable ({error})") from error


def _columns(folder: Path, manifest: dict[str, Any], config: str, *columns: str) -> list[tuple[Any, ...]]:
    import pyarrow as pa

    schema = pa.schema([(column, pa.string()) for column in columns])
    tables = (read_parquet(path, schema=schema) for path in data_files(folder, manifest, config))
    return [row for table in tables for row in zip(*(table[column].to_pylist() for column in columns), strict=True)]


def _label_from(row: Mapping[str, Any]) -> QueryLabel | None:
    # A query without a label has nothing in `human_audited`; a label always says yes or no.
    return None if row["human_audited"] is None else QueryLabel.from_row(row["query_id"], row)


def query_from(row: Mapping[str, Any], *, id_column: str = "query_id") -> Query:
    """Make the query that a row was made from."""
    return Query(
        id=row[id_column],
        reference=row["reference"],
        text=row["text"],
        targets=tuple(row["targets"]),
        group=row["group"],
        subset=tuple(row["subset"]),
        details=json.loads(row["details"]),
    )
