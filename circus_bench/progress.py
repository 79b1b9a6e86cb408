"""Show progress bars in terminals and notebooks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(description: str, total: int, *, shown: bool | None = None) -> Iterator[Callable[..., object]]:
    """Show a progress bar on stderr, or as a widget in a notebook.

    Args:
        description: stands before the bar.
        total: number of steps.
        shown: whether to show it; by default only in a terminal or a notebook.

    Yields:
        A function to be called with the number of steps done, 1 by default.
    """
    from tqdm.auto import tqdm

    if shown is None:
        shown = sys.stderr.isatty() or _in_notebook()
    with tqdm(desc=description, total=total, disable=not shown) as bar:
        yield bar.update


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and "IPKernelApp" in shell.config
