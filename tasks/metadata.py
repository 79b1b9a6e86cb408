"""Metadata of the tasks: mteb's, with descriptive statistics that lie in this package."""

from __future__ import annotations

from pathlib import Path

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

SUBSETS = {subset: ["eng-Latn"] for subset in ("full", "sf", "v")}
"""`eval_langs` of a task whose queries were audited; the subsets are those of `circus_bench.labels.label_table.Subset`."""


class TaskMetadata(task_metadata.TaskMetadata):
    """mteb's TaskMetadata; a contribution upstream imports that one instead."""

    @property
    def descriptive_stat_path(self) -> Path:
        """The file of the descriptive statistics."""
        return Path(__file__).parent / "descriptive_stats" / f"{self.name}.json"
