"""Load the data of a task: from a generator, a dataset folder on this machine, or one on the Hub.

`CIRCUS_DATA` names a dataset folder that `circus-bench data make` wrote, or a repository at a commit or tag
(`ORG/NAME@REVISION`). Without it the repository of the task's metadata is taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from circus_bench.errors import CircusError, ImageError, MismatchError, format_ids
from circus_bench.hub.loading import fetch_dataset_folder, load_benchmark
from circus_bench.hub.reader import read_benchmark, read_labels
from circus_bench.hub.tables import LabeledBenchmark
from circus_bench.hub.writer import MANIFEST, read_manifest
from circus_bench.io import sha256, slug

VARIABLE = "CIRCUS_DATA"
_PINNED = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)@(?P<revision>[\w.-]+)")


def resolve_dataset(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's `metadata.dataset` with what `CIRCUS_DATA` puts in its place.

    The revision of a folder on this machine is the digest of its manifest, so that mteb never takes a result on one
    folder for a result on another.
    """
    where = os.environ.get(VARIABLE, "")
    manifest = Path(where) / MANIFEST
    if where and manifest.is_file():
        return {**dataset, "revision": f"local-{sha256(manifest)[:12]}"}
    pinned = _PINNED.fullmatch(where)
    return {**dataset, "path": pinned["repository"], "revision": pinned["revision"]} if pinned else dict(dataset)


def load_labeled(protocol: str, *, repository: str, revision: str) -> tuple[LabeledBenchmark, Path | None]:
    """Load the benchmark of a protocol with the labels of its queries, and return the dataset folder that it lies in.

    Args:
        protocol: a protocol id; its first part is the benchmark's name in the folder.
        repository: dataset repository on the Hub, taken where `CIRCUS_DATA` is not set.
        revision: its commit or tag.

    Raises:
        CircusError: there is no such folder or repository, or it has no such benchmark.
        MismatchError: the folder holds the benchmark under another protocol.
        FormatError: its files do not hold what its manifest says.
    """
    name = protocol.partition("/")[0]
    where = os.environ.get(VARIABLE, "")
    if name == "scenes" and not _holds(where, name):
        return LabeledBenchmark(load_benchmark(protocol)), None
    folder = _folder(name, repository, revision)
    labeled = LabeledBenchmark(read_benchmark(folder, name), read_labels(folder, name))
    if labeled.benchmark.protocol.id != protocol:
        raise MismatchError(
            f"{folder}: holds {name!r} under the protocol {labeled.benchmark.protocol.id}, the task is scored under "
            f"{protocol}; make the folder from {protocol}, or take `circus-bench run` for other protocols"
        )
    return labeled, folder


def _holds(where: str, name: str) -> bool:
    """Return whether a dataset folder of this machine holds a benchmark."""
    return (Path(where) / MANIFEST).is_file() and name in read_manifest(where)["benchmarks"]


def require_images(labeled: LabeledBenchmark, folder: Path | None) -> None:
    """Refuse a benchmark of annotations, and say how to join its images.

    Raises:
        ImageError: there are no images.
    """
    benchmark = labeled.benchmark
    if benchmark.gallery.images is not None:
        return
    raise ImageError(
        f"{folder}: holds the annotations of {benchmark.name!r} without its images, which may not be passed on; "
        f"missing are {format_ids(benchmark.image_ids)}. Join your own copy, in a folder IMAGES, with\n"
        f"  circus-bench data make {folder}#{slug(benchmark.name)} --images IMAGES --out circus-local\n"
        f"or make the folder from the annotation files with\n"
        f"  circus-bench data make {benchmark.protocol.id} --data DATA --images IMAGES --out circus-local\n"
        f"and set {VARIABLE}=circus-local"
    )


def _folder(name: str, repository: str, revision: str) -> Path:
    where = os.environ.get(VARIABLE, "")
    if where and Path(where).is_dir():
        return Path(where)
    pinned = _PINNED.fullmatch(where or f"{repository}@{revision}")
    if pinned is None:
        raise CircusError(
            f"{VARIABLE}={where}: neither a folder nor ORG/NAME@REVISION; it names a dataset folder, made by "
            f"`circus-bench data make`, or a repository on the Hub"
        )
    return fetch_dataset_folder(pinned["repository"], pinned["revision"], benchmark=name)
