"""Audit a benchmark for shortcuts: queries that a pool of models solves from one modality, and how sure that is."""

from __future__ import annotations
