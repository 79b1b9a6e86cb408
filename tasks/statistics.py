"""Compute descriptive statistics of a benchmark, in mteb's form. What is not known is None.

mteb decodes all images at once to describe them; here the facts come from the benchmark's own inspection, one image at
a time, and annotations without images can be described too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from circus_bench.benchmark import Benchmark, Query
from circus_bench.errors import ImageError, format_ids
from circus_bench.images import ImageInfo, black, digest


def compute_statistics(benchmark: Benchmark, queries: Sequence[Query]) -> dict[str, Any]:
    """Compute the statistics of the queries of a subset and the gallery, as mteb's `RetrievalDescriptiveStatistics`.

    Args:
        benchmark: gives the gallery and the images; without images their statistics are None.
        queries: the subset; at least one.

    Raises:
        ImageError: an image cannot be decoded.
    """
    from mteb.abstasks._statistics_calculation import calculate_text_statistics

    ids = benchmark.gallery.ids
    texts = calculate_text_statistics([query.text for query in queries])
    documents_images = queries_images = blank = None
    if benchmark.gallery.images is not None:
        inspection = benchmark.inspect()
        if inspection.unreadable:
            raise ImageError(
                f"benchmark {benchmark.name!r}: images cannot be decoded ({format_ids(inspection.unreadable)}); "
                f"`circus-bench doctor` gives the reasons. Repair them, or leave them out"
            )
        infos = inspection.readable
        blank_digests = _blank_digests(infos.values())
        blank = {image_id for image_id, info in infos.items() if info.digest in blank_digests}
        documents_images = _image_statistics([infos[image_id] for image_id in ids], blank_digests)
        queries_images = _image_statistics([infos[query.reference] for query in queries], blank_digests)
    return {
        "num_samples": len(ids) + len(queries),
        "num_queries": len(queries),
        "num_documents": len(ids),
        "number_of_characters": texts["total_text_length"],
        "documents_text_statistics": None,
        "documents_image_statistics": documents_images,
        "documents_audio_statistics": None,
        "documents_video_statistics": None,
        "queries_text_statistics": texts,
        "queries_image_statistics": queries_images,
        "queries_audio_statistics": None,
        "queries_video_statistics": None,
        "relevant_docs_statistics": _relevant_statistics(queries, ids, blank),
        "top_ranked_statistics": None,
    }


def _relevant_statistics(queries: Sequence[Query], ids: Sequence[str], blank: Collection[str] | None) -> dict[str, Any]:
    from mteb.abstasks._statistics_calculation import calculate_relevant_docs_statistics

    relevant = {query.id: dict.fromkeys(query.targets, 1) for query in queries}
    found: dict[str, Any] = dict(calculate_relevant_docs_statistics(relevant, list(relevant), ids, blank))
    if blank is None:  # mteb says 0 where it has not looked
        found["queries_with_all_gold_black_or_white"] = None
    return found


def _image_statistics(infos: Sequence[ImageInfo], blank_digests: Collection[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for side in ("width", "height"):
        sizes = [getattr(info, side) for info in infos]
        found |= {
            f"min_image_{side}": min(sizes),
            f"average_image_{side}": sum(sizes) / len(sizes),
            f"max_image_{side}": max(sizes),
        }
    return {
        **found,
        "unique_images": len({info.digest for info in infos}),
        "black_or_white_images": sum(info.digest in blank_digests for info in infos),
    }


def _blank_digests(infos: Collection[ImageInfo]) -> frozenset[str]:
    """Return the digests of the black and of the white image of every size that occurs."""
    blacks = [black(size) for size in {info.size for info in infos}]
    return frozenset(digest(image) for dark in blacks for image in (dark, dark.point(lambda _: 255)))
