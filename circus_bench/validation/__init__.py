"""Human validation: which shortcut-free queries are sound, judged blindly by several people, and how well they agree.

Data flow one way: a study (what is to be judged, by whom) -> judgements (an append-only log) -> agreement and
decisions -> the subset V.
"""
