"""Generate the texts of the `scenes` benchmark: captions, modification texts (edits), and the vocabulary.

A text carries claims: what it says of the target to a reader who does not see the reference. The number of gallery
images that fulfill all claims tells how far text alone can go.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Literal, NamedTuple

from circus_bench.sources.scenes.world import (
    BACKGROUNDS,
    COLORS,
    PLACES,
    SHAPES,
    SIZES,
    Scene,
    SceneObject,
    code,
    scene_objects,
    with_cells,
)

COLOR_NAMES = tuple(COLORS)
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


class ObjectClaim(NamedTuple):
    """The target shows an object of this shape, color, size and place (indices; None where the text does not say)."""

    shape: int | None = None
    color: int | None = None
    size: int | None = None
    place: int | None = None


class BackgroundClaim(NamedTuple):
    """The target has this background."""

    background: int


Claim = ObjectClaim | BackgroundClaim


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


def iter_claims(scene: Scene) -> Iterator[Claim]:
    """Every claim that the scene fulfills; a claim may come more than once."""
    yield BackgroundClaim(scene.background)
    for obj in scene_objects(scene):
        choices = ((value, None) for value in (obj.shape, obj.color, obj.size, obj.place))
        yield from (ObjectClaim(*values) for values in product(*choices))


def fulfills(scene: Scene, claims: Iterable[Claim]) -> bool:
    """Tell whether the scene fulfills every claim."""
    return all(_fulfills(scene, claim) for claim in claims)


def _fulfills(scene: Scene, claim: Claim) -> bool:
    if isinstance(claim, BackgroundClaim):
        return scene.background == claim.background
    return any(
        claim.shape in (None, obj.shape)
        and claim.color in (None, obj.color)
        and claim.size in (None, obj.size)
        and claim.place in (None, obj.place)
        for obj in scene_objects(scene)
    )


def caption(
    rng: random.Random, scene: Scene, *, detail: float = 1.0, count: int | None = None
) -> tuple[str, tuple[Claim, ...]]:
    """Describe a scene.

    Args:
        rng: source of the wording.
        scene: the scene.
        detail: the chance of each size, each place and the background to be mentioned; shape and color always are.
        count: how many objects are mentioned; all when None.

    Returns:
        The description, and what it says.
    """
    mentioned = list(scene_objects(scene))
    rng.shuffle(mentioned)
    phrases: list[str] = []
    claims: list[Claim] = []
    for obj in mentioned[:count]:
        size = obj.size if rng.random() < detail else None
        place = obj.place if rng.random() < detail else None
        phrases.append(_a(_phrase(obj.shape, obj.color, size)) + ("" if place is None else _at(rng, place)))
        claims.append(ObjectClaim(obj.shape, obj.color, size, place))
    if len(phrases) < 3:
        text = rng.choice((" and ", ", ")).join(phrases)
    else:
        text = ", ".join(phrases[:-1]) + " and " + phrases[-1]
    if rng.random() < detail:
        text += f" on a {BACKGROUND_NAMES[scene.background]} background"
        claims.append(BackgroundClaim(scene.background))
    return text, tuple(claims)


def broad_claims() -> list[tuple[str, Claim]]:
    """List phrases that fit a large share of all scenes, and what each says."""
    shapes = [(f"a {name}", ObjectClaim(shape=index)) for index, name in enumerate(SHAPES)]
    colors = [(f"something {name}", ObjectClaim(color=index)) for index, name in enumerate(COLOR_NAMES)]
    backgrounds = [(f"a {name} background", BackgroundClaim(index)) for index, name in enumerate(BACKGROUND_NAMES)]
    return [*shapes, *colors, *backgrounds]


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
    """List every word that captions and edits are made of, sorted."""
    names = (*SHAPES, *COLOR_NAMES, *BACKGROUND_NAMES, *PLACES, *SIZES)
    texts = " ".join((*names, *UNCHANGED, *REPLACEMENTS, *BROAD, _EDIT_WORDS))
    return sorted(set(re.findall(WORD_PATTERN, texts)))


def random_edit(rng: random.Random, scene: Scene, *, kinds: Sequence[str] = EDITS, two_steps: float = 0.25) -> Edit:
    """Draw an edit of the scene, or with chance `two_steps` two in sequence, joined by "and" or "then".

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
        if second is None or second.scene == scene or not fulfills(second.scene, first.claims):
            continue
        text = first.text + rng.choice((" and ", " , then ")) + second.text
        return Edit(text, second.scene, first.claims + second.claims, f"{kind}+{next_kind}")


class _Outcome(NamedTuple):
    text: str
    scene: Scene
    claims: tuple[Claim, ...]


class _Reference(NamedTuple):
    """A phrase that names one object of a scene, and the attributes that the phrase gives away."""

    phrase: str
    shape: int | None = None
    color: int | None = None
    place: int | None = None


def _phrase(shape: int, color: int, size: int | None = None) -> str:
    words = [COLOR_NAMES[color], SHAPES[shape]]
    return " ".join(words if size is None else [SIZES[size], *words])


def _a(phrase: str) -> str:
    return f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}"


def _at(rng: random.Random, place: int) -> str:
    return rng.choice((" at the ", " in the ")) + PLACES[place]


def _refer(rng: random.Random, scene: Scene, obj: SceneObject) -> _Reference:
    """Draw a phrase that names this object and no other of the scene; short unambiguous names are the most likely."""
    every = scene_objects(scene)
    shape, color, place = obj.shape, obj.color, obj.place
    choices: list[_Reference] = []
    if len(every) == 1:
        choices += [_Reference(phrase) for phrase in ("the object", "it", "the shape")]
    if sum(other.shape == shape for other in every) == 1:
        choices += [_Reference(f"the {SHAPES[shape]}", shape)] * 3
    if sum(other.color == color for other in every) == 1:
        choices += [_Reference(f"the {COLOR_NAMES[color]} {noun}", None, color) for noun in ("object", "one")]
    if sum((other.shape, other.color) == (shape, color) for other in every) == 1:
        choices += [_Reference(f"the {_phrase(shape, color)}", shape, color)] * 2
    choices.append(_Reference("the object" + _at(rng, place), None, None, place))
    choices.append(_Reference(f"the {SHAPES[shape]}" + _at(rng, place), shape, None, place))
    return rng.choice(choices)


def _other(rng: random.Random, count: int, than: int) -> int:
    return rng.choice([index for index in range(count) if index != than])


def _change(
    attribute: Literal["shape", "color", "size"], names: Sequence[str], *wordings: str
) -> Callable[[random.Random, Scene], _Outcome]:
    """Make the editor that changes an attribute of an object."""

    def edit(rng: random.Random, scene: Scene) -> _Outcome:
        obj = rng.choice(scene_objects(scene))
        name = _refer(rng, scene, obj)
        old: int = getattr(obj, attribute)
        value = 1 - old if attribute == "size" else _other(rng, len(names), old)
        text = rng.choice(wordings).format(name.phrase, names[value])
        _, *changed = obj._replace(**{attribute: value})
        claim = ObjectClaim(name.shape, name.color, None, name.place)._replace(**{attribute: value})
        return _Outcome(text, with_cells(scene, {obj.place: code(*changed)}), (claim,))

    return edit


def _remove(rng: random.Random, scene: Scene) -> _Outcome | None:
    if len(scene_objects(scene)) < 2:
        return None
    obj = rng.choice(scene_objects(scene))
    text = rng.choice(("remove {}", "delete {}", "take away {}", "without {}"))
    return _Outcome(text.format(_refer(rng, scene, obj).phrase), with_cells(scene, {obj.place: 0}), ())


def _add(rng: random.Random, scene: Scene) -> _Outcome | None:
    if len(scene_objects(scene)) > 3:
        return None
    place = rng.choice([place for place, cell in enumerate(scene.cells) if not cell])
    shape, color, size = rng.randrange(len(SHAPES)), rng.randrange(len(COLORS)), rng.randrange(len(SIZES))
    if rng.random() < 0.3:
        phrase, claim = _phrase(shape, color, size) + _at(rng, place), ObjectClaim(shape, color, size, place)
    elif rng.random() < 1 / 3:
        phrase, claim = SHAPES[shape] + _at(rng, place), ObjectClaim(shape, None, None, place)
    else:
        phrase, claim = _phrase(shape, color), ObjectClaim(shape, color)
    text = rng.choice(("add {}", "put {}", "there is also {}", "plus {}")).format(_a(phrase))
    return _Outcome(text, with_cells(scene, {place: code(shape, color, size)}), (claim,))


def _move(rng: random.Random, scene: Scene) -> _Outcome:
    obj = rng.choice(scene_objects(scene))
    name = _refer(rng, scene, obj)
    place = rng.choice([place for place, cell in enumerate(scene.cells) if not cell])
    text = rng.choice(("move {} to the {}", "{} is at the {} now", "put {} in the {}"))
    outcome = with_cells(scene, {obj.place: 0, place: scene.cells[obj.place]})
    claim = ObjectClaim(name.shape, name.color, None, place)
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
    return _Outcome(text, Scene(background, scene.cells), (BackgroundClaim(background),))


def _flip(rng: random.Random, scene: Scene) -> _Outcome | None:
    rows = [scene.cells[start : start + 3] for start in (0, 3, 6)]
    if rng.random() < 0.5:
        wordings, rows = ("flip it upside down", "mirror the scene vertically"), rows[::-1]
    else:
        wordings = ("mirror the scene horizontally", "flip it left to right")
        rows = [row[::-1] for row in rows]
    outcome = Scene(scene.background, tuple(cell for row in rows for cell in row))
    return None if outcome == scene else _Outcome(rng.choice(wordings), outcome, ())


_EDITORS: dict[str, Callable[[random.Random, Scene], _Outcome | None]] = {
    "recolor": _change(
        "color", COLOR_NAMES, "make {} {}", "change the color of {} to {}", "paint {} {}", "{} is {} now"
    ),
    "reshape": _change(
        "shape", SHAPES, "turn {} into a {}", "replace {} with a {} of the same color", "{} becomes a {}"
    ),
    "resize": _change("size", ("smaller", "bigger"), "make {} {}", "{} should be {}", "resize {} so it is {}"),
    "remove": _remove,
    "add": _add,
    "move": _move,
    "swap": _swap,
    "background": _background,
    "flip": _flip,
}
