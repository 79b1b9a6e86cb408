"""Where the data of a task come from: a generator, a dataset folder on this machine, or one on the Hub.

`CIRCUS_DATA` names a dataset folder that `circus-bench build` or `join_images` wrote, or a repository at a commit or
tag (`ORG/NAME@REVISION`). Without it the repository of the task's metadata is taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from circus_bench.errors import CircusError, ImageError, MismatchError, some
from circus_bench.hub.reader import benchmark_of, verdicts_of
from circus_bench.hub.tables import Part
from circus_bench.hub.writer import MANIFEST
from circus_bench.io import sha256

VARIABLE = "CIRCUS_DATA"
_PINNED = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)@(?P<revision>[\w.-]+)")


def located(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """A task's `metadata.dataset` with what `CIRCUS_DATA` puts in its place.

    The revision of a folder on this machine is the digest of its manifest, so that mteb never takes a result on one
    folder for a result on another.
    """
    where = os.environ.get(VARIABLE, "")
    manifest = Path(where) / MANIFEST
    if where and manifest.is_file():
        return {**dataset, "revision": f"local-{sha256(manifest)[:12]}"}
    pinned = _PINNED.fullmatch(where)
    return {**dataset, "path": pinned["repository"], "revision": pinned["revision"]} if pinned else dict(dataset)


def load_part(protocol: str, *, repository: str, revision: str) -> tuple[Part, Path | None]:
    """The benchmark of a protocol with the verdicts on its queries, and the dataset folder that it lies in.

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
    if name == "scenes":
        from circus_bench.sources.scenes import scenes

        return Part(scenes()), None
    folder = _folder(name, repository, revision)
    benchmark = benchmark_of(folder, name)
    if benchmark.protocol.id != protocol:
        raise MismatchError(
            f"{folder}: holds {name!r} under the protocol {benchmark.protocol.id}, the task is scored under "
            f"{protocol}; build the folder from {protocol}, or take `circus-bench run` for other protocols"
        )
    return Part(benchmark, verdicts_of(folder, name)), folder


def check_pixels(part: Part, folder: Path | None) -> None:
    """Refuse a benchmark of annotations, and say how to join its images.

    Raises:
        ImageError: there are no images.
    """
    benchmark = part.benchmark
    if benchmark.gallery.images is not None:
        return
    raise ImageError(
        f"{folder}: holds the annotations of {benchmark.name!r} without its images, which may not be passed on; "
        f"missing are {some(benchmark.image_ids)}. Join your own copy, in a folder IMAGES, with\n"
        f"  python -c \"from circus_bench.hub.reader import join_images; join_images('{folder}', "
        f"'{benchmark.name}', 'IMAGES', out='circus-local')\"\n"
        f"or build from the annotation files with\n"
        f"  circus-bench build {benchmark.protocol.id} --data DATA --images IMAGES --with-images --local-only "
        f"--out circus-local\n"
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
            f"`circus-bench build`, or a repository on the Hub"
        )
    return _download(name, pinned["repository"], pinned["revision"])


def _download(name: str, repository: str, revision: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        snapshot = snapshot_download(
            repository,
            repo_type="dataset",
            revision=revision,
            allow_patterns=["README.md", "manifest.json", f"data/{name}/*"],  # the card names the configurations
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise CircusError(
            f"the dataset repository {repository} at {revision} cannot be had ({type(error).__name__}: {error}). Make "
            f"a dataset folder with `circus-bench build` and set {VARIABLE} to it"
        ) from error
    return Path(snapshot)
