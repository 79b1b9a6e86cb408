"""Fixtures for the tests of encoders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Compute on one thread: the tiny models gain nothing from more, and wait for them where other work is going on."""
    from circus_bench.models.mini.threads import one_thread

    with one_thread():
        yield


@pytest.fixture(scope="module")
def encoder(load_tiny: Callable[[], Any]) -> Any:
    """The encoder that the module's own fixture `load_tiny` loads."""
    return load_tiny()
