"""Declare the MTEB task `CIRCUS-CIRR`."""

from __future__ import annotations

from circus_bench.sources.cirr import INSTRUCTION
from circus_bench.tasks.metadata import CITATION, it2i_metadata
from circus_bench.tasks.retrieval import ComposedRetrieval


class CircusCIRR(ComposedRetrieval):
    """See `ComposedRetrieval`."""

    protocol = "cirr/circus"
    metadata = it2i_metadata(
        name="CIRCUS-CIRR",
        description=(
            "Retrieve a photograph by a reference photograph and a modification text, from all 21,551 images of CIRR: "
            "all validation queries, those without a unimodal shortcut (sf), and those of them that people judged "
            "valid (v), each with both modalities, the text alone and the image alone."
        ),
        date=("2018-01-01", "2021-12-31"),  # the pictures of NLVR2, and the publication of CIRR
        license="mit",
        annotations_creators="human-annotated",
        prompt={"query": INSTRUCTION},
        bibtex_citation=CITATION
        + r"""
@inproceedings{liu2021cirr,
  author = {Liu, Zheyuan and Rodriguez-Opazo, Cristian and Teney, Damien and Gould, Stephen},
  booktitle = {ICCV},
  title = {Image Retrieval on Real-life Images with Pre-trained Vision-and-Language Models},
  year = {2021},
}
""",
    )
