"""Run a model on a benchmark under one protocol, and keep its exact ranks as a table.

Everything the project says about a model is computed from its Run. The three files of a saved Run are described in
docs/formats.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Condition, ReferencePolicy
from circus_bench.distributed import DistributedJob, current_job
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.encoder import BenchmarkEncoder, EncodeSettings, ModelIdentity
from circus_bench.encoding.sanity_checks import EncoderWarning, has_collapsed
from circus_bench.errors import CircusError, FormatError, MismatchError
from circus_bench.metrics.hit_rate import hit_rate
from circus_bench.metrics.ranks import Ranks
from circus_bench.notebook import facts_table
from circus_bench.progress import progress_bar
from circus_bench.ranking.backends import Backend
from circus_bench.ranking.ranker import ABSENT, DEFAULT_MEMORY, UNREACHABLE, Ranker, ReferencePosition, Targets
from circus_bench.runs.manifest import Manifest
from circus_bench.runs.tables import ConditionResult, load_tables, save_tables

if TYPE_CHECKING:
    import pandas as pd
    from mteb.models.models_protocols import EncoderProtocol

DEFAULT_TOP_K = 51  # the CIRR and CIRCO servers ask for 50, CIRR's without the reference
DEFAULT_SEED = 0
_CUTOFFS = (1, 5, 10, 50)
_MAX_CELL = 200  # characters of a table cell


@dataclass(frozen=True)
class Run:
    """Ranks of one model on one benchmark under one protocol and three conditions.

    Attributes:
        manifest: describes how the Run was made.
        queries: query ids, in the benchmark's order.
        targets: target ids per query.
        results: ranks and top-k per condition.
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
        """Reference policy of the protocol."""
        return ReferencePolicy(self.manifest.protocol["reference"])

    def ranks(self, condition: Condition, *, reference: ReferencePolicy | None = None) -> Ranks:
        """Return the ranks of the targets, ties against the model.

        Args:
            condition: parts of the query that the encoder got.
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
        """Return the ranks of another query's targets: the chance level. None when a query has no such target."""
        ranking = self.results[condition].ranking
        if np.any(ranking.null_rank == UNREACHABLE):
            return None
        return Ranks(_apply(ranking.null_rank, ranking.null_reference, reference or self.policy), self.offsets)

    def subset_ranks(self, condition: Condition) -> Ranks | None:
        """Return the ranks within each query's subset, its reference left out. None when a query has no subset."""
        subset_rank = self.results[condition].ranking.subset_rank
        if np.any(subset_rank == UNREACHABLE):
            return None
        return Ranks(subset_rank.astype(np.float64), self.offsets)

    def ties(self, condition: Condition) -> NDArray[np.int64]:
        """Count the gallery images with exactly the target's score, other targets left out: int64 [n_rows]."""
        return self.results[condition].ranking.ties

    def top(self, condition: Condition) -> tuple[tuple[str, ...], ...]:
        """Return the ids of the best scored gallery images of each query, the reference included."""
        return self.results[condition].top_ids

    def subset_top(self, condition: Condition) -> tuple[tuple[str, ...], ...]:
        """Return the ids of each query's subset by falling score, its reference left out."""
        return self.results[condition].subset_ids

    def hit_rates(self, k: int) -> dict[Condition, float]:
        """Compute the mean hit rate@k under every condition, with the protocol's reference policy.

        Raises:
            CircusError: the protocol hides the targets.
        """
        return {condition: float(hit_rate(self.ranks(condition), k).mean()) for condition in Condition}

    def to_pandas(self, *, reference: ReferencePolicy | None = None) -> pd.DataFrame:
        """Convert the rank table to pandas, one row per query and target.

        Columns: `query`, `target`, and for each condition `rank_<condition>` (float64, see `ranks`; inf when never
        retrieved), `ties_<condition>` (int64, see `ties`), `null_rank_<condition>` (float64, see `null_ranks`; NaN
        without a null target) and `subset_rank_<condition>` (float64, see `subset_ranks`; NaN without a subset).

        Args:
            reference: whether the reference counts as a competitor; the protocol's policy by default.

        Raises:
            CircusError: the protocol hides the targets.
        """
        import pandas as pd

        policy = reference or self.policy
        columns: dict[str, object] = {
            "query": np.repeat(np.array(self.queries, object), np.diff(self.offsets)),
            "target": list(chain.from_iterable(self.targets)),
        }
        for condition in Condition:
            ranking = self.results[condition].ranking
            null = _apply(ranking.null_rank, ranking.null_reference, policy)
            columns[f"rank_{condition}"] = self.ranks(condition, reference=policy).values
            columns[f"ties_{condition}"] = ranking.ties
            columns[f"null_rank_{condition}"] = np.where(ranking.null_rank == UNREACHABLE, np.nan, null)
            columns[f"subset_rank_{condition}"] = np.where(
                ranking.subset_rank == UNREACHABLE, np.nan, ranking.subset_rank
            )
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        """Name model, benchmark, counts and hit rates rather than each query."""
        if self.manifest.protocol["hidden_targets"]:
            rates = "targets hidden"
        else:
            rates = ", ".join(f"{condition} {100 * rate:.1f} %" for condition, rate in self.hit_rates(10).items())
        return f"Run({self.manifest!r}, hit rate@10: {rates})"

    def _repr_html_(self) -> str:
        """Show the manifest's main facts and the hit rates in a notebook."""
        manifest = self.manifest
        facts: dict[str, object] = {
            "model": f"{manifest.model.name} ({manifest.model.revision}, {manifest.model.dtype})"[:_MAX_CELL],
            "benchmark": manifest.benchmark[:_MAX_CELL],
            "protocol": manifest.protocol["id"][:_MAX_CELL],
            "queries": manifest.n_queries,
            "gallery images": manifest.n_gallery,
            "date": manifest.date,
            "alarms": ", ".join(manifest.alarms) or "none",
        }
        if not manifest.protocol["hidden_targets"]:
            rates = [self.hit_rates(k) for k in _CUTOFFS]
            for condition in Condition:
                name = f"hit rate@{'/'.join(map(str, _CUTOFFS))}, {condition}"
                facts[name] = " / ".join(f"{100 * rate[condition]:.1f}" for rate in rates) + " %"
        return facts_table("Run", facts)

    def save(self, folder: StrPath) -> None:
        """Write the rank table, the top-k table and the manifest."""
        save_tables(folder, self.queries, self.targets, results=self.results)
        self.manifest.save(folder)

    @classmethod
    def load(cls, folder: StrPath) -> Run:
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
    job: DistributedJob | None = None,
    advance: Callable[[int], object] | None = None,
    progress: bool | None = None,
) -> Run:
    """Encode a benchmark under the three conditions and rank every target in the whole gallery.

    In a job of several processes (`accelerate launch`, `torchrun`) every process calls this with the same arguments.
    They share the work, and each gets the same Run: that of a single process, to the last bit. Who saves it lets the
    main process alone do so (`DistributedJob.run_on_main`). See docs/scale.md.

    Args:
        encoder: follows mteb's `EncoderProtocol`.
        benchmark: has images, all of them decodable.
        store: caches the embeddings; what it holds already is not encoded again.
        settings: batch size and checkpoints of the encode.
        top_k: gallery images kept per query and condition.
        seed: of the null targets.
        backend: of the ranking; `device` and `memory` likewise.
        device: a torch device.
        memory: bytes that a block of scores may take.
        job: the processes that share the work; by default those of the launcher that the environment describes.
        advance: called with the number of inputs encoded; `n_inputs` of them in all.
        progress: whether to show progress bars; by default in a terminal or a notebook, unless `advance` is given.

    Raises:
        ImageError: an image cannot be decoded.
        EmbeddingError: the encoder's vectors cannot be ranked, or it refused inputs.
        BudgetError: an encoder that costs money would pass its budget.
        ProcessError: another process of the job failed, was lost, or was started with something else.
    """
    job = job or current_job()
    settings = settings or EncodeSettings()
    ModelIdentity.of(encoder)  # an encoder without a name is refused before its images are decoded
    shown = progress if advance is None and job.is_main else False
    with progress_bar("images", len(benchmark.image_ids), shown=shown) as count:
        benchmark.inspect(advance=count, job=job)
    with progress_bar("encoding", n_inputs(benchmark), shown=shown) as count:
        counted = advance or count
        driver = BenchmarkEncoder(encoder, benchmark, store=store, settings=settings, job=job, advance=counted)
        job.assert_equal("benchmark", (benchmark.name, benchmark.protocol.id, benchmark.fingerprint))
        job.assert_equal("model and settings", (driver.model, settings, top_k, seed, backend, memory))
        job.run_on_all("checking the budget", driver.check_budget)
        sanity_check = job.run_on_main("probing the encoder", driver.sanity_check)
        driver.encode()
    gallery = driver.gallery()
    targets = _targets(benchmark, seed)
    ranker = Ranker(gallery, backend=backend, device=device, memory=memory, max_norm=1.0, job=job)
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
            alarms=(*sanity_check.alarms, *((EncoderWarning.COLLAPSED,) if has_collapsed(gallery) else ())),
            batch_deviation=sanity_check.batch_deviation,
            source=benchmark.source,
        )

    queries = tuple(query.id for query in benchmark.queries)
    targets_of = tuple(query.targets for query in benchmark.queries)
    return Run(job.run_on_main("describing the run", manifest), queries, targets_of, results)


def n_inputs(benchmark: Benchmark) -> int:
    """Count the inputs that `run_benchmark` reports through `advance`."""
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
            raise MismatchError(f"{other.model.name} occurs twice; a pool has one Run per model, of one revision")
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
    """Apply a reference policy to ranks; they are infinite where the target cannot be retrieved."""
    ranks = rank.astype(np.float64)
    if policy is ReferencePolicy.REMOVED:
        ranks -= np.isin(place, (ReferencePosition.TIED, ReferencePosition.ABOVE))
        ranks[place == ReferencePosition.IS_TARGET] = np.inf
    ranks[rank == UNREACHABLE] = np.inf
    return ranks
