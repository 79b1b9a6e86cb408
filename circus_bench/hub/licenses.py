"""Look up the license of a benchmark: what may be done with its annotations and pixels, and how it was collected.

License texts, origin and citation come from the benchmark's own `source`, as `circus_bench.sources` writes it. Whether
pixels may be passed on is data (`licenses.toml`) for the benchmarks known there, whatever a `source` says; any other
benchmark must allow it in so many words (`source["images_redistributable"]`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from circus_bench.benchmark import Benchmark

CIRCUS_CITATION = """@misc{circus2026,
  title  = {Do Composed Image Retrieval Benchmarks Require Multimodal Composition?},
  year   = {2026},
  eprint = {2605.14787},
  archivePrefix = {arXiv}
}"""

_FILE = Path(__file__).with_name("licenses.toml")
_NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True)
class LicenseInfo:
    """The terms under which a benchmark may be used, and where it comes from.

    Attributes:
        title: its full name.
        license: identifier of the annotations' license as the Hub spells it.
        annotations: the annotations' license in words.
        images: the images' license in words.
        redistributable: whether the pixels may be passed on.
        origin: where it can be had.
        collection: how it was collected; empty when unknown.
        citation: how to cite it; empty when unknown.
    """

    title: str
    license: str
    annotations: str
    images: str
    redistributable: bool
    origin: str
    collection: str
    citation: str

    @classmethod
    def of(cls, benchmark: Benchmark) -> LicenseInfo:
        """Look a benchmark up by its name and by the first part of its protocol's id.

        Example:
            >>> from circus_bench.sources.scenes import scenes
            >>> LicenseInfo.of(scenes(queries=40, gallery=400)).redistributable
            True
        """
        source = benchmark.source

        def said(*names: str, default: str) -> str:
            return next((str(source[name]) for name in names if source.get(name)), default)

        known = _known(benchmark.name, benchmark.protocol.id)
        annotations = said("license", "licence", default=_NOT_STATED)
        return cls(
            title=known.get("title", benchmark.name),
            license=known.get("license", "other"),
            annotations=annotations,
            images=said("image_license", default=annotations),
            redistributable=is_redistributable(benchmark.name, benchmark.protocol.id, source),
            origin=said("origin", "generator", default=_NOT_STATED),
            collection=known.get("collection", ""),
            citation=known.get("bibtex") or said("citation", default=""),
        )


@cache
def known_licenses() -> Mapping[str, Mapping[str, Any]]:
    """Read `licenses.toml`: benchmark to title, license, redistributable, collection and bibtex."""
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def is_redistributable(name: str, protocol: str, source: Mapping[str, Any]) -> bool:
    """Return whether a benchmark's images may be redistributed.

    Args:
        name: of the benchmark.
        protocol: the protocol's id.
        source: the benchmark's provenance.
    """
    known = _known(name, protocol)
    return bool(known["redistributable"]) if known else source.get("images_redistributable") is True


def _known(name: str, protocol: str) -> Mapping[str, Any]:
    # A renamed CIRR is still CIRR: where name and protocol disagree the stricter rule holds.
    candidates = [known_licenses()[key] for key in (name, protocol.partition("/")[0]) if key in known_licenses()]
    return min(candidates, key=lambda found: bool(found["redistributable"]), default={})
