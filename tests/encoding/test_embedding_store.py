"""The store finds what was written, and a shard is whole or absent."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.errors import EmbeddingError, FormatError

KEY = {"model": "org/model", "revision": "1", "role": "gallery"}


def digests(*names: str) -> list[str]:
    return [hashlib.sha256(name.encode()).hexdigest() for name in names]


def rows(*values: float) -> np.ndarray:
    return np.array([[value, 1] for value in values], np.float32)


def test_vectors_come_back_in_the_order_asked_for(tmp_path: Path) -> None:
    partition = EmbeddingStore(tmp_path).partition(KEY)
    partition.write(digests("a", "b"), rows(1, 2))
    partition.write(digests("c"), rows(3))
    assert partition.gather(digests("c", "a", "b", "a"))[:, 0].tolist() == [3, 1, 2, 1]


def test_another_process_finds_what_was_written(tmp_path: Path) -> None:
    EmbeddingStore(tmp_path).partition(KEY).write(digests("a"), rows(1))
    found = EmbeddingStore(tmp_path).partition(KEY)
    assert digests("a")[0] in found
    assert len(found) == 1


def test_vectors_keep_every_bit(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    partition = EmbeddingStore(tmp_path).partition(KEY)
    partition.write(digests(*"abcde"), vectors)
    assert np.array_equal(partition.gather(digests(*"abcde")), vectors)


@pytest.mark.parametrize("changed", ["model", "revision", "role"])
def test_a_space_is_apart_from_those_of_other_keys(tmp_path: Path, changed: str) -> None:
    store = EmbeddingStore(tmp_path)
    store.partition(KEY).write(digests("a"), rows(1))
    assert digests("a")[0] not in store.partition({**KEY, changed: "other"})


def test_the_same_shard_written_twice_is_one_file(tmp_path: Path) -> None:
    partition = EmbeddingStore(tmp_path).partition(KEY)
    for _ in range(2):
        partition.write(digests("a"), rows(1))
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


def test_a_shard_left_half_written_is_ignored(tmp_path: Path) -> None:
    partition = EmbeddingStore(tmp_path).partition(KEY)
    partition.write(digests("a"), rows(1))
    shard = next(tmp_path.rglob("*.safetensors"))
    shard.with_name(f".{shard.name}.1.part").write_bytes(shard.read_bytes()[:20])
    assert len(EmbeddingStore(tmp_path).partition(KEY)) == 1


def test_a_damaged_shard_is_an_error_that_names_it(tmp_path: Path) -> None:
    EmbeddingStore(tmp_path).partition(KEY).write(digests("a"), rows(1))
    shard = next(tmp_path.rglob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:20])
    with pytest.raises(FormatError, match=f"{shard.name}.*delete it"):
        EmbeddingStore(tmp_path).partition(KEY)


def test_asking_for_what_was_never_written_is_an_error_with_the_count(tmp_path: Path) -> None:
    partition = EmbeddingStore(tmp_path).partition(KEY)
    partition.write(digests("a"), rows(1))
    with pytest.raises(EmbeddingError, match="no vectors of the inputs 2:"):
        partition.gather(digests("a", "b", "c"))


@pytest.mark.parametrize("vectors", [rows(1, 2), rows(1)[0], rows(1).astype(np.float64)])
def test_vectors_that_do_not_fit_are_refused(tmp_path: Path, vectors: np.ndarray) -> None:
    with pytest.raises(EmbeddingError, match="one float32 vector each"):
        EmbeddingStore(tmp_path).partition(KEY).write(digests("a"), vectors)


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddingError, match=f"{tmp_path / 'file'}.*embeddings cannot be written there"):
        EmbeddingStore(tmp_path / "file").partition(KEY).write(digests("a"), rows(1))


def test_a_disk_that_fills_up_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(EmbeddingError, match=r"No space left on device\); make room"):
        EmbeddingStore(tmp_path).partition(KEY).write(digests("a"), rows(1))


def test_shards_of_different_dimensions_are_an_error(tmp_path: Path) -> None:
    partition = EmbeddingStore(tmp_path).partition(KEY)
    partition.write(digests("a"), rows(1))
    partition.write(digests("b"), np.ones((1, 3), np.float32))
    with pytest.raises(EmbeddingError, match="dimensions"):
        partition.gather(digests("a", "b"))


def test_the_key_is_written_beside_the_shards(tmp_path: Path) -> None:
    EmbeddingStore(tmp_path).partition(KEY).write(digests("a"), rows(1))
    assert '"role": "gallery"' in next(tmp_path.rglob("space.json")).read_text()
