"""Demonstrate and test the chain on data of known truth: synthetic worlds, simulated raters and judges."""
