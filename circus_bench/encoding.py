"""Drives an mteb encoder over a benchmark, under each of the three conditions.

An encoder is anything that follows mteb's `EncoderProtocol`. It sees batches with the keys `image` and `text`:

| what | image | text | instruction | task category |
|---|---|---|---|---|
| gallery | the image | | | it2i, document |
| multimodal query | the reference | the modification text | the protocol's | it2i, query |
| text-only query | black, of the reference's size | the modification text | the protocol's | it2i, query |
| image-only query | the reference | | none | i2i, query |

This is the convention of the CIRCUS paper. Inputs that are equal by content are encoded once.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from circus_bench.benchmark import Benchmark, Condition, Query
from circus_bench.errors import EmbeddingError, ImageError, some
from circus_bench.images import black, decode, digest
from circus_bench.ranking import unusable_rows
from circus_bench.store import EmbeddingStore, Space

if TYPE_CHECKING:
    from mteb import TaskMetadata
    from mteb.abstasks.task_metadata import PromptDict
    from mteb.models.models_protocols import EncoderProtocol
    from mteb.types import PromptType

Floats = NDArray[np.float32]

_PROBED_QUERIES = 4
_MOVED = 1e-4  # cosine distance; equal inputs in equal batches give 0, other inputs give hundreds of times this
_COLLAPSED = 1e-3  # variance of unit vectors; anisotropic but working encoders stay above a hundredth


@dataclass(frozen=True, slots=True)
class EncodeSettings:
    """How an encode is cut into pieces; none of it should change a vector.

    Attributes:
        batch_size: inputs a forward pass.
        shard_size: inputs a file of the store, and the most that a killed encode loses.
        workers: processes that decode images; 0 decodes in this process.
    """

    batch_size: int = 32
    shard_size: int = 1024
    workers: int = 0


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Which weights made a vector.

    Attributes:
        name: `organisation/model`.
        revision: commit or version of the weights.
        dtype: of the weights in memory.
    """

    name: str
    revision: str
    dtype: str

    @classmethod
    def of(cls, encoder: EncoderProtocol) -> ModelIdentity:
        """Read it off an encoder.

        Raises:
            EmbeddingError: the encoder has no name.
        """
        meta = getattr(encoder, "mteb_model_meta", None)
        if meta is None or not meta.name:
            raise EmbeddingError(
                f"{type(encoder).__name__} has no `mteb_model_meta` with a name; without one its runs could not be "
                f"told apart"
            )
        dtype = getattr(getattr(encoder, "model", None), "dtype", None)
        return cls(meta.name, meta.revision or "unspecified", str(dtype).removeprefix("torch.") if dtype else "unknown")


class Alarm(StrEnum):
    """A sign that an encoder, or the way it is driven, does not do what its condition says."""

    REFERENCE_IGNORED = "reference_ignored"
    """Another reference image does not move the multimodal embedding."""
    TEXT_IGNORED = "text_ignored"
    """Another modification text does not move the multimodal embedding."""
    REFERENCE_LEAKS = "reference_leaks"
    """Another reference image of the same size moves the text-only embedding."""
    TEXT_LEAKS = "text_leaks"
    """Another modification text moves the image-only embedding."""
    COLLAPSED = "collapsed"
    """All gallery embeddings are nearly the same."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a few queries show about an encoder.

    Attributes:
        alarms: what is wrong.
        batch_deviation: largest absolute difference between vectors encoded singly and in a batch.
    """

    alarms: tuple[Alarm, ...]
    batch_deviation: float


class BenchmarkEncoder:
    """One encoder on one benchmark, with a store behind it.

    Args:
        encoder: follows mteb's `EncoderProtocol`.
        benchmark: has images, all of them decodable.
        store: where vectors are kept.
        settings: how the work is cut.
        advance: called with the number of inputs encoded or found, for a progress bar.

    Raises:
        ImageError: an image cannot be decoded.
    """

    def __init__(
        self,
        encoder: EncoderProtocol,
        benchmark: Benchmark,
        *,
        store: EmbeddingStore,
        settings: EncodeSettings | None = None,
        advance: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.model = ModelIdentity.of(encoder)
        self._encoder = encoder
        self._benchmark = benchmark
        self._store = store
        self._settings = settings or EncodeSettings()
        self._advance = advance
        inspection = benchmark.inspect()
        if inspection.unreadable:
            named = [f"{image_id} ({reason})" for image_id, reason in inspection.unreadable.items()]
            raise ImageError(f"images cannot be decoded ({some(named)}); mend them or leave them out")
        self._infos = inspection.readable
        self._black_digests: dict[tuple[int, int], str] = {}

    def gallery(self) -> Floats:
        """Encode the gallery.

        Returns:
            float32 [n_gallery, dim], rows of unit length.
        """
        inputs = [_Input.of(image_id, self._infos[image_id].digest) for image_id in self._benchmark.gallery.ids]
        return self._vectors(inputs, _Role(None, ""))

    def queries(self, condition: Condition) -> Floats:
        """Encode the queries under a condition.

        Returns:
            float32 [n_queries, dim], rows of unit length.
        """
        inputs = [self._input(query, condition) for query in self._benchmark.queries]
        return self._vectors(inputs, self._role(condition))

    def probe(self) -> Probe:
        """Show the encoder a few queries with one part exchanged, and see what moves. Nothing is stored."""
        chosen = self._benchmark.queries[:_PROBED_QUERIES]
        other_reference = [dataclasses.replace(q, reference=self._other_image(q.reference)) for q in chosen]
        other_text = [dataclasses.replace(q, text=self._other_text(q.text)) for q in chosen]

        def seen(queries: Sequence[Query], condition: Condition) -> Floats:
            return self._encode([self._input(query, condition) for query in queries], self._role(condition))

        plain = {condition: seen(chosen, condition) for condition in Condition}
        comparisons = [
            (Alarm.REFERENCE_IGNORED, Condition.MULTIMODAL, other_reference),
            (Alarm.TEXT_IGNORED, Condition.MULTIMODAL, other_text),
            (Alarm.REFERENCE_LEAKS, Condition.TEXT_ONLY, other_reference),
            (Alarm.TEXT_LEAKS, Condition.IMAGE_ONLY, other_text),
        ]
        alarms = []
        for alarm, condition, changed in comparisons:
            moved = _distances(plain[condition], seen(changed, condition)) > _MOVED
            if alarm is Alarm.REFERENCE_LEAKS:
                # A black image of another size may move a model that sees resolution; that is not a leak.
                pairs = zip(chosen, changed, strict=True)
                moved &= [self._size(a.reference) == self._size(b.reference) for a, b in pairs]
            must_move = condition is Condition.MULTIMODAL
            if must_move != moved.any():
                alarms.append(alarm)
        singly = np.concatenate([seen([query], Condition.MULTIMODAL) for query in chosen])
        deviation = float(np.abs(singly - plain[Condition.MULTIMODAL]).max())
        return Probe(tuple(alarms), deviation)

    def _input(self, query: Query, condition: Condition) -> _Input:
        if condition is Condition.IMAGE_ONLY:
            return _Input.of(query.reference, self._infos[query.reference].digest)
        if condition is Condition.MULTIMODAL:
            return _Input.of(query.reference, self._infos[query.reference].digest, text=query.text)
        size = self._size(query.reference)
        if size not in self._black_digests:
            self._black_digests[size] = digest(black(size))
        return _Input.of(query.reference, self._black_digests[size], text=query.text, black_size=size)

    def _role(self, condition: Condition) -> _Role:
        instruction = "" if condition is Condition.IMAGE_ONLY else self._benchmark.protocol.instruction
        return _Role(condition, instruction)

    def _size(self, image_id: str) -> tuple[int, int]:
        return self._infos[image_id].width, self._infos[image_id].height

    def _other_image(self, image_id: str) -> str:
        """Another image, of the same size if there is one."""
        own = self._infos[image_id]
        others = [other for other, info in self._infos.items() if info.digest != own.digest]
        same_size = (other for other in others if self._size(other) == self._size(image_id))
        return next(same_size, others[0] if others else image_id)

    def _other_text(self, text: str) -> str:
        others = (query.text for query in self._benchmark.queries if query.text != text)
        return next(others, f"something quite different from {text}")

    def _vectors(self, inputs: Sequence[_Input], role: _Role) -> Floats:
        model = {"model": self.model.name, "revision": self.model.revision, "dtype": self.model.dtype}
        space = self._store.space({**model, "role": role.name, "instruction": role.instruction})
        self._fill(space, inputs, role)
        vectors = space.gather([item.digest for item in inputs])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def _fill(self, space: Space, inputs: Sequence[_Input], role: _Role) -> None:
        unique = {item.digest: item for item in inputs}
        missing = [item for item in unique.values() if item.digest not in space]
        self._advance(len(inputs) - len(missing))
        # Shards are cut from the ordered list of what is missing: an encode that was killed between two of them goes
        # on with the very batches that it would have had.
        for start in range(0, len(missing), self._settings.shard_size):
            shard = missing[start : start + self._settings.shard_size]
            space.write([item.digest for item in shard], self._encode(shard, role))
            self._advance(len(shard))

    def _encode(self, inputs: Sequence[_Input], role: _Role) -> Floats:
        from torch.utils.data import DataLoader

        assert self._benchmark.gallery.images is not None  # else `inspect` had failed
        loader: DataLoader[Any] = DataLoader(
            _Inputs(inputs, self._benchmark.gallery.images),  # type: ignore[arg-type]  # map-style, without the base class
            batch_size=self._settings.batch_size,
            num_workers=self._settings.workers,
            collate_fn=_collate,
        )
        task = _task(self._benchmark, role)
        output = self._encoder.encode(
            loader,
            task_metadata=task,
            hf_split="test",
            hf_subset="default",
            prompt_type=role.prompt_type,
            batch_size=self._settings.batch_size,
            show_progress_bar=False,
        )
        vectors = _to_numpy(output)
        if vectors.ndim != 2 or len(vectors) != len(inputs):
            raise EmbeddingError(f"{self.model.name} gave shape {vectors.shape} for {len(inputs)} inputs")
        bad = unusable_rows(vectors)
        if len(bad):
            named = [inputs[row].name for row in bad]
            raise EmbeddingError(
                f"{self.model.name} gave NaN, infinite or zero-length embeddings for {role.name} inputs "
                f"({some(named)}); such vectors cannot be ranked, look for overflow in {self.model.dtype}"
            )
        return vectors


def collapsed(vectors: Floats) -> bool:
    """Whether unit vectors of different inputs are nearly all the same (see `Alarm.COLLAPSED`)."""
    if len(vectors) < 2:
        return False
    mean = vectors.mean(axis=0, dtype=np.float64)
    return bool(1 - mean @ mean < _COLLAPSED)


@dataclass(frozen=True, slots=True)
class _Role:
    """The gallery (no condition) or the queries under a condition."""

    condition: Condition | None
    instruction: str

    @property
    def name(self) -> str:
        return self.condition.value if self.condition else "gallery"

    @property
    def category(self) -> Literal["i2i", "it2i"]:
        return "i2i" if self.condition is Condition.IMAGE_ONLY else "it2i"

    @property
    def prompt_type(self) -> PromptType:
        from mteb.types import PromptType

        return PromptType.query if self.condition else PromptType.document


@dataclass(frozen=True, slots=True)
class _Input:
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
    ) -> _Input:
        if text is None:
            return cls(image_digest, image, image, None, None)
        content = hashlib.sha256(f"{image_digest}\n{text}".encode()).hexdigest()
        return cls(content, f"{image} + {text!r}", image, text, black_size)


class _Inputs:
    """A map-style dataset of inputs, with the `features` by which mteb's encoders see what there is."""

    def __init__(self, inputs: Sequence[_Input], images: Mapping[str, bytes]) -> None:
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


def _collate(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _task(benchmark: Benchmark, role: _Role) -> TaskMetadata:
    from mteb import TaskMetadata

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


def _to_numpy(output: Any) -> Floats:
    """An mteb encoder returns a numpy array or a torch tensor, of any dtype and on any device."""
    if hasattr(output, "detach"):
        output = output.detach().float().cpu().numpy()
    return np.ascontiguousarray(output, dtype=np.float32)


def _distances(a: Floats, b: Floats) -> NDArray[np.float64]:
    """Row-wise cosine distances, float64 [n]."""
    first, second = a.astype(np.float64), b.astype(np.float64)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines: NDArray[np.float64] = np.einsum("ij,ij->i", first, second) / norms
    return 1 - cosines
