"""How the embedded world is run: its oracles and their errors, the panels of judges, and the pipeline's settings."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from circus_bench.api.chat.messages import Asker
from circus_bench.demo.world.collection import GENERATOR_VERSION, World
from circus_bench.demo.world.encoders import VisualEncoder, WordEncoder
from circus_bench.demo.world.synthetic_judges import Errors, Oracle
from circus_bench.io import to_json
from circus_bench.rmir.config import (
    CandidateSettings,
    CaptionSettings,
    Config,
    FilterSettings,
    GenerateSettings,
    JudgeSettings,
    Near,
    Panelist,
    Reading,
    SeedSettings,
    SplitSettings,
)
from circus_bench.rmir.embedders import Embedder
from circus_bench.rmir.executors import LocalEngine, Tools
from circus_bench.rmir.pipeline import Pipeline, Stage, Watch

Counted = Callable[[str, int, int], object]
"""Told of a step's name, how much of it is done, and how much there is."""

STRONG, CHECKER, LIGHT, RIVAL = "owl/strong", "owl/checker", "owl/light", "fox/light"
"""The oracles: three of one family, and one of another."""

_MOST_LIGHT = 6
_RIVALS = 5
_VISUAL, _WORDS = "world/visual", "world/words"


# Made up, so that every kind of error shows. Those of single votes are small, for every image is a candidate of several
# queries here, and one doubt deletes it everywhere.
_STRONG = Errors(
    misses=0.005, false_accepts=0.02, abstains=0.002, refusals=0.001, malformed=0.002, untidy=0.1,
    skips=0.4, flaws=0.25, unseen=0.04, tempted=0.1,
)  # fmt: skip
_CHECKER = Errors(misses=0.03, false_accepts=0.1, malformed=0.002, untidy=0.1)
_LIGHT = Errors(
    misses=0.01, false_accepts=0.02, abstains=0.002, refusals=0.001, malformed=0.002, untidy=0.2,
    miscaptions=0.15, unseen=0.04, tempted=0.1,
)  # fmt: skip
_RIVAL = Errors(
    misses=0.01, false_accepts=0.02, abstains=0.002, refusals=0.001, malformed=0.002, untidy=0.2,
    unseen=0.04, tempted=0.1,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What the demo is made of.

    Attributes:
        seed: of the world and of all errors.
        views: most pictures of one thing; `fewest` likewise.
        fewest: see `views`.
        strong: errors of the oracle that writes, and is one of the judges.
        checker: errors of the one that checks drafts.
        light: errors of the one that describes, and is the other judges.
        rival: errors of a judge of another family, whose blind spots are others.
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
    strong: Errors = _STRONG
    checker: Errors = _CHECKER
    light: Errors = _LIGHT
    rival: Errors = _RIVAL
    noise: float = 2.2
    mistaken: float = 0.03
    unknown: float = 0.2
    visual_k: int = 10
    text_k: int = 10
    test_share: float = 0.5

    @property
    def digest(self) -> str:
        """Of everything that an outcome depends on besides the pipeline's own settings."""
        content = {"generator_version": GENERATOR_VERSION, **dataclasses.asdict(self)}
        return hashlib.sha256(to_json(content).encode()).hexdigest()[:16]


def oracles(world: World, settings: DemoSettings) -> Oracle:
    """The oracles of a demo."""
    members = {STRONG: settings.strong, CHECKER: settings.checker, LIGHT: settings.light, RIVAL: settings.rival}
    return Oracle(world, members, seed=settings.seed)


def paper_panel() -> tuple[Panelist, ...]:
    """One strong and four light judges of one family, as in the paper."""
    return (Panelist(STRONG), Panelist(LIGHT, samples=4))


def mixed_panel() -> tuple[Panelist, ...]:
    """Five judges of each family."""
    return (*paper_panel(), Panelist(RIVAL, samples=_RIVALS))


def all_judges() -> tuple[Panelist, ...]:
    """Every judge that a panel of the demo has."""
    return (Panelist(STRONG), Panelist(LIGHT, samples=_MOST_LIGHT), Panelist(RIVAL, samples=_RIVALS))


def compared_panels() -> dict[str, tuple[Panelist, ...]]:
    """The panels that are compared, by name: more judges of one family, and judges of two."""
    strong, light = Panelist(STRONG), Panelist(LIGHT)
    of_one = {
        f"{1 + n} of one family": (strong, *([dataclasses.replace(light, samples=n)] if n else []))
        for n in (0, 2, 4, _MOST_LIGHT)
    }
    two_light = dataclasses.replace(light, samples=2)
    return {
        **of_one,
        "3 and 2 of another": (strong, two_light, Panelist(RIVAL, samples=2)),
        "5 and 5 of another": mixed_panel(),
    }


def run_pipeline(
    world: World,
    settings: DemoSettings,
    root: Path,
    *,
    asker: Asker,
    panel: tuple[Panelist, ...],
    watch: Counted = lambda *_: None,
    last: Stage = Stage.SPLIT,
) -> Pipeline:
    """Run the stages on the world.

    Args:
        world: the collection.
        settings: of the demo.
        root: folder of the stages' outcomes.
        asker: of the oracles.
        panel: the judges.
        watch: told of the progress.
        last: the stage to stop after.
    """
    seed = settings.seed
    embedders: dict[str, Embedder] = {
        f"{_VISUAL} {settings.digest}": VisualEncoder(
            world, noise=settings.noise, mistaken=settings.mistaken, seed=seed
        ),
        f"{_WORDS} {settings.digest}": WordEncoder(unknown=settings.unknown, seed=seed),
    }
    visual, words = embedders
    config = Config(
        name="rmir-world",
        seed=SeedSettings(clusters=0, near=Near.OFF),
        generate=GenerateSettings(STRONG, reading=Reading.OFF),
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
    # The oracles' errors are no settings of the pipeline, so the collection's version tells of them.
    tools = Tools(world.images, asker, embedders.__getitem__, version=settings.digest)
    pipeline = Pipeline(config, root, LocalEngine(tools), watch=_named(watch))
    pipeline.run(last)
    return pipeline


def _named(watch: Counted) -> Watch:
    return lambda step, done, total: watch(str(step), done, total)
