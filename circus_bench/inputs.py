"""What an encoder is shown: inputs with the digest of their content, as a dataset in mteb's form."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from circus_bench.benchmark import Benchmark, Condition, Query
from circus_bench.images import ImageInfo, black, decode, digest

if TYPE_CHECKING:
    from mteb import TaskMetadata
    from mteb.abstasks.task_metadata import PromptDict
    from mteb.types import PromptType


@dataclass(frozen=True, slots=True)
class Role:
    """What inputs are encoded as.

    Attributes:
        condition: that of queries; None for the gallery.
        instruction: the encoder is given with them, or an empty string.
    """

    condition: Condition | None
    instruction: str

    @property
    def name(self) -> str:
        """`gallery`, or the condition."""
        return self.condition.value if self.condition else "gallery"

    @property
    def category(self) -> Literal["i2i", "it2i"]:
        """The category of mteb's task."""
        return "i2i" if self.condition is Condition.IMAGE_ONLY else "it2i"

    @property
    def prompt_type(self) -> PromptType:
        """Query or document, for mteb."""
        from mteb.types import PromptType

        return PromptType.query if self.condition else PromptType.document


def role_of(benchmark: Benchmark, condition: Condition | None) -> Role:
    """The role of a benchmark's queries under a condition, or of its gallery."""
    instructed = condition not in (None, Condition.IMAGE_ONLY)
    return Role(condition, benchmark.protocol.instruction if instructed else "")


@dataclass(frozen=True, slots=True)
class Input:
    """One thing to encode.

    Attributes:
        image: id of the image that is shown, or that the black one stands for.
        image_digest: of the image shown.
        size: its width and height.
        is_black: whether it is black.
        text: the text shown, or None.
    """

    image: str
    image_digest: str
    size: tuple[int, int]
    is_black: bool = False
    text: str | None = None

    @property
    def digest(self) -> str:
        """SHA-256 over all that the encoder is shown."""
        if self.text is None:
            return self.image_digest
        return hashlib.sha256(f"{self.image_digest}\n{self.text}".encode()).hexdigest()

    @property
    def name(self) -> str:
        """For messages."""
        return self.image if self.text is None else f"{self.image} + {self.text!r}"


def inputs_of(benchmark: Benchmark, condition: Condition | None, infos: Mapping[str, ImageInfo]) -> list[Input]:
    """What an encoder is shown of the queries under a condition, or of the gallery.

    Args:
        benchmark: the benchmark.
        condition: that of the queries; None for the gallery.
        infos: facts of its images, by id.
    """
    if condition is None:
        return [Input(image_id, infos[image_id].digest, infos[image_id].size) for image_id in benchmark.gallery.ids]
    return [query_input(query, condition, infos[query.reference]) for query in benchmark.queries]


def query_input(query: Query, condition: Condition, info: ImageInfo) -> Input:
    """What an encoder is shown of a query under a condition; `info` has the facts of its reference."""
    if condition is Condition.TEXT_ONLY:
        return Input(query.reference, _black_digest(info.size), info.size, is_black=True, text=query.text)
    text = query.text if condition is Condition.MULTIMODAL else None
    return Input(query.reference, info.digest, info.size, text=text)


@functools.cache
def _black_digest(size: tuple[int, int]) -> str:
    return digest(black(size))


class Inputs:
    """A map-style dataset of inputs, with the `features` by which mteb's encoders see what there is."""

    def __init__(self, inputs: Sequence[Input], images: Mapping[str, bytes]) -> None:
        from datasets import Features, Image, Value

        self._inputs = inputs
        self._images = images
        with_text = inputs[0].text is not None
        self.features = Features({"image": Image(), **({"text": Value("string")} if with_text else {})})
        self.column_names = list(self.features)

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, position: int) -> dict[str, Any]:
        item = self._inputs[position]
        image = black(item.size) if item.is_black else decode(self._images[item.image]).image
        return {"image": image} if item.text is None else {"image": image, "text": item.text}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[position] for position in range(len(self)))


def collate(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Make a batch of rows, in mteb's form: a list a column."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def task_of(benchmark: Benchmark, role: Role) -> TaskMetadata:
    """Make the metadata by which mteb's encoders find category and prompt."""
    from mteb import TaskMetadata

    # mteb's encoders look prompts up by the task's name and find none under this one: where a role has no instruction,
    # the default prompt of a registered task must not take its place.
    return TaskMetadata(
        name=f"CIRCUS-{benchmark.name}",
        description=f"Composed image retrieval on {benchmark.name} under protocol {benchmark.protocol.id}.",
        dataset={"path": benchmark.name, "revision": benchmark.fingerprint.annotations},
        type="Any2AnyRetrieval",
        category=role.category,
        modalities=["text", "image"],
        eval_langs=["eng-Latn"],
        main_score="hit_rate_at_10",
        prompt=cast("PromptDict", {"query": role.instruction}) if role.instruction else None,
    )
