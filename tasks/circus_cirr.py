"""CIRCUS on CIRR."""

from __future__ import annotations

from circus_bench.tasks.metadata import CITATION, REPOSITORY, REVISION, SUBSETS, TaskMetadata
from circus_bench.tasks.retrieval import ComposedRetrieval


class CircusCIRR(ComposedRetrieval):
    """See `ComposedRetrieval`."""

    protocol = "cirr/circus"
    metadata = TaskMetadata(
        name="CIRCUS-CIRR",
        description=(
            "Retrieve a photograph by a reference photograph and a modification text, from all 21,551 images of CIRR: "
            "all validation queries, those without a unimodal shortcut (sf), and those of them that people judged "
            "valid (v), each with both modalities, the text alone and the image alone."
        ),
        reference="https://arxiv.org/abs/2605.14787",
        dataset={"path": REPOSITORY, "revision": REVISION},
        type="Any2AnyRetrieval",
        category="it2i",
        modalities=["text", "image"],
        eval_splits=["test"],
        eval_langs=SUBSETS,
        main_score="hit_rate_at_10",
        date=("2018-01-01", "2021-12-31"),  # the pictures of NLVR2, and the publication of CIRR
        domains=["Web"],
        task_subtypes=["Image Text Retrieval"],
        license="mit",
        annotations_creators="human-annotated",
        dialect=[],
        sample_creation="created",
        prompt={  # type: ignore[arg-type]  # mteb makes the type of its keys at run time
            "query": "Retrieve a day-to-day image that aligns with the modification instructions of the provided image."
        },
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
