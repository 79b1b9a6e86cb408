"""Check the ranks of a Run against its top-k lists, whose scores show order and ties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from circus_bench.benchmark import Benchmark, Condition, Query
from circus_bench.hub.eval_tasks import K
from circus_bench.ranking.ranker import UNREACHABLE, ReferencePosition
from circus_bench.runs.run import Run
from circus_bench.submit.violations import Violation
from circus_bench.submit.violations import ViolationKind as Kind

_BESIDE = frozenset({ReferencePosition.BELOW, ReferencePosition.TIED, ReferencePosition.ABOVE})


@dataclass(frozen=True)
class _TopK:
    """The top-k list of one query.

    Attributes:
        ids: image ids by falling score.
        scores: float32 [n_ids].
        whole: whether it is the whole gallery.
    """

    ids: tuple[str, ...]
    scores: NDArray[np.float32]
    whole: bool

    @cached_property
    def place(self) -> dict[str, int]:
        return {image: place for place, image in enumerate(self.ids)}

    def score(self, image: str) -> float | None:
        """Return the score of an image; None for one that is not listed, whose score is at most the last."""
        return float(self.scores[self.place[image]]) if image in self.place else None


@dataclass(frozen=True)
class _RankRow:
    """A row of the rank table: one target."""

    target: str
    rank: int
    ties: int
    reference: ReferencePosition


def check_topk_lists(run: Run, truth: Benchmark, *, where: str) -> Iterator[Violation]:
    """Yield where the ranks of a Run and its top-k lists contradict each other.

    Args:
        run: has the queries and targets of `truth`, and possible ranks.
        truth: the benchmark.
        where: the file, for messages.
    """
    query_of = {query.id: query for query in truth.queries}
    gallery = frozenset(truth.gallery.ids)
    for condition in Condition:
        found: dict[Kind, dict[str, str]] = {}
        constant = []
        for place, name in enumerate(run.queries):
            listed = _top_k(run, condition, place, n_gallery=len(gallery))
            wrong = _list_fault(listed, gallery)
            if wrong:
                found.setdefault(Kind.BAD_LISTING, {})[name] = wrong
                continue
            if len(listed.ids) > 1 and listed.scores[0] == listed.scores[-1]:
                constant.append(name)
            for kind, target, message in _row_faults(listed, query_of[name], _rows(run, condition, place), gallery):
                found.setdefault(kind, {})[f"{name} {target}"] = message
        if 2 * len(constant) >= len(run.queries):
            message = "queries give all images in their list the same score"
            yield Violation(Kind.CONSTANT_SCORES, f"{where}, {condition}", message, tuple(constant))
        for kind, ids in found.items():
            first = next(iter(ids))
            yield Violation(kind, f"{where}, {condition}", f"such as {first}: {ids[first]}", tuple(ids))


def _top_k(run: Run, condition: Condition, place: int, *, n_gallery: int) -> _TopK:
    result = run.results[condition]
    ids = result.top_ids[place]
    return _TopK(ids, result.ranking.top_score[place], whole=len(ids) == n_gallery)


def _rows(run: Run, condition: Condition, place: int) -> list[_RankRow]:
    ranking = run.results[condition].ranking
    start = int(run.offsets[place])
    return [
        _RankRow(target, int(ranking.rank[row]), int(ranking.ties[row]), ReferencePosition(int(ranking.reference[row])))
        for row, target in enumerate(run.targets[place], start)
    ]


def _list_fault(listed: _TopK, gallery: frozenset[str]) -> str:
    """Say what is wrong with a list by itself; empty when nothing is."""
    # Without the reference, which may be removed, the list still has to show a hit at K.
    due = min(K + 1, len(gallery))
    if len(listed.ids) < due or len(listed.ids) != len(listed.scores):
        return f"{len(listed.ids)} images with {len(listed.scores)} scores; expected one each, for {due} images or more"
    if len(listed.place) < len(listed.ids):
        return "images occur twice"
    if not gallery.issuperset(listed.ids):
        return "images are not in the gallery"
    if not np.isfinite(listed.scores).all() or (np.diff(listed.scores) > 0).any():
        return "scores are not finite, or rise"
    return ""


def _row_faults(
    listed: _TopK, query: Query, rows: list[_RankRow], gallery: frozenset[str]
) -> Iterator[tuple[Kind, str, str]]:
    """Yield kind, target and message of every row that contradicts the list."""
    targets = [row.target for row in rows]
    for place, row in enumerate(rows):
        before, after = frozenset(targets[:place]), frozenset(targets[place + 1 :])
        if row.rank == UNREACHABLE:
            continue
        if row.target in listed.place:
            fault = _listed_fault(listed, row, before=before, after=after)
        else:
            fault = _unlisted_fault(listed, row, after=after)
        if fault:
            yield fault[0], row.target, fault[1]
        possible = _reference_places(listed, query, row.target, before=before, after=after, gallery=gallery)
        if row.reference not in possible:
            names = " or ".join(sorted(place.name.lower() for place in possible))
            message = f"the reference is said to be {row.reference.name.lower()}; by the list it is {names}"
            yield Kind.RANK_NOT_AS_LISTED, row.target, message


def _listed_fault(
    listed: _TopK, row: _RankRow, *, before: frozenset[str], after: frozenset[str]
) -> tuple[Kind, str] | None:
    """Check a target that is in the list: see the definition of the rank in docs/definitions.md."""
    score = listed.scores[listed.place[row.target]]
    greater = int((listed.scores > score).sum())
    tied = frozenset(listed.ids[greater : greater + int((listed.scores == score).sum())]) - {row.target}
    others = len(tied - before - after)
    due = 1 + greater + others + len(tied & before)
    if row.rank < due and others and row.rank > greater:
        return Kind.GOLD_FIRST, f"rank {row.rank}, though {others} images of the same score make it {due}"
    if listed.whole or listed.scores[-1] < score:
        fits = (row.rank, row.ties) == (due, others)
    else:
        # Images of this score, other targets among them, may follow after the end of the list.
        unlisted = len((before | after) - tied)
        fits = row.ties >= others and 0 <= row.rank - row.ties - (due - others) <= unlisted
    if fits:
        return None
    return (
        Kind.RANK_NOT_AS_LISTED,
        f"rank {row.rank} with {row.ties} ties; by the list rank {due} with {others}",
    )


def _unlisted_fault(listed: _TopK, row: _RankRow, *, after: frozenset[str]) -> tuple[Kind, str] | None:
    """Check a target that is not listed: all listed images come before it, but for targets of its score after it."""
    last = listed.scores[-1]
    following = sum(1 for image in after if listed.score(image) == last)
    least = 1 + len(listed.ids) - following
    if not listed.whole and row.rank >= least:
        return None
    return (
        Kind.RANK_NOT_AS_LISTED,
        f"rank {row.rank}, though the target is not among the first {len(listed.ids)}",
    )


def _reference_places(
    listed: _TopK, query: Query, target: str, *, before: frozenset[str], after: frozenset[str], gallery: frozenset[str]
) -> frozenset[ReferencePosition]:
    """Find where the reference can be relative to a target, by the list."""
    if query.reference not in gallery:
        return frozenset({ReferencePosition.ABSENT})
    if query.reference == target:
        return frozenset({ReferencePosition.IS_TARGET})
    # A reference that is another target has its rank before or after, never a tie.
    if query.reference in before:
        tie = ReferencePosition.ABOVE
    else:
        tie = ReferencePosition.BELOW if query.reference in after else ReferencePosition.TIED
    last = float(listed.scores[-1])
    own, other = listed.score(target), listed.score(query.reference)
    if own is None and other is None:
        return _BESIDE
    if own is not None and other is not None:
        if own == other:
            return frozenset({tie})
        return frozenset({ReferencePosition.ABOVE if other > own else ReferencePosition.BELOW})
    surely = ReferencePosition.BELOW if other is None else ReferencePosition.ABOVE
    return frozenset({surely, tie}) if last in (own, other) else frozenset({surely})
