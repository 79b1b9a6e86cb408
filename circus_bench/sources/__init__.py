"""Sources of benchmarks: one module each, from annotation files (or a generator) to a `Benchmark`.

A source offers its protocols as data (`PROTOCOLS`), says which image a file holds (`image_id`) and reads a benchmark
(`load`). This module knows them by protocol id and imports one when it is asked for.

Example:
    >>> benchmark = load_source("scenes/test", seed=7, queries=40, gallery=400)
    >>> benchmark.protocol.id, len(benchmark.queries)
    ('scenes/test', 40)
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench.errors import BenchmarkError

if TYPE_CHECKING:
    from circus_bench.benchmark import Benchmark

_MODULE_OF = {
    "cirr/official": "cirr",
    "cirr/mbeir": "cirr",
    "cirr/circus": "cirr",
    "cirr/test1": "cirr",
    "fashioniq/original": "fashioniq",
    "fashioniq/mbeir": "fashioniq",
    "fashioniq/circus": "fashioniq",
    "circo/val": "circo",
    "circo/test": "circo",
    "lasco/val": "lasco",
    "lasco/val+cl-lasco": "lasco",
    "rmir/test": "rmir",
    "rmir/train": "rmir",
    "mbeir": "mbeir",
    "dataset": "dataset",
    "scenes/test": "scenes",
}
PROTOCOLS: tuple[str, ...] = tuple(_MODULE_OF)
"""The protocol ids that `load_source` knows."""

_GIVEN = ("protocol", "folder", "images")


def load_source(
    protocol: str,
    folder: Path | None = None,
    *,
    images: Path | Mapping[str, bytes] | None = None,
    **options: Any,
) -> Benchmark:
    """Make a benchmark from its source.

    Args:
        protocol: one of `PROTOCOLS`.
        folder: of the annotation files; none for a generator.
        images: a folder of image files (searched at any depth, by the source's own rule), or image id to the bytes of a
            file. Without images the benchmark has annotations only; `join_images` joins them later.
        options: further arguments of the source's `load`, such as `category` of FashionIQ or `allow`.

    Raises:
        BenchmarkError: the protocol or an option is unknown, or the annotations contradict each other.
        FormatError: an annotation file is missing or does not follow its schema.
        ImageError: the folder of images does not exist, or two of its files hold the same image.
    """
    if protocol not in _MODULE_OF:
        raise BenchmarkError(f"unknown protocol {protocol!r}; known: {', '.join(PROTOCOLS)}")
    module = importlib.import_module(f"{__name__}.{_MODULE_OF[protocol]}")
    make = _maker(module)
    given: dict[str, Any] = dict(options)
    if module.__name__.endswith(".scenes"):
        if folder is not None or images is not None:
            raise BenchmarkError(f"{protocol} is generated: it takes neither a folder of annotations nor images")
    else:
        found = _find_images(images, module) if isinstance(images, Path) else images
        given |= {"protocol": protocol, "folder": folder, "images": found}
    parameters = inspect.signature(make).parameters
    unknown = [name for name in options if name not in parameters or name in _GIVEN]
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in given]
    if unknown or missing:
        wrong = f"has no option {', '.join(unknown)}" if unknown else f"needs the option {', '.join(missing)}"
        raise BenchmarkError(f"the source of {protocol} {wrong}; its options: {', '.join(options_of(protocol))}")
    return make(**given)


def options_of(protocol: str) -> dict[str, str]:
    """List the further arguments of `load_source` for a protocol: name to type, as written in the source's module."""
    make = _maker(importlib.import_module(f"{__name__}.{_MODULE_OF[protocol]}"))
    parameters = inspect.signature(make).parameters
    return {name: str(parameter.annotation) for name, parameter in parameters.items() if name not in _GIVEN}


def _maker(module: Any) -> Callable[..., Benchmark]:
    make: Callable[..., Benchmark] = module.scenes if module.__name__.endswith(".scenes") else module.load
    return make


def parse_options(protocol: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Read options that were written as text: numbers, names, and mappings as JSON objects.

    Args:
        protocol: one of `PROTOCOLS`.
        texts: option to text.

    Raises:
        BenchmarkError: the source has no such option, it cannot be written as text, or the text is no value of it.
    """
    types = options_of(protocol)
    return {name: _parsed(protocol, name, types.get(name, ""), text) for name, text in texts.items()}


def _parsed(protocol: str, name: str, kind: str, text: str) -> Any:
    kind = kind.removesuffix(" | None")
    reader = next((read for start, read in _READERS.items() if kind.startswith(start)), None)
    if reader is None:
        known = (name for name, kind in options_of(protocol).items() if kind.startswith(tuple(_READERS)))
        raise BenchmarkError(f"{protocol} takes no text for {name!r}; what can be set: {', '.join(known) or 'nothing'}")
    try:
        return reader(text)
    except ValueError as error:
        raise BenchmarkError(f"{protocol}: {name} is {text!r}, expected {kind} ({error})") from error


def _mapping(text: str) -> dict[str, str]:
    content = json.loads(text)
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise ValueError("not a JSON object of strings")
    return content


def _policy(text: str) -> Any:
    from circus_bench.benchmark import ReferencePolicy

    return ReferencePolicy(text)


_READERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "StrPath": str,
    "int": int,
    "float": float,
    "ReferencePolicy": _policy,
    "Mapping[str, str]": _mapping,
}
"""By the beginning of a type's name."""


def join_images(benchmark: Benchmark, folder: Path) -> Benchmark:
    """Join the images in a folder to a benchmark of annotations.

    Which file holds which image is the rule of the benchmark's source, known by the protocol id; benchmarks of other
    origin go by file names without suffix.

    Args:
        benchmark: made by a source, or loaded from a folder that was saved without images.
        folder: searched at any depth. Images that the benchmark does not need are passed over.

    Raises:
        BenchmarkError: a gallery or reference image is not among them, and `Defect.MISSING_IMAGE` is not allowed.
        ImageError: the folder does not exist, or two of its files hold the same image.
    """
    source = benchmark.protocol.id.split("/")[0]
    known = source in _MODULE_OF.values() and source != "scenes"
    module = importlib.import_module(f"{__name__}.{source}") if known else None
    return benchmark.with_images(_find_images(folder, module))


def _find_images(folder: Path, module: Any) -> Mapping[str, bytes]:
    from circus_bench.images import ImageFiles

    return ImageFiles.folder(folder, image_id=module.image_id) if module is not None else ImageFiles.folder(folder)
