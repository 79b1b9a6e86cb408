"""Verdicts as compact JSON: a head, one letter a query for the labels, and columns of numbers. Nothing but facts.

Query ids are the numbers from 0. The format is described in README.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from circus_bench.benchmark import Condition
from circus_bench.errors import CircusError, FormatError
from circus_bench.labels.labels import Keys, Origin, Verdict, Verdicts
from circus_bench.metrics.shortcut import Label, Shortcut

SCHEMA_VERSION = 1

_LETTERS: dict[str, tuple[Label, Shortcut | Literal[""]]] = {
    "t": (Label.SHORTCUT, Shortcut.TEXT_ONLY),
    "i": (Label.SHORTCUT, Shortcut.IMAGE_ONLY),
    "b": (Label.SHORTCUT, Shortcut.BOTH),
    "s": (Label.SHORTCUT, ""),  # which modality it is, is not known
    "c": (Label.COMPOSITION_REQUIRED, ""),
    "u": (Label.UNRESOLVED, ""),
}
_LETTER_OF = {meaning: letter for letter, meaning in _LETTERS.items()}
_STRATA = (Label.COMPOSITION_REQUIRED, Label.UNRESOLVED)
_ALL, _SHORTCUT_FREE, _VALIDATED = "all", "shortcut_free", "validated"
_HEAD = ("source", "paper", "licence", "citation", "k", "pool", "protocols", "n_queries", "keys")


def pack(verdicts: Verdicts) -> str:
    """Render verdicts as JSON text, one line a column; the same verdicts give the same text.

    Raises:
        CircusError: the format cannot hold them, such as labels of some queries alone.
    """
    rows = sorted(verdicts.verdicts.values(), key=lambda verdict: int(verdict.query))
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "benchmark": verdicts.benchmark,
        "origin": {name: getattr(verdicts.origin, name) for name in _HEAD},
        "audited": _SHORTCUT_FREE if any(verdict.valid is False for verdict in rows) else _VALIDATED,
        "validated": {
            stratum.value: [int(verdict.query) for verdict in rows if verdict.valid and verdict.stratum is stratum]
            for stratum in _STRATA
        },
    }
    if len(rows) == verdicts.origin.n_queries:
        content["labels"] = "".join(_LETTER_OF[verdict.label, verdict.detail] for verdict in rows if verdict.label)
        numbers = [_numbers(verdict) for verdict in rows]
        for name in numbers[0]:
            known = [number[name] for number in numbers if number[name] is not None]
            if known:
                queries = _ALL if len(known) == len(rows) else _SHORTCUT_FREE
                content[name] = {"queries": queries, "values": known}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if unpack(json.loads(text), where=Path("text")) != verdicts:
        raise CircusError(f"{verdicts.benchmark}: the packed format cannot hold these verdicts; see its README.md")
    return text


def unpack(content: Mapping[str, Any], *, where: Path) -> Verdicts:
    """Make verdicts of what `pack` rendered.

    Args:
        content: the JSON object.
        where: its file, for messages.

    Raises:
        FormatError: it is none, or one of another schema version.
    """
    if content.get("schema_version") != SCHEMA_VERSION:
        raise FormatError(f"{where}: schema version {content.get('schema_version')!r}, expected {SCHEMA_VERSION}")
    try:
        about = content["origin"]
        lists = {name: tuple(about[name]) for name in ("pool", "protocols")}
        origin = Origin(**{**about, **lists, "keys": Keys(about["keys"])})
        strata = {str(query): Label(name) for name, queries in content["validated"].items() for query in queries}
        if "labels" not in content:
            verdicts = [
                Verdict(query, stratum, audited=True, valid=True, stratum=stratum)
                for query, stratum in sorted(strata.items(), key=lambda item: int(item[0]))
            ]
        else:
            verdicts = _labelled(content, strata)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{where}: {error!r}; see README.md beside it") from error
    return Verdicts(content["benchmark"], origin, {verdict.query: verdict for verdict in verdicts})


def _labelled(content: Mapping[str, Any], strata: Mapping[str, Label]) -> list[Verdict]:
    meanings = [_LETTERS[letter] for letter in content["labels"]]
    free = [place for place, (label, _) in enumerate(meanings) if label is not Label.SHORTCUT]
    rows: list[dict[str, int]] = [{} for _ in meanings]
    for name in _numbers(Verdict("")):
        column = content.get(name, {"queries": _ALL, "values": []})
        places: Sequence[int] = free if column["queries"] == _SHORTCUT_FREE else range(len(meanings))
        for place, value in zip(places, column["values"], strict=bool(column["values"])):
            rows[place][name] = value
    complete = content["audited"] == _SHORTCUT_FREE
    verdicts = []
    for place, ((label, detail), row) in enumerate(zip(meanings, rows, strict=True)):
        query = str(place)
        audited = query in strata or (complete and label is not Label.SHORTCUT)
        verdicts.append(
            Verdict(
                query,
                label,
                detail,
                best_rank={condition: row.get(f"best_rank_{condition}") for condition in Condition},
                support={condition: row.get(f"support_{condition}") for condition in Condition},
                support_unimodal=row.get("support_unimodal"),
                audited=audited,
                valid=query in strata if audited else None,
                stratum=strata.get(query, label if audited else None),
            )
        )
    return verdicts


def _numbers(verdict: Verdict) -> dict[str, int | None]:
    return {
        **{f"best_rank_{condition}": verdict.best_rank[condition] for condition in Condition},
        **{f"support_{condition}": verdict.support[condition] for condition in Condition},
        "support_unimodal": verdict.support_unimodal,
    }
