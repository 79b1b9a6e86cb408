"""The embedded benchmark: rendered scenes whose queries were planted."""

from __future__ import annotations

from circus_bench.tasks.metadata import TaskMetadata
from circus_bench.tasks.retrieval import ComposedRetrieval


class CircusScenes(ComposedRetrieval):
    """See `ComposedRetrieval`. The benchmark is drawn when it is loaded; no data are needed."""

    protocol = "scenes/test"
    by_group = True
    metadata = TaskMetadata(
        name="CIRCUS-Scenes",
        description=(
            "Retrieve a drawn scene by a reference scene and a modification text, from 3,000 scenes. A program draws "
            "the scenes and plants the queries, so that the kind of each (a text shortcut, an image shortcut, one that "
            "needs composition, ...) is known; no claim about photographs follows from a score."
        ),
        reference=None,
        # Generated: the place is the generator's, the revision its version.
        dataset={"path": "circus_bench.sources.scenes", "revision": "1"},
        type="Any2AnyRetrieval",
        category="it2i",
        modalities=["text", "image"],
        eval_splits=["test"],
        eval_langs={"full": ["eng-Latn"]},
        main_score="hit_rate_at_10",
        date=("2026-11-01", "2026-11-30"),
        domains=["Constructed"],
        task_subtypes=["Image Text Retrieval"],
        license="apache-2.0",
        annotations_creators="algorithmic",
        dialect=[],
        sample_creation="rendered",
        bibtex_citation="",
    )
