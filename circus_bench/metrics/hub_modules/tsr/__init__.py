"""Provide the `tsr` metric for the `evaluate` library."""
