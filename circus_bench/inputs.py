"""Build the inputs of an encoder, with the digest of their content, as a dataset in the form of mteb."""

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
class InputSpec:
    """Condition and prompt under which inputs are encoded.

    Attributes:
        condition: of queries; None for the gallery.
        instruction: the encoder gets it with them, or an empty string.
    """

    condition: Condition | None
    instruction: str

    @property
    def name(self) -> str:
        """`gallery`, or the condition."""
        return self.condition.value if self.condition else "gallery"

    @property
    def category(self) -> Literal["i2i", "it2i"]:
        """Category of mteb's task."""
        return "i2i" if self.condition is Condition.IMAGE_ONLY else "it2i"

    @property
    def prompt_type(self) -> PromptType:
        """Query or document, for mteb."""
        from mteb.types import PromptType

        return PromptType.query if self.condition else PromptType.document


def input_spec(benchmark: Benchmark, condition: Condition | None) -> InputSpec:
    """Specify how a benchmark's queries are encoded under a condition, or its gallery."""
    instructed = condition not in (None, Condition.IMAGE_ONLY)
    return InputSpec(condition, benchmark.protocol.instruction if instructed else "")


@dataclass(frozen=True, slots=True)
class Input:
    """Image, text, or both, to be encoded to one vector.

    Attributes:
        image: id of the image, or of the reference that a black image replaces.
        image_digest: digest of the image as the encoder gets it.
        size: width and height.
        is_black: whether the encoder gets a black image.
        text: the text, or None.
    """

    image: str
    image_digest: str
    size: tuple[int, int]
    is_black: bool = False
    text: str | None = None

    @property
    def digest(self) -> str:
        """SHA-256 over image and text: the key of the embedding cache."""
        if self.text is None:
            return self.image_digest
        return hashlib.sha256(f"{self.image_digest}\n{self.text}".encode()).hexdigest()

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.image if self.text is None else f"{self.image} + {self.text!r}"


def inputs_of(benchmark: Benchmark, condition: Condition | None, infos: Mapping[str, ImageInfo]) -> list[Input]:
    """Build the inputs for the queries under a condition, or for the gallery.

    Args:
        benchmark: the benchmark.
        condition: of the queries; None for the gallery.
        infos: facts of its images, by id.
    """
    if condition is None:
        return [Input(image_id, infos[image_id].digest, infos[image_id].size) for image_id in benchmark.gallery.ids]
    return [query_input(query, condition, infos[query.reference]) for query in benchmark.queries]


def query_input(query: Query, condition: Condition, info: ImageInfo) -> Input:
    """Build the input for a query under a condition; `info` has the facts of its reference."""
    if condition is Condition.TEXT_ONLY:
        return Input(query.reference, _black_digest(info.size), info.size, is_black=True, text=query.text)
    text = query.text if condition is Condition.MULTIMODAL else None
    return Input(query.reference, info.digest, info.size, text=text)


@functools.cache
def _black_digest(size: tuple[int, int]) -> str:
    return digest(black(size))


class Inputs:
    """Map-style dataset of inputs, with the `features` by which mteb's encoders see what there is."""

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
    """Collate rows to a batch in mteb's form: one list per column."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def task_of(benchmark: Benchmark, spec: InputSpec) -> TaskMetadata:
    """Build the metadata by which mteb's encoders find category and prompt."""
    from mteb import TaskMetadata

    # mteb's encoders look prompts up by the task's name and find none under this one: where a spec has no instruction,
    # the default prompt of a registered task must not take its place.
    return TaskMetadata(
        name=f"CIRCUS-{benchmark.name}",
        description=f"Composed image retrieval on {benchmark.name} under protocol {benchmark.protocol.id}.",
        dataset={"path": benchmark.name, "revision": benchmark.fingerprint.annotations},
        type="Any2AnyRetrieval",
        category=spec.category,
        modalities=["text", "image"],
        eval_langs=["eng-Latn"],
        main_score="hit_rate_at_10",
        prompt=cast("PromptDict", {"query": spec.instruction}) if spec.instruction else None,
    )
