"""Define type aliases that several packages share."""

from __future__ import annotations

import os

StrPath = str | os.PathLike[str]
"""A path as users write it; functions turn it into a `pathlib.Path` on entry."""
