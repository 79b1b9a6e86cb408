"""CIRCUS on LaSCo."""

from __future__ import annotations

from circus_bench.tasks.metadata import CITATION, REPOSITORY, REVISION, SUBSETS, TaskMetadata
from circus_bench.tasks.retrieval import ComposedRetrieval


class CircusLaSCo(ComposedRetrieval):
    """See `ComposedRetrieval`."""

    protocol = "lasco/val"
    metadata = TaskMetadata(
        name="CIRCUS-LaSCo",
        description=(
            "Retrieve a photograph by a reference photograph and a modification text, from the 39,826 images of the "
            "validation corpus of LaSCo: all validation queries, those without a unimodal shortcut (sf), and those of "
            "them that people judged valid (v), each with both modalities, the text alone and the image alone."
        ),
        reference="https://arxiv.org/abs/2605.14787",
        dataset={"path": REPOSITORY, "revision": REVISION},
        type="Any2AnyRetrieval",
        category="it2i",
        modalities=["text", "image"],
        eval_splits=["test"],
        eval_langs=SUBSETS,
        main_score="hit_rate_at_10",
        date=("2014-01-01", "2024-12-31"),  # the photographs of COCO val2014, and the publication of LaSCo
        domains=["Web"],
        task_subtypes=["Image Text Retrieval"],
        license="mit",
        annotations_creators="automatic",
        dialect=[],
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
