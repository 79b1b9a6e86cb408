"""The shortcut audit: which queries a pool of models solves from one modality, and how far that can be trusted."""

from __future__ import annotations
