"""The dataset folder: parquet shards, a card and a manifest that `load_dataset`, mteb and the Hub read as they are.

```
circus/
  README.md        the card; its head names the configurations
  manifest.json    what each benchmark is, and the SHA-256 of every file
  croissant.json   the same for Croissant readers
  eval.yaml        the evaluation tasks
  data/<benchmark>/<subset>/*.parquet             what people load: `load_dataset("circus", "cirr_v")`
  data/<benchmark>/<subset>-queries/*.parquet     with corpus and qrels the triple that mteb reads
  data/<benchmark>/<subset>-qrels/*.parquet
  data/<benchmark>/corpus/*.parquet               the gallery, shared by the subsets
  data/<benchmark>/images/*.parquet               digest, size and flags of every image, where images were at hand
```

A folder is made beside its place and put there by a rename; the same input gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench._typing import StrPath
from circus_bench._version import __version__
from circus_bench.benchmark import Benchmark
from circus_bench.errors import CircusError, FormatError, MismatchError, duplicates, format_ids
from circus_bench.hub.card import render_card, render_eval
from circus_bench.hub.croissant import croissant
from circus_bench.hub.licenses import LicenseInfo
from circus_bench.hub.tables import LabeledBenchmark, Table, config_name, features, rows
from circus_bench.images import write_image_facts
from circus_bench.io import read_json, sha256, write_json, write_row_groups, write_text
from circus_bench.labels.labels import Labels
from circus_bench.labels.provenance import IdScheme

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
SHARD_BYTES = 400_000_000
MANIFEST = "manifest.json"
IMAGE_FACTS = "data/{}/images/00000.parquet"
"""Where the facts about the images of a benchmark lie: digests, sizes, flags, and what cannot be decoded."""

_GENERATED = ("README.md", "croissant.json", "eval.yaml", MANIFEST)
_GROUP_BYTES = 32_000_000
_GROUP_ROWS = {True: 64, False: 10_000}  # with and without images


def save_benchmark(benchmark: Benchmark, folder: StrPath, *, labels: Labels | None = None) -> None:
    """Write one benchmark, with its images if it has them, as a dataset folder; `load_benchmark` reads it.

    Args:
        benchmark: the benchmark.
        folder: made, or added to; a benchmark of the same name is replaced.
        labels: of its queries.

    Raises:
        CircusError: `folder` is something else than a dataset folder.
    """
    write_dataset_folder([LabeledBenchmark(benchmark, labels)], folder)


def write_dataset_folder(
    parts: Sequence[LabeledBenchmark],
    out: StrPath,
    *,
    with_images: bool = True,
    date: str = "",
    shard_bytes: int = SHARD_BYTES,
    advance: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Write benchmarks into a dataset folder; those that it already holds under other names stay.

    Images keep their original bytes, readable or not. A folder with images that cannot be decoded, or that must not be
    redistributed, is for local use: its manifest says so, and it is not published.

    Args:
        parts: the benchmarks and what was found about their queries.
        out: the folder; made, or added to.
        with_images: put the images of those that have some into it.
        date: of the release, YYYY-MM-DD; by default the folder's earlier one, or none. The clock is never asked, so
            that the same input gives the same bytes.
        shard_bytes: a parquet file is closed before it grows beyond this; one row group at least is in each.
        advance: called after each row, for a progress bar (see `n_rows`).

    Returns:
        The manifest.

    Raises:
        CircusError: two parts share a name; `out` is something else than a dataset folder, or was changed in the
            meantime.
    """
    out = Path(out).absolute()
    _check_date(date)
    _check_parts(parts)
    _recover(out)
    held = _held(out)
    names = {part.name for part in parts}
    kept = {name: entry for name, entry in (held or {}).get("benchmarks", {}).items() if name not in names}
    with _replacing_folder(out, held=held) as staging:
        if held is not None:
            _carry_over(out, staging, without=names)
        new = {
            part.name: _write_part(part, staging, with_images=with_images, shard_bytes=shard_bytes, advance=advance)
            for part in parts
        }
        head = {
            "schema_version": SCHEMA_VERSION,
            "package_version": __version__,
            "date": date or (held or {}).get("date", ""),
            "benchmarks": {**kept, **new},
        }
        return _finish(staging, head, known=(held or {}).get("files", {}), changed=names)


def n_rows(parts: Sequence[LabeledBenchmark]) -> int:
    """Count the rows that `write_dataset_folder` will write."""
    return sum(
        len(part.benchmark.gallery.ids) + sum(2 + len(query.targets) for of in part.subsets.values() for query in of)
        for part in parts
    )


def read_manifest(folder: StrPath) -> dict[str, Any]:
    """Read the manifest of a dataset folder.

    Raises:
        FormatError: the folder holds no manifest, or one of another schema version.
    """
    path = Path(folder) / MANIFEST
    if not path.exists():
        raise FormatError(
            f"{folder}: no dataset folder ({MANIFEST} is missing); make one with `circus-bench data make`"
        )
    manifest = read_json(path)
    if manifest.get("schema_version") != SCHEMA_VERSION:
        raise FormatError(f"{path}: schema version {manifest.get('schema_version')!r}, expected {SCHEMA_VERSION}")
    entries, files = manifest.get("benchmarks"), manifest.get("files")
    if not (isinstance(entries, dict) and entries and isinstance(files, dict)):
        raise FormatError(
            f"{path}: names no benchmarks and files, so it is not a dataset folder's; "
            f"make one with `circus-bench data make`"
        )
    return manifest


def verify(folder: StrPath, *, advance: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Compare every file of a dataset folder with its checksum.

    Args:
        folder: the dataset folder.
        advance: called after each file.

    Returns:
        The manifest.

    Raises:
        FormatError: the folder is no dataset folder, or a file is missing, changed or in no manifest.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    missing, changed = [], []
    for name, facts in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            missing.append(name)
        elif path.stat().st_size != facts["bytes"] or sha256(path) != facts["sha256"]:
            changed.append(name)
        advance()
    data = (path.relative_to(folder).as_posix() for path in sorted((folder / "data").rglob("*")) if path.is_file())
    unknown = [name for name in data if name not in manifest["files"]]
    for names, what in ((missing, "are missing"), (changed, "were changed"), (unknown, "are in no manifest")):
        if names:
            raise FormatError(f"{folder}: files {what} ({format_ids(names)}); make the folder again")
    return manifest


def data_files(folder: Path, manifest: dict[str, Any], config: str) -> list[Path]:
    """List the parquet files of a configuration, in order.

    Raises:
        CircusError: there is no such configuration.
    """
    configs = {name: of for entry in manifest["benchmarks"].values() for name, of in entry["configs"].items()}
    if config not in configs:
        raise CircusError(f"{folder}: no configuration {config!r}; it has {sorted(configs)}")
    prefix = configs[config]["folder"] + "/"
    return [folder / name for name in sorted(manifest["files"]) if name.startswith(prefix)]


def _check_parts(parts: Sequence[LabeledBenchmark]) -> None:
    if not parts:
        raise CircusError("a dataset folder needs at least one benchmark")
    if repeated := sorted(duplicates(part.name for part in parts)):
        raise CircusError(
            f"benchmarks share a name ({format_ids(repeated)}); a dataset folder holds one protocol of each"
        )


def _check_date(date: str) -> None:
    try:
        written = dt.date.fromisoformat(date).isoformat() if date else ""
    except ValueError:
        written = ""
    if written != date:
        raise CircusError(f"{date!r} is no date; expected YYYY-MM-DD")


def _held(out: Path) -> dict[str, Any] | None:
    """Read the manifest of the folder as it is; None when there is nothing yet."""
    if not out.exists():
        return None
    if out.is_dir() and not any(out.iterdir()):
        return None
    if not out.is_dir() or not (out / MANIFEST).exists():
        raise CircusError(f"{out}: exists and is no dataset folder; choose another name")
    return read_manifest(out)


@contextmanager
def _replacing_folder(out: Path, *, held: dict[str, Any] | None) -> Iterator[Path]:
    """Yield a folder beside `out`; put it in its place when the block succeeds."""
    staging, retired = out.with_name(f".{out.name}.{os.getpid()}.part"), _retired(out)
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        yield staging
        if _held(out) != held:
            raise MismatchError(f"{out}: was changed by someone else in the meantime; make it again")
        if out.exists():
            out.rename(retired)
        staging.rename(out)
        shutil.rmtree(retired, ignore_errors=True)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _retired(out: Path) -> Path:
    return out.with_name(f".{out.name}.old")


def _recover(out: Path) -> None:
    """Undo the first half of a replacement that was killed between its two renames."""
    retired = _retired(out)
    if retired.exists():
        if out.exists():
            shutil.rmtree(retired)
        else:
            retired.rename(out)


def _carry_over(out: Path, staging: Path, *, without: set[str]) -> None:
    """Link what stays into the new folder; files are replaced and never edited, so that links are as good as copies."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:  # a file system without hard links
            shutil.copy2(source, target)

    def left_out(folder: str, names: list[str]) -> set[str]:
        if Path(folder) == out:
            return {*_GENERATED}.intersection(names)
        return without.intersection(names) if Path(folder) == out / "data" else set()

    shutil.copytree(out, staging, copy_function=link, ignore=left_out, dirs_exist_ok=True)


def _write_part(
    part: LabeledBenchmark, staging: Path, *, with_images: bool, shard_bytes: int, advance: Callable[[], object]
) -> dict[str, Any]:
    """Write the tables of a benchmark; returns its entry in the manifest."""
    root = f"data/{part.name}"
    configs: dict[str, Any] = {}
    images = part.benchmark.gallery.images
    with_images = with_images and images is not None
    unreadable = 0
    if images is not None:
        inspection = part.benchmark.inspect()
        write_image_facts(staging / IMAGE_FACTS.format(part.name), inspection)
        unreadable = len(inspection.unreadable)
    for subset in part.subsets:
        for table in Table:
            shared = table is Table.CORPUS
            place = f"{root}/" + (table.value if shared else config_name("", subset, table).removeprefix("_"))
            name = config_name(part.name, subset, table)
            if shared and (staging / place).exists():
                n = next(of["rows"] for of in configs.values() if of["folder"] == place)
            else:
                schema = features(table, with_images=with_images).arrow_schema
                content = rows(part, subset, table, with_images=with_images)
                n = _write_shards(
                    staging / place,
                    _groups(content, schema, with_images=with_images, advance=advance),
                    schema,
                    shard_bytes,
                )
            configs[name] = {"folder": place, "rows": n, "subset": subset.value, "table": table.value}
    # Sorted, as they are when the manifest is read: a card must not depend on which benchmark came first.
    head = {**part_head(part), "pixels": with_images, "configs": dict(sorted(configs.items()))}
    return {**head, "unreadable_images": unreadable} if with_images and unreadable else head


def part_head(part: LabeledBenchmark) -> dict[str, Any]:
    """Describe a benchmark for the manifest: with its files, enough to make it again."""
    benchmark: Benchmark = part.benchmark
    terms = dataclasses.asdict(LicenseInfo.of(benchmark))
    return {
        "name": benchmark.name,
        "protocol": dataclasses.asdict(benchmark.protocol),
        "source": dict(benchmark.source),
        "allow": sorted(benchmark.allow),
        "findings": [{"defect": f.defect.value, "ids": list(f.ids)} for f in benchmark.findings],
        "fingerprint": dataclasses.asdict(benchmark.fingerprint),
        "verdicts": _provenance(part),
        "terms": {"licence" if name == "license" else name: value for name, value in terms.items()},
    }


def _provenance(part: LabeledBenchmark) -> dict[str, Any] | None:
    """Tell where the labels come from; in the folder they go by the benchmark's own query ids."""
    if part.labels is None:
        return None
    return dataclasses.replace(part.labels.provenance, id_scheme=IdScheme.ID).to_dict()


def _groups(
    content: Iterable[dict[str, Any]], schema: pa.Schema, *, with_images: bool, advance: Callable[[], object]
) -> Iterator[pa.Table]:
    """Rows as tables of bounded size."""
    import pyarrow as pa

    pending: list[dict[str, Any]] = []
    size = 0
    for row in content:
        pending.append(row)
        size += len(row["image"]["bytes"]) if row.get("image") else 0
        advance()
        if len(pending) == _GROUP_ROWS[with_images] or size >= _GROUP_BYTES:
            yield pa.Table.from_pylist(pending, schema=schema)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_pylist(pending, schema=schema)


def _write_shards(folder: Path, groups: Iterator[pa.Table], schema: pa.Schema, shard_bytes: int) -> int:
    """Write tables into numbered parquet files of bounded size; returns the number of rows. Nothing gives one file."""
    upcoming = next(groups, None)
    total = 0

    def one_shard() -> Iterator[pa.Table]:
        nonlocal upcoming, total
        size = 0
        while upcoming is not None and (size == 0 or size + upcoming.nbytes <= shard_bytes):
            size += upcoming.nbytes
            total += len(upcoming)
            yield upcoming
            upcoming = next(groups, None)

    shard = 0
    while shard == 0 or upcoming is not None:
        write_row_groups(folder / f"{shard:05d}.parquet", one_shard(), schema=schema)
        shard += 1
    return total


def _finish(staging: Path, head: dict[str, Any], *, known: dict[str, Any], changed: set[str]) -> dict[str, Any]:
    """Write card, task list, Croissant and manifest over the tables that are there."""
    files: dict[str, Any] = {}
    for path in sorted((staging / "data").rglob("*.parquet")):
        name = path.relative_to(staging).as_posix()
        fresh = path.relative_to(staging / "data").parts[0] in changed
        files[name] = known[name] if name in known and not fresh else file_facts(path)
    entries = head["benchmarks"].values()
    publishable = not any(for_local_use(entry) for entry in entries)
    manifest = {**head, "publishable": publishable, "files": files}
    write_text(staging / "README.md", render_card(manifest))
    write_text(staging / "eval.yaml", render_eval(manifest))
    write_json(staging / "croissant.json", croissant(manifest))
    files |= {name: file_facts(staging / name) for name in _GENERATED if name != MANIFEST}
    write_json(staging / MANIFEST, manifest)
    return manifest


def for_local_use(entry: Mapping[str, Any]) -> str:
    """Return why a benchmark of a manifest must not be published; empty when it may."""
    if not entry["pixels"]:
        return ""
    if not entry["terms"]["redistributable"]:
        return "images that must not be redistributed"
    return "images that cannot be decoded" if entry.get("unreadable_images") else ""


def file_facts(path: Path) -> dict[str, Any]:
    """Describe a file for the manifest: SHA-256 and size."""
    return {"sha256": sha256(path), "bytes": path.stat().st_size}
