"""Declare the MTEB task `CIRCUS-FashionIQ`."""

from __future__ import annotations

from circus_bench.sources.fashioniq import INSTRUCTION
from circus_bench.tasks.metadata import CITATION, it2i_metadata
from circus_bench.tasks.retrieval import ComposedRetrieval


class CircusFashionIQ(ComposedRetrieval):
    """See `ComposedRetrieval`."""

    protocol = "fashioniq/circus"
    metadata = it2i_metadata(
        name="CIRCUS-FashionIQ",
        description=(
            "Retrieve a product picture by a reference product and two captions that say how it differs, from the "
            "74,381 pictures of all categories of FashionIQ: all validation queries, those without a unimodal shortcut "
            "(sf), and those of them that people judged valid (v), each with both modalities, the text alone and the "
            "image alone."
        ),
        date=("2021-01-01", "2021-12-31"),  # as mteb dates FashionIQIT2IRetrieval
        domains=["E-commerce"],
        license="not specified",  # a CDLA license whose variant is not stated
        annotations_creators="human-annotated",
        prompt={"query": INSTRUCTION},
        bibtex_citation=CITATION
        + r"""
@inproceedings{wu2021fashioniq,
  author = {Wu, Hui and Gao, Yupeng and Guo, Xiaoxiao and Al-Halah, Ziad and Rennie, Steven and Grauman, Kristen and Feris, Rogerio},
  booktitle = {CVPR},
  title = {Fashion IQ: A New Dataset Towards Retrieving Images by Natural Language Feedback},
  year = {2021},
}
""",  # noqa: E501 - one field per line, as mteb's citations are written
    )
