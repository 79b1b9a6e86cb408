"""Provide the `recall_at_k` metric for the `evaluate` library."""
