"""The collection of the embedded world: drawn pictures, and what each of them shows.

Example:
    >>> world = make_world(seed=1, views=2, things=("padlock", "key"))
    >>> sorted(picture.thing for picture in world.pictures.values())
    ['key', 'key', 'padlock', 'padlock']
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from circus_bench.demo.world.drawing import BACKGROUNDS, COLOURS, PLACES, SIZES, Look, draw
from circus_bench.demo.world.objects import THINGS
from circus_bench.errors import CircusError
from circus_bench.validation.hash_order import fraction, shuffled

GENERATOR_VERSION = 1
_STAGES = tuple(itertools.product(SIZES, PLACES, BACKGROUNDS))
MAX_VIEWS = len(_STAGES)
"""Pictures of one thing that differ in more than its colour, so that no two of them can be equal."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What an image shows.

    Attributes:
        thing: name of the thing.
        look: how it is shown.
    """

    thing: str
    look: Look

    @property
    def caption(self) -> str:
        """What is to be seen, in a sentence."""
        return caption(self.thing, self.look)


@dataclass(frozen=True)
class World:
    """A collection of images with known content.

    Attributes:
        seed: that it was made from.
        pictures: image id to what it shows, by id.
        images: image id to the bytes of its file.
    """

    seed: int
    pictures: Mapping[str, Picture]
    images: Mapping[str, bytes]

    @cached_property
    def showing(self) -> Mapping[str, frozenset[str]]:
        """Thing to the images that show it."""
        found: dict[str, set[str]] = {}
        for image, picture in self.pictures.items():
            found.setdefault(picture.thing, set()).add(image)
        return {thing: frozenset(images) for thing, images in found.items()}

    @cached_property
    def by_digest(self) -> Mapping[str, str]:
        """SHA-256 of an image's file to its id."""
        return {hashlib.sha256(data).hexdigest(): image for image, data in self.images.items()}


def make_world(
    seed: int = 0, views: int = 8, *, fewest: int | None = None, things: Collection[str] | None = None
) -> World:
    """Draw the collection. The same arguments give the same bytes.

    Args:
        seed: of the looks, and of which id stands for which picture.
        views: pictures of each thing.
        fewest: draw the number of pictures of each thing, from this one to `views`.
        things: names of the things; all by default.

    Raises:
        CircusError: a thing is unknown, or there are not that many different pictures of one.
    """
    names = list(THINGS if things is None else dict.fromkeys(things))
    if unknown := [name for name in names if name not in THINGS]:
        raise CircusError(f"the embedded world has no things {unknown}; it has {', '.join(THINGS)}")
    least = views if fewest is None else fewest
    if not 1 <= least <= views <= MAX_VIEWS or not names:
        raise CircusError(
            f"a world needs a thing and 1 to {MAX_VIEWS} views of each, not {len(names)} things and {least} to {views}"
        )
    counts = {name: least + int(fraction(seed, "views", name) * (views - least + 1)) for name in names}
    drawn = [Picture(name, look) for name in names for look in _looks(seed, name, counts[name])]
    places = shuffled((str(place) for place in range(len(drawn))), seed, "ids")
    pictures = {f"image-{number:04d}": drawn[int(place)] for number, place in enumerate(places)}
    images = {image: draw(THINGS[picture.thing], picture.look) for image, picture in pictures.items()}
    return World(seed, pictures, images)


def caption(thing: str, look: Look) -> str:
    """A sentence that says what a picture shows.

    Example:
        >>> caption("padlock", Look("red", "small", "left", "blue", False))
        'A small picture of a padlock with red parts, in front of a blue wall.'
    """
    coloured = f" with {look.colour} parts" if THINGS[thing].is_coloured else ""
    return f"A {look.size} picture of {THINGS[thing].words}{coloured}, in front of a {look.background} wall."


def _looks(seed: int, thing: str, views: int) -> list[Look]:
    chosen = shuffled((str(place) for place in range(len(_STAGES))), seed, "looks", thing)[:views]
    colours = list(COLOURS)
    return [
        Look(
            colours[int(fraction(seed, "colour", thing, place) * len(colours))],
            *_STAGES[int(place)],
            mirrored=fraction(seed, "mirrored", thing, place) < 0.5,
        )
        for place in chosen
    ]
