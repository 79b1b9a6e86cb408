"""Verdicts as compact JSON: a head, one letter a query for the labels, and columns of numbers. Nothing but facts.

Query ids are the numbers from 0. The format is described in README.md.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from circus_bench.benchmark import Condition
from circus_bench.errors import CircusError, FormatError
from circus_bench.metrics.shortcut import Label, Shortcut
from circus_bench.release.verdicts import Keys, Origin, Verdict, Verdicts

SCHEMA_VERSION = 1

_LETTERS: dict[str, tuple[Label, Shortcut | Literal[""]]] = {
    "t": (Label.SHORTCUT, Shortcut.TEXT_ONLY),
    "i": (Label.SHORTCUT, Shortcut.IMAGE_ONLY),
    "b": (Label.SHORTCUT, Shortcut.BOTH),
    "s": (Label.SHORTCUT, ""),  # which modality it was is not known
    "c": (Label.COMPOSITION_REQUIRED, ""),
    "u": (Label.UNRESOLVED, ""),
}
_LETTER_OF = {meaning: letter for letter, meaning in _LETTERS.items()}
_STRATA = (Label.COMPOSITION_REQUIRED, Label.UNRESOLVED)
_ALL, _SHORTCUT_FREE, _VALIDATED = "all", "shortcut_free", "validated"
_UNIMODAL = "unimodal"


def pack(verdicts: Verdicts) -> str:
    """Render verdicts as JSON text, one line a column; the same verdicts give the same text.

    Raises:
        CircusError: the format cannot hold them: query ids that are not the numbers from 0, labels of some queries
            alone, or rejected queries beside unaudited shortcut-free ones.
    """
    rows = sorted(verdicts.verdicts.values(), key=lambda verdict: int(verdict.query))
    labelled = [verdict for verdict in rows if verdict.label]
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "benchmark": verdicts.benchmark,
        "origin": dataclasses.asdict(verdicts.origin),
    }
    if len(labelled) == verdicts.origin.n_queries:
        if [verdict.query for verdict in rows] != [str(number) for number in range(len(rows))]:
            raise CircusError(f"{verdicts.benchmark}: the query ids are not the numbers from 0")
        content["labels"] = "".join(_LETTER_OF[v.label, v.detail] for v in rows if v.label)
    supports: dict[str, Callable[[Verdict], int | None]] = {c.value: lambda v, c=c: v.support[c] for c in Condition}  # type: ignore[misc]
    supports[_UNIMODAL] = lambda v: v.support_unimodal
    ranks: dict[str, Callable[[Verdict], int | None]] = {c.value: lambda v, c=c: v.best_rank[c] for c in Condition}  # type: ignore[misc]
    for name, columns in (("best_rank", ranks), ("support", supports)):
        content[name] = {column: _column(rows, of) for column, of in columns.items() if any(map(_known(of), rows))}
    audited = [verdict for verdict in rows if verdict.audited]
    valid = [verdict for verdict in rows if verdict.valid]
    if audited != valid and audited != _members(rows, _SHORTCUT_FREE):
        raise CircusError(f"{verdicts.benchmark}: the human audit covers neither all shortcut-free queries nor a list")
    content["audited"] = _VALIDATED if audited == valid else _SHORTCUT_FREE
    content["validated"] = {
        stratum.value: [int(verdict.query) for verdict in valid if verdict.stratum is stratum] for stratum in _STRATA
    }
    lines = (f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
