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
```

A folder is made beside its place and put there by a rename; the same input gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench._version import __version__
from circus_bench.benchmark import Benchmark
from circus_bench.errors import CircusError, FormatError, MismatchError, some
from circus_bench.hub.card import render_card, render_eval
from circus_bench.hub.croissant import croissant
from circus_bench.hub.licenses import terms_of
from circus_bench.hub.tables import Part, Table, check_decodable, config_name, features, rows
from circus_bench.io import read_json, sha256, write_json, write_row_groups, write_text
from circus_bench.labels.labels import Keys

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
SHARD_BYTES = 400_000_000
MANIFEST = "manifest.json"

_GENERATED = ("README.md", "croissant.json", "eval.yaml", MANIFEST)
_GROUP_BYTES = 32_000_000
_GROUP_ROWS = {True: 64, False: 10_000}  # with and without images


def write_dataset_folder(
    parts: Sequence[Part],
    out: Path,
    *,
    with_images: bool = False,
    local_only: bool = False,
    date: str = "",
    shard_bytes: int = SHARD_BYTES,
    advance: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Write benchmarks into a dataset folder; those that it already holds under other names stay.

    Args:
        parts: the benchmarks and what was found about their queries.
        out: the folder; made, or added to.
        with_images: put the original bytes of the images into it.
        local_only: allow images that must not be redistributed. The folder can then never be published.
        date: of the release, YYYY-MM-DD; by default the folder's earlier one, or none. The clock is never asked, so
            that the same input gives the same bytes.
        shard_bytes: a parquet file is closed before it grows beyond this; one row group at least is in each.
        advance: called after each row, for a progress bar (see `n_rows`).

    Returns:
        The manifest.

    Raises:
        CircusError: images that must not be redistributed were asked for without `local_only`; two parts share a name;
            `out` is something else than a dataset folder, or was changed in the meantime.
        ImageError: a benchmark has no images, or some that cannot be decoded.
    """
    out = out.absolute()
    _check_date(date)
    _check_parts(parts, with_images=with_images, local_only=local_only)
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


def n_rows(parts: Sequence[Part]) -> int:
    """How many rows `write_dataset_folder` will write."""
    return sum(
        len(part.benchmark.gallery.ids) + sum(2 + len(query.targets) for of in part.subsets.values() for query in of)
        for part in parts
    )


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a dataset folder.

    Raises:
        FormatError: the folder holds no manifest, or one of another schema version.
    """
    path = folder / MANIFEST
    if not path.exists():
        raise FormatError(f"{folder}: no dataset folder ({MANIFEST} is missing); make one with `circus-bench build`")
    manifest = read_json(path)
    if manifest.get("schema_version") != SCHEMA_VERSION:
        raise FormatError(f"{path}: schema version {manifest.get('schema_version')!r}, expected {SCHEMA_VERSION}")
    return manifest


def verify(folder: Path, *, advance: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Compare every file of a dataset folder with its checksum.

    Args:
        folder: the dataset folder.
        advance: called after each file.

    Returns:
        The manifest.

    Raises:
        FormatError: the folder is no dataset folder, or a file is missing, changed or in no manifest.
    """
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
            raise FormatError(f"{folder}: files {what} ({some(names)}); build the folder again")
    return manifest


def data_files(folder: Path, manifest: dict[str, Any], config: str) -> list[Path]:
    """The parquet files of a configuration, in order.

    Raises:
        CircusError: there is no such configuration.
    """
    configs = {name: of for entry in manifest["benchmarks"].values() for name, of in entry["configs"].items()}
    if config not in configs:
        raise CircusError(f"{folder}: no configuration {config!r}; it has {sorted(configs)}")
    prefix = configs[config]["folder"] + "/"
    return [folder / name for name in sorted(manifest["files"]) if name.startswith(prefix)]


def _check_parts(parts: Sequence[Part], *, with_images: bool, local_only: bool) -> None:
    if not parts:
        raise CircusError("a dataset folder needs at least one benchmark")
    names = [part.name for part in parts]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise CircusError(f"benchmarks share a name ({some(repeated)}); a dataset folder holds one protocol of each")
    if not with_images:
        return
    for part in parts:
        terms = terms_of(part.benchmark)
        if not terms.redistributable and not local_only:
            raise CircusError(
                f"benchmark {part.name!r}: its images must not be redistributed ({terms.images}). Build without "
                f"images, or with local_only for a folder that is never published"
            )
        if part.benchmark.gallery.images is None:
            raise CircusError(f"benchmark {part.name!r} has annotations only; join its images first")
        check_decodable(part.benchmark)


def _check_date(date: str) -> None:
    try:
        written = dt.date.fromisoformat(date).isoformat() if date else ""
    except ValueError:
        written = ""
    if written != date:
        raise CircusError(f"{date!r} is no date; expected YYYY-MM-DD")


def _held(out: Path) -> dict[str, Any] | None:
    """The manifest of the folder as it is; None when there is nothing yet."""
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
            raise MismatchError(f"{out}: was changed by someone else in the meantime; build again")
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
    part: Part, staging: Path, *, with_images: bool, shard_bytes: int, advance: Callable[[], object]
) -> dict[str, Any]:
    """Write the tables of a benchmark; returns its entry in the manifest."""
    root = f"data/{part.name}"
    configs: dict[str, Any] = {}
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
    return {**part_head(part), "pixels": with_images, "configs": dict(sorted(configs.items()))}


def part_head(part: Part) -> dict[str, Any]:
    """What a manifest says of a benchmark besides its files; enough to make it again from them."""
    benchmark: Benchmark = part.benchmark
    return {
        "name": benchmark.name,
        "protocol": dataclasses.asdict(benchmark.protocol),
        "source": dict(benchmark.source),
        "allow": sorted(benchmark.allow),
        "findings": [{"defect": f.defect.value, "ids": list(f.ids)} for f in benchmark.findings],
        "fingerprint": dataclasses.asdict(benchmark.fingerprint),
        "verdicts": _origin(part),
        "terms": dataclasses.asdict(terms_of(benchmark)),
    }


def _origin(part: Part) -> dict[str, Any] | None:
    """Where the verdicts come from; in the folder they go by the benchmark's own query ids."""
    if part.verdicts is None:
        return None
    return dataclasses.asdict(dataclasses.replace(part.verdicts.origin, keys=Keys.ID))


def _groups(
    content: Iterable[dict[str, Any]], schema: pa.Schema, *, with_images: bool, advance: Callable[[], object]
) -> Iterator[pa.Table]:
    """Rows as tables of bounded size."""
    import pyarrow as pa

    pending: list[dict[str, Any]] = []
    size = 0
    for row in content:
        pending.append(row)
        size += len(row["image"]["bytes"]) if "image" in row else 0
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
    publishable = all(entry["terms"]["redistributable"] or not entry["pixels"] for entry in entries)
    manifest = {**head, "publishable": publishable, "files": files}
    write_text(staging / "README.md", render_card(manifest))
    write_text(staging / "eval.yaml", render_eval(manifest))
    write_json(staging / "croissant.json", croissant(manifest))
    files |= {name: file_facts(staging / name) for name in _GENERATED if name != MANIFEST}
    write_json(staging / MANIFEST, manifest)
    return manifest


def file_facts(path: Path) -> dict[str, Any]:
    """What a manifest says of a file."""
    return {"sha256": sha256(path), "bytes": path.stat().st_size}
