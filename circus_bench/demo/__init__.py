"""Demonstrate and test the chain on data of known truth: embedded worlds, simulated raters and judges."""
