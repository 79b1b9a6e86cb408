"""Compute the composition gap: the part of a model's score that needs both image and text of the query."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from circus_bench.errors import FormatError
from circus_bench.metrics._checks import numbers
from circus_bench.metrics.ranks import Floats


def comp_gap(multimodal: ArrayLike, text_only: ArrayLike, image_only: ArrayLike) -> float:
    """Compute 1 - max(I, T) / MM, with MM, T and I the mean full-gallery nDCG of one model under the three conditions.

    Source: "Do Composed Image Retrieval Benchmarks Require Multimodal Composition?" (arXiv 2605.14787). The ratio is
    taken between means over the queries, not query by query.

    Args:
        multimodal: a mean, or float [n_queries] of per-query nDCG (see `circus_bench.metrics.ndcg`).
        text_only: the same for the text alone.
        image_only: the same for the reference image alone.

    Returns:
        At most 1: 1 when neither part alone retrieves anything, 0 when one part alone does as well as both, negative
        when it does better. NaN (undefined) when MM is 0, or there is no query.

    Raises:
        FormatError: a value is NaN, infinite or negative, or the three inputs differ in shape.

    Example:
        >>> comp_gap([0.5, 1.0], [0.25, 0.5], [0.1, 0.1])
        0.5
        >>> comp_gap(0.0, 0.2, 0.1)
        nan
    """
    scores = {"multimodal": multimodal, "text_only": text_only, "image_only": image_only}
    arrays = {name: _scores(values, name) for name, values in scores.items()}
    if any(one.shape != other.shape for one, other in pairwise(arrays.values())):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise FormatError(f"the three conditions must cover the same queries, found the shapes {shapes}")
    if not arrays["multimodal"].size:
        return math.nan
    mean = {name: float(array.mean()) for name, array in arrays.items()}
    if mean["multimodal"] == 0:
        return math.nan
    return 1 - max(mean["text_only"], mean["image_only"]) / mean["multimodal"]


def pool_comp_gap(gaps: Iterable[float]) -> float:
    """Average the models' gaps; NaN when any of them is undefined, for a mean over the others is another pool's.

    Args:
        gaps: the gap of each model of the pool, as `comp_gap` returns it.

    Raises:
        FormatError: there is no gap, or one is infinite.

    Example:
        >>> pool_comp_gap([0.5, -0.25])
        0.125
    """
    array = numbers(list(gaps), "composition gaps")
    if array.ndim != 1 or not array.size or np.isinf(array).any():
        raise FormatError(f"composition gaps: expected a finite number or NaN per model, found {array.tolist()}")
    return float(array.mean())


def _scores(values: ArrayLike, name: str) -> Floats:
    array = numbers(values, name)
    if array.ndim > 1:
        raise FormatError(f"{name}: expected one score per query, found the shape {array.shape}")
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        raise FormatError(f"{name}: {int(wrong.sum())} scores are NaN, infinite or negative, such as {array[wrong][0]}")
    return array
