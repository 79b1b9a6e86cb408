"""What the CIRCUS project released and published: verdicts in a compact form, and scores; see README.md for sources."""

from __future__ import annotations

from pathlib import Path

SCORES = Path(__file__).parent / "scores.json"
"""Published scores; `circus_bench.audit.published_scores` reads them."""
