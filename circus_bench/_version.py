"""Define the version of the package, for every module that writes it down."""

from __future__ import annotations

__version__ = "0.1.0"
