"""Human validation: several people judge blindly which shortcut-free queries are sound.

Data flow one way: a study (what is to be judged, by whom) -> annotations (an append-only log) -> agreement and
decisions -> the subset V.
"""
