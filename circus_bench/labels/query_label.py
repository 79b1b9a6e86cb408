"""Hold the label of one query: the pool's label, the evidence for it, and the human verdict with its votes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from circus_bench.benchmark import Condition
from circus_bench.errors import FormatError, MismatchError
from circus_bench.metrics.shortcut import Label, Shortcut


class RejectionReason(StrEnum):
    """Reason of an annotator to reject a query; several may hold."""

    INVALID_TEXT = "invalid_text"
    INVALID_REFERENCE_IMAGE = "invalid_reference_image"
    INVALID_TARGET_IMAGE = "invalid_target_image"
    QUERY_TOO_BROAD = "query_too_broad"


def _none_known() -> dict[Condition, int | None]:
    return dict.fromkeys(Condition)


@dataclass(frozen=True)
class QueryLabel:
    """The label of one query, with its evidence and the human verdict on it.

    Attributes:
        query: its id.
        label: the pool's label; None when unknown.
        detail: which modality is the shortcut; "" for a query that is none, and where it is unknown.
        best_rank: best rank over the pool, from 1; None when unknown, or when no model retrieves a target.
        support: number of models with a hit; None when unknown.
        support_unimodal: number of models with a hit from the text alone or the image alone; None when unknown.
        audited: whether a human looked at the query, as far as known.
        valid: the human's decision; None when unknown.
        stratum: the label under which the query was drawn for the human; None when it was not, or when unknown.
        reasons: why it was rejected; empty for a valid query, and where the reasons are unknown.
        weight: how many queries it stands for, the inverse of the probability with which it was drawn for the human;
            None when unknown.
        models: names of the models with a hit, per condition; empty when unknown.
        votes: number of raters per label of the rubric; None when unknown.

    Raises:
        FormatError: the parts contradict each other.
    """

    query: str
    label: Label | None = None
    detail: Shortcut | Literal[""] = ""
    best_rank: Mapping[Condition, int | None] = field(default_factory=_none_known)
    support: Mapping[Condition, int | None] = field(default_factory=_none_known)
    support_unimodal: int | None = None
    audited: bool = False
    valid: bool | None = None
    stratum: Label | None = None
    reasons: tuple[RejectionReason, ...] = ()
    weight: float | None = None
    models: Mapping[Condition, tuple[str, ...]] = field(default_factory=dict)
    votes: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        supports = (*self.support.values(), self.support_unimodal)
        for wrong, what in (
            (self.detail and self.label is not Label.SHORTCUT, f"{self.label} has the shortcut {self.detail!r}"),
            (any(r is not None and r < 1 for r in self.best_rank.values()), f"ranks below 1: {dict(self.best_rank)}"),
            (any(s is not None and s < 0 for s in supports), f"negative support: {supports}"),
            (self.valid is not None and not self.audited, "a human's decision, but no human audit"),
            (self.valid and self.reasons, f"valid, but rejected for {[str(reason) for reason in self.reasons]}"),
            (self.weight is not None and not self.weight >= 1, f"stands for {self.weight} queries"),
            (self.stratum is Label.SHORTCUT, "shortcuts are not drawn for validation"),
            (
                self.stratum and self.label and self.stratum is not self.label,
                f"{self.label}, but drawn as {self.stratum}",
            ),
        ):
            if wrong:
                raise FormatError(f"query {self.query!r}: {what}")

    def to_row(self) -> dict[str, Any]:
        """Return the columns that our tables have for a label, but for the query id; None wherever nothing is known."""
        # The reasons of a rejection may be unknown; a valid query has none.
        judged = bool(self.valid or self.reasons)
        return {
            "label": self.label and self.label.value,
            "detail": self.detail or None,
            **{f"best_rank_{condition}": self.best_rank.get(condition) for condition in Condition},
            **{f"support_{condition}": self.support.get(condition) for condition in Condition},
            "support_unimodal": self.support_unimodal,
            "human_audited": self.audited,
            "human_valid": self.valid,
            "stratum": self.stratum and self.stratum.value,
            **{reason.value: reason in self.reasons if judged else None for reason in RejectionReason},
        }

    @classmethod
    def from_row(cls, query: str, row: Mapping[str, Any]) -> QueryLabel:
        """Make a label from a row of one of our tables; what a table has no column for is unknown.

        Raises:
            FormatError: the row contradicts itself.
        """
        models = {condition: row.get(f"models_{condition}") for condition in Condition}
        votes = row.get("votes")
        return cls(
            query,
            Label(row["label"]) if row.get("label") else None,
            Shortcut(row["detail"]) if row.get("detail") else "",
            best_rank={condition: row.get(f"best_rank_{condition}") for condition in Condition},
            support={condition: row.get(f"support_{condition}") for condition in Condition},
            support_unimodal=row.get("support_unimodal"),
            audited=bool(row.get("human_audited")),
            valid=row.get("human_valid"),
            stratum=Label(row["stratum"]) if row.get("stratum") else None,
            reasons=tuple(reason for reason in RejectionReason if row.get(reason.value)),
            weight=row.get("weight"),
            models={condition: tuple(names) for condition, names in models.items() if names is not None},
            votes=None if votes is None else {vote["label"]: vote["raters"] for vote in votes},
        )

    def merge(self, other: QueryLabel) -> QueryLabel:
        """Add what another label of the query knows.

        Raises:
            MismatchError: both know a thing and disagree.
        """
        values: dict[str, Any] = {"query": self.query, "audited": self.audited or other.audited}
        for name in ("label", "detail", "support_unimodal", "valid", "stratum", "reasons", "weight", "models", "votes"):
            values[name] = self._either(name, getattr(self, name), getattr(other, name))
        for name in ("best_rank", "support"):
            a, b = getattr(self, name), getattr(other, name)
            values[name] = {c: self._either(f"{name} {c}", a.get(c), b.get(c)) for c in Condition}
        return QueryLabel(**values)

    def _either(self, what: str, a: Any, b: Any) -> Any:
        unknown: tuple[Any, ...] = (None, "", (), {})
        if a not in unknown and b not in unknown and a != b:
            raise MismatchError(f"query {self.query!r}: {what} is {a!r} in one and {b!r} in the other")
        return b if a in unknown else a
