"""Pack labels into compact JSON: a head, one letter per query for the labels, and columns of numbers.

Query ids are the numbers from 0. The format is described in README.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from circus_bench.benchmark import Condition
from circus_bench.errors import CircusError, FormatError
from circus_bench.labels.labels import Labels
from circus_bench.labels.provenance import Provenance
from circus_bench.labels.query_label import QueryLabel
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
_NUMBERS = (
    *(f"{kind}_{condition}" for kind in ("best_rank", "support") for condition in Condition),
    "support_unimodal",
)
_ALL, _SHORTCUT_FREE, _VALIDATED = "all", "shortcut_free", "validated"
_HEAD = ("source", "paper", "licence", "citation", "k", "pool", "protocols", "n_queries", "keys")


def pack(labels: Labels) -> str:
    """Render labels as JSON text, one line per column; the same labels give the same text.

    Raises:
        CircusError: the format cannot hold them, such as labels of some queries alone.
    """
    rows = sorted(labels.by_query.values(), key=lambda label: int(label.query))
    about = labels.provenance.to_dict()
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "benchmark": labels.benchmark,
        "origin": {name: about[name] for name in _HEAD},
        "audited": _SHORTCUT_FREE if any(label.valid is False for label in rows) else _VALIDATED,
        "validated": {
            stratum.value: [int(label.query) for label in rows if label.valid and label.stratum is stratum]
            for stratum in _STRATA
        },
    }
    if len(rows) == labels.provenance.n_queries:
        content["labels"] = "".join(_LETTER_OF[label.label, label.detail] for label in rows if label.label)
        numbers = [label.to_row() for label in rows]
        for name in _NUMBERS:
            known = [number[name] for number in numbers if number[name] is not None]
            if known:
                queries = _ALL if len(known) == len(rows) else _SHORTCUT_FREE
                content[name] = {"queries": queries, "values": known}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if unpack(json.loads(text), where=Path("text")) != labels:
        raise CircusError(f"{labels.benchmark}: the packed format cannot hold these labels; see its README.md")
    return text


def unpack(content: Mapping[str, Any], *, where: Path) -> Labels:
    """Make labels of what `pack` rendered.

    Args:
        content: the JSON object.
        where: its file, for messages.

    Raises:
        FormatError: it is none, or one of another schema version.
    """
    if content.get("schema_version") != SCHEMA_VERSION:
        raise FormatError(f"{where}: schema version {content.get('schema_version')!r}, expected {SCHEMA_VERSION}")
    try:
        provenance = Provenance.from_dict({"reference": None, "fingerprint": None, **content["origin"]})
        strata = {str(query): Label(name) for name, queries in content["validated"].items() for query in queries}
        if "labels" not in content:
            labels = [
                QueryLabel(query, stratum, audited=True, valid=True, stratum=stratum)
                for query, stratum in sorted(strata.items(), key=lambda item: int(item[0]))
            ]
        else:
            labels = _labeled(content, strata)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{where}: {error!r}; see README.md beside it") from error
    return Labels(content["benchmark"], provenance, {label.query: label for label in labels})


def _labeled(content: Mapping[str, Any], strata: Mapping[str, Label]) -> list[QueryLabel]:
    meanings = [_LETTERS[letter] for letter in content["labels"]]
    free = [place for place, (label, _) in enumerate(meanings) if label is not Label.SHORTCUT]
    complete = content["audited"] == _SHORTCUT_FREE
    rows: list[dict[str, Any]] = []
    for place, (label, detail) in enumerate(meanings):
        query = str(place)
        audited = query in strata or (complete and label is not Label.SHORTCUT)
        rows.append(
            {
                "label": label,
                "detail": detail,
                "human_audited": audited,
                "human_valid": query in strata if audited else None,
                "stratum": strata.get(query, label if audited else None),
            }
        )
    for name in _NUMBERS:
        column = content.get(name, {"queries": _ALL, "values": []})
        places: Sequence[int] = free if column["queries"] == _SHORTCUT_FREE else range(len(meanings))
        for place, value in zip(places, column["values"], strict=bool(column["values"])):
            rows[place][name] = value
    return [QueryLabel.from_row(str(place), row) for place, row in enumerate(rows)]
