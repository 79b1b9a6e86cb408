"""The tables of a dataset folder: their columns, and their rows from a Benchmark and what was found about its queries.

The folder's parquet files and the `datasets` builders are both made from here, so that they hold the same rows.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from circus_bench.benchmark import Benchmark, Condition, Query
from circus_bench.errors import CircusError, ImageError
from circus_bench.io import slug
from circus_bench.labels.labels import Labels, Subset
from circus_bench.labels.provenance import IdScheme
from circus_bench.labels.query_label import QueryLabel, RejectionReason

if TYPE_CHECKING:
    import datasets

SPLIT = "test"


class Table(StrEnum):
    """The content of a configuration of the dataset."""

    ROWS = "rows"
    """One row a query with all that is known of it: what people load."""
    CORPUS = "corpus"
    """The gallery: what mteb ranks. The same files for every subset."""
    QUERIES = "queries"
    """Id, text and reference image of the queries: what mteb encodes."""
    QRELS = "qrels"
    """Pairs of a query and one of its targets."""


@dataclass(frozen=True)
class LabeledBenchmark:
    """A benchmark and the labels of its queries: one benchmark of a dataset folder.

    Attributes:
        benchmark: the benchmark; all its queries.
        labels: the labels and human verdicts of its queries; None where there are none.
    """

    benchmark: Benchmark
    labels: Labels | None = None

    @property
    def name(self) -> str:
        """The benchmark's name as configurations and folders spell it."""
        return slug(self.benchmark.name)

    @cached_property
    def label_of(self) -> Mapping[str, QueryLabel]:
        """The labels under the benchmark's query ids.

        Raises:
            MismatchError: they are about another benchmark.
        """
        return self.labels.align(self.benchmark) if self.labels is not None else {}

    @cached_property
    def subsets(self) -> Mapping[Subset, tuple[Query, ...]]:
        """The subsets that are known and have a query, with their queries in the benchmark's order."""
        labels = self.label_of.values()
        labeled = len(labels) == len(self.benchmark.queries) and all(label.label for label in labels)
        known = {Subset.SF: labeled, Subset.V: any(label.valid is not None for label in labels)}
        found = {Subset.FULL: self.benchmark.queries}
        if self.labels is not None:
            found |= {s: self.labels.select(self.benchmark, s) for s, is_known in known.items() if is_known}
        return {subset: queries for subset, queries in found.items() if queries}

    def subset(self, subset: Subset) -> LabeledBenchmark:
        """Restrict the queries to a subset; the gallery stays whole.

        The result has a fingerprint of its own, so that its runs are never mixed with those of the whole benchmark.

        Raises:
            CircusError: the labels that the subset follows from are not there.
        """
        if subset is Subset.FULL:
            return self
        queries = self.subsets.get(subset)
        if queries is None:
            raise CircusError(
                f"{self.name}: the subset {subset.value!r} needs labels or human judgments that are not there"
            )
        source = {**self.benchmark.source, "subset": subset.value}
        # The findings of the whole benchmark name queries that are gone; those that remain are found again.
        return self.restrict(dataclasses.replace(self.benchmark, queries=queries, source=source, findings=()))

    def restrict(self, benchmark: Benchmark) -> LabeledBenchmark:
        """Label a benchmark that consists of some of the queries."""
        if self.labels is None:
            return LabeledBenchmark(benchmark)
        provenance = dataclasses.replace(
            self.labels.provenance,
            id_scheme=IdScheme.ID,
            fingerprint=benchmark.annotations_only().fingerprint,
            n_queries=len(benchmark.queries),
            audited={},
        )
        kept = {query.id: self.label_of[query.id] for query in benchmark.queries if query.id in self.label_of}
        return LabeledBenchmark(benchmark, dataclasses.replace(self.labels, provenance=provenance, by_query=kept))


def config_name(name: str, subset: Subset, table: Table = Table.ROWS) -> str:
    """Return the name of a configuration.

    Example:
        >>> config_name("cirr", Subset.SF), config_name("cirr", Subset.SF, Table.QRELS)
        ('cirr_sf', 'cirr_sf-qrels')
    """
    return f"{name}_{subset.value}" + ("" if table is Table.ROWS else f"-{table.value}")


def features(table: Table, *, with_images: bool) -> datasets.Features:
    """Return the columns of a table."""
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
            **{reason.value: flag for reason in RejectionReason},
            "details": text,
        }
    )


def rows(part: LabeledBenchmark, subset: Subset, table: Table, *, with_images: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, one at a time, so that only one image needs to be in memory.

    Args:
        part: the benchmark and its labels.
        subset: one of the part's.
        table: which table.
        with_images: give the original bytes of the images.

    Raises:
        CircusError: the subset does not exist.
        ImageError: images are wanted of a benchmark that has none.
    """
    chosen = part.subset(subset).benchmark.queries
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
                **_label_columns(part.label_of.get(query.id)),
                "details": json.dumps(dict(query.details), sort_keys=True, allow_nan=False),
            }


def _corpus(benchmark: Benchmark, *, with_images: bool) -> Iterator[dict[str, Any]]:
    known = benchmark.inspect().readable if benchmark.gallery.images is not None else {}
    for image_id in benchmark.gallery.ids:
        digest = known[image_id].digest if image_id in known else None
        yield {"id": image_id, **_image(benchmark, image_id, with_images), "digest": digest}


def _image(benchmark: Benchmark, image_id: str, wanted: bool) -> dict[str, Any]:
    """Return the image column: the original bytes, null where the benchmark allows the image to be missing."""
    if not wanted:
        return {}
    if benchmark.gallery.images is None:
        raise ImageError(f"benchmark {benchmark.name!r} has annotations only; join its images first")
    data = benchmark.gallery.images.get(image_id)
    return {"image": None if data is None else {"bytes": data, "path": None}}


def _label_columns(label: QueryLabel | None) -> dict[str, Any]:
    """Return the columns of a label; null wherever nothing is known."""
    return label.to_row() if label else {**QueryLabel("").to_row(), "human_audited": None}
