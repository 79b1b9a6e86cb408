"""Make the metadata of the tasks: mteb's, with descriptive statistics that lie in this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mteb.abstasks import task_metadata

REPOSITORY = "circus-bench/circus"
"""The dataset repository of the release."""
REVISION = "v1"
"""The tag of the release; tags are not moved. `CIRCUS_DATA=ORG/NAME@COMMIT` takes another repository or commit."""

CITATION = r"""
@misc{circus2026,
  archiveprefix = {arXiv},
  eprint = {2605.14787},
  title = {Do Composed Image Retrieval Benchmarks Require Multimodal Composition?},
  year = {2026},
}
"""
"""Of the CIRCUS paper."""


class TaskMetadata(task_metadata.TaskMetadata):
    """mteb's TaskMetadata; a contribution upstream imports that one instead."""

    @property
    def descriptive_stat_path(self) -> Path:
        """The file of the descriptive statistics."""
        return Path(__file__).parent / "descriptive_stats" / f"{self.name}.json"


def it2i_metadata(**fields: Any) -> TaskMetadata:
    """Make the metadata of a task: the fields given, and for the rest those that the benchmarks of the paper share."""
    common = {
        "reference": "https://arxiv.org/abs/2605.14787",
        "dataset": {"path": REPOSITORY, "revision": REVISION},
        "type": "Any2AnyRetrieval",
        "category": "it2i",
        "modalities": ["text", "image"],
        "eval_splits": ["test"],
        "eval_langs": {subset: ["eng-Latn"] for subset in ("full", "sf", "v")},  # those of `labels.Subset`
        "main_score": "hit_rate_at_10",
        "domains": ["Web"],
        "task_subtypes": ["Image Text Retrieval"],
        "dialect": [],
        "sample_creation": "created",
    }
    return TaskMetadata(**{**common, **fields})
