"""Generate the synthetic world's collection: drawn images, and the content of each.

Example:
    >>> world = make_world(seed=1, views=2, objects=("padlock", "key"))
    >>> sorted(content.subject for content in world.contents.values())
    ['key', 'key', 'padlock', 'padlock']
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from circus_bench.demo.world.drawing import BACKGROUNDS, COLORS, PLACES, SIZES, Appearance, draw
from circus_bench.demo.world.objects import OBJECTS
from circus_bench.errors import CircusError
from circus_bench.validation.hash_order import hash_shuffle, hash_uniform

GENERATOR_VERSION = 1
_STAGES = tuple(itertools.product(SIZES, PLACES, BACKGROUNDS))
MAX_VIEWS = len(_STAGES)
"""Images of one object that differ in more than its color, so that no two of them can be equal."""


@dataclass(frozen=True, slots=True)
class ImageContent:
    """Content of a synthetic image.

    Attributes:
        subject: name of the object that it shows.
        look: the object's appearance.
    """

    subject: str
    look: Appearance

    @property
    def caption(self) -> str:
        """The content in a sentence."""
        return caption(self.subject, self.look)


@dataclass(frozen=True)
class World:
    """A collection of images with known content.

    Attributes:
        seed: that it was made from.
        contents: image id to its content, by id.
        images: image id to the bytes of its file.
    """

    seed: int
    contents: Mapping[str, ImageContent]
    images: Mapping[str, bytes]

    @cached_property
    def showing(self) -> Mapping[str, frozenset[str]]:
        """Name of each object to the images that show it."""
        found: dict[str, set[str]] = {}
        for image, content in self.contents.items():
            found.setdefault(content.subject, set()).add(image)
        return {subject: frozenset(images) for subject, images in found.items()}

    @cached_property
    def by_digest(self) -> Mapping[str, str]:
        """SHA-256 of an image's file to its id."""
        return {hashlib.sha256(data).hexdigest(): image for image, data in self.images.items()}


def make_world(
    seed: int = 0, views: int = 8, *, fewest: int | None = None, objects: Collection[str] | None = None
) -> World:
    """Draw the collection. The same arguments give the same bytes.

    Args:
        seed: of the appearances, and of the assignment of ids.
        views: images per object.
        fewest: draw the number of images of each object at random, from this one to `views`.
        objects: names of the objects; all by default.

    Raises:
        CircusError: an object is unknown, or there are not that many different images of one.
    """
    names = list(OBJECTS if objects is None else dict.fromkeys(objects))
    if unknown := [name for name in names if name not in OBJECTS]:
        raise CircusError(f"the synthetic world has no objects {unknown}; it has {', '.join(OBJECTS)}")
    least = views if fewest is None else fewest
    if not 1 <= least <= views <= MAX_VIEWS or not names:
        raise CircusError(
            f"a world needs an object and 1 to {MAX_VIEWS} views of each, not {len(names)} objects and {least} to "
            f"{views}"
        )
    counts = {name: least + int(hash_uniform(seed, "views", name) * (views - least + 1)) for name in names}
    drawn = [ImageContent(name, look) for name in names for look in _looks(seed, name, counts[name])]
    places = hash_shuffle((str(place) for place in range(len(drawn))), seed, "ids")
    contents = {f"image-{number:04d}": drawn[int(place)] for number, place in enumerate(places)}
    images = {image: draw(OBJECTS[content.subject], content.look) for image, content in contents.items()}
    return World(seed, contents, images)


def caption(subject: str, look: Appearance) -> str:
    """Describe an image in a sentence.

    Example:
        >>> caption("padlock", Appearance("red", "small", "left", "blue", False))
        'A small picture of a padlock with red parts, in front of a blue wall.'
    """
    colored = f" with {look.color} parts" if OBJECTS[subject].is_colored else ""
    return f"A {look.size} picture of {OBJECTS[subject].words}{colored}, in front of a {look.background} wall."


def _looks(seed: int, subject: str, views: int) -> list[Appearance]:
    chosen = hash_shuffle((str(place) for place in range(len(_STAGES))), seed, "looks", subject)[:views]
    colors = list(COLORS)
    return [
        Appearance(
            colors[int(hash_uniform(seed, "colour", subject, place) * len(colors))],
            *_STAGES[int(place)],
            mirrored=hash_uniform(seed, "mirrored", subject, place) < 0.5,
        )
        for place in chosen
    ]
