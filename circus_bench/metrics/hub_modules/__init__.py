"""Provide modules for the `evaluate` library, one folder each, ready to be pushed to a Space."""

CIRCUS_CITATION = """\
@misc{attimonelli2026composed,
  title         = {Do Composed Image Retrieval Benchmarks Require Multimodal Composition?},
  author        = {Attimonelli, Matteo and De Bellis, Alessandro and Gema, Aryo Pradipta and Saxena, Rohit and
                   Sekoyan, Monica and Kwan, Wai-Chung and Pomo, Claudio and Suglia, Alessandro and Jannach, Dietmar and
                   Di Noia, Tommaso and Minervini, Pasquale},
  year          = {2026},
  eprint        = {2605.14787},
  archivePrefix = {arXiv}
}
"""
