"""Encode a benchmark with an mteb encoder under the three conditions, through the embedding cache.

An encoder is anything that follows mteb's `EncoderProtocol`. It sees batches with the keys `image` and `text`:

| what | image | text | instruction | task category |
|---|---|---|---|---|
| gallery | the image | | | it2i, document |
| multimodal query | the reference | the modification text | the protocol's | it2i, query |
| text-only query | black, of the reference's size | the modification text | the protocol's | it2i, query |
| image-only query | the reference | | none | i2i, query |

This is the convention of the CIRCUS paper. Inputs are deduplicated by content. The processes of a job
share the work by the shard: how many they are changes neither what a shard holds nor how it is cut into batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.benchmark import Benchmark, Condition, Query
from circus_bench.distributed import SINGLE_PROCESS, DistributedJob
from circus_bench.encoding.embedding_store import EmbeddingStore, Partition
from circus_bench.encoding.sanity_checks import SanityCheck, check_encoder
from circus_bench.errors import EmbeddingError, ImageError, RefusedError, format_ids
from circus_bench.inputs import Input, Inputs, InputSpec, collate, input_spec, inputs_of, query_input, task_of
from circus_bench.vectors import Floats, unusable_rows

if TYPE_CHECKING:
    from mteb.models.models_protocols import EncoderProtocol


@dataclass(frozen=True, slots=True)
class EncodeSettings:
    """Sizes of the pieces of an encode; none of them should change a vector.

    Attributes:
        batch_size: inputs per forward pass.
        checkpoint_every: inputs per call of the encoder, whose vectors are then written to one file of the store: the
            checkpoint. A killed process loses no more than these.
        workers: processes that decode images; 0 decodes in this process.
    """

    batch_size: int = 32
    checkpoint_every: int = 256
    workers: int = 0


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Name, revision and dtype of the weights that made a vector.

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
        """Read the identity off an encoder.

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


class BenchmarkEncoder:
    """Encode one benchmark with one encoder, through an embedding cache.

    Args:
        encoder: follows mteb's `EncoderProtocol`.
        benchmark: has images, all of them decodable.
        store: caches the embeddings.
        settings: how the work is cut.
        job: the processes that share the work. Every one has to make the same calls, except for `sanity_check`.
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
        job: DistributedJob = SINGLE_PROCESS,
        advance: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.model = ModelIdentity.of(encoder)
        self._encoder = encoder
        self._benchmark = benchmark
        self._store = store
        self._settings = settings or EncodeSettings()
        self._job = job
        self._advance = advance
        self._filled: dict[InputSpec, tuple[Partition, list[Input]]] = {}
        inspection = benchmark.inspect(job=job)
        if inspection.unreadable:
            named = [f"{image_id} ({reason})" for image_id, reason in inspection.unreadable.items()]
            raise ImageError(f"images cannot be decoded ({format_ids(named)}); mend them or leave them out")
        self._infos = inspection.readable

    def check_budget(self) -> None:
        """Let an encoder that costs money refuse the benchmark before its first call.

        Raises:
            BudgetError: the benchmark costs more than this process may spend on its share.
        """
        check = getattr(self._encoder, "check_budget", None)
        if check is not None:
            check(self._benchmark, processes=self._job.count)

    def encode(self) -> None:
        """Encode the gallery, and the queries under every condition, as far as the store does not hold them.

        Several processes share all of it at once. `gallery` and `queries` encode what they need, too, but then the
        processes wait for each other four times.

        Raises:
            EmbeddingError: the encoder's vectors cannot be ranked, or an input was encoded twice or not at all.
            ProcessError: another process failed.
        """
        self._fill([input_spec(self._benchmark, condition) for condition in (None, *Condition)])

    def gallery(self) -> Floats:
        """Encode the gallery.

        Returns:
            float32 [n_gallery, dim], rows of unit length; memory-mapped, read-only.
        """
        return self._vectors(input_spec(self._benchmark, None))

    def queries(self, condition: Condition) -> Floats:
        """Encode the queries under a condition.

        Returns:
            float32 [n_queries, dim], rows of unit length; memory-mapped, read-only.
        """
        return self._vectors(input_spec(self._benchmark, condition))

    def sanity_check(self) -> SanityCheck:
        """Check the encoder on a few queries; nothing is stored. See `circus_bench.encoding.sanity_checks`."""

        def encode(queries: Sequence[Query], condition: Condition) -> Floats:
            inputs = [query_input(query, condition, self._infos[query.reference]) for query in queries]
            return self._encode(inputs, input_spec(self._benchmark, condition))

        return check_encoder(encode, self._benchmark, infos=self._infos)

    def _vectors(self, spec: InputSpec) -> Floats:
        if spec not in self._filled:
            self._fill([spec])
        partition, inputs = self._filled[spec]
        # The main process alone decides from which shards, so that all rank the same vectors.
        name = self._job.run_on_main(
            "ordering vectors", lambda: partition.materialize([item.digest for item in inputs])
        )
        return partition.open_memmap(name)

    def _fill(self, specs: Sequence[InputSpec]) -> None:
        """Encode what the store lacks; every process takes its share of the shards."""
        model = {"model": self.model.name, "revision": self.model.revision, "dtype": self.model.dtype}
        for spec in specs:
            partition = self._store.partition({**model, "role": spec.name, "instruction": spec.instruction})
            self._filled[spec] = partition, inputs_of(self._benchmark, spec.condition, self._infos)
        shards = self._job.run_on_main("looking for embeddings", lambda: self._missing(specs))
        self._advance(sum(len(self._filled[spec][1]) for spec in specs) - sum(len(shard.rows) for shard in shards))
        written = self._job.run_on_all("encoding", lambda: self._encode_share(shards))
        self._job.run_on_main("checking the shares", lambda: self._take_in(shards, written))

    def _missing(self, specs: Sequence[InputSpec]) -> list[_Shard]:
        """Cut what the store lacks into shards.

        The cuts follow from the ordered list of what is missing. Since finished shards are gone from it as a whole, an
        encode that was killed goes on with the very shards and batches that it would have had.
        """
        shards: list[_Shard] = []
        for spec in specs:
            partition, inputs = self._filled[spec]
            first = {item.digest: row for row, item in reversed(list(enumerate(inputs)))}
            rows = np.array(sorted(row for digest, row in first.items() if digest not in partition), np.int64)
            if len(rows):
                partition.create()
            size = self._settings.checkpoint_every
            shards += [_Shard(spec, rows[start : start + size]) for start in range(0, len(rows), size)]
        return shards

    def _encode_share(self, shards: Sequence[_Shard]) -> list[tuple[InputSpec, str]]:
        """Encode this process's share; returns the names of the files written."""
        written = []
        refused: dict[int | str, str] = {}
        for start in range(0, len(shards), self._job.count):
            if self._job.should_stop():
                break
            at_a_time = shards[start : start + self._job.count]
            for shard in at_a_time[self._job.rank : self._job.rank + 1]:
                partition, inputs = self._filled[shard.spec]
                items = [inputs[row] for row in shard.rows]
                try:
                    name = partition.write([item.digest for item in items], self._encode(items, shard.spec))
                except RefusedError as error:
                    # All refusals are found in one run; encoders that refuse keep the vectors of the other inputs.
                    refused |= error.reasons
                    continue
                written.append((shard.spec, name))
            self._advance(sum(len(shard.rows) for shard in at_a_time))
        if refused:
            raise RefusedError(self.model.name, refused)
        return written

    def _take_in(self, shards: Sequence[_Shard], written: Sequence[Sequence[tuple[InputSpec, str]]]) -> None:
        """Read back what the processes wrote: every missing input, and each of them once."""
        for spec, (partition, inputs) in self._filled.items():
            due = Counter(inputs[row].digest for shard in shards if shard.spec == spec for row in shard.rows)
            found = Counter(
                partition.register_shards(name for share in written for of_spec, name in share if of_spec == spec)
            )
            wrong = {"twice": found - due, "not at all": due - found}
            for what, digests in wrong.items():
                if digests:
                    named = {item.digest: item.name for item in inputs}
                    raise EmbeddingError(
                        f"{self.model.name}: {spec.name} inputs were encoded {what} "
                        f"({format_ids(named.get(digest, digest) for digest in digests)}) by {len(written)} processes; "
                        f"start all of them with the same command"
                    )

    def _encode(self, inputs: Sequence[Input], spec: InputSpec) -> Floats:
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
                task_metadata=task_of(self._benchmark, spec),
                hf_split="test",
                hf_subset="default",
                prompt_type=spec.prompt_type,
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
                f"{self.model.name} gave NaN, infinite or zero-length embeddings for {spec.name} inputs "
                f"({format_ids(named)}); such vectors cannot be ranked, look for overflow in {self.model.dtype}"
            )
        return vectors


@dataclass(frozen=True, slots=True)
class _Shard:
    """Rows of the gallery or the queries that are encoded in one call, and checkpointed as one file."""

    spec: InputSpec
    rows: NDArray[np.int64]


def to_numpy(output: Any) -> Floats:
    """Convert the output of an mteb encoder, an array or tensor of any dtype and on any device, to float32."""
    if hasattr(output, "detach"):
        output = output.detach().float().cpu().numpy()
    return np.ascontiguousarray(output, dtype=np.float32)
