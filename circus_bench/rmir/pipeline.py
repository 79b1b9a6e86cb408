"""All stages in their order, each run when its outcome is not there yet.

What a stage makes lies in a folder that is named after everything it depends on: see `circus_bench.rmir.stage_cache`. So a
changed prompt or setting runs again what depends on it and nothing else, and a run that was killed goes on with the
batch, and within it with the question, that it had come to.
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

import numpy as np

from circus_bench.api.runtime import Meter
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.errors import CircusError
from circus_bench.images import ParquetImages
from circus_bench.rmir import steps
from circus_bench.rmir.config import Config, Side
from circus_bench.rmir.embedders import Floats, Role
from circus_bench.rmir.executors import Engine, Work
from circus_bench.rmir.records import (
    Assigned,
    Candidate,
    Caption,
    Check,
    Deleted,
    Draft,
    Index,
    Judged,
    PoolImage,
    Removed,
    Seed,
    Unanswered,
    Vote,
)
from circus_bench.rmir.stage_cache import Batch, StageFolder, batches_of
from circus_bench.rmir.stages import candidates, caption, consensus, filter, generate, judge, pool, seed, split  # noqa: A004
from circus_bench.rmir.templates import Template, load_templates

T = TypeVar("T")

_SHARD = (
    1024  # inputs that are encoded, and stored, together; not a setting, for vectors may depend on their neighbours
)


class Stage(StrEnum):
    """The steps of the pipeline, in the order in which they are run."""

    LOOK = "look"
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


KINDS: Mapping[Stage, tuple[type[Any], ...]] = {
    Stage.LOOK: (seed.Seen,),
    Stage.SEED: (Removed, Seed),
    Stage.GENERATE: (Unanswered, Draft),
    Stage.FILTER: (Check, Draft),
    Stage.CAPTION: (Unanswered, Caption),
    Stage.CANDIDATES: (Candidate,),
    Stage.JUDGE: (Vote, Judged),
    Stage.KEEP: (Deleted, Judged),
    Stage.POOL: (PoolImage,),
    Stage.SPLIT: (Assigned,),
}
"""The rows that each stage makes."""

INPUTS: Mapping[Stage, tuple[Stage, ...]] = {
    Stage.LOOK: (),
    Stage.SEED: (Stage.LOOK,),
    Stage.GENERATE: (Stage.SEED,),
    Stage.FILTER: (Stage.GENERATE,),
    Stage.CAPTION: (Stage.SEED,),
    Stage.CANDIDATES: (Stage.FILTER, Stage.CAPTION),
    Stage.JUDGE: (Stage.CANDIDATES,),
    Stage.KEEP: (Stage.JUDGE,),
    Stage.POOL: (Stage.KEEP,),
    Stage.SPLIT: (Stage.POOL,),
}
"""What each stage depends on, besides what that depends on."""

Watch = Callable[[str, int, int], object]
"""Told of the rows, or images, of a stage or another step: its name, how many are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stage is.

    Attributes:
        stage: which one.
        key: of its folder.
        done: whether its outcome is there.
        rows: how many there are, by kind.
        batches: finished ones of a stage that is under way, and how many there are; None where that is not known.
    """

    stage: Stage
    key: str
    done: bool
    rows: Mapping[str, int]
    batches: tuple[int, int] | None


class Pipeline:
    """One benchmark in the making.

    Args:
        config: the settings.
        root: folder of the outcomes. Several configurations may share it; what they have in common is made once.
        engine: does the work.
        watch: told of the progress.

    Attributes:
        config: the settings.
        root: folder of the outcomes.
        watch: told of the progress.
    """

    def __init__(self, config: Config, root: Path, engine: Engine, *, watch: Watch = lambda *_: None) -> None:
        self.config = config
        self.root = root
        self._engine = engine
        self.watch = watch
        self._templates = load_templates(config.prompts)
        self._folders: dict[Stage, StageFolder] = {}

    @property
    def meter(self) -> Meter | None:
        """What is spent in this run; None where nothing is charged."""
        return self._engine.tools.meter

    @property
    def images(self) -> Mapping[str, bytes]:
        """The collection."""
        return self._engine.tools.images

    def folder(self, stage: Stage) -> StageFolder:
        """Where the outcome of a stage lies, or will."""
        if stage not in self._folders:
            about = {
                "version": _VERSIONS[stage],
                "settings": self._settings(stage),
                "templates": {name: self._templates[name].digest for name in self._asks(stage)},
                "inputs": {of.value: self.folder(of).key for of in INPUTS[stage]},
            }
            self._folders[stage] = StageFolder(self.root, stage, KINDS[stage], about)
        return self._folders[stage]

    def rows(self, stage: Stage, kind: type[T]) -> list[T]:
        """The rows of a kind that a stage made.

        Raises:
            FormatError: the stage was not run to its end.
        """
        return self.folder(stage).rows(kind)

    def run(self, last: Stage = Stage.SPLIT) -> None:
        """Run a stage and all that it depends on, as far as their outcomes are not there.

        Raises:
            BudgetError: the budget is used up. What was answered is kept; a repeated run goes on.
            CircusError: a stage cannot be done.
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
                if stage in at_once:
                    at_once[stage]()
                else:
                    self._run_in_batches(stage)

    def progress(self) -> list[Progress]:
        """How far every stage is; nothing is run or asked."""
        return [self._progress(stage) for stage in Stage]

    def batches(self, stage: Stage) -> list[Batch]:
        """The batches of a stage that is done in batches; its inputs have to be there.

        Raises:
            FormatError: they are not.
        """
        return batches_of(self._items(stage), self.config.run.batch_size)

    def _progress(self, stage: Stage) -> Progress:
        folder = self.folder(stage)
        ready = all(self.folder(of).is_done for of in needed(stage) - {stage})
        batches = None
        if stage in IN_BATCHES and ready and not folder.is_done:
            given = self.batches(stage)
            batches = (sum(map(folder.holds, given)), len(given))
        return Progress(stage, folder.key, folder.is_done, folder.counts, batches)

    def _settings(self, stage: Stage) -> dict[str, Any]:
        """The settings that a stage's outcome depends on."""
        config, tools = self.config, self._engine.tools
        if stage is Stage.LOOK:
            return {"collection": _collection(tools.images, tools.version)}
        if stage is Stage.SEED and not config.seed.clusters:
            return {"clusters": 0, "near": config.seed.near}
        if stage is Stage.CAPTION:
            used = {"given": _digest(tools.captions.items()), **dataclasses.asdict(config.caption)}
            return used if config.candidates.text_k else {}
        if stage is Stage.SPLIT:
            return {**dataclasses.asdict(config.split), "visual_k": config.candidates.visual_k}
        return {} if stage is Stage.POOL else dataclasses.asdict(getattr(config, stage.value))

    def _asks(self, stage: Stage) -> list[str]:
        """The templates of a stage's questions."""
        names = {
            Stage.GENERATE: [f"generate_{category}" for category in self.config.generate.categories],
            Stage.FILTER: [f"check_{constraint}" for constraint in self.config.filter.constraints],
            Stage.CAPTION: ["caption"] if self.config.candidates.text_k else [],
            Stage.JUDGE: ["judge"],
        }
        return names.get(stage, [])

    def _items(self, stage: Stage) -> Sequence[Any]:
        """What a stage that is done in batches works through."""
        if stage is Stage.LOOK:
            return sorted(self._engine.tools.images)
        if stage is Stage.GENERATE:
            return self.rows(Stage.SEED, Seed)
        if stage is Stage.FILTER:
            return self.rows(Stage.GENERATE, Draft)
        if stage is Stage.CAPTION:
            given = self._engine.tools.captions
            wanted = self.rows(Stage.SEED, Seed) if self.config.candidates.text_k else []
            return [row for row in wanted if row.image not in given]
        images = candidates.images_of(self.rows(Stage.CANDIDATES, Candidate))
        drafts = self.rows(Stage.FILTER, Draft)
        return [judge.Case(draft, tuple(images[draft.query])) for draft in drafts if draft.query in images]

    def _run_in_batches(self, stage: Stage) -> None:
        folder, batches = self.folder(stage), self.batches(stage)
        step = IN_BATCHES[stage](self.config, self._templates)
        open_ones = [batch for batch in batches if not folder.holds(batch)]
        total = sum(map(len, batches))
        self._do(stage, partial(steps.leave, folder=folder, step=step), open_ones, total=total)
        folder.join(batches)

    def _do(self, stage: Stage, work: Work[Batch], batches: Sequence[Batch], *, total: int) -> None:
        done = total - sum(map(len, batches))
        self.watch(stage, done, total)
        for batch in self._engine.do(work, batches):
            done += len(batch)
            self.watch(stage, done, total)

    def _run_seed(self) -> None:
        settings = self.config.seed
        seen = self.rows(Stage.LOOK, seed.Seen)
        ids, removed = seed.distinct(seen, near=settings.near)
        if not ids:
            raise CircusError(f"none of the {len(seen):,} images of the collection can be decoded")
        vectors = self._image_vectors(Stage.SEED, settings.embedder, ids) if settings.clusters else None
        self.folder(Stage.SEED).write({Removed: removed, Seed: seed.draw(ids, vectors, settings=settings)})

    def _run_candidates(self) -> None:
        settings = self.config.candidates
        drafts = self.rows(Stage.FILTER, Draft)
        ids = [row.image for row in self.rows(Stage.SEED, Seed)]
        wanted = [draft.text if settings.search is Side.QUESTION else draft.answer for draft in drafts]
        captions = self._captions(ids)
        indexes: dict[Index, candidates.Searched] = {}
        if drafts:
            images = self._image_vectors(Stage.CANDIDATES, settings.visual, ids)
            queries = self._text_vectors(settings.visual, wanted, Role.QUERY)
            indexes[Index.VISUAL] = candidates.Searched(ids, images, queries, settings.visual_k)
        if drafts and captions:
            texts = self._text_vectors(settings.text, list(captions.values()), Role.DOCUMENT)
            queries = self._text_vectors(settings.text, wanted, Role.QUERY)
            indexes[Index.TEXT] = candidates.Searched(list(captions), texts, queries, settings.text_k)
        self.folder(Stage.CANDIDATES).write({Candidate: candidates.search(drafts, indexes)})

    def _captions(self, ids: Sequence[str]) -> dict[str, str]:
        """The captions of the seeds that have one, the collection's own or made, in the seeds' order."""
        if not self.config.candidates.text_k:
            return {}
        made = {row.image: row.text for row in self.rows(Stage.CAPTION, Caption)}
        every = {**made, **self._engine.tools.captions}
        return {image: every[image] for image in ids if image in every}

    def _run_keep(self) -> None:
        judged = self.rows(Stage.JUDGE, Judged)
        survivors, deleted = consensus.keep(judged, confidence=self.config.keep.confidence)
        self.folder(Stage.KEEP).write({Deleted: deleted, Judged: survivors})

    def _run_pool(self) -> None:
        self.folder(Stage.POOL).write({PoolImage: pool.pool(self.rows(Stage.KEEP, Judged))})

    def _run_split(self) -> None:
        assigned = split.split(
            self.rows(Stage.KEEP, Judged),
            self.rows(Stage.CANDIDATES, Candidate),
            self.rows(Stage.JUDGE, Judged),
            visual_k=self.config.candidates.visual_k,
            settings=self.config.split,
        )
        self.folder(Stage.SPLIT).write({Assigned: assigned})

    def _image_vectors(self, stage: Stage, model: str, ids: Sequence[str]) -> Floats:
        digests = {row.image: row.digest for row in self.rows(Stage.LOOK, seed.Seen)}
        return self._vectors(stage, model, steps.IMAGE, [(digests[image], image) for image in ids])

    def _text_vectors(self, model: str, texts: Sequence[str], role: Role) -> Floats:
        return self._vectors(Stage.CANDIDATES, model, role, [(steps.text_digest(text), text) for text in texts])

    def _vectors(self, stage: Stage, model: str, role: str, inputs: Sequence[tuple[str, str]]) -> Floats:
        """Encode what the store of the pipeline lacks; inputs are pairs of a digest and an image id or text.

        Returns:
            float32 [n_inputs, dim], rows of unit length.
        """
        root = self.root / "embeddings"
        key = {"model": model, "revision": "unspecified", "role": role}
        space = EmbeddingStore(root).space(key)
        distinct = dict(inputs)
        open_ones = [(digest, value) for digest, value in distinct.items() if digest not in space]
        if open_ones:
            space.prepare()  # workers would do it too, several at once
        batches = batches_of(open_ones, _SHARD)
        self._do(stage, partial(steps.embed, root=root, key=key), batches, total=len(distinct))
        vectors: Floats = EmbeddingStore(root).space(key).gather([digest for digest, _ in inputs])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


IN_BATCHES: Mapping[Stage, Callable[[Config, Mapping[str, Template]], steps.Step]] = {
    Stage.LOOK: steps.looking,
    Stage.GENERATE: steps.generating,
    Stage.FILTER: steps.filtering,
    Stage.CAPTION: steps.captioning,
    Stage.JUDGE: steps.judging,
}
"""The stages that are done in batches: what to do with a batch. The others need all rows at once."""

_VERSIONS = {
    Stage.LOOK: seed.VERSION,
    Stage.SEED: seed.VERSION,
    Stage.GENERATE: generate.VERSION,
    Stage.FILTER: filter.VERSION,
    Stage.CAPTION: caption.VERSION,
    Stage.CANDIDATES: candidates.VERSION,
    Stage.JUDGE: judge.VERSION,
    Stage.KEEP: consensus.VERSION,
    Stage.POOL: pool.VERSION,
    Stage.SPLIT: split.VERSION,
}


def needed(last: Stage) -> set[Stage]:
    """A stage and all that it depends on."""
    return {last}.union(*(needed(stage) for stage in INPUTS[last]))


def _collection(images: Mapping[str, bytes], version: str) -> str:
    """What a collection consists of: its ids and version, and the pictures' digests where they are recorded."""
    known = images.inspection.readable if isinstance(images, ParquetImages) else {}
    return _digest([("", version), *((image, known[image].digest if image in known else "") for image in images)])


def _digest(pairs: Iterable[tuple[str, str]]) -> str:
    return hashlib.sha256(json.dumps(sorted(pairs)).encode()).hexdigest()
