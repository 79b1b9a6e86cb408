"""Define the rows that travel between the stages of the RMIR pipeline, and read and write them as parquet.

In every row `query` and `image` are ids, `reason` is in the model's own words, and `raw` is the reply itself where it
was refused or could not be read, else empty.

Example:
    >>> schema_of(Candidate).names
    ['query', 'image', 'index', 'rank', 'score']
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """Kind of reasoning that leads from the image and the question to the answer."""

    FUNCTIONAL = "functional"
    """The object that does the job."""
    TEMPORAL = "temporal"
    """Before, after, how it looks later."""
    CAUSAL = "causal"
    """The reason why it is like this, or what follows."""


class Constraint(StrEnum):
    """Requirement on a generated query."""

    MULTIMODAL = "multimodal"
    """Neither the image nor the text alone leads to the answer."""
    STEPS = "steps"
    """One or two steps of reasoning lead to it."""
    UNIQUE = "unique"
    """One kind of image answers it, not any number of different ones."""


class Index(StrEnum):
    """Search index that proposes candidates."""

    VISUAL = "visual"
    TEXT = "text"


class JudgeDecision(StrEnum):
    """Verdict of an LLM judge on a candidate."""

    ACCEPT = "accept"
    REJECT = "reject"
    ABSTAIN = "abstain"
    """No verdict: the judge abstained, refused, or its reply could not be read."""


@dataclass(frozen=True, slots=True)
class Seed:
    """Stage 0: an image that queries are made from, and that may answer others."""

    image: str
    cluster: int


class FailureReason(StrEnum):
    """Reason why an image of the collection is no seed, or a request has no usable completion."""

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
class ScannedImage:
    """Stage 0: a decoded image.

    Attributes:
        image: its id.
        digest: SHA-256 of the picture; empty when it cannot be decoded.
        phash: perceptual hash, 16 hexadecimal digits; likewise.
    """

    image: str
    digest: str
    phash: str


@dataclass(frozen=True, slots=True)
class DroppedImage:
    """Stage 0: an image that is left out; `twin` is the earlier image that it duplicates, or empty."""

    image: str
    why: FailureReason
    twin: str


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """Stages 1 and 3: a request about an image that got no usable completion."""

    image: str
    template: str
    why: FailureReason
    raw: str


@dataclass(frozen=True, slots=True)
class Draft:
    """Stage 1: a generated query.

    Attributes:
        query: its id.
        image: the input image.
        category: of the reasoning.
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
    """Stage 2: verdict of the model `checker` on one constraint of a draft; None when it gave no usable one."""

    query: str
    constraint: Constraint
    passed: bool | None
    reason: str
    checker: str
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Caption:
    """Stage 3: a description of an image of the seed pool, by the model `captioner`; the text index searches these."""

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
    """Stage 4: one LLM judge's verdict on one candidate; see `Judge.name` for the judges' names."""

    query: str
    image: str
    judge: str
    decision: JudgeDecision
    reason: str
    raw: str = ""


@dataclass(frozen=True, slots=True)
class CandidateConsensus:
    """Stage 4: the aggregated votes on one candidate.

    Attributes:
        query: the query.
        image: the candidate.
        accepts: votes to accept.
        rejects: votes to reject.
        abstentions: votes without a verdict.
        decision: of the majority of all judges; abstain when neither has one.
        confidence: share of all judges that vote with the majority; 0 without one.
    """

    query: str
    image: str
    accepts: int
    rejects: int
    abstentions: int
    decision: JudgeDecision
    confidence: float


@dataclass(frozen=True, slots=True)
class ExcludedImage:
    """Stage 5: an image that is excluded from every candidate list, for it may be a false negative somewhere.

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
    """Part of the benchmark that a query belongs to."""

    TEST = "test"
    TRAIN = "train"


@dataclass(frozen=True, slots=True)
class SplitAssignment:
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


_TABLE_NAMES: Mapping[type[Any], str] = {
    ScannedImage: "seen",
    DroppedImage: "removed",
    FailedRequest: "unanswered",
    CandidateConsensus: "judged",
    ExcludedImage: "deleted",
    SplitAssignment: "assigned",
}


def table_name(kind: type[Any]) -> str:
    """Name the table of a kind of row; the names are a file format and do not follow the classes'.

    Example:
        >>> table_name(CandidateConsensus), table_name(PoolImage)
        ('judged', 'poolimage')
    """
    return _TABLE_NAMES.get(kind, kind.__name__.lower())


def save_rows(path: Path, rows: Sequence[Any], kind: type[Any]) -> None:
    """Write rows of one kind to a parquet file; the same rows give the same bytes."""
    import pyarrow as pa

    columns = {field.name: [getattr(row, field.name) for row in rows] for field in dataclasses.fields(kind)}
    write_parquet(path, pa.table(columns, schema=schema_of(kind)))


def join_rows(path: Path, parts: Iterable[Path], kind: type[Any]) -> int:
    """Concatenate files of rows, independently of the cut into parts, and return the number of rows.

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
    """Return the schema of a kind of row."""
    import pyarrow as pa

    arrow = {int: pa.int32(), float: pa.float64(), float | None: pa.float64(), bool | None: pa.bool_()}
    types = typing.get_type_hints(kind)
    return pa.schema([(field.name, arrow.get(types[field.name], pa.string())) for field in dataclasses.fields(kind)])
