"""The rows that travel between the stages of the RMIR pipeline, and their parquet files.

Example:
    >>> schema_of(Candidate).names
    ['query', 'image', 'index', 'rank', 'score']
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from circus_bench.io import open_parquet, read_parquet, write_parquet, write_row_groups

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_GROUP_ROWS = 100_000


class Category(StrEnum):
    """What kind of reasoning leads from the image and the question to the answer."""

    FUNCTIONAL = "functional"
    """Which thing does the job."""
    TEMPORAL = "temporal"
    """Before, after, how it looks later."""
    CAUSAL = "causal"
    """Why it is like this, or what follows."""


class Constraint(StrEnum):
    """What a generated query must fulfil."""

    MULTIMODAL = "multimodal"
    """Neither the image nor the text alone leads to the answer."""
    STEPS = "steps"
    """One or two steps of reasoning lead to it."""
    UNIQUE = "unique"
    """One kind of image answers it, not any number of different ones."""


class Index(StrEnum):
    """Where a candidate was found."""

    VISUAL = "visual"
    TEXT = "text"


class Decision(StrEnum):
    """What a judge says of a candidate."""

    ACCEPT = "accept"
    REJECT = "reject"
    ABSTAIN = "abstain"
    """No verdict: the judge abstained, refused, or its reply could not be read."""


@dataclass(frozen=True, slots=True)
class Seed:
    """Stage 0: an image that queries are made from, and that may answer others."""

    image: str
    cluster: int


class Why(StrEnum):
    """Why an image of the collection is no seed, or a question has no usable answer."""

    UNREADABLE = "unreadable"
    """The image cannot be decoded."""
    SAME_PIXELS = "same_pixels"
    """An earlier image shows exactly the same."""
    SAME_HASH = "same_hash"
    """An earlier image has the same perceptual hash, or one that differs in a single bit."""
    REFUSED = "refused"
    """The model declined to answer."""
    MALFORMED = "malformed"
    """Its reply could not be read."""
    IMPOSSIBLE = "impossible"
    """It says that the image allows no such question."""


@dataclass(frozen=True, slots=True)
class Removed:
    """Stage 0: an image that is left out; `twin` is the earlier image that it repeats, or empty."""

    image: str
    why: Why
    twin: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Stages 1 and 3: a question about an image that got no usable answer.

    Attributes:
        image: its id.
        template: name of the question's template.
        why: refused, malformed or impossible.
        raw: the reply itself, where it was refused or malformed.
    """

    image: str
    template: str
    why: Why
    raw: str


@dataclass(frozen=True, slots=True)
class Draft:
    """Stage 1: a generated query.

    Attributes:
        query: its id.
        image: id of the input image.
        category: the kind of reasoning.
        text: the question.
        answer: a description of an image that answers it.
        grade: Flesch-Kincaid grade of the text; None where it was not measured.
        generator: the model that wrote it.
    """

    query: str
    image: str
    category: Category
    text: str
    answer: str
    grade: float | None
    generator: str


@dataclass(frozen=True, slots=True)
class Check:
    """Stage 2: whether a draft fulfils one constraint.

    Attributes:
        query: id of the draft.
        constraint: what was checked.
        passed: the verdict; None when the checker gave no usable one.
        reason: as the checker put it.
        checker: the model that checked.
        raw: the reply itself where it could not be read, else empty.
    """

    query: str
    constraint: Constraint
    passed: bool | None
    reason: str
    checker: str
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Caption:
    """Stage 3: what an image of the seed pool shows, in words; the text index searches them.

    Attributes:
        image: its id.
        text: the description.
        captioner: the model that wrote it; empty where the collection brought it along.
    """

    image: str
    text: str
    captioner: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """Stage 3: an image that may answer a query, as one index found it; `rank` counts from 1 within the index."""

    query: str
    image: str
    index: Index
    rank: int
    score: float


@dataclass(frozen=True, slots=True)
class Vote:
    """Stage 4: one judge's verdict on one candidate.

    Attributes:
        query: id of the query.
        image: id of the candidate.
        judge: name of the judge: model, temperature and sample.
        decision: its verdict.
        reason: as the judge put it.
        raw: the reply itself where it could not be read, else empty.
    """

    query: str
    image: str
    judge: str
    decision: Decision
    reason: str
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """Stage 4, summed up: the votes on one candidate.

    Attributes:
        query: id of the query.
        image: id of the candidate.
        accepts: votes to accept; `rejects` and `abstentions` likewise.
        rejects: votes to reject.
        abstentions: no verdict.
        decision: of the majority of all judges; abstain when neither has one.
        confidence: share of all judges that vote with the majority; 0 without one.
    """

    query: str
    image: str
    accepts: int
    rejects: int
    abstentions: int
    decision: Decision
    confidence: float


@dataclass(frozen=True, slots=True)
class Deleted:
    """Stage 5: an image that no list may hold any more.

    Attributes:
        image: its id.
        doubted: candidates with this image that were not beyond doubt.
        lost_accepts: other queries' candidates with it that all judges had accepted.
    """

    image: str
    doubted: int
    lost_accepts: int


@dataclass(frozen=True, slots=True)
class PoolImage:
    """Stage 6: an image of the retrieval pool."""

    image: str


class Split(StrEnum):
    """What a query is good for."""

    TEST = "test"
    TRAIN = "train"


@dataclass(frozen=True, slots=True)
class Assigned:
    """Stage 7: a finished query.

    Attributes:
        query: its id.
        split: where it goes.
        tsr: test-set reliability of its visual list; None when no candidate of that list is left.
        judged: candidates of the list that judges saw.
        artificial: negatives that were appended to fill the list up.
    """

    query: str
    split: Split
    tsr: float | None
    judged: int
    artificial: int


def save_rows(path: Path, rows: Sequence[Any], kind: type[Any]) -> None:
    """Write rows of one kind to a parquet file; the same rows give the same bytes."""
    import pyarrow as pa

    columns = {field.name: [getattr(row, field.name) for row in rows] for field in dataclasses.fields(kind)}
    write_parquet(path, pa.table(columns, schema=schema_of(kind)))


def join_rows(path: Path, parts: Iterable[Path], kind: type[Any]) -> int:
    """Put files of rows behind each other, so that the cut into parts does not show; returns the number of rows.

    Raises:
        FormatError: a part is missing or holds rows of another kind.
    """
    import pyarrow as pa

    schema = schema_of(kind)
    total = 0

    def groups() -> Iterator[pa.Table]:
        nonlocal total
        held = schema.empty_table()
        for part in parts:
            held = pa.concat_tables([held, open_parquet(part, schema=schema).read(schema.names).cast(schema)])
            while len(held) > _GROUP_ROWS:
                total += _GROUP_ROWS
                yield held.slice(0, _GROUP_ROWS).combine_chunks()
                held = held.slice(_GROUP_ROWS)
        total += len(held)
        yield held.combine_chunks()

    write_row_groups(path, groups(), schema=schema)
    return total


def load_rows(path: Path, kind: type[T]) -> list[T]:
    """Read rows that `save_rows` wrote.

    Raises:
        FormatError: the file is missing or holds rows of another kind.
    """
    types = typing.get_type_hints(kind)
    enums = {name: of for name, of in types.items() if isinstance(of, type) and issubclass(of, StrEnum)}
    return [
        kind(**{name: enums[name](value) if name in enums else value for name, value in row.items()})
        for row in read_parquet(path, schema=schema_of(kind)).to_pylist()
    ]


def schema_of(kind: type[Any]) -> pa.Schema:
    """The columns of a kind of row."""
    import pyarrow as pa

    arrow = {int: pa.int32(), float: pa.float64(), float | None: pa.float64(), bool | None: pa.bool_()}
    types = typing.get_type_hints(kind)
    return pa.schema([(field.name, arrow.get(types[field.name], pa.string())) for field in dataclasses.fields(kind)])
