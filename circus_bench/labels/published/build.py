"""Makes the files of this folder from the released files, byte for byte the same from the same files.

`python -m circus_bench.labels.published.build CIRCUS [--out FOLDER]`, where the folder CIRCUS holds
`cirr_shortcut_labels.csv`, `circo_audit_full.csv` and `query_indices/`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from circus_bench.io import write_text
from circus_bench.labels.formats import read_verdicts
from circus_bench.labels.labels import PUBLISHED, Verdict, Verdicts
from circus_bench.labels.pool import Pool
from circus_bench.labels.published.origins import ORIGINS, K
from circus_bench.labels.published.packing import pack
from circus_bench.metrics.shortcut import Label, Shortcut

_LABELS = {"cirr": "cirr_shortcut_labels.csv", "circo": "circo_audit_full.csv"}


def gather(folder: Path, name: str) -> Verdicts:
    """Put the released files on one benchmark together."""
    lists = [
        folder / "query_indices" / f"{name}_validated_{part}_query_indices.json" for part in ("solved", "unsolved")
    ]
    verdicts = reduce(Verdicts.merged, (read_verdicts(path) for path in lists))
    if name in _LABELS:
        verdicts = read_verdicts(folder / _LABELS[name], benchmark=name).merged(verdicts)
        details = _details(folder / _LABELS[name], verdicts, k=K)
        # The audit of these two benchmarks covered every shortcut-free query (paper, human audit): who is not among the
        # valid ones was rejected.
        full = {
            query: _completed(dataclasses.replace(verdict, detail=details.get(query, verdict.detail)))
            for query, verdict in verdicts.verdicts.items()
        }
        verdicts = dataclasses.replace(verdicts, verdicts=full)
    ordered = dict(sorted(verdicts.verdicts.items(), key=lambda item: int(item[0])))
    return Verdicts(name, ORIGINS[name], ordered)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("circus", type=Path, help="Folder of the released files.")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent, help="Where to write; this folder by default."
    )
    chosen = parser.parse_args(arguments)
    for name in PUBLISHED:
        write_text(chosen.out / f"{name}.json", pack(gather(chosen.circus, name)))


def _completed(verdict: Verdict) -> Verdict:
    if verdict.label is Label.SHORTCUT or verdict.valid:
        return verdict
    return dataclasses.replace(verdict, audited=True, valid=False, stratum=verdict.label)


def _details(path: Path, verdicts: Verdicts, *, k: int) -> dict[str, Shortcut]:
    """Which modality the shortcuts are, where the ranks of all queries are known."""
    if any(rank is None for verdict in verdicts.verdicts.values() for rank in verdict.best_rank.values()):
        return {}
    pool = Pool.of_best_ranks(path)
    details = pool.label(k=k).details.tolist()
    return {query: Shortcut(detail) for query, detail in zip(pool.queries, details, strict=True) if detail}


if __name__ == "__main__":
    main()
