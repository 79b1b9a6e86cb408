"""Process a batch of a stage in a worker. Everything here can be sent to another process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.errors import EmbeddingError, format_ids
from circus_bench.rmir.config import Config
from circus_bench.rmir.embedders import PromptRole
from circus_bench.rmir.executors import Resources
from circus_bench.rmir.records import (
    CandidateConsensus,
    Caption,
    Check,
    Draft,
    FailedRequest,
    ScannedImage,
    Seed,
    Vote,
)
from circus_bench.rmir.stage_cache import StageBatch, StageFolder, Tables
from circus_bench.rmir.stages.caption import caption
from circus_bench.rmir.stages.consensus import aggregate_votes
from circus_bench.rmir.stages.filter import check, passed
from circus_bench.rmir.stages.generate import generate
from circus_bench.rmir.stages.judge import CandidateList, judge
from circus_bench.rmir.stages.seed import scan_collection
from circus_bench.rmir.templates import Template
from circus_bench.vectors import unusable_rows

StageStep = Callable[..., Tables]
"""Makes the output rows of a stage from input rows: `step(resources, rows, config=config, templates=templates)`."""

Templates = Mapping[str, Template]

IMAGE = "image"
"""The role of images in the embedding store."""


def run_batch(
    resources: Resources,
    batch: StageBatch,
    *,
    folder: StageFolder,
    step: StageStep,
    config: Config,
    templates: Templates,
) -> None:
    """Process a batch, and write its output to the stage's folder."""
    folder.write_batch(batch, step(resources, batch.items, config=config, templates=templates))


def embed_batch(resources: Resources, batch: StageBatch, *, root: Path, key: Mapping[str, str]) -> None:
    """Encode images or texts, and write the vectors to a store.

    Args:
        resources: of this process.
        batch: pairs of a digest and an image id, or a text.
        root: of the store.
        key: of the partition: the encoder, and under `role` whether these are images, queries or documents.

    Raises:
        EmbeddingError: a vector has no direction.
    """
    embedder = resources.embedder(key["model"])
    digests, values = zip(*batch.items, strict=True)
    if key["role"] == IMAGE:
        vectors = embedder.images([resources.images[image] for image in values])
    else:
        vectors = embedder.texts(values, role=PromptRole(key["role"]))
    if len(bad := unusable_rows(vectors)):
        raise EmbeddingError(
            f"{key['model']} gave NaN, infinite or zero-length embeddings for {key['role']} inputs "
            f"({format_ids(values[row] for row in bad)}); such vectors cannot be searched"
        )
    EmbeddingStore(root).partition(key).write(digests, vectors)


def text_digest(text: str) -> str:
    """Digest a text for the embedding store."""
    return hashlib.sha256(text.encode()).hexdigest()


def scan_step(resources: Resources, ids: Sequence[str], *, config: Config, templates: Templates) -> Tables:
    """Run stage 0 on a batch: decode images."""
    del config, templates
    return {ScannedImage: scan_collection(ids, images=resources.images)}


def generate_step(resources: Resources, seeds: Sequence[Seed], *, config: Config, templates: Templates) -> Tables:
    """Run stage 1 on a batch."""
    wanted = {category: templates[f"generate_{category}"] for category in config.generate.categories}
    drafts, failed = generate(
        seeds, images=resources.images, client=resources.client, templates=wanted, settings=config.generate
    )
    return {FailedRequest: failed, Draft: drafts}


def filter_step(resources: Resources, drafts: Sequence[Draft], *, config: Config, templates: Templates) -> Tables:
    """Run stage 2 on a batch."""
    wanted = {constraint: templates[f"check_{constraint}"] for constraint in config.filter.constraints}
    checks = check(drafts, images=resources.images, client=resources.client, templates=wanted, settings=config.filter)
    return {Check: checks, Draft: passed(drafts, checks, undecided=config.filter.undecided)}


def caption_step(resources: Resources, seeds: Sequence[Seed], *, config: Config, templates: Templates) -> Tables:
    """Run the captioning of stage 3 on a batch."""
    captions, failed = caption(
        seeds, images=resources.images, client=resources.client, template=templates["caption"], settings=config.caption
    )
    return {FailedRequest: failed, Caption: captions}


def judge_step(resources: Resources, lists: Sequence[CandidateList], *, config: Config, templates: Templates) -> Tables:
    """Run stage 4 on a batch."""
    votes = judge(
        lists, images=resources.images, client=resources.client, template=templates["judge"], settings=config.judge
    )
    return {Vote: votes, CandidateConsensus: aggregate_votes(votes)}
