"""CIRCUS on CIRCO."""

from __future__ import annotations

from circus_bench.tasks.metadata import CITATION, REPOSITORY, REVISION, SUBSETS, TaskMetadata
from circus_bench.tasks.retrieval import ComposedRetrieval


class CircusCIRCO(ComposedRetrieval):
    """See `ComposedRetrieval`."""

    protocol = "circo/val"
    metadata = TaskMetadata(
        name="CIRCUS-CIRCO",
        description=(
            "Retrieve photographs by a reference photograph and a modification text, from the 123,403 unlabeled images "
            "of COCO 2017: all validation queries of CIRCO, those without a unimodal shortcut (sf), and those of them "
            "that people judged valid (v), each with both modalities, the text alone and the image alone."
        ),
        reference="https://arxiv.org/abs/2605.14787",
        dataset={"path": REPOSITORY, "revision": REVISION},
        type="Any2AnyRetrieval",
        category="it2i",
        modalities=["text", "image"],
        eval_splits=["test"],
        eval_langs=SUBSETS,
        main_score="hit_rate_at_10",
        date=("2014-01-01", "2023-12-31"),  # the photographs of COCO, and the publication of CIRCO
        domains=["Web"],
        task_subtypes=["Image Text Retrieval"],
        license="cc-by-nc-4.0",
        annotations_creators="human-annotated",
        dialect=[],
        sample_creation="created",
        prompt={  # type: ignore[arg-type]  # mteb makes the type of its keys at run time
            "query": "Retrieve a day-to-day image that aligns with the modification instructions of the provided image."
        },
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
