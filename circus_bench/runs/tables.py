"""Write and read the two tables of a Run, exact ranks and the retrieved top-k, as parquet. See docs/formats.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from circus_bench._typing import StrPath
from circus_bench.benchmark import Condition
from circus_bench.errors import FormatError, format_ids
from circus_bench.io import read_parquet, write_parquet
from circus_bench.ranking.ranker import UNREACHABLE, Ranking, ReferencePosition

RANKS_FILE, TOP_FILE = "ranks.parquet", "topk.parquet"

_WORD = pa.dictionary(pa.int32(), pa.string())
_RANK_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("condition", _WORD),
        ("target", pa.string()),
        ("rank", pa.int32()),
        ("ties", pa.int32()),
        ("reference", _WORD),
        ("null_rank", pa.int32()),
        ("null_reference", _WORD),
        ("subset_rank", pa.int32()),
    ]
)
_TOP_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("condition", _WORD),
        ("images", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float32())),
        ("subset", pa.list_(pa.string())),
    ]
)

IdLists = tuple[tuple[str, ...], ...]
"""One tuple of ids per query."""


@dataclass(frozen=True)
class ConditionResult:
    """Ranks and top-k under one condition.

    Attributes:
        ranking: see `Ranking`; its gallery positions (`top`, `subset_top`) are empty after loading.
        top_ids: ids of the top of the gallery by falling score.
        subset_ids: ids of the query's subset by falling score, its reference left out.
    """

    ranking: Ranking
    top_ids: IdLists
    subset_ids: IdLists

    def __repr__(self) -> str:
        """Name the counts rather than each query."""
        return f"ConditionResult({self.ranking!r})"


def save_tables(
    folder: StrPath, queries: Sequence[str], targets: IdLists, *, results: Mapping[Condition, ConditionResult]
) -> None:
    """Write both tables.

    Args:
        folder: gets `ranks.parquet` and `topk.parquet`.
        queries: query ids.
        targets: target ids per query.
        results: ranks and top-k per condition.
    """
    ranks = [_rank_table(queries, targets, condition, results[condition].ranking) for condition in Condition]
    tops = [_top_table(queries, condition, results[condition]) for condition in Condition]
    for name, parts, schema in ((RANKS_FILE, ranks, _RANK_SCHEMA), (TOP_FILE, tops, _TOP_SCHEMA)):
        write_parquet(Path(folder) / name, pa.concat_tables(parts).cast(schema).unify_dictionaries().combine_chunks())


def load_tables(
    folder: StrPath, *, n_gallery: int
) -> tuple[tuple[str, ...], IdLists, dict[Condition, ConditionResult]]:
    """Read both tables.

    Args:
        folder: holds `ranks.parquet` and `topk.parquet`.
        n_gallery: the greatest rank there can be.

    Returns:
        Query ids, target ids per query, and ranks and top-k per condition.

    Raises:
        FormatError: a file is missing or of another schema, the conditions differ in queries or targets, a row occurs
            twice, or a rank lies outside the gallery.
    """
    folder = Path(folder)
    table = read_parquet(folder / RANKS_FILE, schema=_RANK_SCHEMA)
    top = read_parquet(folder / TOP_FILE, schema=_TOP_SCHEMA)
    rank_parts, top_parts = _by_condition(table), _by_condition(top)
    queries = top_parts[Condition.MULTIMODAL]["query"].to_pylist()
    pairs = _pairs(rank_parts[Condition.MULTIMODAL])
    targets: dict[str, list[str]] = {query: [] for query in queries}
    for query, target in pairs:
        if query not in targets:
            raise FormatError(f"{folder / RANKS_FILE}: query {query!r} is not in {TOP_FILE}")
        targets[query].append(target)
    if len(set(pairs)) < len(pairs) or len(targets) < len(queries):
        raise FormatError(f"{folder}: {RANKS_FILE} or {TOP_FILE} holds rows twice")
    for condition in Condition:
        if _pairs(rank_parts[condition]) != pairs or top_parts[condition]["query"].to_pylist() != queries:
            raise FormatError(f"{folder}: the rows of {condition} are not those of {Condition.MULTIMODAL}")
    results = {
        condition: _result(rank_parts[condition], top_parts[condition], n_gallery=n_gallery, where=folder / RANKS_FILE)
        for condition in Condition
    }
    return tuple(queries), tuple(map(tuple, targets.values())), results


def _rank_table(queries: Sequence[str], targets: IdLists, condition: Condition, ranking: Ranking) -> pa.Table:
    flat = list(chain.from_iterable(targets))
    places = np.array([place.name.lower() for place in ReferencePosition], object)

    def ranks(values: NDArray[np.int64]) -> pa.Array:
        return pa.array(values, pa.int32(), mask=values == UNREACHABLE)

    return pa.table(
        {
            "query": pa.array(np.repeat(np.array(queries, object), [len(row) for row in targets]), pa.string()),
            "condition": pa.array([condition.value] * len(flat), pa.string()),
            "target": pa.array(flat, pa.string()),
            "rank": ranks(ranking.rank),
            "ties": pa.array(ranking.ties, pa.int32()),
            "reference": pa.array(places[ranking.reference], pa.string()),
            "null_rank": ranks(ranking.null_rank),
            "null_reference": pa.array(places[ranking.null_reference], pa.string()),
            "subset_rank": ranks(ranking.subset_rank),
        }
    )


def _top_table(queries: Sequence[str], condition: Condition, result: ConditionResult) -> pa.Table:
    return pa.table(
        {
            "query": pa.array(queries, pa.string()),
            "condition": pa.array([condition.value] * len(queries), pa.string()),
            "images": pa.array(result.top_ids, pa.list_(pa.string())),
            "scores": pa.array(list(result.ranking.top_score), pa.list_(pa.float32())),
            "subset": pa.array(result.subset_ids, pa.list_(pa.string())),
        }
    )


def _by_condition(table: pa.Table) -> dict[Condition, pa.Table]:
    names = np.array(table["condition"].to_pylist(), object)
    return {condition: table.filter(names == condition.value) for condition in Condition}


def _pairs(ranks: pa.Table) -> list[tuple[str, str]]:
    return list(zip(ranks["query"].to_pylist(), ranks["target"].to_pylist(), strict=True))


def _result(ranks: pa.Table, top: pa.Table, *, n_gallery: int, where: Path) -> ConditionResult:
    def integers(name: str) -> NDArray[np.int64]:
        column: NDArray[np.int32] = pc.fill_null(ranks[name], UNREACHABLE).to_numpy()
        return column.astype(np.int64)

    def rank(name: str) -> NDArray[np.int64]:
        values = integers(name)
        wrong = values[(values < 0) | (values > n_gallery)]
        if len(wrong):
            raise FormatError(
                f"{where}: {name} outside 1 to {n_gallery:,}, the size of the gallery ({format_ids(wrong)})"
            )
        return values

    def places(name: str) -> NDArray[np.int8]:
        return np.array([ReferencePosition[place.upper()] for place in ranks[name].to_pylist()], np.int8)

    no_positions = np.empty((len(top), 0), np.int64)
    ranking = Ranking(
        rank=rank("rank"),
        ties=integers("ties"),
        reference=places("reference"),
        null_rank=rank("null_rank"),
        null_reference=places("null_reference"),
        subset_rank=rank("subset_rank"),
        top=no_positions,
        top_score=np.array(top["scores"].to_pylist(), np.float32).reshape(len(top), -1),
        subset_top=no_positions,
    )
    ids, subset = (tuple(map(tuple, top[name].to_pylist())) for name in ("images", "subset"))
    return ConditionResult(ranking, ids, subset)
