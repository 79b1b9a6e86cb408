"""Name the violations that a leaderboard submission is refused for, each with the ids concerned."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from circus_bench.errors import format_ids


class ViolationKind(StrEnum):
    """The kinds of violation."""

    UNREADABLE = "unreadable"
    """A file is missing, or does not follow its schema or its checksum."""
    NO_ENTRY = "no_entry"
    """There is no entry for the dataset."""
    UNKNOWN_TASK = "unknown_task"
    """The dataset has no such task."""
    DUPLICATE_ENTRY = "duplicate_entry"
    """A task has two entries."""
    MISSING_ENTRY = "missing_entry"
    """A benchmark has entries for some of its tasks alone."""
    WRONG_REVISION = "wrong_revision"
    """An entry names another revision of the dataset."""
    WRONG_MODEL = "wrong_model"
    """The Run is of another model than the repository."""
    WRONG_PROTOCOL = "wrong_protocol"
    """The Run was made under another protocol."""
    WRONG_FINGERPRINT = "wrong_fingerprint"
    """The Run was made on another version of the benchmark."""
    ALARM = "alarm"
    """The Run's own checks found the encoder not to do what its conditions say."""
    MISSING_QUERIES = "missing_queries"
    """Queries of the benchmark are missing."""
    UNKNOWN_QUERIES = "unknown_queries"
    """Queries are not the benchmark's."""
    DUPLICATE_ROWS = "duplicate_rows"
    """A query, or a target of it, occurs twice."""
    WRONG_TARGETS = "wrong_targets"
    """A query's targets are not the benchmark's, in its order."""
    RANK_OUTSIDE_GALLERY = "rank_outside_gallery"
    """A rank is below 1, beyond the gallery, or of a target that is not in it."""
    GOLD_FIRST = "gold_first"
    """A rank puts the target before images of the same score."""
    CONSTANT_SCORES = "constant_scores"
    """Half of the queries or more give all images in their list one score."""
    BAD_LISTING = "bad_listing"
    """A top-k list is no ranking of the gallery, or too short to show a hit."""
    RANK_NOT_AS_LISTED = "rank_not_as_listed"
    """A rank, its ties or the place of the reference contradict the top-k list."""
    WRONG_VALUE = "wrong_value"
    """A value does not follow from the ranks."""
    WRONG_FACTS = "wrong_facts"
    """Notes, date or source of an entry do not follow from the Run."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong with a submission.

    Attributes:
        kind: what kind it is.
        where: the file concerned, within the submission, or the condition in it.
        message: what was found, and what was expected.
        ids: the tasks, queries or query and target pairs concerned.
    """

    kind: ViolationKind
    where: str
    message: str
    ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = f" ({format_ids(self.ids)})" if self.ids else ""
        return f"{self.where}: {self.kind}: {self.message}{named}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"reason": self.kind.value, "where": self.where, "message": self.message, "ids": list(self.ids)}
