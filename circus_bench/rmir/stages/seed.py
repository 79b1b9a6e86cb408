"""Deduplicate and cluster the collection, and sample the seed images that queries are made from: stage 0.

Exact and near duplicates are dropped, the rest is clustered by k-means on unit vectors, and some images are sampled per
cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from circus_bench.doctor.hashes import near_duplicates
from circus_bench.doctor.image_checks import scan_images
from circus_bench.errors import CircusError
from circus_bench.rmir.config import DedupMode, SeedSettings
from circus_bench.rmir.records import DroppedImage, FailureReason, ScannedImage, Seed

VERSION = 1

Floats = NDArray[np.float32]


def scan_collection(ids: Sequence[str], *, images: Mapping[str, bytes]) -> list[ScannedImage]:
    """Decode images, and return one row per image, in their order."""
    found = scan_images(images, ids)
    readable = found.inspection.readable
    return [
        ScannedImage(i, readable[i].digest, f"{found.phashes[i]:016x}") if i in readable else ScannedImage(i, "", "")
        for i in dict.fromkeys(ids)
    ]


def deduplicate(scanned: Sequence[ScannedImage], *, near: DedupMode) -> tuple[list[str], list[DroppedImage]]:
    """Drop images that cannot be decoded, and those that duplicate an earlier one.

    Args:
        scanned: all images, in the collection's order: the first of several duplicates stays.
        near: near duplicates that count.

    Returns:
        The ids of those that stay, and those that do not.
    """
    alike = _near_duplicates(scanned, near)
    first: dict[str, str] = {}
    kept: dict[str, None] = {}
    dropped = []
    for row in scanned:
        if not row.digest:
            dropped.append(DroppedImage(row.image, FailureReason.UNREADABLE, ""))
        elif row.digest in first:
            dropped.append(DroppedImage(row.image, FailureReason.SAME_PIXELS, first[row.digest]))
        elif twins := [twin for twin in alike.get(row.image, ()) if twin in kept]:
            dropped.append(DroppedImage(row.image, FailureReason.SAME_HASH, twins[0]))
        else:
            kept[row.image] = None
            first[row.digest] = row.image
    return list(kept), dropped


def sample_seeds(ids: Sequence[str], vectors: Floats | None, *, settings: SeedSettings) -> list[Seed]:
    """Sample the seeds.

    Args:
        ids: of the images.
        vectors: float32 [n_images, dim], of unit length; None where no clusters are wanted.
        settings: clusters, images per cluster, and the seed.

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
    # A shuffle, then a stable sort by cluster: the first ones of each cluster are a random sample of it.
    shuffled = np.random.default_rng(settings.seed).permutation(len(ids))
    grouped = shuffled[np.argsort(cluster[shuffled], kind="stable")]
    starts = np.searchsorted(cluster[grouped], cluster[grouped])
    chosen = np.sort(grouped[np.arange(len(ids)) - starts < settings.per_cluster])
    return [Seed(ids[position], int(cluster[position])) for position in chosen]


def _clusters(vectors: Floats, settings: SeedSettings) -> NDArray[np.int64]:
    """Cluster the images by spherical k-means: int64 [n_images]."""
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


def _near_duplicates(scanned: Iterable[ScannedImage], near: DedupMode) -> dict[str, list[str]]:
    """Map each image to those that count as its near duplicates."""
    if near is DedupMode.OFF:
        return {}
    found = near_duplicates({row.image: int(row.phash, 16) for row in scanned if row.digest})
    groups: list[tuple[str, ...]] = list(found.exact)
    alike = {image: [other for other in group if other != image] for group in groups for image in group}
    if near is DedupMode.ONE_BIT:
        for one, other in found.near:
            for group, others in ((one, other), (other, one)):
                for image in group:
                    alike.setdefault(image, []).extend(others)
    return alike
