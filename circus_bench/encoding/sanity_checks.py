"""Check that an encoder uses the reference image and the text as each condition says, and that it has not collapsed.

A few queries are encoded with one part exchanged: an ignored reference or text, or one that leaks into a condition
without it, shows in what moves. These are sanity checks of a pipeline; they do not measure how good a model is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from circus_bench.benchmark import Benchmark, Condition, Query
from circus_bench.images import ImageInfo
from circus_bench.vectors import Floats

_CHECKED_QUERIES = 4
_MIN_DISTANCE = 1e-4  # cosine distance; equal inputs in equal batches give 0, other inputs give hundreds of times this
_MIN_VARIANCE = 1e-3  # of unit vectors; anisotropic but working encoders stay above a hundredth


class EncoderWarning(StrEnum):
    """Sign that an encoder, or the way it is driven, does not do what its condition says."""

    REFERENCE_IGNORED = "reference_ignored"
    """Another reference image does not move the multimodal embedding."""
    TEXT_IGNORED = "text_ignored"
    """Another modification text does not move the multimodal embedding."""
    REFERENCE_LEAKS = "reference_leaks"
    """Another reference image of the same size moves the text-only embedding."""
    TEXT_LEAKS = "text_leaks"
    """Another modification text moves the image-only embedding."""
    COLLAPSED = "collapsed"
    """All gallery embeddings are nearly the same."""


@dataclass(frozen=True, slots=True)
class SanityCheck:
    """Outcome of the checks on a few queries.

    Attributes:
        alarms: what is wrong.
        batch_deviation: largest absolute difference between vectors encoded singly and in a batch.
    """

    alarms: tuple[EncoderWarning, ...]
    batch_deviation: float


def check_encoder(
    encode: Callable[[Sequence[Query], Condition], Floats], benchmark: Benchmark, *, infos: Mapping[str, ImageInfo]
) -> SanityCheck:
    """Encode a few queries with the reference or the text exchanged, and compare the embeddings.

    Args:
        encode: gives float32 [n, dim] for queries under a condition.
        benchmark: where the queries and what is exchanged come from.
        infos: facts of its images, by id.
    """
    chosen = benchmark.queries[:_CHECKED_QUERIES]
    other_reference = [dataclasses.replace(q, reference=_other_image(q.reference, infos)) for q in chosen]
    other_text = [dataclasses.replace(q, text=_other_text(q.text, benchmark)) for q in chosen]
    plain = {condition: encode(chosen, condition) for condition in Condition}
    alarms = []
    for alarm, condition, changed in (
        (EncoderWarning.REFERENCE_IGNORED, Condition.MULTIMODAL, other_reference),
        (EncoderWarning.TEXT_IGNORED, Condition.MULTIMODAL, other_text),
        (EncoderWarning.REFERENCE_LEAKS, Condition.TEXT_ONLY, other_reference),
        (EncoderWarning.TEXT_LEAKS, Condition.IMAGE_ONLY, other_text),
    ):
        moved = _cosine_distances(plain[condition], encode(changed, condition)) > _MIN_DISTANCE
        if alarm is EncoderWarning.REFERENCE_LEAKS:
            # A black image of another size may move a model that sees resolution; that is not a leak.
            moved &= [infos[a.reference].size == infos[b.reference].size for a, b in zip(chosen, changed, strict=True)]
        must_move = condition is Condition.MULTIMODAL
        if must_move != moved.any():
            alarms.append(alarm)
    singly = np.concatenate([encode([query], Condition.MULTIMODAL) for query in chosen])
    return SanityCheck(tuple(alarms), float(np.abs(singly - plain[Condition.MULTIMODAL]).max()))


def has_collapsed(vectors: Floats) -> bool:
    """Tell whether unit vectors of different inputs are nearly all the same (`EncoderWarning.COLLAPSED`)."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    return len(vectors) > 1 and bool(1 - mean @ mean < _MIN_VARIANCE)


def _other_image(image_id: str, infos: Mapping[str, ImageInfo]) -> str:
    """Choose another image, of the same size if there is one."""
    own = infos[image_id]
    others = [other for other, info in infos.items() if info.digest != own.digest]
    same_size = (other for other in others if infos[other].size == own.size)
    return next(same_size, others[0] if others else image_id)


def _other_text(text: str, benchmark: Benchmark) -> str:
    others = (query.text for query in benchmark.queries if query.text != text)
    return next(others, f"something quite different from {text}")


def _cosine_distances(a: Floats, b: Floats) -> NDArray[np.float64]:
    """Compute the cosine distance of each pair of rows, float64 [n]."""
    first, second = a.astype(np.float64), b.astype(np.float64)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines: NDArray[np.float64] = np.einsum("ij,ij->i", first, second) / norms
    return 1 - cosines
