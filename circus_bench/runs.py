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

from circus_bench import __version__
from circus_bench.benchmark import Benchmark, Condition, Fingerprint, ReferencePolicy
from circus_bench.encoding import Alarm, BenchmarkEncoder, EncodeSettings, ModelIdentity, collapsed
from circus_bench.errors import CircusError, FormatError, MismatchError
from circus_bench.files import read_json, read_parquet, sha256, write_json, write_parquet
from circus_bench.metrics.ranks import Ranks
from circus_bench.ranking import (
    ABSENT,
    DEFAULT_MEMORY,
    UNREACHABLE,
    Ranking,
    ReferencePlace,
    Targets,
    rank_targets,
)
from circus_bench.scorers import Backend
from circus_bench.store import EmbeddingStore

if TYPE_CHECKING:
    import pyarrow as pa
    from mteb.models.models_protocols import EncoderProtocol

SCHEMA_VERSION = 1
RANKS_FILE, TOP_FILE, MANIFEST_FILE = "ranks.parquet", "topk.parquet", "manifest.json"
DEFAULT_TOP_K = 50  # what the CIRR and CIRCO servers ask for
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


@dataclass(frozen=True)
class ConditionResult:
    """The ranks of one condition; arrays over rows (query, target) or over queries.

    Attributes:
        ranking: see `Ranking`; `ranking.top` holds positions in the gallery and is empty after loading.
        top_ids: ids of the top of the gallery, one tuple a query.
        subset_ids: ids of the query's subset by falling score, its reference left out, one tuple a query.
    """

    ranking: Ranking
    top_ids: tuple[tuple[str, ...], ...]
    subset_ids: tuple[tuple[str, ...], ...]


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
        write_parquet(folder / RANKS_FILE, _rank_table(self))
        write_parquet(folder / TOP_FILE, _top_table(self))
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
        manifest = _read_manifest(folder)
        table = read_parquet(folder / RANKS_FILE, schema=_rank_schema())
        top = read_parquet(folder / TOP_FILE, schema=_top_schema())
        return _from_tables(manifest, table, top, where=folder / RANKS_FILE)


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
    advance: Callable[[int], object] = lambda _: None,
) -> Run:
    """Encode a benchmark under the three conditions and rank every target in the whole gallery.

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
        advance: called with the number of inputs encoded; `n_inputs` of them in all.

    Raises:
        ImageError: an image cannot be decoded.
        EmbeddingError: the encoder's vectors cannot be ranked.
    """
    driver = BenchmarkEncoder(encoder, benchmark, store=store, settings=settings, advance=advance)
    probe = driver.probe()
    gallery = driver.gallery()
    targets = _targets(benchmark, seed)
    results = {}
    for condition in Condition:
        ranking = rank_targets(
            driver.queries(condition),
            gallery,
            targets=targets,
            top_k=top_k,
            backend=backend,
            device=device,
            memory=memory,
        )
        results[condition] = ConditionResult(ranking, _ids(ranking.top, benchmark), _ids(ranking.subset_top, benchmark))
    manifest = Manifest(
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
    return Run(manifest, queries, tuple(query.targets for query in benchmark.queries), results)


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


def _rank_schema() -> pa.Schema:
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("query", pa.string()),
            ("condition", word),
            ("target", pa.string()),
            ("rank", pa.int32()),
            ("ties", pa.int32()),
            ("reference", word),
            ("null_rank", pa.int32()),
            ("null_reference", word),
            ("subset_rank", pa.int32()),
        ]
    )


def _rank_table(run: Run) -> pa.Table:
    import pyarrow as pa

    rows = np.diff(run.offsets)
    queries = np.repeat(np.array(run.queries, object), rows)
    targets = [target for of_query in run.targets for target in of_query]
    places = np.array([place.name.lower() for place in ReferencePlace], object)
    parts = []
    for condition in Condition:
        ranking = run.results[condition].ranking
        columns = {
            "query": pa.array(queries, pa.string()),
            "condition": pa.array([condition.value] * len(targets), pa.string()),
            "target": pa.array(targets, pa.string()),
            "rank": pa.array(ranking.rank, pa.int32(), mask=ranking.rank == UNREACHABLE),
            "ties": pa.array(ranking.ties, pa.int32()),
            "reference": pa.array(places[ranking.reference], pa.string()),
            "null_rank": pa.array(ranking.null_rank, pa.int32(), mask=ranking.null_rank == UNREACHABLE),
            "null_reference": pa.array(places[ranking.null_reference], pa.string()),
            "subset_rank": pa.array(ranking.subset_rank, pa.int32(), mask=ranking.subset_rank == UNREACHABLE),
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts).cast(_rank_schema()).unify_dictionaries().combine_chunks()


def _top_schema() -> pa.Schema:
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("query", pa.string()),
            ("condition", word),
            ("images", pa.list_(pa.string())),
            ("scores", pa.list_(pa.float32())),
            ("subset", pa.list_(pa.string())),
        ]
    )


def _top_table(run: Run) -> pa.Table:
    import pyarrow as pa

    parts = []
    for condition in Condition:
        result = run.results[condition]
        columns = {
            "query": pa.array(run.queries, pa.string()),
            "condition": pa.array([condition.value] * len(run.queries), pa.string()),
            "images": pa.array(result.top_ids, pa.list_(pa.string())),
            "scores": pa.array(list(result.ranking.top_score), pa.list_(pa.float32())),
            "subset": pa.array(result.subset_ids, pa.list_(pa.string())),
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts).cast(_top_schema()).unify_dictionaries().combine_chunks()


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST_FILE
    content = read_json(path)
    if content.get("schema_version") != SCHEMA_VERSION:
        raise FormatError(f"{path}: schema version {content.get('schema_version')!r}, expected {SCHEMA_VERSION}")
    try:
        for name in (RANKS_FILE, TOP_FILE):
            if sha256(folder / name) != content["files"][name]:
                raise FormatError(f"{folder / name}: not the file that {MANIFEST_FILE} describes (SHA-256 differs)")
        fields = {field.name: content[field.name] for field in dataclasses.fields(Manifest)}
        fields["model"] = ModelIdentity(**content["model"])
        fields["fingerprint"] = Fingerprint(**content["fingerprint"])
        fields["backend"] = Backend(content["backend"])
        fields["alarms"] = tuple(Alarm(alarm) for alarm in content["alarms"])
        ReferencePolicy(content["protocol"]["reference"])
        return Manifest(**fields)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise FormatError(f"{path}: {error!r}; see docs/formats.md") from error


def _from_tables(manifest: Manifest, table: pa.Table, top: pa.Table, *, where: Path) -> Run:
    conditions = np.array(table["condition"].to_pylist())
    first = table.filter(conditions == Condition.MULTIMODAL)
    pairs = list(zip(first["query"].to_pylist(), first["target"].to_pylist(), strict=True))
    # Where targets are hidden the rank table is empty, and the top-k table alone knows the queries.
    hidden = manifest.protocol["hidden_targets"]
    by_query: dict[str, list[str]] = {query: [] for query in top["query"].to_pylist()} if hidden else {}
    for query, target in pairs:
        by_query.setdefault(query, []).append(target)
    if len(by_query) != manifest.n_queries or len(set(pairs)) != len(pairs):
        raise FormatError(
            f"{where}: {len(by_query):,} queries and {len(pairs) - len(set(pairs)):,} repeated rows, "
            f"expected {manifest.n_queries:,} and none"
        )
    results = {}
    for condition in Condition:
        part = table.filter(conditions == condition)
        if list(zip(part["query"].to_pylist(), part["target"].to_pylist(), strict=True)) != pairs:
            raise FormatError(f"{where}: the rows of {condition} are not those of {Condition.MULTIMODAL}")
        of_top = top.filter(np.array(top["condition"].to_pylist()) == condition)
        if of_top["query"].to_pylist() != list(by_query):
            raise FormatError(f"{where.with_name(TOP_FILE)}: the queries of {condition} are not those of {where.name}")
        results[condition] = _result(part, of_top, n_gallery=manifest.n_gallery, where=where)
    return Run(manifest, tuple(by_query), tuple(map(tuple, by_query.values())), results)


def _result(part: pa.Table, top: pa.Table, *, n_gallery: int, where: Path) -> ConditionResult:
    import pyarrow.compute as pc

    def integers(name: str) -> NDArray[np.int64]:
        column: NDArray[np.int32] = pc.fill_null(part[name], UNREACHABLE).to_numpy()
        return column.astype(np.int64)

    def places(name: str) -> NDArray[np.int8]:
        return np.array([ReferencePlace[place.upper()] for place in part[name].to_pylist()], np.int8)

    top_score = np.array(top["scores"].to_pylist(), np.float32).reshape(len(top), -1)
    ranking = Ranking(
        rank=integers("rank"),
        ties=integers("ties"),
        reference=places("reference"),
        null_rank=integers("null_rank"),
        null_reference=places("null_reference"),
        subset_rank=integers("subset_rank"),
        top=np.empty((len(top), 0), np.int64),
        top_score=top_score,
        subset_top=np.empty((len(top), 0), np.int64),
    )
    for name in ("rank", "null_rank", "subset_rank"):
        values = getattr(ranking, name)
        if len(values) and not 0 <= values.min() <= values.max() <= n_gallery:
            raise FormatError(f"{where}: {name} outside 1 to {n_gallery:,}, the size of the gallery")
    ids, subset = (tuple(map(tuple, top[name].to_pylist())) for name in ("images", "subset"))
    return ConditionResult(ranking, ids, subset)
