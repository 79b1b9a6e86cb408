"""Embeddings on disk: encoded once, found again by what was encoded.

A store is a folder of spaces. A space holds the vectors that one encoder gives under one prompt and condition; what
sets it apart is written in its `space.json`. Within it a vector is found by the digest of its input. Vectors come in
shards, each one file that appears whole or not at all, so that an encode that was killed loses at most a shard.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.errors import EmbeddingError, FormatError, some
from circus_bench.files import replacing, slug, to_json, write_json

Floats = NDArray[np.float32]


class EmbeddingStore:
    """A folder of embedding spaces.

    Args:
        root: the folder; made when the first vector is written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def space(self, key: Mapping[str, str]) -> Space:
        """The space of everything encoded under `key`.

        Args:
            key: all that changes a vector besides its input: `model` and `revision` at least, then dtype, role,
                condition, prompt.
        """
        name = hashlib.sha256(to_json(dict(key)).encode()).hexdigest()[:16]
        return Space(self._root / slug(key["model"]) / slug(key["revision"]) / name, key)


class Space:
    """Vectors of one encoder under one prompt and condition; see `EmbeddingStore.space`."""

    def __init__(self, folder: Path, key: Mapping[str, str]) -> None:
        self._folder = folder
        self._key = dict(key)
        self._place: dict[str, tuple[Path, int]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            self._register(path, _read(path, "digests"))

    def __contains__(self, digest: str) -> bool:
        return digest in self._place

    def __len__(self) -> int:
        return len(self._place)

    def write(self, digests: Sequence[str], embeddings: Floats) -> None:
        """Add a shard.

        Args:
            digests: SHA-256 hex digests of the inputs, one a row.
            embeddings: float32 [len(digests), dim].

        Raises:
            EmbeddingError: the shape or dtype is another.
        """
        from safetensors.numpy import save_file

        if embeddings.ndim != 2 or len(embeddings) != len(digests) or embeddings.dtype != np.float32:
            raise EmbeddingError(
                f"{self._key['model']} gave {embeddings.dtype} {embeddings.shape} for {len(digests)} inputs; "
                f"one float32 vector each was expected"
            )
        if not self._place:
            write_json(self._folder / "space.json", self._key)
        rows = np.frombuffer(bytes.fromhex("".join(digests)), np.uint8).reshape(len(digests), 32)
        path = self._folder / f"{hashlib.sha256(rows.tobytes()).hexdigest()[:16]}.safetensors"
        with replacing(path) as temporary:
            save_file({"digests": rows, "embeddings": np.ascontiguousarray(embeddings)}, temporary)
        self._register(path, rows)

    def gather(self, digests: Sequence[str]) -> Floats:
        """Collect the vectors of `digests`, in their order.

        Returns:
            float32 [len(digests), dim].

        Raises:
            EmbeddingError: a digest was never written, or two shards differ in dimension.
        """
        missing = [digest for digest in digests if digest not in self._place]
        if missing or not digests:
            raise EmbeddingError(f"{self._folder}: no vectors of the inputs {some(missing)}")
        rows_of: dict[Path, list[tuple[int, int]]] = {}
        for position, digest in enumerate(digests):
            path, row = self._place[digest]
            rows_of.setdefault(path, []).append((position, row))
        gathered: Floats | None = None
        for path, pairs in rows_of.items():
            shard = _read(path, "embeddings")
            if gathered is None:
                gathered = np.empty((len(digests), shard.shape[1]), np.float32)
            if shard.shape[1] != gathered.shape[1]:
                raise EmbeddingError(f"{path}: {shard.shape[1]} dimensions, other shards have {gathered.shape[1]}")
            positions, rows = np.array(pairs).T
            gathered[positions] = shard[rows]
        assert gathered is not None  # there is at least one digest
        return gathered

    def _register(self, path: Path, digests: NDArray[np.uint8]) -> None:
        self._place.update((row.tobytes().hex(), (path, position)) for position, row in enumerate(digests))


def _read(path: Path, name: str) -> NDArray[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            tensor: NDArray[Any] = file.get_tensor(name)
            return tensor
    except (SafetensorError, OSError) as error:
        raise FormatError(f"{path}: not a shard of embeddings ({error}); delete it and encode again") from error
