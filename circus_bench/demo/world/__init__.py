"""The embedded world: a collection of drawn everyday objects in which the answer to every question is known.

Drawings, a table of relations between the things drawn, oracles that answer like models and err at set rates, and
encoders of set weakness: all that the pipeline needs to be run offline and to be held against the truth. It shows
whether the pipeline does what it says, and what its settings change; it says nothing about photographs or about any
real model.
"""
