"""Stage 0: repeated images, clusters and the draw."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from support.parts import png

from circus_bench.errors import CircusError
from circus_bench.rmir.config import DedupMode, SeedSettings
from circus_bench.rmir.records import DroppedImage, FailureReason, ScannedImage
from circus_bench.rmir.stages.seed import deduplicate, sample_seeds, scan_collection


def recoded(data: bytes) -> bytes:
    file = io.BytesIO()
    Image.open(io.BytesIO(data)).save(file, "BMP")
    return file.getvalue()


def seen(image: str, digest: str, phash: int) -> ScannedImage:
    return ScannedImage(image, digest, f"{phash:016x}")


def test_an_image_has_a_digest_and_a_perceptual_hash() -> None:
    (row,) = scan_collection(["a"], images={"a": png(0)})
    assert (len(row.digest), len(row.phash)) == (64, 16)


def test_what_cannot_be_decoded_is_removed_and_listed() -> None:
    rows = scan_collection(["a", "b", "c"], images={"a": png(0), "b": b"no image"})
    assert deduplicate(rows, near=DedupMode.OFF) == (
        ["a"],
        [DroppedImage("b", FailureReason.UNREADABLE, ""), DroppedImage("c", FailureReason.UNREADABLE, "")],
    )


def test_the_same_picture_in_another_file_is_removed() -> None:
    rows = scan_collection(["a", "b"], images={"a": png(0), "b": recoded(png(0))})
    assert deduplicate(rows, near=DedupMode.OFF) == (["a"], [DroppedImage("b", FailureReason.SAME_PIXELS, "a")])


@pytest.mark.parametrize(
    ("near", "kept"), [(DedupMode.OFF, "abcd"), (DedupMode.SAME_HASH, "acd"), (DedupMode.ONE_BIT, "ad")], ids=str
)
def test_near_duplicates_are_removed_as_far_as_asked_for(near: DedupMode, kept: str) -> None:
    # b has a's hash, c differs from it in one bit, d in two.
    rows = [seen("a", "1", 0b1100), seen("b", "2", 0b1100), seen("c", "3", 0b1101), seen("d", "4", 0b1111)]
    assert deduplicate(rows, near=near)[0] == list(kept)


def test_an_image_is_compared_with_those_that_stay_only() -> None:
    # b is near a and goes; c is near b, but not near a, and stays.
    rows = [seen("a", "1", 0b00), seen("b", "2", 0b01), seen("c", "3", 0b11)]
    assert deduplicate(rows, near=DedupMode.ONE_BIT) == (["a", "c"], [DroppedImage("b", FailureReason.SAME_HASH, "a")])


def blobs(*, sizes: tuple[int, ...]) -> tuple[list[str], np.ndarray]:
    """Unit vectors around as many axes; the id begins with the axis."""
    rng = np.random.default_rng(0)
    axes = np.repeat(np.arange(len(sizes)), sizes)
    vectors = np.eye(8, dtype=np.float32)[axes] + 0.01 * rng.standard_normal((len(axes), 8)).astype(np.float32)
    return [f"{axis}-{n}" for n, axis in enumerate(axes)], vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_every_cluster_gives_at_most_so_many_images() -> None:
    ids, vectors = blobs(sizes=(30, 3))
    seeds = sample_seeds(ids, vectors, settings=SeedSettings(clusters=2, per_cluster=5))
    by_axis = [sum(row.image.startswith(f"{axis}-") for row in seeds) for axis in range(2)]
    assert by_axis == [5, 3]
    assert len({(row.image[0], row.cluster) for row in seeds}) == 2


def test_the_seeds_come_in_the_order_of_the_images() -> None:
    ids, vectors = blobs(sizes=(10, 10))
    seeds = [row.image for row in sample_seeds(ids, vectors, settings=SeedSettings(clusters=2, per_cluster=4))]
    assert seeds == sorted(seeds, key=ids.index)


def test_the_draw_is_repeatable_and_follows_the_seed() -> None:
    ids, vectors = blobs(sizes=(40,))

    def drawn(seed: int) -> list[str]:
        settings = SeedSettings(clusters=1, per_cluster=10, seed=seed)
        return [row.image for row in sample_seeds(ids, vectors, settings=settings)]

    assert drawn(0) == drawn(0) != drawn(1)
    assert drawn(0) != ids[:10]


def test_more_clusters_than_images_are_an_error() -> None:
    ids, vectors = blobs(sizes=(3,))
    with pytest.raises(CircusError, match="3 distinct images cannot make 4 clusters"):
        sample_seeds(ids, vectors, settings=SeedSettings(clusters=4))


def test_without_clusters_every_image_is_a_seed() -> None:
    assert [row.image for row in sample_seeds(["a", "b"], None, settings=SeedSettings(clusters=0))] == ["a", "b"]
