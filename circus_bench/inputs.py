"""What an encoder is shown: inputs with the digest of their content, as a dataset in mteb's form."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from circus_bench.benchmark import Benchmark, Condition
from circus_bench.images import black, decode

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


@dataclass(frozen=True, slots=True)
class Input:
    """One thing to encode.

    Attributes:
        digest: over all that the encoder is shown.
        name: for messages.
        image: id of the image shown, unless `black_size` is given.
        text: the text shown, or None.
        black_size: (width, height) of the black image shown.
    """

    digest: str
    name: str
    image: str
    text: str | None
    black_size: tuple[int, int] | None

    @classmethod
    def of(
        cls, image: str, image_digest: str, *, text: str | None = None, black_size: tuple[int, int] | None = None
    ) -> Input:
        """Make the input of an image, or of an image and a text; `image_digest` is that of the image shown."""
        if text is None:
            return cls(image_digest, image, image, None, None)
        content = hashlib.sha256(f"{image_digest}\n{text}".encode()).hexdigest()
        return cls(content, f"{image} + {text!r}", image, text, black_size)


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
        image = black(item.black_size) if item.black_size else decode(self._images[item.image]).image
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
