"""Define the hyperparameters of the RMIR pipeline: the paper's values, and our defaults where it gives none.

In every stage `model` is the model that is called, `temperature` that of its sampling, and `max_tokens` the most of a
reply.

Example:
    >>> Config().keep.confidence, Config().candidates.visual_k + Config().candidates.text_k
    (1.0, 20)
    >>> [judge.name for judge in Config().judge.judges][:2]
    ['claude-sonnet-4-5@0.85', 'claude-haiku-4-5@0.85']
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.api.chat.shared import ProviderSettings
from circus_bench.errors import FormatError
from circus_bench.rmir.records import Category, Constraint
from circus_bench.rmir.settings_file import read_settings

STRONG, LIGHT = "claude-sonnet-4-5", "claude-haiku-4-5"


class DedupMode(StrEnum):
    """Rule for near duplicates in the collection, by perceptual hash; exact duplicates are always dropped."""

    OFF = "off"
    """No near duplicates. Drawings on a plain ground share hashes without being alike."""
    SAME_HASH = "same_hash"
    """Images with the same hash."""
    ONE_BIT = "one_bit"
    """Images whose hashes differ in at most one bit."""


class ReadabilityMetric(StrEnum):
    """Measure of a query's reading grade."""

    TEXTSTAT = "textstat"
    """Flesch-Kincaid by `textstat`, which needs NLTK's pronouncing dictionary."""
    OFF = "off"
    """No measure."""


class UndecidedPolicy(StrEnum):
    """Policy for a draft that passed every check but those without a usable verdict."""

    DROP = "drop"
    PASS = "pass"  # noqa: S105  # no password


class SearchText(StrEnum):
    """Text of a draft that the indexes are searched with."""

    ANSWER = "answer"
    """The description of an image that answers the question."""
    QUESTION = "question"
    """The question itself."""


class TsrScope(StrEnum):
    """Candidates of the visual index that TSR is computed on."""

    SURVIVING = "surviving"
    """Candidates that stage 5 kept: the list is about the pool as it is."""
    JUDGED = "judged"
    """All candidates that were judged, with their doubts."""


@dataclass(frozen=True, slots=True)
class SeedSettings:
    """Stage 0. The paper: 50,000 clusters, 10 images each; how it embeds and clusters is unknown.

    Attributes:
        embedder: encoder of the images.
        clusters: how many; 0 takes every image, without clustering.
        per_cluster: images sampled per cluster.
        iterations: of k-means.
        seed: of k-means and of the sampling.
        near: near duplicates that are dropped; exact ones always are.
    """

    embedder: str = "google/siglip2-so400m-patch14-384"
    clusters: int = 50_000
    per_cluster: int = 10
    iterations: int = 20
    seed: int = 0
    near: DedupMode = DedupMode.ONE_BIT


@dataclass(frozen=True, slots=True)
class GenerateSettings:
    """Stage 1. The paper: Claude Sonnet 4.5 at temperature 0.25, every image and category."""

    model: str = STRONG
    temperature: float = 0.25
    categories: tuple[Category, ...] = tuple(Category)
    reading: ReadabilityMetric = ReadabilityMetric.TEXTSTAT
    max_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Stage 2. The paper: Claude Sonnet 4.5 at temperature 0, the three constraints.

    Each constraint is checked by a request of its own; the policy for undecided drafts is unknown in the paper.
    """

    model: str = STRONG
    temperature: float = 0.0
    constraints: tuple[Constraint, ...] = tuple(Constraint)
    undecided: UndecidedPolicy = UndecidedPolicy.DROP
    max_tokens: int = 512


@dataclass(frozen=True, slots=True)
class CaptionSettings:
    """Captions that the text index searches, where the collection brings none. The paper's are unknown."""

    model: str = LIGHT
    temperature: float = 0.0
    max_tokens: int = 512


@dataclass(frozen=True, slots=True)
class CandidateSettings:
    """Stage 3. The paper: SigLIP 2 and Qwen3-Embedding, at most 20 candidates; the rest is unknown.

    Attributes:
        visual: encoder of images and texts.
        text: encoder of texts.
        visual_k: candidates from the visual index; `text_k` likewise. An image that both find is one candidate.
        text_k: candidates from the text index; 0 does without it, and without captions.
        search: text of the draft that is searched with.
    """

    visual: str = "google/siglip2-so400m-patch14-384"
    text: str = "Qwen/Qwen3-Embedding-0.6B"
    visual_k: int = 10
    text_k: int = 10
    search: SearchText = SearchText.ANSWER


@dataclass(frozen=True, slots=True)
class JudgeSpec:
    """One or more LLM judges of the same kind, each an independent sample."""

    model: str
    temperature: float = 0.85
    samples: int = 1


@dataclass(frozen=True, slots=True)
class Judge:
    """An LLM judge that casts one vote per candidate."""

    model: str
    temperature: float
    sample: int

    @property
    def name(self) -> str:
        """`model@temperature`, and `#sample` from the second sample on."""
        return f"{self.model}@{self.temperature:g}" + (f"#{self.sample}" if self.sample else "")


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """Stage 4, the LLM-as-a-judge panel. The paper: one Claude Sonnet 4.5, four Claude Haiku 4.5, temperature 0.85.

    Attributes:
        panel: the judges; they may come from several families.
        seed: of the order in which each judge sees a query's candidates.
        max_tokens: of a reply.
    """

    panel: tuple[JudgeSpec, ...] = (JudgeSpec(STRONG), JudgeSpec(LIGHT, samples=4))
    seed: int = 0
    max_tokens: int = 512

    @property
    def judges(self) -> tuple[Judge, ...]:
        """One judge per vote. Entries of the same model and temperature go on counting samples."""
        found: list[Judge] = []
        for member in self.panel:
            first = sum(other.model == member.model and other.temperature == member.temperature for other in found)
            found += [Judge(member.model, member.temperature, first + sample) for sample in range(member.samples)]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class ConsensusSettings:
    """Stage 5: least share of the judges that agree on a candidate that is kept. The paper: 1."""

    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class SplitSettings:
    """Stage 7. The paper's threshold is unknown, but not how much of its queries is for testing: 1,634 of 8,321.

    Attributes:
        threshold: queries with a TSR of at least this go to the test split.
        test_size: so many queries do, those of the highest TSR.
        test_share: such a share of the queries does; unless one of the others is given.
        lists: candidates that TSR is computed on; unknown in the paper.
        pad: fill short lists up with artificial negatives, as the paper does. They raise TSR.
        seed: of the order of queries with the same TSR.
    """

    threshold: float | None = None
    test_size: int | None = None
    test_share: float = 0.196
    lists: TsrScope = TsrScope.SURVIVING
    pad: bool = True
    seed: int = 0


@dataclass(frozen=True, slots=True)
class CollectionSettings:
    """Source of the images.

    Attributes:
        images: a folder of image files, whose ids are their names without suffix, a dataset folder
            (`FOLDER#BENCHMARK`), or the `images.parquet` of a benchmark of version 0.1. A path that is not absolute
            starts at the folder of the settings.
        captions: a file of descriptions with the columns `id` and `text` (JSON lines, JSON, CSV or parquet), likewise;
            empty when there is none.
        version: to be changed when the picture behind an id changes.
    """

    images: str = ""
    captions: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Execution of the pipeline; nothing of it changes a result.

    Attributes:
        batch_size: rows that are worked on, and written, together.
        threads: concurrent requests per process.
        device: torch device of the encoders; their own choice when empty.
    """

    batch_size: int = 64
    threads: int = 16
    device: str = ""


@dataclass(frozen=True)
class Config:
    """Hyperparameters of one benchmark.

    Attributes:
        name: of the benchmark.
        collection: the images.
        seed: stage 0; the other stages likewise.
        generate: stage 1.
        filter: stage 2.
        caption: the captions of stage 3.
        candidates: stage 3.
        judge: stage 4.
        keep: stage 5.
        split: stage 7. Stage 6 has no settings.
        run: the execution.
        providers: settings of the providers of models, by their names.
        prompts: template to `<name>@<version>`, where it is not to be the newest.
        source: provenance of the images (license, image_license, images_redistributable, citation), JSON-able.
    """

    name: str = "rmir"
    collection: CollectionSettings = field(default_factory=CollectionSettings)
    seed: SeedSettings = field(default_factory=SeedSettings)
    generate: GenerateSettings = field(default_factory=GenerateSettings)
    filter: FilterSettings = field(default_factory=FilterSettings)
    caption: CaptionSettings = field(default_factory=CaptionSettings)
    candidates: CandidateSettings = field(default_factory=CandidateSettings)
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    keep: ConsensusSettings = field(default_factory=ConsensusSettings)
    split: SplitSettings = field(default_factory=SplitSettings)
    run: RunSettings = field(default_factory=RunSettings)
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wrong = [message for message, is_wrong in _rules(self) if is_wrong]
        if wrong:
            raise FormatError(f"RMIR settings: {'; '.join(wrong)}")

    @classmethod
    def read(cls, path: StrPath) -> Config:
        """Read a TOML file; settings that it does not mention keep their defaults.

        Raises:
            FormatError: the file is missing or no TOML, or holds a setting that is unknown, of another type or out of
                its range.
        """
        path = Path(path)
        config = read_settings(path, cls)
        given = config.collection
        images, captions = (str(path.parent / place) if place else "" for place in (given.images, given.captions))
        return dataclasses.replace(config, collection=dataclasses.replace(given, images=images, captions=captions))

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that may be called, each once."""
        captioner = [self.caption.model] if self.candidates.text_k else []
        panel = (member.model for member in self.judge.panel)
        return tuple(dict.fromkeys([self.generate.model, self.filter.model, *captioner, *panel]))


def _rules(config: Config) -> list[tuple[str, bool]]:
    """List the rules of valid settings, in words, and whether each is broken."""
    seed, candidates, judge, split = config.seed, config.candidates, config.judge, config.split
    chosen = [split.threshold is not None, split.test_size is not None]
    temperatures = [config.generate.temperature, config.filter.temperature, config.caption.temperature]
    temperatures += [member.temperature for member in judge.panel]
    return [
        ("seed.clusters is 0 or more, seed.per_cluster and seed.iterations at least 1",
         seed.clusters < 0 or seed.per_cluster < 1 or seed.iterations < 1),
        ("generate.categories has at least one, each once", _repeats(config.generate.categories)),
        ("filter.constraints has at least one, each once", _repeats(config.filter.constraints)),
        ("candidates.visual_k is at least 1, candidates.text_k at least 0",
         candidates.visual_k < 1 or candidates.text_k < 0),
        ("judge.panel has a judge, and each of its members at least one sample",
         not judge.panel or any(member.samples < 1 for member in judge.panel)),
        ("temperatures are not negative", min(temperatures) < 0),
        ("keep.confidence is above 0.5, for below it the judges have no majority, and at most 1",
         not 0.5 < config.keep.confidence <= 1),
        ("split has a threshold or a test_size, not both", all(chosen)),
        ("split.threshold and split.test_share lie between 0 and 1, split.test_size is not negative",
         not 0 <= (split.threshold or 0) <= 1 or not 0 <= split.test_share <= 1 or (split.test_size or 0) < 0),
        ("requests_per_minute, tokens_per_minute and timeout of every provider are above 0",
         not all(number > 0 for of in config.providers.values()
                 for number in (of.requests_per_minute, of.tokens_per_minute, of.timeout))),
        ("run.batch_size and run.threads are at least 1", min(config.run.batch_size, config.run.threads) < 1),
    ]  # fmt: skip


def _repeats(values: tuple[object, ...]) -> bool:
    return not values or len(set(values)) < len(values)
