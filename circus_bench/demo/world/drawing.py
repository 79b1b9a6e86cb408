"""Draw synthetic images of everyday objects, each described as a list of marks.

Marks lie in a square from -1 to 1, y pointing down. A fill is a name of `PAINT`, or `main` or `dark` for the color of
the object's appearance.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageOps

SIDE = 96  # pixels of an image
_OVERSAMPLING = 3
_HORIZON = 0.68  # where the wall meets the floor, as a share of the height
_SHADE = 0.68  # brightness of `dark`

PAINT = {
    "black": (35, 35, 40),
    "white": (250, 250, 248),
    "grey": (135, 140, 148),
    "silver": (178, 186, 198),
    "brown": (128, 82, 45),
    "wood": (186, 134, 82),
    "bark": (92, 60, 38),
    "straw": (226, 192, 110),
    "crust": (196, 128, 62),
    "cream": (250, 236, 200),
    "green": (66, 150, 62),
    "leaf": (96, 178, 72),
    "yellow": (250, 204, 48),
    "orange": (240, 138, 36),
    "amber": (226, 150, 30),
    "red": (206, 48, 44),
    "pink": (240, 150, 170),
    "blue": (60, 110, 200),
    "water": (120, 186, 232),
    "cloud": (150, 160, 176),
    "glass": (196, 226, 236),
}
COLORS = {
    "red": (200, 52, 48),
    "blue": (56, 96, 196),
    "green": (52, 140, 78),
    "orange": (234, 132, 38),
    "purple": (128, 66, 160),
    "teal": (36, 150, 158),
}
BACKGROUNDS = {
    "white": ((246, 246, 242), (222, 220, 214)),
    "blue": ((198, 216, 240), (158, 178, 206)),
    "yellow": ((250, 238, 190), (222, 200, 140)),
    "pink": ((246, 214, 222), (214, 172, 184)),
    "green": ((208, 230, 204), (166, 196, 160)),
    "grey": ((206, 208, 212), (170, 172, 178)),
}
"""Colors of the wall and the floor."""
SIZES = {"small": 0.31, "large": 0.42}
"""Half the side of an object's square, as a share of the image's side."""
PLACES = {"left": -0.08, "middle": 0.0, "right": 0.08}
"""Horizontal position of the object, from the middle, as a share of the image's side."""


class Mark(NamedTuple):
    """One stroke of a drawing.

    Attributes:
        shape: oval, box, poly, line or arc.
        fill: of the area, or of the stroke of a line or arc.
        points: x, y, x, y, ...; two corners for an oval, a box and an arc.
        width: of a stroke; the radius of a box's corners.
        start: of an arc, in degrees clockwise from the right; `end` likewise.
    """

    shape: str
    fill: str
    points: tuple[float, ...]
    width: float = 0.0
    start: float = 0.0
    end: float = 360.0


class Appearance(NamedTuple):
    """Appearance of an object: names of COLORS, SIZES, PLACES and BACKGROUNDS, and whether the image is mirrored."""

    color: str
    size: str
    place: str
    background: str
    mirrored: bool


@dataclass(frozen=True, slots=True)
class DrawnObject:
    """Object that can be drawn.

    Attributes:
        name: such as `padlock`.
        words: with its article, such as `a padlock`.
        marks: in the order of drawing.
    """

    name: str
    words: str
    marks: tuple[Mark, ...]

    @property
    def is_colored(self) -> bool:
        """Tell whether the color of its appearance shows."""
        return any(mark.fill in {"main", "dark"} for mark in self.marks)


def oval(fill: str, x: float, y: float, rx: float, ry: float | None = None) -> Mark:
    """Make an ellipse; a circle without `ry`."""
    ry = rx if ry is None else ry
    return Mark("oval", fill, (x - rx, y - ry, x + rx, y + ry))


def box(fill: str, left: float, top: float, right: float, bottom: float, corner: float = 0.0) -> Mark:
    """Make a rectangle with rounded corners."""
    return Mark("box", fill, (left, top, right, bottom), corner)


def poly(fill: str, *points: float) -> Mark:
    """Make a filled polygon."""
    return Mark("poly", fill, points)


def line(fill: str, width: float, *points: float) -> Mark:
    """Make a stroke with round joints."""
    return Mark("line", fill, points, width)


def arc(fill: str, width: float, x: float, y: float, rx: float, ry: float, start: float, end: float) -> Mark:
    """Make a piece of an ellipse's outline."""
    return Mark("arc", fill, (x - rx, y - ry, x + rx, y + ry), width, start, end)


def draw(subject: DrawnObject, look: Appearance) -> bytes:
    """Draw an image; the same arguments give the same PNG file."""
    side = SIDE * _OVERSAMPLING
    wall, floor = BACKGROUNDS[look.background]
    image = Image.new("RGB", (side, side), wall)
    canvas = ImageDraw.Draw(image)
    canvas.rectangle((0, round(side * _HORIZON), side, side), fill=floor)
    main = COLORS[look.color]
    paint = {**PAINT, "main": main, "dark": tuple(round(part * _SHADE) for part in main)}
    half = side * SIZES[look.size]
    # What lies below the middle line of a mirrored picture still lies below it; only left and right change.
    middle = side * (0.5 + PLACES[look.place] * (-1 if look.mirrored else 1))
    for mark in subject.marks:
        _put(canvas, mark, paint, (middle, side / 2), half)
    if look.mirrored:
        image = ImageOps.mirror(image)
    file = io.BytesIO()
    image.resize((SIDE, SIDE), Image.Resampling.BOX).save(file, "PNG", compress_level=1)
    return file.getvalue()


def _put(
    canvas: ImageDraw.ImageDraw,
    mark: Mark,
    paint: dict[str, tuple[int, ...]],
    center: tuple[float, float],
    half: float,
) -> None:
    fill = paint[mark.fill]
    points = [
        (center[0] + x * half, center[1] + y * half) for x, y in zip(mark.points[::2], mark.points[1::2], strict=True)
    ]
    width = max(1, round(mark.width * half))
    if mark.shape == "oval":
        canvas.ellipse(points, fill=fill)
    elif mark.shape == "box":
        canvas.rounded_rectangle(points, mark.width * half, fill=fill)
    elif mark.shape == "poly":
        canvas.polygon(points, fill=fill)
    elif mark.shape == "arc":
        canvas.arc(points, mark.start, mark.end, fill=fill, width=width)
    else:
        canvas.line(points, fill=fill, width=width, joint="curve")
        for x, y in (points[0], points[-1]):
            canvas.ellipse((x - width / 2, y - width / 2, x + width / 2, y + width / 2), fill=fill)
