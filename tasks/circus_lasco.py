"""Declare the MTEB task `CIRCUS-LaSCo`."""

from __future__ import annotations

from circus_bench.tasks.metadata import CITATION, it2i_metadata
from circus_bench.tasks.retrieval import ComposedRetrieval


class CircusLaSCo(ComposedRetrieval):
    """See `ComposedRetrieval`."""

    protocol = "lasco/val"
    metadata = it2i_metadata(
        name="CIRCUS-LaSCo",
        description=(
            "Retrieve a photograph by a reference photograph and a modification text, from the 39,826 images of the "
            "validation corpus of LaSCo: all validation queries, those without a unimodal shortcut (sf), and those of "
            "them that people judged valid (v), each with both modalities, the text alone and the image alone."
        ),
        date=("2014-01-01", "2024-12-31"),  # the photographs of COCO val2014, and the publication of LaSCo
        license="mit",
        annotations_creators="automatic",
        sample_creation="multiple",  # derived from questions that people wrote, by a language model
        bibtex_citation=CITATION
        + r"""
@inproceedings{levy2024lasco,
  author = {Levy, Matan and Ben-Ari, Rami and Darshan, Nir and Lischinski, Dani},
  booktitle = {AAAI},
  title = {Data Roaming and Quality Assessment for Composed Image Retrieval},
  year = {2024},
}
""",
    )
