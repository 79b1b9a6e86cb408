"""From what the user names to benchmarks: a benchmark folder, or a protocol and the folder of annotation files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from circus_bench.benchmark import Benchmark, Defect
from circus_bench.errors import CircusError
from circus_bench.sources import PROTOCOLS, join_images, load_source

_GENERATED = frozenset({"scenes/test"})
_IN_PARTS = "fashioniq/original"
_ANY = "dataset"


def folder_name(source: str) -> str:
    """The folder of a protocol's official files within the data folder; empty when it needs none.

    Example:
        >>> folder_name("cirr/mbeir"), folder_name("scenes/test")
        ('cirr', '')
    """
    return "" if source in _GENERATED or source not in PROTOCOLS else source.split("/", maxsplit=1)[0]


def is_folder(source: str) -> bool:
    """Whether a source names a folder rather than a protocol; a folder that holds a benchmark comes first."""
    return (Path(source) / "benchmark.json").is_file() or (source not in PROTOCOLS and Path(source).is_dir())


def load_parts(
    source: str,
    *,
    data: Path | None = None,
    images: Path | None = None,
    allow: Collection[Defect] = (),
    options: Mapping[str, Any] | None = None,
) -> tuple[Benchmark, ...]:
    """Load what the user names.

    Args:
        source: the folder of a benchmark, or a protocol id.
        data: the folder in which each benchmark's official files have a folder of their own (`cirr`, `fashioniq`,
            ...); needed for a protocol id. For `dataset` the file or folder itself.
        images: a folder of images to join.
        allow: defects to allow.
        options: further arguments of the source; see `load_source`.

    Returns:
        One benchmark; for `fashioniq/original` without the option `category` one for each.

    Raises:
        CircusError: the source is neither, or its files cannot be used.
    """
    if is_folder(source):
        if options:
            raise CircusError(f"{source} is a benchmark already: it takes no options ({', '.join(options)})")
        loaded = Benchmark.load(Path(source), allow=frozenset(allow))
        return (join_images(loaded, images) if images else loaded,)
    if source not in PROTOCOLS:
        raise CircusError(
            f"{source}: neither the folder of a benchmark nor one of the protocols {', '.join(PROTOCOLS)}"
        )
    given = dict(options or {})
    name = folder_name(source)
    if not name:
        return (load_source(source, data, images=images, **given),)
    if data is None:
        where = "where it lies" if source == _ANY else f"in which folder the folder {name!r} of its official files lies"
        raise CircusError(f"{source}: say {where}")
    folder = data if source == _ANY else data / name
    each = [given]
    if source == _IN_PARTS and "category" not in given:
        from circus_bench.sources.fashioniq import CATEGORIES

        each = [{**given, "category": category} for category in CATEGORIES]
    return tuple(load_source(source, folder, images=images, allow=allow, **of_part) for of_part in each)
