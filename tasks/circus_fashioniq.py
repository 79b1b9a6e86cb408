"""CIRCUS on FashionIQ."""

from __future__ import annotations

from circus_bench.tasks.metadata import CITATION, REPOSITORY, REVISION, SUBSETS, TaskMetadata
from circus_bench.tasks.retrieval import ComposedRetrieval


class CircusFashionIQ(ComposedRetrieval):
    """See `ComposedRetrieval`."""

    protocol = "fashioniq/circus"
    metadata = TaskMetadata(
        name="CIRCUS-FashionIQ",
        description=(
            "Retrieve a product picture by a reference product and two captions that say how it differs, from the "
            "74,381 pictures of all categories of FashionIQ: all validation queries, those without a unimodal shortcut "
            "(sf), and those of them that people judged valid (v), each with both modalities, the text alone and the "
            "image alone."
        ),
        reference="https://arxiv.org/abs/2605.14787",
        dataset={"path": REPOSITORY, "revision": REVISION},
        type="Any2AnyRetrieval",
        category="it2i",
        modalities=["text", "image"],
        eval_splits=["test"],
        eval_langs=SUBSETS,
        main_score="hit_rate_at_10",
        date=("2021-01-01", "2021-12-31"),  # as mteb dates FashionIQIT2IRetrieval
        domains=["E-commerce"],
        task_subtypes=["Image Text Retrieval"],
        license="not specified",  # a CDLA licence whose variant is not stated
        annotations_creators="human-annotated",
        dialect=[],
        sample_creation="created",
        prompt={  # type: ignore[arg-type]  # mteb makes the type of its keys at run time
            "query": "Find a fashion image that aligns with the reference image and style note."
        },
        bibtex_citation=CITATION
        + r"""
@inproceedings{wu2021fashioniq,
  author = {Wu, Hui and Gao, Yupeng and Guo, Xiaoxiao and Al-Halah, Ziad and Rennie, Steven and Grauman, Kristen and Feris, Rogerio},
  booktitle = {CVPR},
  title = {Fashion IQ: A New Dataset Towards Retrieving Images by Natural Language Feedback},
  year = {2021},
}
""",  # noqa: E501 - one field a line, as mteb's citations are written
    )
