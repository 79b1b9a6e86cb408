"""Write the folder that a benchmark was before there were dataset folders: one file per table, and a head."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyarrow as pa

from circus_bench.benchmark import Benchmark
from circus_bench.images import ParquetImages
from circus_bench.io import write_json, write_parquet

OLD_FILES = ["benchmark.json", "gallery.parquet", "images.parquet", "queries.parquet"]


def save_old_form(benchmark: Benchmark, folder: Path) -> None:
    """Write `benchmark.json`, `queries.parquet`, `gallery.parquet` and, where there are images, `images.parquet`."""
    text, texts = pa.string(), pa.list_(pa.string())
    columns = {"id": text, "reference": text, "text": text, "targets": texts, "group": text, "subset": texts}
    rows = [
        {
            **{name: getattr(query, name) for name in columns},
            "details": json.dumps(dict(query.details), sort_keys=True, allow_nan=False),
        }
        for query in benchmark.queries
    ]
    schema = pa.schema({**columns, "details": text})
    write_parquet(folder / "queries.parquet", pa.Table.from_pylist(rows, schema=schema))
    write_parquet(folder / "gallery.parquet", pa.table({"id": pa.array(benchmark.gallery.ids, text)}))
    if benchmark.gallery.images is not None:
        ParquetImages.write(folder / "images.parquet", benchmark.gallery.images, inspection=benchmark.inspect())
    write_json(
        folder / "benchmark.json",
        {
            "schema_version": 1,
            "name": benchmark.name,
            "protocol": dataclasses.asdict(benchmark.protocol),
            "source": dict(benchmark.source),
            "allow": sorted(benchmark.allow),
            "findings": [dataclasses.asdict(finding) for finding in benchmark.findings],
            "fingerprint": dataclasses.asdict(benchmark.fingerprint),
        },
    )
