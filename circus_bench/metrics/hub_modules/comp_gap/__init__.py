"""Provide the `comp_gap` metric for the `evaluate` library."""
