"""Run the stages in their order, each when its output is not cached yet.

The output of a stage lies in a folder that is named after everything it depends on: see
`circus_bench.rmir.stage_cache`. So a changed prompt or setting reruns what depends on it and nothing else, and a run
that was killed goes on with the batch, and within it with the request, that it had come to.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from circus_bench._typing import StrPath
from circus_bench.api.runtime import Budget
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.errors import CircusError
from circus_bench.images import ParquetImages
from circus_bench.rmir import steps
from circus_bench.rmir.config import Config, SearchText
from circus_bench.rmir.embedders import Floats, PromptRole
from circus_bench.rmir.executors import Executor, Task
from circus_bench.rmir.records import (
    Candidate,
    CandidateConsensus,
    Caption,
    Check,
    Draft,
    DroppedImage,
    ExcludedImage,
    FailedRequest,
    Index,
    PoolImage,
    ScannedImage,
    Seed,
    SplitAssignment,
    Vote,
)
from circus_bench.rmir.stage_cache import StageBatch, StageFolder, batches_of
from circus_bench.rmir.stages import candidates, caption, consensus, filter, generate, judge, pool, seed, split  # noqa: A004
from circus_bench.rmir.templates import load_templates
from circus_bench.vectors import to_unit_length

T = TypeVar("T")

_SHARD = 1024
"""Inputs that are encoded, and stored, together; not a setting, for vectors may depend on their neighbors."""


class Stage(StrEnum):
    """Steps of the pipeline, in the order in which they are run."""

    SCAN = "look"
    """Stage 0: every image is decoded."""
    SEED = "seed"
    """Stage 0."""
    GENERATE = "generate"
    """Stage 1."""
    FILTER = "filter"
    """Stage 2."""
    CAPTION = "caption"
    """Stage 3: the text index."""
    CANDIDATES = "candidates"
    """Stage 3."""
    JUDGE = "judge"
    """Stage 4."""
    KEEP = "keep"
    """Stage 5."""
    POOL = "pool"
    """Stage 6."""
    SPLIT = "split"
    """Stage 7."""


@dataclass(frozen=True)
class StageSpec:
    """Specification of a stage.

    Attributes:
        inputs: stages that it depends on directly.
        kinds: of the rows that it makes.
        version: of its code.
        step: for a batch; None where a stage needs all rows at once.
    """

    inputs: tuple[Stage, ...]
    kinds: tuple[type[Any], ...]
    version: int
    step: steps.StageStep | None = None


SPECS: Mapping[Stage, StageSpec] = {
    Stage.SCAN: StageSpec((), (ScannedImage,), seed.VERSION, steps.scan_step),
    Stage.SEED: StageSpec((Stage.SCAN,), (DroppedImage, Seed), seed.VERSION),
    Stage.GENERATE: StageSpec((Stage.SEED,), (FailedRequest, Draft), generate.VERSION, steps.generate_step),
    Stage.FILTER: StageSpec((Stage.GENERATE,), (Check, Draft), filter.VERSION, steps.filter_step),
    Stage.CAPTION: StageSpec((Stage.SEED,), (FailedRequest, Caption), caption.VERSION, steps.caption_step),
    Stage.CANDIDATES: StageSpec((Stage.FILTER, Stage.CAPTION), (Candidate,), candidates.VERSION),
    Stage.JUDGE: StageSpec((Stage.CANDIDATES,), (Vote, CandidateConsensus), judge.VERSION, steps.judge_step),
    Stage.KEEP: StageSpec((Stage.JUDGE,), (ExcludedImage, CandidateConsensus), consensus.VERSION),
    Stage.POOL: StageSpec((Stage.KEEP,), (PoolImage,), pool.VERSION),
    Stage.SPLIT: StageSpec((Stage.POOL,), (SplitAssignment,), split.VERSION),
}

Watch = Callable[[str, int, int], object]
"""Progress callback: name of a stage or another step, rows or images that are done, and their total."""


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Progress of a stage.

    Attributes:
        stage: the stage.
        key: of its folder.
        done: whether its output is complete.
        rows: number of rows per kind.
        batches: finished ones of a stage that is under way, and their total; None where that is not known.
    """

    stage: Stage
    key: str
    done: bool
    rows: Mapping[str, int]
    batches: tuple[int, int] | None


class Pipeline:
    """Pipeline that makes one benchmark.

    Args:
        config: the hyperparameters.
        root: folder of the outputs. Several configurations may share it; stages that they have in common run once.
        executor: maps tasks over batches.
        watch: called with the progress.

    Attributes:
        config: the hyperparameters.
        root: folder of the outputs.
        watch: called with the progress.
    """

    def __init__(self, config: Config, root: StrPath, executor: Executor, *, watch: Watch = lambda *_: None) -> None:
        self.config = config
        self.root = Path(root)
        self._executor = executor
        self.watch = watch
        self._templates = load_templates(config.prompts)
        self._folders: dict[Stage, StageFolder] = {}

    @property
    def budget(self) -> Budget | None:
        """Budget of this run; None where nothing is charged."""
        return self._executor.resources.budget

    @property
    def images(self) -> Mapping[str, bytes]:
        """The collection."""
        return self._executor.resources.images

    def folder(self, stage: Stage) -> StageFolder:
        """Return the output folder of a stage."""
        if stage not in self._folders:
            about = {
                "version": SPECS[stage].version,
                "settings": self._settings(stage),
                "templates": {name: self._templates[name].digest for name in self._template_names(stage)},
                "inputs": {of.value: self.folder(of).key for of in SPECS[stage].inputs},
            }
            self._folders[stage] = StageFolder(self.root, stage, SPECS[stage].kinds, about)
        return self._folders[stage]

    def rows(self, stage: Stage, kind: type[T]) -> list[T]:
        """Load the rows of a kind that a stage made.

        Raises:
            FormatError: the stage was not run to its end.
        """
        return self.folder(stage).rows(kind)

    def run(self, last: Stage = Stage.SPLIT) -> None:
        """Run a stage and all that it depends on, as far as their outputs are not cached.

        Raises:
            BudgetError: the budget is used up. Completions are cached; a repeated run goes on.
            CircusError: a stage cannot be run.
        """
        at_once = {
            Stage.SEED: self._run_seed,
            Stage.CANDIDATES: self._run_candidates,
            Stage.KEEP: self._run_keep,
            Stage.POOL: self._run_pool,
            Stage.SPLIT: self._run_split,
        }
        for stage in Stage:
            if stage in needed(last) and not self.folder(stage).is_done:
                if step := SPECS[stage].step:
                    self._run_in_batches(stage, step)
                else:
                    at_once[stage]()

    def progress(self) -> list[StageProgress]:
        """Report the progress of every stage; nothing is run or requested."""
        return [self._progress(stage) for stage in Stage]

    def batches(self, stage: Stage) -> list[StageBatch]:
        """Cut the inputs of a stage that runs in batches; the stages before it have to be done.

        Raises:
            FormatError: they are not.
        """
        return batches_of(self._items(stage), self.config.run.batch_size)

    def _progress(self, stage: Stage) -> StageProgress:
        folder = self.folder(stage)
        ready = all(self.folder(of).is_done for of in needed(stage) - {stage})
        batches = None
        if SPECS[stage].step and ready and not folder.is_done:
            given = self.batches(stage)
            batches = (sum(map(folder.holds, given)), len(given))
        return StageProgress(stage, folder.key, folder.is_done, folder.counts, batches)

    def _settings(self, stage: Stage) -> dict[str, Any]:
        """Collect the settings that a stage's output depends on."""
        config, resources = self.config, self._executor.resources
        if stage is Stage.SCAN:
            return {"collection": _collection(resources.images, resources.version)}
        if stage is Stage.SEED and not config.seed.clusters:
            return {"clusters": 0, "near": config.seed.near}
        if stage is Stage.CAPTION:
            used = {"given": _digest(resources.captions.items()), **dataclasses.asdict(config.caption)}
            return used if config.candidates.text_k else {}
        if stage is Stage.SPLIT:
            return {**dataclasses.asdict(config.split), "visual_k": config.candidates.visual_k}
        return {} if stage is Stage.POOL else dataclasses.asdict(getattr(config, stage.value))

    def _template_names(self, stage: Stage) -> list[str]:
        """List the templates of a stage's requests."""
        names = {
            Stage.GENERATE: [f"generate_{category}" for category in self.config.generate.categories],
            Stage.FILTER: [f"check_{constraint}" for constraint in self.config.filter.constraints],
            Stage.CAPTION: ["caption"] if self.config.candidates.text_k else [],
            Stage.JUDGE: ["judge"],
        }
        return names.get(stage, [])

    def _items(self, stage: Stage) -> Sequence[Any]:
        """List the input rows of a stage that runs in batches."""
        if stage is Stage.SCAN:
            return sorted(self._executor.resources.images)
        if stage is Stage.GENERATE:
            return self.rows(Stage.SEED, Seed)
        if stage is Stage.FILTER:
            return self.rows(Stage.GENERATE, Draft)
        if stage is Stage.CAPTION:
            given = self._executor.resources.captions
            wanted = self.rows(Stage.SEED, Seed) if self.config.candidates.text_k else []
            return [row for row in wanted if row.image not in given]
        images = candidates.images_by_query(self.rows(Stage.CANDIDATES, Candidate))
        drafts = self.rows(Stage.FILTER, Draft)
        return [judge.CandidateList(draft, tuple(images[draft.query])) for draft in drafts if draft.query in images]

    def _run_in_batches(self, stage: Stage, step: steps.StageStep) -> None:
        folder, batches = self.folder(stage), self.batches(stage)
        open_ones = [batch for batch in batches if not folder.holds(batch)]
        task = partial(
            steps.run_batch,
            folder=folder,
            step=step,
            config=self.config,
            templates={name: self._templates[name] for name in self._template_names(stage)},
        )
        self._map(stage, task, open_ones, total=sum(map(len, batches)))
        folder.join(batches)

    def _map(self, stage: Stage, task: Task[StageBatch], batches: Sequence[StageBatch], *, total: int) -> None:
        done = total - sum(map(len, batches))
        self.watch(stage, done, total)
        for batch in self._executor.map(task, batches):
            done += len(batch)
            self.watch(stage, done, total)

    def _run_seed(self) -> None:
        settings = self.config.seed
        seen = self.rows(Stage.SCAN, ScannedImage)
        ids, dropped = seed.deduplicate(seen, near=settings.near)
        if not ids:
            raise CircusError(f"none of the {len(seen):,} images of the collection can be decoded")
        vectors = self._image_vectors(Stage.SEED, settings.embedder, ids) if settings.clusters else None
        self.folder(Stage.SEED).write({DroppedImage: dropped, Seed: seed.sample_seeds(ids, vectors, settings=settings)})

    def _run_candidates(self) -> None:
        settings = self.config.candidates
        drafts = self.rows(Stage.FILTER, Draft)
        ids = [row.image for row in self.rows(Stage.SEED, Seed)]
        wanted = [draft.text if settings.search is SearchText.QUESTION else draft.answer for draft in drafts]
        captions = self._captions(ids)
        indexes: dict[Index, candidates.IndexSearch] = {}
        if drafts:
            images = self._image_vectors(Stage.CANDIDATES, settings.visual, ids)
            queries = self._text_vectors(settings.visual, wanted, PromptRole.QUERY)
            indexes[Index.VISUAL] = candidates.IndexSearch(ids, images, queries, settings.visual_k)
        if drafts and captions:
            texts = self._text_vectors(settings.text, list(captions.values()), PromptRole.DOCUMENT)
            queries = self._text_vectors(settings.text, wanted, PromptRole.QUERY)
            indexes[Index.TEXT] = candidates.IndexSearch(list(captions), texts, queries, settings.text_k)
        self.folder(Stage.CANDIDATES).write({Candidate: candidates.search(drafts, indexes)})

    def _captions(self, ids: Sequence[str]) -> dict[str, str]:
        """Collect the captions of the seeds that have one, the collection's own or made, in the seeds' order."""
        if not self.config.candidates.text_k:
            return {}
        made = {row.image: row.text for row in self.rows(Stage.CAPTION, Caption)}
        every = {**made, **self._executor.resources.captions}
        return {image: every[image] for image in ids if image in every}

    def _run_keep(self) -> None:
        judged = self.rows(Stage.JUDGE, CandidateConsensus)
        survivors, excluded = consensus.filter_by_consensus(judged, confidence=self.config.keep.confidence)
        self.folder(Stage.KEEP).write({ExcludedImage: excluded, CandidateConsensus: survivors})

    def _run_pool(self) -> None:
        self.folder(Stage.POOL).write({PoolImage: pool.pool(self.rows(Stage.KEEP, CandidateConsensus))})

    def _run_split(self) -> None:
        assigned = split.split(
            self.rows(Stage.KEEP, CandidateConsensus),
            self.rows(Stage.CANDIDATES, Candidate),
            self.rows(Stage.JUDGE, CandidateConsensus),
            visual_k=self.config.candidates.visual_k,
            settings=self.config.split,
        )
        self.folder(Stage.SPLIT).write({SplitAssignment: assigned})

    def _image_vectors(self, stage: Stage, model: str, ids: Sequence[str]) -> Floats:
        digests = {row.image: row.digest for row in self.rows(Stage.SCAN, ScannedImage)}
        return self._vectors(stage, model, steps.IMAGE, [(digests[image], image) for image in ids])

    def _text_vectors(self, model: str, texts: Sequence[str], role: PromptRole) -> Floats:
        return self._vectors(Stage.CANDIDATES, model, role, [(steps.text_digest(text), text) for text in texts])

    def _vectors(self, stage: Stage, model: str, role: str, inputs: Sequence[tuple[str, str]]) -> Floats:
        """Encode what the store of the pipeline lacks; inputs are pairs of a digest and an image id or text.

        Returns:
            float32 [n_inputs, dim], rows of unit length.
        """
        root = self.root / "embeddings"
        key = {"model": model, "revision": "unspecified", "role": role}
        partition = EmbeddingStore(root).partition(key)
        distinct = dict(inputs)
        open_ones = [(digest, value) for digest, value in distinct.items() if digest not in partition]
        if open_ones:
            partition.create()  # workers would do it too, several at once
        batches = batches_of(open_ones, _SHARD)
        self._map(stage, partial(steps.embed_batch, root=root, key=key), batches, total=len(distinct))
        vectors = EmbeddingStore(root).partition(key).gather([digest for digest, _ in inputs])
        return to_unit_length(vectors, out=vectors)


def needed(last: Stage) -> set[Stage]:
    """Return a stage and all that it depends on."""
    return {last}.union(*(needed(stage) for stage in SPECS[last].inputs))


def _collection(images: Mapping[str, bytes], version: str) -> str:
    """Digest a collection: its ids and version, and the pictures' digests where they are recorded."""
    known = images.inspection.readable if isinstance(images, ParquetImages) else {}
    return _digest([("", version), *((image, known[image].digest if image in known else "") for image in images)])


def _digest(pairs: Iterable[tuple[str, str]]) -> str:
    return hashlib.sha256(json.dumps(sorted(pairs)).encode()).hexdigest()
