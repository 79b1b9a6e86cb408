"""Declare the MTEB task `CIRCUS-CIRCO`."""

from __future__ import annotations

from circus_bench.sources.circo import INSTRUCTION
from circus_bench.tasks.metadata import CITATION, it2i_metadata
from circus_bench.tasks.retrieval import ComposedRetrieval


class CircusCIRCO(ComposedRetrieval):
    """See `ComposedRetrieval`."""

    protocol = "circo/val"
    metadata = it2i_metadata(
        name="CIRCUS-CIRCO",
        description=(
            "Retrieve photographs by a reference photograph and a modification text, from the 123,403 unlabeled images "
            "of COCO 2017: all validation queries of CIRCO, those without a unimodal shortcut (sf), and those of them "
            "that people judged valid (v), each with both modalities, the text alone and the image alone."
        ),
        date=("2014-01-01", "2023-12-31"),  # the photographs of COCO, and the publication of CIRCO
        license="cc-by-nc-4.0",
        annotations_creators="human-annotated",
        prompt={"query": INSTRUCTION},
        bibtex_citation=CITATION
        + r"""
@inproceedings{baldrati2023circo,
  author = {Baldrati, Alberto and Agnolucci, Lorenzo and Bertini, Marco and {Del Bimbo}, Alberto},
  booktitle = {ICCV},
  title = {Zero-Shot Composed Image Retrieval with Textual Inversion},
  year = {2023},
}
""",
    )
