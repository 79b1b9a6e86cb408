"""Check arguments of metrics."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from circus_bench.errors import CircusError, FormatError


def positive_int(value: Any, name: str) -> int:
    """Return `value` as an int of at least 1.

    Raises:
        CircusError: it is not a whole number, or below 1.
    """
    try:
        # True is an int to Python, and never a cut-off that anybody meant.
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise CircusError(f"{name} must be a whole number of at least 1, got {value!r}")
    return number


def numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return a float64 copy of `values`; strings, booleans and None are not taken for numbers.

    Raises:
        FormatError: the values are not numbers, or their nesting is not regular.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise FormatError(f"{name}: rows of unequal length ({error})") from error
    if array.size and array.dtype.kind not in "iuf":
        raise FormatError(f"{name}: expected numbers, found {array.dtype} (None is not a number)")
    return array.astype(np.float64)
