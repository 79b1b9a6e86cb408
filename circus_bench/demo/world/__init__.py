"""Provide a synthetic world of drawn everyday objects in which the answer to every question is known.

Drawings, a table of relations between the objects drawn, synthetic LLM judges that err at set rates, and encoders of
set weakness: all that the pipeline needs to be run offline and compared with the ground truth. It shows whether the
pipeline does what it says, and what its settings change; it says nothing about photographs or about any real model.
"""
