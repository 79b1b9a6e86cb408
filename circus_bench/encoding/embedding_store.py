"""Cache embeddings on disk, keyed by input digest.

The embedding cache is a folder of partitions. A partition holds the vectors that one encoder gives under one prompt and
condition; its key is written in its `space.json`. Within it a vector is found by the digest of its input. Vectors come
in shards, checkpoint files that appear whole or not at all, so that a killed encode loses at most a shard. For ranking
they are materialized once more, in the order of a gallery or of queries, in a file that is memory-mapped: however many
they are, they are never all in memory. These files can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circus_bench._typing import StrPath
from circus_bench.errors import EmbeddingError, FormatError, format_ids
from circus_bench.io import atomic_write, slug, to_json, write_json
from circus_bench.vectors import Floats, Ints, to_unit_length

_SCALED_ROWS = 4096  # at a time


class EmbeddingStore:
    """Cache of embeddings in a folder, shared by all models and benchmarks.

    Args:
        root: the folder; made when the first vector is written.
    """

    def __init__(self, root: StrPath) -> None:
        self._root = Path(root)

    def partition(self, key: Mapping[str, str]) -> Partition:
        """Open the partition of everything encoded under `key`.

        Args:
            key: all that changes a vector besides its input: `model` and `revision` at least, then dtype, role, prompt.
        """
        name = hashlib.sha256(to_json(dict(key)).encode()).hexdigest()[:16]
        return Partition(self._root / slug(key["model"]) / slug(key["revision"]) / name, key)


class Partition:
    """Embeddings of one encoder under one prompt and condition; see `EmbeddingStore.partition`."""

    def __init__(self, folder: Path, key: Mapping[str, str]) -> None:
        self._folder = folder
        self._key = dict(key)
        self._place: dict[str, tuple[Path, int]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            self._place.update(_places(path, _read(path, "digests")))

    def __contains__(self, digest: str) -> bool:
        return digest in self._place

    def __len__(self) -> int:
        return len(self._place)

    def create(self) -> None:
        """Create the folder, and write the key of the partition into it.

        Raises:
            EmbeddingError: the folder cannot be written.
        """
        if not (self._folder / "space.json").exists():
            with _writing(self._folder):
                write_json(self._folder / "space.json", self._key)

    def write(self, digests: Sequence[str], embeddings: Floats) -> str:
        """Write a shard of vectors.

        Args:
            digests: SHA-256 hex digests of the inputs, one per row.
            embeddings: float32 [len(digests), dim].

        Returns:
            The name of the shard's file.

        Raises:
            EmbeddingError: the shape or dtype is another, or the folder cannot be written.
        """
        from safetensors.numpy import save_file

        if embeddings.ndim != 2 or len(embeddings) != len(digests) or embeddings.dtype != np.float32:
            raise EmbeddingError(
                f"{self._key['model']} gave {embeddings.dtype} {embeddings.shape} for {len(digests)} inputs; "
                f"one float32 vector each was expected"
            )
        self.create()
        rows = np.frombuffer(bytes.fromhex("".join(digests)), np.uint8).reshape(len(digests), 32)
        path = self._folder / f"{hashlib.sha256(rows.tobytes()).hexdigest()[:16]}.safetensors"
        with _writing(self._folder), atomic_write(path) as temporary:
            save_file({"digests": rows, "embeddings": np.ascontiguousarray(embeddings)}, temporary)
        self._place.update(_places(path, rows))
        return path.name

    def register_shards(self, names: Iterable[str]) -> list[str]:
        """Register shards that other processes wrote since this partition was opened.

        Returns:
            The digests that they hold, shard by shard.

        Raises:
            EmbeddingError: a shard is not there.
            FormatError: a shard is damaged.
        """
        registered: list[str] = []
        for name in names:
            path = self._folder / name
            if not path.exists():
                raise EmbeddingError(
                    f"{path}: another process wrote this shard, but not where this one can read it; the store has to "
                    f"be one folder that all processes share"
                )
            places = _places(path, _read(path, "digests"))
            self._place.update(places)
            registered += places
        return registered

    def gather(self, digests: Sequence[str], *, out: Floats | None = None) -> Floats:
        """Gather the vectors of `digests`, in their order.

        Args:
            digests: of the inputs.
            out: array to fill, float32 [len(digests), dim]; a new one by default.

        Returns:
            float32 [len(digests), dim].

        Raises:
            EmbeddingError: a digest was never written, or two shards differ in dimension.
        """
        for path, positions, rows in self._sources(digests):
            shard = _read(path, "embeddings")
            if out is None:
                out = np.empty((len(digests), shard.shape[1]), np.float32)
            if shard.shape[1] != out.shape[1]:
                raise EmbeddingError(f"{path}: {shard.shape[1]} dimensions, other shards have {out.shape[1]}")
            out[positions] = shard[rows]
        assert out is not None  # there is at least one digest
        return out

    def materialize(self, digests: Sequence[str]) -> str:
        """Write the vectors of `digests` in their order, scaled to unit length, to a file for `open_memmap`.

        A file that was made before, of the same shards, is used again.

        Returns:
            The name of the file.

        Raises:
            EmbeddingError: as for `gather`, or the disk is full.
        """
        sources = self._sources(digests)
        key = hashlib.sha256("".join(digests).encode())
        for shard, _, rows in sources:
            facts = shard.stat()  # a shard that was encoded anew has the name of the old one
            key.update(f"{shard.name} {facts.st_size} {facts.st_mtime_ns}".encode() + rows.tobytes())
        path = self._folder / f"{key.hexdigest()[:16]}.npy"
        if not path.exists():
            dim = _read(sources[0][0], "embeddings").shape[1]
            with atomic_write(path) as temporary:
                vectors = _create(temporary, (len(digests), dim))
                self.gather(digests, out=vectors)
                for start in range(0, len(vectors), _SCALED_ROWS):
                    part = vectors[start : start + _SCALED_ROWS]
                    to_unit_length(part, out=part)
                vectors.flush()
        return path.name

    def open_memmap(self, name: str) -> Floats:
        """Map a file that `materialize` made into memory, read-only: float32 [n, dim]."""
        return np.asarray(np.load(self._folder / name, mmap_mode="r"))

    def _sources(self, digests: Sequence[str]) -> list[tuple[Path, Ints, Ints]]:
        """List the shards that hold the vectors, each with positions in `digests` and its rows that belong there."""
        missing = [digest for digest in digests if digest not in self._place]
        if missing or not digests:
            raise EmbeddingError(f"{self._folder}: no vectors of the inputs {format_ids(missing)}")
        pairs: dict[Path, tuple[list[int], list[int]]] = {}
        for position, digest in enumerate(digests):
            path, row = self._place[digest]
            positions, rows = pairs.setdefault(path, ([], []))
            positions.append(position)
            rows.append(row)
        return [(path, np.array(positions), np.array(rows)) for path, (positions, rows) in pairs.items()]


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError) as error:  # a full disk is the former, a folder without rights the latter
        raise EmbeddingError(
            f"{folder}: embeddings cannot be written there ({error}); make room, or put the store elsewhere"
        ) from error


def _create(path: Path, shape: tuple[int, int]) -> np.memmap[Any, np.dtype[np.float32]]:
    """Create a .npy file of that shape and map it into memory.

    Its space on the disk is allocated before anything is written: a mapped file that has none kills the process.
    """
    vectors = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    try:
        if sys.platform == "linux":  # elsewhere Python has no call for it
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as error:
        raise EmbeddingError(
            f"{path.parent}: no place for {shape[0]:,} vectors in order, {path.stat().st_size / 2**30:.1f} GiB "
            f"({error}); make room, or put the store on another disk"
        ) from error
    return vectors


def _places(path: Path, digests: NDArray[np.uint8]) -> dict[str, tuple[Path, int]]:
    return {row.tobytes().hex(): (path, position) for position, row in enumerate(digests)}


def _read(path: Path, name: str) -> NDArray[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            tensor: NDArray[Any] = file.get_tensor(name)
            return tensor
    except (SafetensorError, OSError) as error:
        raise FormatError(f"{path}: not a shard of embeddings ({error}); delete it and encode again") from error
