"""The `tsr` metric for the `evaluate` library."""
