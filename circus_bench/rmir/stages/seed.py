"""Stage 0: the images that queries are made from, spread over what the collection shows.

Repeated images are left out, the rest is clustered by k-means on unit vectors, and some images of each cluster are
drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from circus_bench.doctor.hashes import near_duplicates
from circus_bench.doctor.image_checks import examine
from circus_bench.errors import CircusError
from circus_bench.rmir.config import Near, SeedSettings
from circus_bench.rmir.records import Removed, Seed, Why

VERSION = 1

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Seen:
    """What decoding an image told.

    Attributes:
        image: its id.
        digest: SHA-256 of the picture; empty when it cannot be decoded.
        phash: perceptual hash, 16 hexadecimal digits; likewise.
    """

    image: str
    digest: str
    phash: str


def look(ids: Sequence[str], *, images: Mapping[str, bytes]) -> list[Seen]:
    """Decode images; one row each, in their order."""
    found = examine(images, ids)
    readable = found.inspection.readable
    return [
        Seen(i, readable[i].digest, f"{found.phashes[i]:016x}") if i in readable else Seen(i, "", "")
        for i in dict.fromkeys(ids)
    ]


def distinct(seen: Sequence[Seen], *, near: Near) -> tuple[list[str], list[Removed]]:
    """Leave out images that cannot be decoded, and those that repeat an earlier one.

    Args:
        seen: all images, in the collection's order: the first of several like ones stays.
        near: which near duplicates count as repeated.

    Returns:
        The ids of those that stay, and those that do not.
    """
    alike = _neighbours(seen, near)
    first: dict[str, str] = {}
    kept: dict[str, None] = {}
    removed = []
    for row in seen:
        if not row.digest:
            removed.append(Removed(row.image, Why.UNREADABLE, ""))
        elif row.digest in first:
            removed.append(Removed(row.image, Why.SAME_PIXELS, first[row.digest]))
        elif twins := [twin for twin in alike.get(row.image, ()) if twin in kept]:
            removed.append(Removed(row.image, Why.SAME_HASH, twins[0]))
        else:
            kept[row.image] = None
            first[row.digest] = row.image
    return list(kept), removed


def draw(ids: Sequence[str], vectors: Floats | None, *, settings: SeedSettings) -> list[Seed]:
    """Draw the seeds.

    Args:
        ids: of the images.
        vectors: float32 [n_images, dim], of unit length; None where no clusters are wanted.
        settings: clusters, images of each, and the seed.

    Returns:
        The seeds, in the images' order; without clusters all images, in one cluster.

    Raises:
        CircusError: there are fewer images than clusters.
    """
    if vectors is None or not settings.clusters:
        return [Seed(image, 0) for image in ids]
    if len(ids) < settings.clusters:
        raise CircusError(
            f"{len(ids):,} distinct images cannot make {settings.clusters:,} clusters; set seed.clusters to fewer, or "
            f"to 0 to take every image"
        )
    cluster = _clusters(vectors, settings)
    # A shuffle, then a stable sort by cluster: the first ones of each cluster are a random draw from it.
    shuffled = np.random.default_rng(settings.seed).permutation(len(ids))
    grouped = shuffled[np.argsort(cluster[shuffled], kind="stable")]
    starts = np.searchsorted(cluster[grouped], cluster[grouped])
    chosen = np.sort(grouped[np.arange(len(ids)) - starts < settings.per_cluster])
    return [Seed(ids[position], int(cluster[position])) for position in chosen]


def _clusters(vectors: Floats, settings: SeedSettings) -> NDArray[np.int64]:
    """The cluster of each image, by spherical k-means: int64 [n_images]."""
    try:
        import faiss
    except ImportError:
        raise CircusError("clustering takes faiss: pip install 'circus-bench[faiss]'") from None
    # By default faiss samples the points of a training and warns of small clusters; here all points are used.
    kmeans = faiss.Kmeans(
        vectors.shape[1],
        settings.clusters,
        niter=settings.iterations,
        seed=settings.seed,
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=len(vectors),
    )
    kmeans.train(vectors)
    _, cluster = kmeans.index.search(vectors, 1)
    found: NDArray[np.int64] = cluster[:, 0]
    return found


def _neighbours(seen: Iterable[Seen], near: Near) -> dict[str, list[str]]:
    """For each image those that count as its near duplicates."""
    if near is Near.OFF:
        return {}
    found = near_duplicates({row.image: int(row.phash, 16) for row in seen if row.digest})
    groups: list[tuple[str, ...]] = list(found.exact)
    alike = {image: [other for other in group if other != image] for group in groups for image in group}
    if near is Near.ONE_BIT:
        for one, other in found.near:
            for group, others in ((one, other), (other, one)):
                for image in group:
                    alike.setdefault(image, []).extend(others)
    return alike
