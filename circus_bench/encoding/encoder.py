"""Drives an mteb encoder over a benchmark, under each of the three conditions.

An encoder is anything that follows mteb's `EncoderProtocol`. It sees batches with the keys `image` and `text`:

| what | image | text | instruction | task category |
|---|---|---|---|---|
| gallery | the image | | | it2i, document |
| multimodal query | the reference | the modification text | the protocol's | it2i, query |
| text-only query | black, of the reference's size | the modification text | the protocol's | it2i, query |
| image-only query | the reference | | none | i2i, query |

This is the convention of the CIRCUS paper. Inputs that are equal by content are encoded once. The processes of a job
share the work by the shard: how many they are changes neither what a shard holds nor how it is cut into batches.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.benchmark import Benchmark, Condition, Query
from circus_bench.distributed import ALONE, Processes
from circus_bench.encoding.embedding_store import EmbeddingStore, Space
from circus_bench.errors import EmbeddingError, ImageError, RefusedError, some
from circus_bench.inputs import Input, Inputs, Role, collate, inputs_of, query_input, role_of, task_of
from circus_bench.ranking.ranker import unusable_rows

if TYPE_CHECKING:
    from mteb.models.models_protocols import EncoderProtocol

Floats = NDArray[np.float32]

_PROBED_QUERIES = 4
_MOVED = 1e-4  # cosine distance; equal inputs in equal batches give 0, other inputs give hundreds of times this
_COLLAPSED = 1e-3  # variance of unit vectors; anisotropic but working encoders stay above a hundredth


@dataclass(frozen=True, slots=True)
class EncodeSettings:
    """How an encode is cut into pieces; none of it should change a vector.

    Attributes:
        batch_size: inputs a forward pass.
        shard_size: inputs a file of the store, a call of the encoder, a share of a process; the most that a killed
            encode loses.
        workers: processes that decode images; 0 decodes in this process.
    """

    batch_size: int = 32
    shard_size: int = 256
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
        processes: those that share the work. Every one of them has to make the same calls, except for `probe`.
        advance: called with the number of inputs encoded or found, by all processes, for a progress bar.

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
        processes: Processes = ALONE,
        advance: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.model = ModelIdentity.of(encoder)
        self._encoder = encoder
        self._benchmark = benchmark
        self._store = store
        self._settings = settings or EncodeSettings()
        self._processes = processes
        self._advance = advance
        self._filled: dict[Role, tuple[Space, list[Input]]] = {}
        inspection = benchmark.inspect(processes=processes)
        if inspection.unreadable:
            named = [f"{image_id} ({reason})" for image_id, reason in inspection.unreadable.items()]
            raise ImageError(f"images cannot be decoded ({some(named)}); mend them or leave them out")
        self._infos = inspection.readable

    def check_budget(self) -> None:
        """Let an encoder that costs money refuse the benchmark before its first call.

        Raises:
            BudgetError: the benchmark costs more than this process may spend on its share.
        """
        check = getattr(self._encoder, "check_budget", None)
        if check is not None:
            check(self._benchmark, processes=self._processes.count)

    def encode(self) -> None:
        """Encode the gallery, and the queries under every condition, as far as the store does not hold them.

        Several processes share all of it at once. `gallery` and `queries` encode what they need, too, but then the
        processes wait for each other four times.

        Raises:
            EmbeddingError: the encoder's vectors cannot be ranked, or an input was encoded twice or not at all.
            ProcessError: another process failed.
        """
        self._fill([role_of(self._benchmark, condition) for condition in (None, *Condition)])

    def gallery(self) -> Floats:
        """Encode the gallery.

        Returns:
            float32 [n_gallery, dim], rows of unit length; memory-mapped, read-only.
        """
        return self._vectors(role_of(self._benchmark, None))

    def queries(self, condition: Condition) -> Floats:
        """Encode the queries under a condition.

        Returns:
            float32 [n_queries, dim], rows of unit length; memory-mapped, read-only.
        """
        return self._vectors(role_of(self._benchmark, condition))

    def probe(self) -> Probe:
        """Show the encoder a few queries with one part exchanged, and see what moves. Nothing is stored."""
        chosen = self._benchmark.queries[:_PROBED_QUERIES]
        other_reference = [dataclasses.replace(q, reference=self._other_image(q.reference)) for q in chosen]
        other_text = [dataclasses.replace(q, text=self._other_text(q.text)) for q in chosen]

        def seen(queries: Sequence[Query], condition: Condition) -> Floats:
            inputs = [query_input(query, condition, self._infos[query.reference]) for query in queries]
            return self._encode(inputs, role_of(self._benchmark, condition))

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
                moved &= [self._infos[a.reference].size == self._infos[b.reference].size for a, b in pairs]
            must_move = condition is Condition.MULTIMODAL
            if must_move != moved.any():
                alarms.append(alarm)
        singly = np.concatenate([seen([query], Condition.MULTIMODAL) for query in chosen])
        deviation = float(np.abs(singly - plain[Condition.MULTIMODAL]).max())
        return Probe(tuple(alarms), deviation)

    def _other_image(self, image_id: str) -> str:
        """Another image, of the same size if there is one."""
        own = self._infos[image_id]
        others = [other for other, info in self._infos.items() if info.digest != own.digest]
        same_size = (other for other in others if self._infos[other].size == own.size)
        return next(same_size, others[0] if others else image_id)

    def _other_text(self, text: str) -> str:
        others = (query.text for query in self._benchmark.queries if query.text != text)
        return next(others, f"something quite different from {text}")

    def _vectors(self, role: Role) -> Floats:
        if role not in self._filled:
            self._fill([role])
        space, inputs = self._filled[role]
        # The main process alone decides from which shards, so that all rank the same vectors.
        name = self._processes.on_main("ordering vectors", lambda: space.order([item.digest for item in inputs]))
        return space.ordered(name)

    def _fill(self, roles: Sequence[Role]) -> None:
        """Encode what the store lacks, every process its share of the shards."""
        model = {"model": self.model.name, "revision": self.model.revision, "dtype": self.model.dtype}
        for role in roles:
            space = self._store.space({**model, "role": role.name, "instruction": role.instruction})
            self._filled[role] = space, inputs_of(self._benchmark, role.condition, self._infos)
        shards = self._processes.on_main("looking for embeddings", lambda: self._missing(roles))
        self._advance(sum(len(self._filled[role][1]) for role in roles) - sum(len(shard.rows) for shard in shards))
        written = self._processes.everywhere("encoding", lambda: self._encode_share(shards))
        self._processes.on_main("checking the shares", lambda: self._take_in(shards, written))

    def _missing(self, roles: Sequence[Role]) -> list[_Shard]:
        """What the store lacks, cut into shards.

        The cuts follow from the ordered list of what is missing. Since finished shards are gone from it as a whole, an
        encode that was killed goes on with the very shards and batches that it would have had.
        """
        shards: list[_Shard] = []
        for role in roles:
            space, inputs = self._filled[role]
            first = {item.digest: row for row, item in reversed(list(enumerate(inputs)))}
            rows = np.array(sorted(row for digest, row in first.items() if digest not in space), np.int64)
            if len(rows):
                space.prepare()
            size = self._settings.shard_size
            shards += [_Shard(role, rows[start : start + size]) for start in range(0, len(rows), size)]
        return shards

    def _encode_share(self, shards: Sequence[_Shard]) -> list[tuple[Role, str]]:
        """Encode this process's share; returns the names of the files written."""
        written = []
        refused: dict[int | str, str] = {}
        for start in range(0, len(shards), self._processes.count):
            if self._processes.should_stop():
                break
            at_a_time = shards[start : start + self._processes.count]
            for shard in at_a_time[self._processes.rank : self._processes.rank + 1]:
                space, inputs = self._filled[shard.role]
                items = [inputs[row] for row in shard.rows]
                try:
                    name = space.write([item.digest for item in items], self._encode(items, shard.role))
                except RefusedError as error:
                    # All refusals are found in one run; encoders that refuse keep the vectors of the other inputs.
                    refused |= error.reasons
                    continue
                written.append((shard.role, name))
            self._advance(sum(len(shard.rows) for shard in at_a_time))
        if refused:
            raise RefusedError(self.model.name, refused)
        return written

    def _take_in(self, shards: Sequence[_Shard], written: Sequence[Sequence[tuple[Role, str]]]) -> None:
        """Read back what the processes wrote: every missing input, and each of them once."""
        for role, (space, inputs) in self._filled.items():
            due = Counter(inputs[row].digest for shard in shards if shard.role == role for row in shard.rows)
            found = Counter(space.adopt(name for share in written for of_role, name in share if of_role == role))
            wrong = {"twice": found - due, "not at all": due - found}
            for what, digests in wrong.items():
                if digests:
                    named = {item.digest: item.name for item in inputs}
                    raise EmbeddingError(
                        f"{self.model.name}: {role.name} inputs were encoded {what} "
                        f"({some(named.get(digest, digest) for digest in digests)}) by {len(written)} processes; "
                        f"start all of them with the same command"
                    )

    def _encode(self, inputs: Sequence[Input], role: Role) -> Floats:
        from torch.utils.data import DataLoader

        assert self._benchmark.gallery.images is not None  # else `inspect` had failed
        loader: DataLoader[Any] = DataLoader(
            Inputs(inputs, self._benchmark.gallery.images),  # type: ignore[arg-type]  # map-style, without the base class
            batch_size=self._settings.batch_size,
            num_workers=self._settings.workers,
            collate_fn=collate,
        )
        try:
            output = self._encoder.encode(
                loader,
                task_metadata=task_of(self._benchmark, role),
                hf_split="test",
                hf_subset="default",
                prompt_type=role.prompt_type,
                batch_size=self._settings.batch_size,
                show_progress_bar=False,
            )
        except RefusedError as error:
            raise RefusedError(
                self.model.name,
                {inputs[at].name if isinstance(at, int) else at: why for at, why in error.reasons.items()},
            ) from None
        vectors = to_numpy(output)
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
class _Shard:
    """Inputs that are encoded in one call: rows of the gallery or the queries, none of them stored yet."""

    role: Role
    rows: NDArray[np.int64]


def to_numpy(output: Any) -> Floats:
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
