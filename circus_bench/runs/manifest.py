"""Describe how a Run was made: model, benchmark, protocol, versions. See `manifest.json` in docs/formats.md."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench._version import __version__
from circus_bench.benchmark import Fingerprint, Protocol
from circus_bench.encoding.encoder import ModelIdentity
from circus_bench.encoding.sanity_checks import EncoderWarning
from circus_bench.errors import FormatError
from circus_bench.io import parse_as, read_json, sha256, write_json
from circus_bench.ranking.backends import Backend
from circus_bench.runs.tables import RANKS_FILE, TOP_FILE

SCHEMA_VERSION = 1
MANIFEST_FILE = "manifest.json"


def _software() -> dict[str, str]:
    packages = ("mteb", "numpy", "pillow", "sentence-transformers", "torch", "transformers")
    return {package: importlib.metadata.version(package) for package in packages}


def _now() -> str:
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)
    return moment.isoformat(timespec="seconds")


@dataclass(frozen=True)
class Manifest:
    """Model, benchmark and settings of a Run.

    Attributes:
        model: the weights.
        benchmark: name of the benchmark.
        fingerprint: of the benchmark.
        protocol: the protocol's fields, as in `Protocol`.
        n_queries: queries ranked.
        n_gallery: images each of them was ranked against.
        dim: dimensions of the embeddings.
        seed: of the null targets.
        backend: library that computed the products.
        alarms: see `EncoderWarning`; a Run with alarms is not to be trusted.
        batch_deviation: see `SanityCheck`.
        source: the benchmark's own provenance.
        software: package versions.
        date: UTC, ISO 8601; the environment variable SOURCE_DATE_EPOCH fixes it.
    """

    model: ModelIdentity
    benchmark: str
    fingerprint: Fingerprint
    protocol: Mapping[str, Any]
    n_queries: int
    n_gallery: int
    dim: int
    seed: int
    backend: Backend
    alarms: tuple[EncoderWarning, ...] = ()
    batch_deviation: float | None = None
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    software: Mapping[str, str] = dataclasses.field(default_factory=_software)
    date: str = dataclasses.field(default_factory=_now)

    def __repr__(self) -> str:
        alarms = f", alarms: {', '.join(self.alarms)}" if self.alarms else ""
        return (
            f"{type(self).__name__}({self.model.name:.60} on {self.benchmark:.60}, protocol {self.protocol['id']:.60}, "
            f"{self.n_queries:,} queries, {self.n_gallery:,} images, {self.date}{alarms})"
        )

    def save(self, folder: StrPath) -> None:
        """Write the manifest beside the tables that it describes. It comes last: a folder without it is unfinished."""
        folder = Path(folder)
        files = {name: sha256(folder / name) for name in (RANKS_FILE, TOP_FILE)}
        written_by = {"schema_version": SCHEMA_VERSION, "package_version": __version__, "files": files}
        write_json(folder / MANIFEST_FILE, {**dataclasses.asdict(self), **written_by})

    @classmethod
    def load(cls, folder: StrPath) -> Manifest:
        """Read the manifest of a Run, and check that the tables beside it are those that it describes.

        Raises:
            FormatError: files are missing, of another schema version, or not those the manifest describes.
        """
        folder = Path(folder)
        path = folder / MANIFEST_FILE
        content = read_json(path)
        if content.get("schema_version") != SCHEMA_VERSION:
            raise FormatError(f"{path}: schema version {content.get('schema_version')!r}, expected {SCHEMA_VERSION}")
        missing = {"files", *(field.name for field in dataclasses.fields(cls))} - content.keys()
        if missing:
            raise FormatError(f"{path}: lacks {', '.join(sorted(missing))}; see docs/formats.md")
        files = parse_as(dict[str, str], content["files"], where=f"{path}, files")
        for name in (RANKS_FILE, TOP_FILE):
            if not (folder / name).is_file():
                raise FormatError(f"{folder / name}: no such file, which {MANIFEST_FILE} describes")
            if sha256(folder / name) != files.get(name):
                raise FormatError(f"{folder / name}: not the file that {MANIFEST_FILE} describes (SHA-256 differs)")
        parse_as(Protocol, content["protocol"], where=f"{path}, protocol")
        return parse_as(cls, content, where=path)
