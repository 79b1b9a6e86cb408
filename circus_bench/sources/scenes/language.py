"""The language of the `scenes` benchmark: captions, edits, what a text alone says of its target, and the vocabulary.

A text carries claims: what it says of the target to a reader who does not see the reference. The number of gallery
images that fulfil all claims tells how far text alone can go.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from circus_bench.sources.scenes.world import (
    BACKGROUNDS,
    COLOURS,
    PLACES,
    SHAPES,
    SIZES,
    Scene,
    Thing,
    code,
    things,
    with_cells,
)

COLOUR_NAMES = tuple(COLOURS)
BACKGROUND_NAMES = tuple(BACKGROUNDS)

EDITS = ("recolor", "reshape", "resize", "remove", "add", "move", "swap", "background", "flip")
LARGE_EDITS = tuple(kind for kind in EDITS if kind != "resize")
SMALL_EDITS = ("resize", "recolor", "move", "remove")

REPLACEMENTS = (
    "replace everything with {}",
    "change it to {}",
    "a completely different scene : {}",
    "show {} instead",
    "{}",
)
UNCHANGED = (
    "the same picture again",
    "almost identical , shifted slightly",
    "keep everything , just a tiny nudge",
    "the same scene , slightly brighter",
    "another shot of the same thing",
    "no real change",
)
BROAD = ("any image with {}", "a different scene with {}", "scenes containing {}", "change it to anything with {}")
_EDIT_WORDS = """
    make change the color of to paint is now turn into a an replace with same becomes smaller bigger should be
    resize so it remove delete take away without add put there also plus move at in swap two objects shapes trade
    places exchange positions both but on background instead flip upside down mirror scene vertically horizontally
    left right and then object one shape , : something any image anything different scenes containing
"""
WORD_PATTERN = "[a-z]+|[,:]"


class Has(NamedTuple):
    """The target shows a thing of this shape, colour, size and place (indices; None where the text does not say)."""

    shape: int | None = None
    colour: int | None = None
    size: int | None = None
    place: int | None = None


class On(NamedTuple):
    """The target has this background."""

    background: int


Claim = Has | On


class Edit(NamedTuple):
    """A modification text and its outcome.

    Attributes:
        text: the instruction.
        scene: the outcome.
        claims: what the text alone says of the outcome.
        kind: one of EDITS, or two joined by `+`.
    """

    text: str
    scene: Scene
    claims: tuple[Claim, ...]
    kind: str


def claims_of(scene: Scene) -> Iterator[Claim]:
    """Every claim that the scene fulfils; a claim may come more than once."""
    yield On(scene.background)
    for thing in things(scene):
        choices = ((value, None) for value in (thing.shape, thing.colour, thing.size, thing.place))
        yield from (Has(*values) for values in product(*choices))


def fulfils(scene: Scene, claims: Iterable[Claim]) -> bool:
    """Whether the scene fulfils every claim."""
    return all(_fulfils(scene, claim) for claim in claims)


def _fulfils(scene: Scene, claim: Claim) -> bool:
    if isinstance(claim, On):
        return scene.background == claim.background
    return any(
        claim.shape in (None, thing.shape)
        and claim.colour in (None, thing.colour)
        and claim.size in (None, thing.size)
        and claim.place in (None, thing.place)
        for thing in things(scene)
    )


def caption(
    rng: random.Random, scene: Scene, *, detail: float = 1.0, count: int | None = None
) -> tuple[str, tuple[Claim, ...]]:
    """Describe a scene.

    Args:
        rng: source of the wording.
        scene: the scene.
        detail: the chance of each size, each place and the background to be mentioned; shape and colour always are.
        count: how many things are mentioned; all when None.

    Returns:
        The description, and what it says.
    """
    mentioned = list(things(scene))
    rng.shuffle(mentioned)
    phrases: list[str] = []
    claims: list[Claim] = []
    for thing in mentioned[:count]:
        size = thing.size if rng.random() < detail else None
        place = thing.place if rng.random() < detail else None
        phrases.append(_a(_phrase(thing.shape, thing.colour, size)) + ("" if place is None else _at(rng, place)))
        claims.append(Has(thing.shape, thing.colour, size, place))
    if len(phrases) < 3:
        text = rng.choice((" and ", ", ")).join(phrases)
    else:
        text = ", ".join(phrases[:-1]) + " and " + phrases[-1]
    if rng.random() < detail:
        text += f" on a {BACKGROUND_NAMES[scene.background]} background"
        claims.append(On(scene.background))
    return text, tuple(claims)


def broad_claims() -> list[tuple[str, Claim]]:
    """Phrases that fit a large share of all scenes, and what each says."""
    shapes = [(f"a {name}", Has(shape=index)) for index, name in enumerate(SHAPES)]
    colours = [(f"something {name}", Has(colour=index)) for index, name in enumerate(COLOUR_NAMES)]
    backgrounds = [(f"a {name} background", On(index)) for index, name in enumerate(BACKGROUND_NAMES)]
    return [*shapes, *colours, *backgrounds]


def garble(rng: random.Random, text: str) -> str:
    """Make a text unreadable: letters shuffled within words, words shuffled, letters added."""
    garbled = []
    for word in text.split():
        letters = list(word)
        rng.shuffle(letters)
        garbled.append("".join(letters) + rng.choice(("", "x", "q", "zz")))
    rng.shuffle(garbled)
    return " ".join(garbled)


def vocabulary() -> list[str]:
    """Every word that captions and edits are made of, sorted."""
    names = (*SHAPES, *COLOUR_NAMES, *BACKGROUND_NAMES, *PLACES, *SIZES)
    texts = " ".join((*names, *UNCHANGED, *REPLACEMENTS, *BROAD, _EDIT_WORDS))
    return sorted(set(re.findall(WORD_PATTERN, texts)))


def random_edit(rng: random.Random, scene: Scene, *, kinds: Sequence[str] = EDITS, two_steps: float = 0.25) -> Edit:
    """An edit of the scene, or with chance `two_steps` two in sequence, joined by "and" or "then".

    A second step that undoes or contradicts the first is not drawn.
    """
    while True:
        kind = rng.choice(kinds)
        first = _EDITORS[kind](rng, scene)
        if first is None:
            continue
        if rng.random() >= two_steps:
            return Edit(*first, kind)
        # A mirrored or swapped scene would change what the references of a second step mean.
        if kind in ("flip", "swap"):
            continue
        next_kind = rng.choice([other for other in kinds if other != kind])
        second = _EDITORS[next_kind](rng, first.scene)
        if second is None or second.scene == scene or not fulfils(second.scene, first.claims):
            continue
        text = first.text + rng.choice((" and ", " , then ")) + second.text
        return Edit(text, second.scene, first.claims + second.claims, f"{kind}+{next_kind}")


class _Outcome(NamedTuple):
    text: str
    scene: Scene
    claims: tuple[Claim, ...]


class _Reference(NamedTuple):
    """A phrase that names one thing of a scene, and the attributes that the phrase gives away."""

    phrase: str
    shape: int | None = None
    colour: int | None = None
    place: int | None = None


def _phrase(shape: int, colour: int, size: int | None = None) -> str:
    words = [COLOUR_NAMES[colour], SHAPES[shape]]
    return " ".join(words if size is None else [SIZES[size], *words])


def _a(phrase: str) -> str:
    return f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}"


def _at(rng: random.Random, place: int) -> str:
    return rng.choice((" at the ", " in the ")) + PLACES[place]


def _refer(rng: random.Random, scene: Scene, thing: Thing) -> _Reference:
    """A phrase that names this thing and no other of the scene; short unambiguous names are the most likely."""
    every = things(scene)
    shape, colour, place = thing.shape, thing.colour, thing.place
    choices: list[_Reference] = []
    if len(every) == 1:
        choices += [_Reference(phrase) for phrase in ("the object", "it", "the shape")]
    if sum(other.shape == shape for other in every) == 1:
        choices += [_Reference(f"the {SHAPES[shape]}", shape)] * 3
    if sum(other.colour == colour for other in every) == 1:
        choices += [_Reference(f"the {COLOUR_NAMES[colour]} {noun}", None, colour) for noun in ("object", "one")]
    if sum((other.shape, other.colour) == (shape, colour) for other in every) == 1:
        choices += [_Reference(f"the {_phrase(shape, colour)}", shape, colour)] * 2
    choices.append(_Reference("the object" + _at(rng, place), None, None, place))
    choices.append(_Reference(f"the {SHAPES[shape]}" + _at(rng, place), shape, None, place))
    return rng.choice(choices)


def _other(rng: random.Random, count: int, than: int) -> int:
    return rng.choice([index for index in range(count) if index != than])


def _recolor(rng: random.Random, scene: Scene) -> _Outcome:
    thing = rng.choice(things(scene))
    name = _refer(rng, scene, thing)
    colour = _other(rng, len(COLOURS), thing.colour)
    wordings = ("make {} {}", "change the color of {} to {}", "paint {} {}", "{} is {} now")
    outcome = with_cells(scene, {thing.place: code(thing.shape, colour, thing.size)})
    text = rng.choice(wordings).format(name.phrase, COLOUR_NAMES[colour])
    return _Outcome(text, outcome, (Has(name.shape, colour, None, name.place),))


def _reshape(rng: random.Random, scene: Scene) -> _Outcome:
    thing = rng.choice(things(scene))
    name = _refer(rng, scene, thing)
    shape = _other(rng, len(SHAPES), thing.shape)
    wordings = ("turn {} into a {}", "replace {} with a {} of the same color", "{} becomes a {}")
    outcome = with_cells(scene, {thing.place: code(shape, thing.colour, thing.size)})
    text = rng.choice(wordings).format(name.phrase, SHAPES[shape])
    return _Outcome(text, outcome, (Has(shape, name.colour, None, name.place),))


def _resize(rng: random.Random, scene: Scene) -> _Outcome:
    thing = rng.choice(things(scene))
    name = _refer(rng, scene, thing)
    size = 1 - thing.size
    wordings = ("make {} {}", "{} should be {}", "resize {} so it is {}")
    outcome = with_cells(scene, {thing.place: code(thing.shape, thing.colour, size)})
    text = rng.choice(wordings).format(name.phrase, ("smaller", "bigger")[size])
    return _Outcome(text, outcome, (Has(name.shape, name.colour, size, name.place),))


def _remove(rng: random.Random, scene: Scene) -> _Outcome | None:
    if len(things(scene)) < 2:
        return None
    thing = rng.choice(things(scene))
    text = rng.choice(("remove {}", "delete {}", "take away {}", "without {}"))
    return _Outcome(text.format(_refer(rng, scene, thing).phrase), with_cells(scene, {thing.place: 0}), ())


def _add(rng: random.Random, scene: Scene) -> _Outcome | None:
    if len(things(scene)) > 3:
        return None
    place = rng.choice([place for place, cell in enumerate(scene.cells) if not cell])
    shape, colour, size = rng.randrange(len(SHAPES)), rng.randrange(len(COLOURS)), rng.randrange(len(SIZES))
    if rng.random() < 0.3:
        phrase, claim = _phrase(shape, colour, size) + _at(rng, place), Has(shape, colour, size, place)
    elif rng.random() < 1 / 3:
        phrase, claim = SHAPES[shape] + _at(rng, place), Has(shape, None, None, place)
    else:
        phrase, claim = _phrase(shape, colour), Has(shape, colour)
    text = rng.choice(("add {}", "put {}", "there is also {}", "plus {}")).format(_a(phrase))
    return _Outcome(text, with_cells(scene, {place: code(shape, colour, size)}), (claim,))


def _move(rng: random.Random, scene: Scene) -> _Outcome:
    thing = rng.choice(things(scene))
    name = _refer(rng, scene, thing)
    place = rng.choice([place for place, cell in enumerate(scene.cells) if not cell])
    text = rng.choice(("move {} to the {}", "{} is at the {} now", "put {} in the {}"))
    outcome = with_cells(scene, {thing.place: 0, place: scene.cells[thing.place]})
    claim = Has(name.shape, name.colour, None, place)
    return _Outcome(text.format(name.phrase, PLACES[place]), outcome, (claim,))


def _swap(rng: random.Random, scene: Scene) -> _Outcome | None:
    filled = [place for place, cell in enumerate(scene.cells) if cell]
    if len(filled) != 2 or scene.cells[filled[0]] == scene.cells[filled[1]]:
        return None
    one, other = filled
    text = rng.choice(("swap the two objects", "the two shapes trade places", "exchange the positions of both objects"))
    return _Outcome(text, with_cells(scene, {one: scene.cells[other], other: scene.cells[one]}), ())


def _background(rng: random.Random, scene: Scene) -> _Outcome:
    background = _other(rng, len(BACKGROUNDS), scene.background)
    wordings = (
        "same but on a {} background",
        "make the background {}",
        "change the background to {}",
        "on {} instead",
    )
    text = rng.choice(wordings).format(BACKGROUND_NAMES[background])
    return _Outcome(text, Scene(background, scene.cells), (On(background),))


def _flip(rng: random.Random, scene: Scene) -> _Outcome | None:
    rows = [scene.cells[start : start + 3] for start in (0, 3, 6)]
    if rng.random() < 0.5:
        wordings, rows = ("flip it upside down", "mirror the scene vertically"), rows[::-1]
    else:
        wordings = ("mirror the scene horizontally", "flip it left to right")
        rows = [row[::-1] for row in rows]
    outcome = Scene(scene.background, tuple(cell for row in rows for cell in row))
    return None if outcome == scene else _Outcome(rng.choice(wordings), outcome, ())


_EDITORS = {
    "recolor": _recolor,
    "reshape": _reshape,
    "resize": _resize,
    "remove": _remove,
    "add": _add,
    "move": _move,
    "swap": _swap,
    "background": _background,
    "flip": _flip,
}
