"""From what the user names to benchmarks: a benchmark folder, or a protocol and the folder of annotation files."""

from __future__ import annotations

from pathlib import Path

from circus_bench.benchmark import Benchmark, Defect
from circus_bench.errors import CircusError
from circus_bench.sources import PROTOCOLS, join_images, load_source

_ALL = frozenset(Defect)
_GENERATED = frozenset({"scenes/test"})
_IN_PARTS = "fashioniq/original"


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


def load_parts(source: str, *, data: Path | None = None, images: Path | None = None) -> tuple[Benchmark, ...]:
    """Load what is to be examined, with every defect allowed, so that all of them are found.

    Args:
        source: the folder of a benchmark, or a protocol id.
        data: the folder in which each benchmark's official files have a folder of their own (`cirr`, `fashioniq`,
            ...); needed for a protocol id.
        images: a folder of images to join.

    Returns:
        One benchmark; for `fashioniq/original` one a category.

    Raises:
        CircusError: the source is neither, or its files cannot be used.
    """
    if is_folder(source):
        loaded = Benchmark.load(Path(source), allow=_ALL)
        return (join_images(loaded, images) if images else loaded,)
    if source not in PROTOCOLS:
        raise CircusError(
            f"{source}: neither the folder of a benchmark nor one of the protocols {', '.join(PROTOCOLS)}"
        )
    name = folder_name(source)
    if not name:
        return (load_source(source),)
    if data is None:
        raise CircusError(f"{source}: say in which folder the folder {name!r} of its official files lies")
    if source == _IN_PARTS:
        from circus_bench.sources.fashioniq import CATEGORIES

        return tuple(load_source(source, data / name, images=images, allow=_ALL, category=c) for c in CATEGORIES)
    return (load_source(source, data / name, images=images, allow=_ALL),)
