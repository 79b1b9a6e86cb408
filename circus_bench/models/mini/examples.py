"""Draw the training examples of the mini encoders: fresh synthetic scenes, none of them held out for benchmarks.

Every scene that is rendered for training, as a reference or as a target, passes `training_scene` or `training_edit`,
which draw until `circus_bench.sources.scenes.world.is_held_out` is false. The benchmark draws only scenes for which it
is true. The two therefore share the kind of world and the language, but no scene, whatever the seeds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from circus_bench.sources.scenes.language import (
    EDITS,
    REPLACEMENTS,
    UNCHANGED,
    Edit,
    caption,
    garble,
    random_edit,
)
from circus_bench.sources.scenes.world import Scene, is_held_out, random_scene

# The edits that are slow to learn come twice.
_EDITS = (*EDITS, "recolor", "reshape", "move", "swap")
_TWO_STEPS = 0.3
_UNCHANGED, _GARBLED, _REPLACED = 0.04, 0.03, 0.08  # shares of a family's queries; the others are edits


class NoImage(StrEnum):
    """The image of a query that has no reference."""

    BLACK = "black"
    ABSENT = "absent"


class Example(NamedTuple):
    """A query and the scene that answers it."""

    image: Scene | NoImage
    text: str
    target: Scene


@dataclass(frozen=True, slots=True)
class Mixture:
    """The composition of a training batch.

    Attributes:
        families: references, each with `edits` queries.
        edits: queries of a family.
        captions: descriptions without a reference.
        views: images without text, whose target is another image of the same scene.
        without_image: share of the families' queries that lose their image.
        without_text: share of the families' queries that lose their text.
        black: share of the captions that come with a black image; the others come with none.
    """

    families: int
    captions: int
    views: int
    without_image: float = 0.0
    without_text: float = 0.0
    edits: int = 4
    black: float = 0.7


def training_scene(rng: random.Random, count: int | None = None) -> Scene:
    """Draw a scene that is not held out."""
    while is_held_out(scene := random_scene(rng, count)):
        pass
    return scene


def training_edit(rng: random.Random, scene: Scene, kinds: Sequence[str] = _EDITS) -> Edit:
    """Draw an edit whose outcome is not held out."""
    while is_held_out((edit := random_edit(rng, scene, kinds=kinds, two_steps=_TWO_STEPS)).scene):
        pass
    return edit


def draw_batch(rng: random.Random, mixture: Mixture) -> tuple[list[Example], list[Scene]]:
    """Draw a batch.

    Returns:
        The examples, and the scenes that their queries show. Those images are candidates too, as hard negatives: the
        reference itself is the nearest wrong answer to an edit.
    """
    examples: list[Example] = []
    shown: list[Scene] = []
    for _ in range(mixture.families):
        reference = training_scene(rng)
        shown.append(reference)
        for _ in range(mixture.edits):
            text, target = _family_query(rng, reference)
            draw = rng.random()
            image = NoImage.BLACK if draw < mixture.without_image else reference
            examples.append(Example(image, "" if draw > 1 - mixture.without_text else text, target))
    for _ in range(mixture.captions):
        text, target = _description(rng)
        examples.append(Example(NoImage.BLACK if rng.random() < mixture.black else NoImage.ABSENT, text, target))
    for _ in range(mixture.views):
        scene = training_scene(rng)
        shown.append(scene)
        examples.append(Example(scene, "", scene))
    return examples, shown


def _family_query(rng: random.Random, reference: Scene) -> tuple[str, Scene]:
    draw = rng.random()
    if draw < _UNCHANGED:
        return rng.choice(UNCHANGED), reference
    if draw < _UNCHANGED + _GARBLED:
        # An unreadable text asks for nothing.
        return garble(rng, training_edit(rng, reference).text), reference
    if draw < _UNCHANGED + _GARBLED + _REPLACED:
        return _description(rng)
    edit = training_edit(rng, reference)
    return edit.text, edit.scene


def _description(rng: random.Random) -> tuple[str, Scene]:
    """Draw a description and its scene.

    Half of the descriptions are complete; the others leave out sizes, places, the background or whole things.
    """
    scene = training_scene(rng, rng.choice((1, 2, 3)))
    draw = rng.random()
    if draw < 0.5:
        text, _ = caption(rng, scene)
    elif draw < 0.8:
        text, _ = caption(rng, scene, detail=0.5)
    else:
        text, _ = caption(rng, scene, detail=0.75, count=rng.choice((1, 2, 3)))
    return rng.choice(REPLACEMENTS).format(text), scene
