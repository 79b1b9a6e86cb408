"""Shuffle and draw by hash: seeded orders that depend on names alone, on no generator, version or other member."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def hash_shuffle(names: Iterable[str], *key: object) -> list[str]:
    """Shuffle names into a random order that follows from the key.

    The order of two names does not depend on which others there are. The first names of a larger set thus hold the
    first ones of a smaller set, and a sample that is made larger keeps what it had.

    Args:
        names: ids.
        key: the seed, and what the order is for; other keys give independent orders.

    Example:
        >>> hash_shuffle("abcd", 0, "panel"), hash_shuffle("abd", 0, "panel")
        (['c', 'a', 'd', 'b'], ['a', 'd', 'b'])
    """
    return sorted(names, key=lambda name: _digest(*key, name))


def hash_uniform(*key: object) -> float:
    """Draw a random number from 0 to below 1 that follows from the key."""
    return int.from_bytes(_digest(*key)[:6]) / 2**48


def _digest(*key: object) -> bytes:
    return hashlib.sha256("\0".join(map(str, key)).encode()).digest()
