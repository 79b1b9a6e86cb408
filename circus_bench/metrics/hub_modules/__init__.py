"""Modules for the `evaluate` library, one folder each, ready to be pushed to a Space."""
