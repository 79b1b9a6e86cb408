"""Propose candidates that may answer a query, with two indexes over the seed pool: stage 3.

The visual index holds images, the text index their captions. Both are searched with a text of the draft. The draft's
own input image is never a candidate. An image that both indexes find has a row for each and is judged once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from circus_bench.ranking.topk import nearest
from circus_bench.rmir.records import Candidate, Draft, Index

VERSION = 2

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class IndexSearch:
    """Search of one index.

    Attributes:
        ids: images of the index.
        vectors: float32 [n_images, dim], of unit length.
        queries: float32 [n_drafts, dim], likewise.
        k: candidates per draft.
    """

    ids: Sequence[str]
    vectors: Floats
    queries: Floats
    k: int


def search(drafts: Sequence[Draft], indexes: Mapping[Index, IndexSearch]) -> list[Candidate]:
    """Propose candidates from all indexes, by draft, index and rank."""
    found = {index: _found(drafts, searched, index) for index, searched in indexes.items() if searched.k}
    return [
        candidate for position in range(len(drafts)) for of_index in found.values() for candidate in of_index[position]
    ]


def images_by_query(candidates: Sequence[Candidate]) -> dict[str, list[str]]:
    """Collect the images of each query's candidates: visual ones first, each image once."""
    found: dict[str, dict[str, None]] = {}
    for candidate in candidates:
        found.setdefault(candidate.query, {})[candidate.image] = None
    return {query: list(images) for query, images in found.items()}


def _found(drafts: Sequence[Draft], searched: IndexSearch, index: Index) -> list[list[Candidate]]:
    if not drafts or not len(searched.ids):
        return [[] for _ in drafts]
    # One more than wanted, for the input image may be among them.
    places, scores = nearest(searched.queries, searched.vectors, k=searched.k + 1)
    rows = []
    for draft, of_draft, its_scores in zip(drafts, places.tolist(), scores.tolist(), strict=True):
        others = [
            (searched.ids[place], score)
            for place, score in zip(of_draft, its_scores, strict=True)
            if searched.ids[place] != draft.image
        ]
        rows.append(
            [
                Candidate(draft.query, image, index, rank, score)
                for rank, (image, score) in enumerate(others[: searched.k], start=1)
            ]
        )
    return rows
