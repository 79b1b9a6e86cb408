"""Assign items to raters, blindly: a balanced incomplete block design.

Every item goes to several raters, and a common block to all of them, as do the items with a gold label. Raters have
equally much to do, and every two of them meet on equally many items, so that all pairs can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from circus_bench.errors import CircusError, format_ids
from circus_bench.validation.hash_order import hash_shuffle, hash_uniform

MIN_RATERS = 2
"""Of one item: a single annotation says nothing about agreement."""


def assign(
    items: Sequence[str], raters: Sequence[str], *, per_item: int, everyone: Collection[str] = (), seed: int = 0
) -> dict[str, list[str]]:
    """Assign each item to `per_item` raters, so that loads differ by at most 1 and pairs of raters meet equally often.

    Args:
        items: ids.
        raters: ids; the order breaks no tie.
        per_item: raters of an item.
        everyone: items that all raters get.
        seed: breaks ties.

    Returns:
        Rater to their items, in no particular order.

    Raises:
        CircusError: raters share a name, or are too few.
    """
    _check_raters(raters, per_item)
    shared = frozenset(everyone)
    load = dict.fromkeys(raters, 0)
    met: Counter[tuple[str, str]] = Counter()
    owned: dict[str, list[str]] = {rater: [] for rater in raters}
    for item in hash_shuffle(items, seed, "assignment"):
        chosen = list(raters) if item in shared else _next_raters(item, per_item, load, met, seed=seed)
        for rater in chosen:
            load[rater] += 1
            owned[rater].append(item)
        met.update(_pair(a, b) for a, b in combinations(chosen, 2))
    return owned


def _check_raters(raters: Sequence[str], per_item: int) -> None:
    if len({*raters}) < len(raters) or not all(rater.strip() for rater in raters):
        raise CircusError(f"raters need different names that are not blank: {format_ids(raters)}")
    if not MIN_RATERS <= per_item <= len(raters):
        raise CircusError(
            f"{per_item} raters per item were asked for; it takes from {MIN_RATERS} to the number of raters, "
            f"{len(raters)}"
        )


def _next_raters(
    item: str, wanted: int, load: Mapping[str, int], met: Mapping[tuple[str, str], int], *, seed: int
) -> list[str]:
    """Choose those with the least to do; of several such choices the one whose members met least often."""
    chosen: list[str] = []
    free = hash_shuffle(load, seed, "raters", item)
    while len(chosen) < wanted:
        least = min(load[rater] for rater in free)
        level = [rater for rater in free if load[rater] == least]
        while level and len(chosen) < wanted:
            best = min(level, key=lambda rater: _count_meetings(rater, chosen, level, wanted, met))
            chosen.append(best)
            level.remove(best)
            free.remove(best)
    return chosen


def _count_meetings(
    rater: str, chosen: Sequence[str], level: Sequence[str], wanted: int, met: Mapping[tuple[str, str], int]
) -> int:
    """Count how often a rater met those chosen before; the first one looks ahead to the others that may follow."""
    others = chosen or sorted((r for r in level if r != rater), key=lambda r: met.get(_pair(rater, r), 0))[: wanted - 1]
    return sum(met.get(_pair(rater, other), 0) for other in others)


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


def interleave_checks(items: Sequence[str], checks: Sequence[str], *, seed: int, rater: str) -> list[str]:
    """Order a rater's items for showing: both shuffled, and the check items spread evenly at no regular distance."""
    own, known = hash_shuffle(items, seed, "order", rater), hash_shuffle(checks, seed, "checks", rater)
    place = {item: (position + 0.5) / len(own) for position, item in enumerate(own)}
    for position, item in enumerate(known):
        place[item] = (position + hash_uniform(seed, "place", rater, item)) / len(known)
    return sorted(place, key=lambda item: place[item])
