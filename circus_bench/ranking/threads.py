"""Run numpy in threads of our own, in place of those of the BLAS library under it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

_MIN_CHUNK = 1024  # per thread

PROCESS_LOCK = threading.RLock()
"""Held while settings of the whole process are changed: the threads of the libraries, and their precision."""

T = TypeVar("T")


def chunk_slices(length: int, threads: int) -> list[slice]:
    """Cut a length into chunks, one per thread, none of them small."""
    cuts = np.linspace(0, length, max(1, min(threads, length // _MIN_CHUNK)) + 1, dtype=int).tolist()
    return [slice(start, stop) for start, stop in pairwise(cuts)]


@cache
def numerical_libraries() -> ThreadpoolController:
    """Find the BLAS libraries that multiply for numpy; they were loaded with it."""
    return ThreadpoolController().select(user_api="blas")


def allowed_threads() -> int:
    """Count the threads that the user, or the machine, allows to them."""
    with PROCESS_LOCK:
        return max((library["num_threads"] for library in numerical_libraries().info()), default=1)


def parallel_map(function: Callable[[slice], T], chunks: list[slice]) -> list[T]:
    """Apply a function to each chunk, one thread per chunk."""
    if len(chunks) == 1:
        return [function(chunks[0])]
    with ThreadPoolExecutor(len(chunks)) as pool:
        return list(pool.map(function, chunks))
