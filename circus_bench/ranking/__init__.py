"""Rank every target exactly in the whole gallery, and retrieve the top k."""
