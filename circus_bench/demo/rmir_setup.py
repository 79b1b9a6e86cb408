"""Configure the RMIR demo: synthetic models and their error rates, panels of judges, and the pipeline's settings."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path

from circus_bench.api.chat.messages import ChatClient
from circus_bench.demo.world.collection import GENERATOR_VERSION, World
from circus_bench.demo.world.encoders import VisualEncoder, WordEncoder
from circus_bench.demo.world.synthetic_judges import ErrorRates, SyntheticProvider
from circus_bench.io import to_json
from circus_bench.rmir.config import (
    CandidateSettings,
    CaptionSettings,
    Config,
    DedupMode,
    FilterSettings,
    GenerateSettings,
    JudgeSettings,
    JudgeSpec,
    ReadabilityMetric,
    SeedSettings,
    SplitSettings,
)
from circus_bench.rmir.embedders import EmbedderProtocol
from circus_bench.rmir.executors import LocalExecutor, Resources
from circus_bench.rmir.pipeline import Pipeline, Stage, Watch

STRONG, CHECKER, LIGHT, RIVAL = "owl/strong", "owl/checker", "owl/light", "fox/light"
"""Synthetic models: three of one family, and one of another."""

_MOST_LIGHT = 6
_RIVALS = 5
_VISUAL, _WORDS = "world/visual", "world/words"


# Made up, so that every kind of error shows. Those of single votes are small, for every image is a candidate of several
# queries here, and one doubt deletes it everywhere.
_STRONG = ErrorRates(
    misses=0.005, false_accepts=0.02, abstains=0.002, refusals=0.001, malformed=0.002, untidy=0.1,
    skips=0.4, flaws=0.25, unseen=0.04, tempted=0.1,
)  # fmt: skip
_CHECKER = ErrorRates(misses=0.03, false_accepts=0.1, malformed=0.002, untidy=0.1)
_LIGHT = ErrorRates(
    misses=0.01, false_accepts=0.02, abstains=0.002, refusals=0.001, malformed=0.002, untidy=0.2,
    miscaptions=0.15, unseen=0.04, tempted=0.1,
)  # fmt: skip
_RIVAL = ErrorRates(
    misses=0.01, false_accepts=0.02, abstains=0.002, refusals=0.001, malformed=0.002, untidy=0.2,
    unseen=0.04, tempted=0.1,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """Hyperparameters of the demo.

    Attributes:
        seed: of the world and of all errors.
        views: most images of one object; `fewest` likewise.
        fewest: see `views`.
        strong: error rates of the generator, which is also one of the judges.
        checker: error rates of the checker of drafts.
        light: error rates of the captioner, which is also the other judges.
        rival: error rates of a judge of another family, with other blind spots.
        noise: see `VisualEncoder`; `mistaken` likewise.
        mistaken: see `noise`.
        unknown: see `WordEncoder`.
        visual_k: see `CandidateSettings`; `text_k` likewise.
        text_k: see `visual_k`.
        test_share: see `SplitSettings`.
    """

    seed: int = 0
    views: int = 12
    fewest: int = 4
    strong: ErrorRates = _STRONG
    checker: ErrorRates = _CHECKER
    light: ErrorRates = _LIGHT
    rival: ErrorRates = _RIVAL
    noise: float = 2.2
    mistaken: float = 0.03
    unknown: float = 0.2
    visual_k: int = 10
    text_k: int = 10
    test_share: float = 0.5

    @property
    def digest(self) -> str:
        """Digest of everything that an output depends on besides the pipeline's own settings."""
        content = {"generator_version": GENERATOR_VERSION, **dataclasses.asdict(self)}
        return hashlib.sha256(to_json(content).encode()).hexdigest()[:16]


def synthetic_provider(world: World, settings: DemoSettings) -> SyntheticProvider:
    """Make the provider of a demo's synthetic models."""
    members = {STRONG: settings.strong, CHECKER: settings.checker, LIGHT: settings.light, RIVAL: settings.rival}
    return SyntheticProvider(world, members, seed=settings.seed)


def paper_panel() -> tuple[JudgeSpec, ...]:
    """Return one strong and four light judges of one family, as in the paper."""
    return (JudgeSpec(STRONG), JudgeSpec(LIGHT, samples=4))


def mixed_panel() -> tuple[JudgeSpec, ...]:
    """Return five judges of each family."""
    return (*paper_panel(), JudgeSpec(RIVAL, samples=_RIVALS))


def all_judges() -> tuple[JudgeSpec, ...]:
    """Return every judge that a panel of the demo has."""
    return (JudgeSpec(STRONG), JudgeSpec(LIGHT, samples=_MOST_LIGHT), JudgeSpec(RIVAL, samples=_RIVALS))


def compared_panels() -> dict[str, tuple[JudgeSpec, ...]]:
    """Return the panels that are compared, by name: more judges of one family, and judges of two."""
    strong, light = JudgeSpec(STRONG), JudgeSpec(LIGHT)
    of_one = {
        f"{1 + n} of one family": (strong, *([dataclasses.replace(light, samples=n)] if n else []))
        for n in (0, 2, 4, _MOST_LIGHT)
    }
    two_light = dataclasses.replace(light, samples=2)
    return {
        **of_one,
        "3 and 2 of another": (strong, two_light, JudgeSpec(RIVAL, samples=2)),
        "5 and 5 of another": mixed_panel(),
    }


def run_pipeline(
    world: World,
    settings: DemoSettings,
    root: Path,
    *,
    client: ChatClient,
    panel: tuple[JudgeSpec, ...],
    watch: Watch = lambda *_: None,
    last: Stage = Stage.SPLIT,
) -> Pipeline:
    """Run the stages on the world.

    Args:
        world: the collection.
        settings: of the demo.
        root: folder of the stages' outputs.
        client: of the synthetic models.
        panel: the judges.
        watch: called with the progress.
        last: the stage to stop after.
    """
    seed = settings.seed
    embedders: dict[str, EmbedderProtocol] = {
        f"{_VISUAL} {settings.digest}": VisualEncoder(
            world, noise=settings.noise, mistaken=settings.mistaken, seed=seed
        ),
        f"{_WORDS} {settings.digest}": WordEncoder(unknown=settings.unknown, seed=seed),
    }
    visual, words = embedders
    config = Config(
        name="rmir-world",
        seed=SeedSettings(clusters=0, near=DedupMode.OFF),
        generate=GenerateSettings(STRONG, reading=ReadabilityMetric.OFF),
        filter=FilterSettings(CHECKER),
        caption=CaptionSettings(LIGHT),
        candidates=CandidateSettings(visual, words, settings.visual_k, settings.text_k),
        judge=JudgeSettings(panel),
        split=SplitSettings(test_share=settings.test_share, seed=seed),
        source={
            "generator": "circus_bench.demo.world",
            "generator_version": GENERATOR_VERSION,
            "license": "Apache-2.0",
            "image_license": "Apache-2.0",
            "images_redistributable": True,
        },
    )
    # The error rates are no settings of the pipeline, so the collection's version tells of them.
    resources = Resources(world.images, client, embedders.__getitem__, version=settings.digest)
    pipeline = Pipeline(config, root, LocalExecutor(resources), watch=watch)
    pipeline.run(last)
    return pipeline
