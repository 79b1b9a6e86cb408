"""What a worker does with a batch of a stage. Everything here can be sent to another process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.errors import EmbeddingError, some
from circus_bench.ranking.ranker import unusable_rows
from circus_bench.rmir.config import CaptionSettings, Config, FilterSettings, GenerateSettings, JudgeSettings
from circus_bench.rmir.embedders import Role
from circus_bench.rmir.executors import Tools
from circus_bench.rmir.records import (
    Caption,
    Category,
    Check,
    Constraint,
    Draft,
    Judged,
    Seed,
    Unanswered,
    Vote,
)
from circus_bench.rmir.stage_cache import Batch, StageFolder, Tables
from circus_bench.rmir.stages.caption import caption
from circus_bench.rmir.stages.consensus import sum_up
from circus_bench.rmir.stages.filter import check, passed
from circus_bench.rmir.stages.generate import generate
from circus_bench.rmir.stages.judge import Case, judge
from circus_bench.rmir.stages.seed import Seen, look
from circus_bench.rmir.templates import Template

Step = Callable[[Tools, Sequence[Any]], Tables]
"""From some input rows to the rows that a stage makes of them."""

IMAGE = "image"
"""The role of images in an embedding space."""


def leave(tools: Tools, batch: Batch, *, folder: StageFolder, step: Step) -> None:
    """Do a batch, and leave its outcome in the stage's folder."""
    folder.write_batch(batch, step(tools, batch.items))


def embed(tools: Tools, batch: Batch, *, root: Path, key: Mapping[str, str]) -> None:
    """Encode images or texts, and leave the vectors in a store.

    Args:
        tools: of this process.
        batch: pairs of a digest and an image id, or a text.
        root: of the store.
        key: of the space: the encoder, and under `role` whether these are images, queries or documents.

    Raises:
        EmbeddingError: a vector has no direction.
    """
    embedder = tools.embedder(key["model"])
    digests, values = zip(*batch.items, strict=True)
    if key["role"] == IMAGE:
        vectors = embedder.images([tools.images[image] for image in values])
    else:
        vectors = embedder.texts(values, role=Role(key["role"]))
    if len(bad := unusable_rows(vectors)):
        raise EmbeddingError(
            f"{key['model']} gave NaN, infinite or zero-length embeddings for {key['role']} inputs "
            f"({some(values[row] for row in bad)}); such vectors cannot be searched"
        )
    EmbeddingStore(root).space(key).write(digests, vectors)


def text_digest(text: str) -> str:
    """The name of a text in an embedding space."""
    return hashlib.sha256(text.encode()).hexdigest()


def looking(config: Config, templates: Mapping[str, Template]) -> Step:
    """Stage 0: decode images."""
    del config, templates
    return _look


def generating(config: Config, templates: Mapping[str, Template]) -> Step:
    """Stage 1."""
    wanted = {category: templates[f"generate_{category}"] for category in config.generate.categories}
    return partial(_generate, templates=wanted, settings=config.generate)


def filtering(config: Config, templates: Mapping[str, Template]) -> Step:
    """Stage 2."""
    wanted = {constraint: templates[f"check_{constraint}"] for constraint in config.filter.constraints}
    return partial(_filter, templates=wanted, settings=config.filter)


def captioning(config: Config, templates: Mapping[str, Template]) -> Step:
    """Stage 3: captions."""
    return partial(_caption, template=templates["caption"], settings=config.caption)


def judging(config: Config, templates: Mapping[str, Template]) -> Step:
    """Stage 4."""
    return partial(_judge, template=templates["judge"], settings=config.judge)


def _look(tools: Tools, ids: Sequence[str]) -> Tables:
    return {Seen: look(ids, images=tools.images)}


def _generate(
    tools: Tools, seeds: Sequence[Seed], *, templates: Mapping[Category, Template], settings: GenerateSettings
) -> Tables:
    drafts, unanswered = generate(seeds, images=tools.images, asker=tools.asker, templates=templates, settings=settings)
    return {Unanswered: unanswered, Draft: drafts}


def _filter(
    tools: Tools, drafts: Sequence[Draft], *, templates: Mapping[Constraint, Template], settings: FilterSettings
) -> Tables:
    checks = check(drafts, images=tools.images, asker=tools.asker, templates=templates, settings=settings)
    return {Check: checks, Draft: passed(drafts, checks, undecided=settings.undecided)}


def _caption(tools: Tools, seeds: Sequence[Seed], *, template: Template, settings: CaptionSettings) -> Tables:
    captions, unanswered = caption(seeds, images=tools.images, asker=tools.asker, template=template, settings=settings)
    return {Unanswered: unanswered, Caption: captions}


def _judge(tools: Tools, cases: Sequence[Case], *, template: Template, settings: JudgeSettings) -> Tables:
    votes = judge(cases, images=tools.images, asker=tools.asker, template=template, settings=settings)
    return {Vote: votes, Judged: sum_up(votes)}
