"""Threads for numpy, in the place of those of the numerical libraries under it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

_MIN_SPAN = 1024  # of a thread

WHOLE_PROCESS = threading.RLock()
"""Held while settings of the whole process are changed: the threads of the libraries, and their precision."""

T = TypeVar("T")


def spans_of(length: int, threads: int) -> list[slice]:
    """Cut a length for threads, none of which gets only little."""
    cuts = np.linspace(0, length, max(1, min(threads, length // _MIN_SPAN)) + 1, dtype=int).tolist()
    return [slice(start, stop) for start, stop in pairwise(cuts)]


@cache
def numerical_libraries() -> ThreadpoolController:
    """The libraries that multiply for numpy; they were loaded with it."""
    return ThreadpoolController().select(user_api="blas")


def allowed_threads() -> int:
    """How many threads the user, or the machine, allows to them."""
    with WHOLE_PROCESS:
        return max((library["num_threads"] for library in numerical_libraries().info()), default=1)


def in_threads(function: Callable[[slice], T], spans: list[slice]) -> list[T]:
    """What a function gives for each span, a thread a span."""
    if len(spans) == 1:
        return [function(spans[0])]
    with ThreadPoolExecutor(len(spans)) as pool:
        return list(pool.map(function, spans))
