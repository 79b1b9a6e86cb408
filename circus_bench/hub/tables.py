"""The tables of a dataset folder: their columns, and their rows from a Benchmark and what was found about its queries.

The folder's parquet files and the `datasets` builders are both made from here, so that they hold the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from circus_bench.benchmark import Benchmark, Condition, Query
from circus_bench.errors import CircusError, ImageError, some
from circus_bench.io import slug
from circus_bench.labels.label_table import Subset
from circus_bench.labels.labels import Reason, Verdict, Verdicts
from circus_bench.metrics.shortcut import Label, Shortcut

if TYPE_CHECKING:
    import datasets

SPLIT = "test"


class Table(StrEnum):
    """What a configuration of the dataset holds."""

    ROWS = "rows"
    """One row a query with all that is known of it: what people load."""
    CORPUS = "corpus"
    """The gallery: what mteb ranks. The same files for every subset."""
    QUERIES = "queries"
    """Id, text and reference image of the queries: what mteb encodes."""
    QRELS = "qrels"
    """Pairs of a query and one of its targets."""


@dataclass(frozen=True)
class Part:
    """One benchmark of a dataset folder.

    Attributes:
        benchmark: the benchmark; all its queries.
        verdicts: the labels and human judgements of its queries; None where there are none.
    """

    benchmark: Benchmark
    verdicts: Verdicts | None = None

    @property
    def name(self) -> str:
        """The benchmark's name as configurations and folders spell it."""
        return slug(self.benchmark.name)

    @cached_property
    def verdict_of(self) -> Mapping[str, Verdict]:
        """The verdicts under the benchmark's query ids.

        Raises:
            MismatchError: they are about another benchmark.
        """
        return self.verdicts.joined(self.benchmark) if self.verdicts is not None else {}

    @cached_property
    def subsets(self) -> Mapping[Subset, tuple[Query, ...]]:
        """The subsets that are known and have a query, with their queries in the benchmark's order."""
        verdicts = self.verdict_of.values()
        labelled = len(verdicts) == len(self.benchmark.queries) and all(verdict.label for verdict in verdicts)
        known = {Subset.SF: labelled, Subset.V: any(verdict.valid is not None for verdict in verdicts)}
        found = {Subset.FULL: self.benchmark.queries}
        if self.verdicts is not None:
            found |= {s: self.verdicts.select(self.benchmark, s) for s, is_known in known.items() if is_known}
        return {subset: queries for subset, queries in found.items() if queries}


def config_name(name: str, subset: Subset, table: Table = Table.ROWS) -> str:
    """The name of a configuration.

    Example:
        >>> config_name("cirr", Subset.SF), config_name("cirr", Subset.SF, Table.QRELS)
        ('cirr_sf', 'cirr_sf-qrels')
    """
    return f"{name}_{subset.value}" + ("" if table is Table.ROWS else f"-{table.value}")


def features(table: Table, *, with_images: bool) -> datasets.Features:
    """The columns of a table."""
    from datasets import Features, Image, List, Value

    text, number, flag = Value("string"), Value("int32"), Value("bool")
    image = {"image": Image()} if with_images else {}
    if table is Table.CORPUS:
        return Features({"id": text, **image, "digest": text})
    if table is Table.QUERIES:
        return Features({"id": text, "text": text, **image})
    if table is Table.QRELS:
        return Features({"query-id": text, "corpus-id": text, "score": number})
    return Features(
        {
            "query_id": text,
            "query_index": number,
            **image,
            "text": text,
            "reference": text,
            "targets": List(text),
            "group": text,
            "subset": List(text),
            "label": text,
            "detail": text,
            **{f"best_rank_{condition}": number for condition in Condition},
            **{f"support_{kind}": number for kind in (*Condition, "unimodal")},
            "human_audited": flag,
            "human_valid": flag,
            "stratum": text,
            **{reason.value: flag for reason in Reason},
            "details": text,
        }
    )


def rows(part: Part, subset: Subset, table: Table, *, with_images: bool) -> Iterator[dict[str, Any]]:
    """The rows of a table, one at a time, so that only one image needs to be in memory.

    Args:
        part: the benchmark and its verdicts.
        subset: one of the part's.
        table: which table.
        with_images: give the original bytes of the images.

    Raises:
        CircusError: the subset does not exist.
        ImageError: an image has no bytes.
    """
    chosen = part.subsets.get(subset)
    if chosen is None:
        raise CircusError(
            f"{part.name}: the subset {subset.value!r} needs labels or human judgements that are not there"
        )
    if table is Table.CORPUS:
        yield from _corpus(part.benchmark, with_images=with_images)
    elif table is Table.QRELS:
        for query in chosen:
            for target in query.targets:
                yield {"query-id": query.id, "corpus-id": target, "score": 1}
    elif table is Table.QUERIES:
        for query in chosen:
            yield {"id": query.id, "text": query.text, **_image(part.benchmark, query.reference, with_images)}
    else:
        index_of = {query.id: index for index, query in enumerate(part.benchmark.queries)}
        for query in chosen:
            yield {
                "query_id": query.id,
                "query_index": index_of[query.id],
                **_image(part.benchmark, query.reference, with_images),
                "text": query.text,
                "reference": query.reference,
                "targets": list(query.targets),
                "group": query.group,
                "subset": list(query.subset),
                **_verdict_columns(part.verdict_of.get(query.id)),
                "details": json.dumps(dict(query.details), sort_keys=True, allow_nan=False),
            }


def check_decodable(benchmark: Benchmark) -> None:
    """Refuse a benchmark with images that a user of the dataset could not decode.

    Raises:
        ImageError: images are missing or cannot be decoded.
    """
    unreadable = benchmark.inspect().unreadable
    if unreadable:
        raise ImageError(
            f"benchmark {benchmark.name!r}: images cannot be decoded ({some(unreadable)}); "
            f"`circus-bench doctor` gives the reasons. Repair them, leave them out, or build without images."
        )


def _corpus(benchmark: Benchmark, *, with_images: bool) -> Iterator[dict[str, Any]]:
    known = benchmark.inspect().readable if benchmark.gallery.images is not None else {}
    for image_id in benchmark.gallery.ids:
        digest = known[image_id].digest if image_id in known else None
        yield {"id": image_id, **_image(benchmark, image_id, with_images), "digest": digest}


def _image(benchmark: Benchmark, image_id: str, wanted: bool) -> dict[str, Any]:
    if not wanted:
        return {}
    images = benchmark.gallery.images
    if images is None or image_id not in images:
        raise ImageError(f"benchmark {benchmark.name!r}: the image {image_id!r} has no bytes; join the images first")
    return {"image": {"bytes": images[image_id], "path": None}}


def _verdict_columns(verdict: Verdict | None) -> dict[str, Any]:
    """The evidence for a query; null wherever nothing is known."""
    known = verdict or Verdict("")
    # The reasons of a rejection may be unknown; a valid query has none.
    judged = bool(known.valid or known.reasons)
    return {
        "label": known.label and known.label.value,
        "detail": known.detail or None,
        **{f"best_rank_{condition}": known.best_rank.get(condition) for condition in Condition},
        **{f"support_{condition}": known.support.get(condition) for condition in Condition},
        "support_unimodal": known.support_unimodal,
        "human_audited": known.audited if verdict else None,
        "human_valid": known.valid,
        "stratum": known.stratum and known.stratum.value,
        **{reason.value: reason in known.reasons if judged else None for reason in Reason},
    }


def verdict_from(row: Mapping[str, Any]) -> Verdict:
    """The verdict that a row was made from."""
    return Verdict(
        row["query_id"],
        Label(row["label"]) if row["label"] else None,
        Shortcut(row["detail"]) if row["detail"] else "",
        best_rank={condition: row[f"best_rank_{condition}"] for condition in Condition},
        support={condition: row[f"support_{condition}"] for condition in Condition},
        support_unimodal=row["support_unimodal"],
        audited=bool(row["human_audited"]),
        valid=row["human_valid"],
        stratum=Label(row["stratum"]) if row["stratum"] else None,
        reasons=tuple(reason for reason in Reason if row[reason]),
    )
