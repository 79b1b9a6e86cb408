"""Define and render the scenes of the synthetic `scenes` benchmark, and tell which are held out from training.

A scene is a background and a 3 x 3 grid of cells, each empty or holding one object with a shape, a color and a size. A
scene is a value: two images of the same scene differ in jitter alone (`render`), so whether an image answers a text is
decided on the scenes, exactly, and never by a model.
"""

from __future__ import annotations

import functools
import io
import random
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle", "star", "cross", "diamond")
COLORS = {
    "red": (214, 40, 40),
    "green": (30, 140, 60),
    "blue": (40, 80, 210),
    "orange": (245, 130, 20),
    "purple": (130, 50, 170),
    "cyan": (40, 190, 200),
    "black": (30, 30, 30),
}
BACKGROUNDS = {
    "white": (250, 250, 250),
    "gray": (165, 165, 165),
    "yellow": (250, 235, 140),
    "pink": (250, 195, 210),
    "brown": (150, 115, 85),
    "mint": (180, 235, 195),
}
SIZES = ("small", "big")
PLACES = ("top left", "top", "top right", "left", "center", "right", "bottom left", "bottom", "bottom right")

SIDE = 64  # pixels of an image
_GRID = 3
_CELL = 20  # pixels of a grid cell; the grid covers 60 pixels and is shifted by 0 to 4
_SHIFTS = SIDE - _GRID * _CELL + 1
_RADIUS = (5.0, 8.2)  # pixels, small and big
_OVERSAMPLING = 8
_NUDGES = tuple((dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1))
_NOISE_PATTERNS = 64
_NOISE_DEVIATION = 4.0

_HELD_OUT_PARTS = 4  # one part in this many is held out


class SceneObject(NamedTuple):
    """One object of a scene; the fields are indices into PLACES, SHAPES, COLORS and SIZES."""

    place: int
    shape: int
    color: int
    size: int


class Scene(NamedTuple):
    """A background (an index into BACKGROUNDS) and nine cells, row by row: 0 when empty, otherwise a `code`."""

    background: int
    cells: tuple[int, ...]


def code(shape: int, color: int, size: int) -> int:
    """Return the positive cell code of an object.

    Example:
        >>> scene_objects(Scene(0, (code(3, 2, 1), 0, 0, 0, 0, 0, 0, 0, 0)))
        (SceneObject(place=0, shape=3, color=2, size=1),)
    """
    return 1 + (shape * len(COLORS) + color) * len(SIZES) + size


@functools.lru_cache(maxsize=200_000)
def scene_objects(scene: Scene) -> tuple[SceneObject, ...]:
    """List the objects of a scene, in the order of their places."""
    found = []
    for place, cell in enumerate(scene.cells):
        if cell:
            kind, size = divmod(cell - 1, len(SIZES))
            found.append(SceneObject(place, *divmod(kind, len(COLORS)), size))
    return tuple(found)


def with_cells(scene: Scene, changes: dict[int, int]) -> Scene:
    """Copy the scene with other codes at some places."""
    return Scene(scene.background, tuple(changes.get(place, cell) for place, cell in enumerate(scene.cells)))


def random_scene(rng: random.Random, count: int | None = None) -> Scene:
    """Draw a scene of `count` objects (itself drawn from 1 to 4 when None)."""
    count = count or rng.choice((1, 2, 2, 3, 3, 3, 4))
    cells = [0] * len(PLACES)
    for place in rng.sample(range(len(PLACES)), count):
        cells[place] = code(rng.randrange(len(SHAPES)), rng.randrange(len(COLORS)), rng.randrange(len(SIZES)))
    return Scene(rng.randrange(len(BACKGROUNDS)), tuple(cells))


def is_held_out(scene: Scene) -> bool:
    """Return whether the scene belongs to the held-out part, which is kept for benchmarks.

    Training draws none of these scenes and a benchmark draws no others, so no image of a benchmark shows a scene that a
    model was trained on. The part follows from a checksum of the background and of the shape and color in each cell.
    Sizes are left out: a training scene is not even a resized version of a benchmark scene.
    """
    kinds = bytes((scene.background, *((cell + 1) // len(SIZES) for cell in scene.cells)))
    return zlib.crc32(kinds) % _HELD_OUT_PARTS == 0


def difference(one: Scene, other: Scene) -> int:
    """Count the cells that differ, plus one for another background."""
    cells = sum(a != b for a, b in zip(one.cells, other.cells, strict=True))
    return cells + (one.background != other.background)


def render(scenes: Sequence[Scene], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Draw scenes with fresh jitter: a nudge per object, a shift of the grid, tints and pixel noise.

    Returns:
        RGB pixels, shape (len(scenes), SIDE, SIDE, 3).
    """
    count = len(scenes)
    tint = rng.uniform(0.96, 1.04, (count, 1)).astype(np.float32)
    background = _palette(tuple(BACKGROUNDS.values()))[[scene.background for scene in scenes]] * tint
    cells = np.array([scene.cells for scene in scenes])
    kinds, size = np.divmod(np.maximum(cells - 1, 0), len(SIZES))
    shape, color = np.divmod(kinds, len(COLORS))
    sprite = np.where(cells > 0, 1 + shape * len(SIZES) + size, 0)
    masks = _sprites()[sprite, rng.integers(0, len(_NUDGES), cells.shape)]
    tint = rng.uniform(0.92, 1.08, (*cells.shape, 1)).astype(np.float32)
    contrast = _palette(tuple(COLORS.values()))[color] * tint - background[:, None]
    drawn = masks[..., None] * contrast[:, :, None, None]
    grid = drawn.reshape(count, _GRID, _GRID, _CELL, _CELL, 3).transpose(0, 1, 3, 2, 4, 5)
    grid = grid.reshape(count, _GRID * _CELL, _GRID * _CELL, 3)
    pixels = np.broadcast_to(background[:, None, None], (count, SIDE, SIDE, 3)).copy()
    for index, (down, right) in enumerate(rng.integers(0, _SHIFTS, (count, 2))):
        pixels[index, down : down + _GRID * _CELL, right : right + _GRID * _CELL] += grid[index]
    pixels += _noise()[rng.integers(0, _NOISE_PATTERNS, count)]
    return np.clip(pixels, 0, 255).astype(np.uint8)


def encode_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Encode RGB pixels of shape (height, width, 3) as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


@functools.cache
def _palette(colors: tuple[tuple[int, int, int], ...]) -> npt.NDArray[np.float32]:
    return np.array(colors, np.float32)


@functools.cache
def _noise() -> npt.NDArray[np.float32]:
    patterns = np.random.default_rng(0).normal(0, _NOISE_DEVIATION, (_NOISE_PATTERNS, SIDE, SIDE, 3))
    return patterns.astype(np.float32)


@functools.cache
def _sprites() -> npt.NDArray[np.float32]:
    """Draw coverage masks, shape (1 + shapes x sizes, nudges, cell, cell); the first is empty."""
    empty = np.zeros((len(_NUDGES), _CELL, _CELL), np.float32)
    drawn = [np.stack([_sprite(shape, radius, *nudge) for nudge in _NUDGES]) for shape in SHAPES for radius in _RADIUS]
    return np.stack([empty, *drawn])


def _sprite(shape: str, radius: float, dx: int, dy: int) -> npt.NDArray[np.float32]:
    image = Image.new("L", (_CELL * _OVERSAMPLING, _CELL * _OVERSAMPLING))
    draw = ImageDraw.Draw(image)

    def point(x: float, y: float) -> tuple[float, float]:
        """Convert units of the radius around the object's center to pixels of the oversampled cell."""
        center = _CELL / 2
        return (center + dx + x * radius) * _OVERSAMPLING, (center + dy + y * radius) * _OVERSAMPLING

    if shape == "circle":
        draw.ellipse([point(-0.95, -0.95), point(0.95, 0.95)], fill=255)
    elif shape == "square":
        draw.rectangle([point(-0.85, -0.85), point(0.85, 0.85)], fill=255)
    elif shape == "triangle":
        draw.polygon([point(0, -1), point(-1, 0.8), point(1, 0.8)], fill=255)
    elif shape == "star":
        spokes = [(1.0 if i % 2 == 0 else 0.4, np.pi * i / 5) for i in range(10)]
        draw.polygon([point(r * np.sin(angle), -r * np.cos(angle)) for r, angle in spokes], fill=255)
    elif shape == "cross":
        draw.rectangle([point(-0.34, -1), point(0.34, 1)], fill=255)
        draw.rectangle([point(-1, -0.34), point(1, 0.34)], fill=255)
    else:
        draw.polygon([point(0, -1), point(0.75, 0), point(0, 1), point(-0.75, 0)], fill=255)
    coverage = np.asarray(image.resize((_CELL, _CELL), Image.Resampling.BOX), np.float32)
    return coverage / np.float32(255)
