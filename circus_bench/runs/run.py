"""Run: what one model does on one benchmark under one protocol, as a table of exact ranks.

Everything the project says about a model is computed from its Run. The three files of a saved Run are described in
docs/formats.md.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from circus_bench._version import __version__
from circus_bench.benchmark import Benchmark, Condition, Fingerprint, ReferencePolicy
from circus_bench.distributed import Processes, current_processes
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.encoder import Alarm, BenchmarkEncoder, EncodeSettings, ModelIdentity, collapsed
from circus_bench.errors import CircusError, FormatError, MismatchError
from circus_bench.io import read_json, sha256, write_json
from circus_bench.metrics.ranks import Ranks
from circus_bench.ranking.backends import Backend
from circus_bench.ranking.ranker import ABSENT, DEFAULT_MEMORY, UNREACHABLE, Ranker, ReferencePlace, Targets
from circus_bench.runs.tables import RANKS_FILE, TOP_FILE, ConditionResult, load_tables, save_tables

if TYPE_CHECKING:
    from mteb.models.models_protocols import EncoderProtocol

SCHEMA_VERSION = 1
MANIFEST_FILE = "manifest.json"
DEFAULT_TOP_K = 51  # the CIRR and CIRCO servers ask for 50, CIRR's without the reference
DEFAULT_SEED = 0


def _software() -> dict[str, str]:
    packages = ("mteb", "numpy", "pillow", "sentence-transformers", "torch", "transformers")
    return {package: importlib.metadata.version(package) for package in packages}


def _now() -> str:
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)
    return moment.isoformat(timespec="seconds")


@dataclass(frozen=True)
class Manifest:
    """What a Run was made of and with.

    Attributes:
        model: the weights.
        benchmark: name of the benchmark.
        fingerprint: of the benchmark.
        protocol: the protocol's fields, as in `Protocol`.
        n_queries: queries ranked.
        n_gallery: images each of them was ranked against.
        dim: dimensions of the embeddings.
        seed: of the null targets.
        backend: what computed the products.
        alarms: see `Alarm`; a Run with alarms is not to be trusted.
        batch_deviation: see `Probe`.
        source: the benchmark's own provenance.
        software: package versions.
        date: UTC, ISO 8601; the environment variable SOURCE_DATE_EPOCH fixes it.
    """

    model: ModelIdentity
    benchmark: str
    fingerprint: Fingerprint
    protocol: Mapping[str, Any]
    n_queries: int
    n_gallery: int
    dim: int
    seed: int
    backend: Backend
    alarms: tuple[Alarm, ...] = ()
    batch_deviation: float | None = None
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    software: Mapping[str, str] = dataclasses.field(default_factory=_software)
    date: str = dataclasses.field(default_factory=_now)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the manifest of a Run, and check that the tables beside it are those that it describes.

        Raises:
            FormatError: files are missing, of another schema version, or not those the manifest describes.
        """
        path = folder / MANIFEST_FILE
        content = read_json(path)
        if content.get("schema_version") != SCHEMA_VERSION:
            raise FormatError(f"{path}: schema version {content.get('schema_version')!r}, expected {SCHEMA_VERSION}")
        try:
            for name in (RANKS_FILE, TOP_FILE):
                if sha256(folder / name) != content["files"][name]:
                    raise FormatError(f"{folder / name}: not the file that {MANIFEST_FILE} describes (SHA-256 differs)")
            fields = {field.name: content[field.name] for field in dataclasses.fields(cls)}
            fields["model"] = ModelIdentity(**content["model"])
            fields["fingerprint"] = Fingerprint(**content["fingerprint"])
            fields["backend"] = Backend(content["backend"])
            fields["alarms"] = tuple(Alarm(alarm) for alarm in content["alarms"])
            ReferencePolicy(content["protocol"]["reference"])
            return cls(**fields)
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise FormatError(f"{path}: {error!r}; see docs/formats.md") from error


@dataclass(frozen=True)
class Run:
    """One model, one benchmark, one protocol, three conditions.

    Attributes:
        manifest: what it was made of.
        queries: query ids, in the benchmark's order.
        targets: for each query its target ids.
        results: the ranks of each condition.
    """

    manifest: Manifest
    queries: tuple[str, ...]
    targets: tuple[tuple[str, ...], ...]
    results: Mapping[Condition, ConditionResult]

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """int64 [n_queries + 1]: the rows of query i are offsets[i] to offsets[i + 1]."""
        return np.cumsum([0, *map(len, self.targets)], dtype=np.int64)

    @property
    def policy(self) -> ReferencePolicy:
        """The protocol's reference policy."""
        return ReferencePolicy(self.manifest.protocol["reference"])

    def ranks(self, condition: Condition, *, reference: ReferencePolicy | None = None) -> Ranks:
        """Ranks of the targets, ties against the model.

        Args:
            condition: what the encoder was shown.
            reference: whether the reference counts as a competitor; the protocol's policy by default.

        Raises:
            CircusError: the protocol hides the targets.
        """
        if self.manifest.protocol["hidden_targets"]:
            raise CircusError(
                f"only the server of {self.manifest.protocol['id']} knows the targets; submit the Run to it"
            )
        ranking = self.results[condition].ranking
        return Ranks(_apply(ranking.rank, ranking.reference, reference or self.policy), self.offsets)

    def null_ranks(self, condition: Condition, *, reference: ReferencePolicy | None = None) -> Ranks | None:
        """Ranks of another query's targets under each query: the chance level. None when a query has no such target."""
        ranking = self.results[condition].ranking
        if np.any(ranking.null_rank == UNREACHABLE):
            return None
        return Ranks(_apply(ranking.null_rank, ranking.null_reference, reference or self.policy), self.offsets)

    def subset_ranks(self, condition: Condition) -> Ranks | None:
        """Ranks of the targets within each query's subset, its reference left out. None when a query has no subset."""
        subset_rank = self.results[condition].ranking.subset_rank
        if np.any(subset_rank == UNREACHABLE):
            return None
        return Ranks(subset_rank.astype(np.float64), self.offsets)

    def ties(self, condition: Condition) -> NDArray[np.int64]:
        """int64 [n_rows]: gallery images with exactly the target's score, other targets not counted."""
        return self.results[condition].ranking.ties

    def top(self, condition: Condition) -> tuple[tuple[str, ...], ...]:
        """Ids of the best scored gallery images of each query, the reference included."""
        return self.results[condition].top_ids

    def subset_top(self, condition: Condition) -> tuple[tuple[str, ...], ...]:
        """Ids of each query's subset by falling score, its reference left out."""
        return self.results[condition].subset_ids

    def save(self, folder: Path) -> None:
        """Write the rank table, the top-k table and the manifest."""
        save_tables(folder, self.queries, self.targets, results=self.results)
        manifest = dataclasses.asdict(self.manifest)
        files = {name: sha256(folder / name) for name in (RANKS_FILE, TOP_FILE)}
        # The manifest comes last: a folder without it was not written to the end.
        write_json(
            folder / MANIFEST_FILE,
            {**manifest, "schema_version": SCHEMA_VERSION, "package_version": __version__, "files": files},
        )

    @classmethod
    def load(cls, folder: Path) -> Run:
        """Read a Run that `save` wrote.

        Raises:
            FormatError: files are missing, of another schema version, or not those the manifest describes.
        """
        manifest = Manifest.load(folder)
        queries, targets, results = load_tables(folder, n_gallery=manifest.n_gallery)
        without = [query for query, own in zip(queries, targets, strict=True) if not own]
        if len(queries) != manifest.n_queries or (without and not manifest.protocol["hidden_targets"]):
            raise FormatError(
                f"{folder}: {len(queries):,} queries, of which {len(without):,} have no target; "
                f"{manifest.n_queries:,} with targets were expected"
            )
        return cls(manifest, queries, targets, results)


def run_benchmark(
    encoder: EncoderProtocol,
    benchmark: Benchmark,
    *,
    store: EmbeddingStore,
    settings: EncodeSettings | None = None,
    top_k: int = DEFAULT_TOP_K,
    seed: int = DEFAULT_SEED,
    backend: Backend = Backend.NUMPY,
    device: str | None = None,
    memory: int = DEFAULT_MEMORY,
    processes: Processes | None = None,
    advance: Callable[[int], object] = lambda _: None,
) -> Run:
    """Encode a benchmark under the three conditions and rank every target in the whole gallery.

    In a job of several processes (`accelerate launch`, `torchrun`) every process calls this with the same arguments.
    They share the work, and each gets the same Run: that of a single process, to the last bit. Who saves it lets the
    main process alone do so (`Processes.on_main`). See docs/scale.md.

    Args:
        encoder: follows mteb's `EncoderProtocol`.
        benchmark: has images, all of them decodable.
        store: keeps the embeddings; what it holds already is not encoded again.
        settings: how the encode is cut.
        top_k: gallery images kept per query and condition.
        seed: of the null targets.
        backend: of the ranking; `device` and `memory` likewise.
        device: a torch device.
        memory: bytes a block of scores may take.
        processes: those of the job; by default what a launcher says in the environment.
        advance: called with the number of inputs encoded; `n_inputs` of them in all.

    Raises:
        ImageError: an image cannot be decoded.
        EmbeddingError: the encoder's vectors cannot be ranked, or it refused inputs.
        BudgetError: an encoder that costs money would pass its budget.
        ProcessError: another process of the job failed, was lost, or was started with something else.
    """
    job = processes or current_processes()
    settings = settings or EncodeSettings()
    driver = BenchmarkEncoder(encoder, benchmark, store=store, settings=settings, processes=job, advance=advance)
    job.agree("benchmark", (benchmark.name, benchmark.protocol.id, benchmark.fingerprint))
    job.agree("model and settings", (driver.model, settings, top_k, seed, backend, memory))
    job.everywhere("checking the budget", driver.check_budget)
    probe = job.on_main("probing the encoder", driver.probe)
    driver.encode()
    gallery = driver.gallery()
    targets = _targets(benchmark, seed)
    ranker = Ranker(gallery, backend=backend, device=device, memory=memory, longest=1.0, processes=job)
    results = {}
    for condition in Condition:
        ranking = ranker.rank(driver.queries(condition), targets=targets, top_k=top_k)
        results[condition] = ConditionResult(ranking, _ids(ranking.top, benchmark), _ids(ranking.subset_top, benchmark))

    def manifest() -> Manifest:
        return Manifest(
            model=driver.model,
            benchmark=benchmark.name,
            fingerprint=benchmark.fingerprint,
            protocol=dataclasses.asdict(benchmark.protocol),
            n_queries=len(benchmark.queries),
            n_gallery=len(benchmark.gallery.ids),
            dim=gallery.shape[1],
            seed=seed,
            backend=backend,
            alarms=(*probe.alarms, *((Alarm.COLLAPSED,) if collapsed(gallery) else ())),
            batch_deviation=probe.batch_deviation,
            source=benchmark.source,
        )

    queries = tuple(query.id for query in benchmark.queries)
    targets_of = tuple(query.targets for query in benchmark.queries)
    return Run(job.on_main("describing the run", manifest), queries, targets_of, results)


def n_inputs(benchmark: Benchmark) -> int:
    """How many inputs `run_benchmark` reports through `advance`."""
    return len(benchmark.gallery.ids) + len(Condition) * len(benchmark.queries)


def check_comparable(runs: Sequence[Run]) -> None:
    """Refuse to mix Runs of different benchmarks or protocols, or two Runs of one model.

    Raises:
        MismatchError: names the first Run that does not fit.
    """
    models: set[str] = set()
    for run in runs:
        first, other = runs[0].manifest, run.manifest
        for what, a, b in (
            ("benchmark", first.benchmark, other.benchmark),
            ("protocol", first.protocol, other.protocol),
            ("queries", runs[0].queries, run.queries),
        ):
            if a != b:
                raise MismatchError(
                    f"{first.model.name} and {other.model.name} have different {what}: {str(a)[:80]} and {str(b)[:80]}"
                )
        if not first.fingerprint.matches(other.fingerprint):
            raise MismatchError(
                f"{first.model.name} and {other.model.name} ran on different versions of {first.benchmark!r} "
                f"(fingerprints differ); run them on the same files"
            )
        if other.model.name in models:
            raise MismatchError(f"{other.model.name} occurs twice; a pool has one Run a model, of one revision")
        models.add(other.model.name)


def check_matches(run: Run, benchmark: Benchmark) -> None:
    """Refuse a benchmark that a Run was not made on.

    Raises:
        MismatchError: the fingerprints differ.
    """
    if not run.manifest.fingerprint.matches(benchmark.fingerprint):
        raise MismatchError(
            f"the Run of {run.manifest.model.name} on {run.manifest.benchmark!r} was not made on this version of "
            f"{benchmark.name!r} (fingerprints differ)"
        )


def _targets(benchmark: Benchmark, seed: int) -> Targets:
    place = {image_id: position for position, image_id in enumerate(benchmark.gallery.ids)}
    return Targets.of(
        [[place.get(target, ABSENT) for target in query.targets] for query in benchmark.queries],
        [place.get(query.reference, ABSENT) for query in benchmark.queries],
        subsets=[[place.get(image, ABSENT) for image in query.subset] for query in benchmark.queries],
        seed=seed,
    )


def _ids(index: NDArray[np.int64], benchmark: Benchmark) -> tuple[tuple[str, ...], ...]:
    ids = benchmark.gallery.ids
    return tuple(tuple(ids[i] for i in row if i != ABSENT) for row in index.tolist())


def _apply(rank: NDArray[np.int64], place: NDArray[np.int8], policy: ReferencePolicy) -> NDArray[np.float64]:
    """Ranks under a reference policy, infinite where the target cannot be retrieved."""
    ranks = rank.astype(np.float64)
    if policy is ReferencePolicy.REMOVED:
        ranks -= np.isin(place, (ReferencePlace.TIED, ReferencePlace.ABOVE))
        ranks[place == ReferencePlace.IS_TARGET] = np.inf
    ranks[rank == UNREACHABLE] = np.inf
    return ranks
