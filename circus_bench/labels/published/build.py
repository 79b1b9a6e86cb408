"""Make the files of this folder from the released files, byte for byte the same from the same files.

`python -m circus_bench.labels.published.build CIRCUS [--out FOLDER]`, where the folder CIRCUS holds
`cirr_shortcut_labels.csv`, `circo_audit_full.csv` and `query_indices/`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from circus_bench._typing import StrPath
from circus_bench.io import write_text
from circus_bench.labels.formats import load_labels
from circus_bench.labels.labels import Labels
from circus_bench.labels.pool import Pool
from circus_bench.labels.published import PUBLISHED, PUBLISHED_K
from circus_bench.labels.published.packing import pack
from circus_bench.labels.query_label import QueryLabel
from circus_bench.metrics.shortcut import Label, Shortcut

_LABELS = {"cirr": "cirr_shortcut_labels.csv", "circo": "circo_audit_full.csv"}


def merge_released(folder: StrPath, name: str) -> Labels:
    """Merge the released files on one benchmark."""
    folder = Path(folder)
    lists = [
        folder / "query_indices" / f"{name}_validated_{part}_query_indices.json" for part in ("solved", "unsolved")
    ]
    labels = reduce(Labels.merge, map(load_labels, lists))
    if name in _LABELS:
        labels = load_labels(folder / _LABELS[name], benchmark=name).merge(labels)
        details = _details(folder / _LABELS[name], labels)
        # The audit of these two benchmarks covered every shortcut-free query (paper, human audit): who is not among the
        # valid ones was rejected.
        full = {
            query: _completed(dataclasses.replace(label, detail=details.get(query, label.detail)))
            for query, label in labels.by_query.items()
        }
        labels = dataclasses.replace(labels, by_query=full)
    ordered = dict(sorted(labels.by_query.items(), key=lambda item: int(item[0])))
    return Labels(name, PUBLISHED[name], ordered)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("circus", type=Path, help="Folder of the released files.")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent, help="Where to write; this folder by default."
    )
    chosen = parser.parse_args(arguments)
    for name in PUBLISHED:
        write_text(chosen.out / f"{name}.json", pack(merge_released(chosen.circus, name)))


def _completed(label: QueryLabel) -> QueryLabel:
    if label.label is Label.SHORTCUT or label.valid:
        return label
    return dataclasses.replace(label, audited=True, valid=False, stratum=label.label)


def _details(path: Path, labels: Labels) -> dict[str, Shortcut]:
    """Tell which modality the shortcuts are, where the ranks of all queries are known."""
    if any(rank is None for label in labels.by_query.values() for rank in label.best_rank.values()):
        return {}
    pool = Pool.of_best_ranks(path)
    details = pool.label(k=PUBLISHED_K).details.tolist()
    return {query: Shortcut(detail) for query, detail in zip(pool.queries, details, strict=True) if detail}


if __name__ == "__main__":
    main()
