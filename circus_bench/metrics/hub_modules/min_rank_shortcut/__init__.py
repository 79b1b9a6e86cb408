"""Provide the `min_rank_shortcut` metric for the `evaluate` library."""
