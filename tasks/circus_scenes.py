"""Declare the MTEB task `CIRCUS-Scenes`, the embedded synthetic benchmark."""

from __future__ import annotations

from circus_bench.tasks.metadata import it2i_metadata
from circus_bench.tasks.retrieval import ComposedRetrieval


class CircusScenes(ComposedRetrieval):
    """See `ComposedRetrieval`. The benchmark is drawn when it is loaded; no data are needed."""

    protocol = "scenes/test"
    by_group = True
    metadata = it2i_metadata(
        name="CIRCUS-Scenes",
        description=(
            "Retrieve a drawn scene by a reference scene and a modification text, from 3,000 scenes. A program draws "
            "the scenes and plants the queries, so that the kind of each (a text shortcut, an image shortcut, one that "
            "needs composition, ...) is known; no claim about photographs follows from a score."
        ),
        reference=None,
        # Generated: the place is the generator's, the revision its version.
        dataset={"path": "circus_bench.sources.scenes", "revision": "1"},
        eval_langs={"full": ["eng-Latn"]},
        date=("2026-11-01", "2026-11-30"),
        domains=["Constructed"],
        license="apache-2.0",
        annotations_creators="algorithmic",
        sample_creation="rendered",
        bibtex_citation="",
    )
