"""Define the objects of the synthetic world, as drawings that a person recognizes.

Example:
    >>> OBJECTS["padlock"].words, OBJECTS["padlock"].is_colored, OBJECTS["frog"].is_colored
    ('a padlock', True, False)
"""

from __future__ import annotations

import math

from circus_bench.demo.world.drawing import DrawnObject, Mark, arc, box, line, oval, poly


def _around(count: int, radius: float, *, turn: float = 0.0) -> list[tuple[float, float]]:
    """Return points on a circle around the middle, from the right, clockwise."""
    angles = [2 * math.pi * n / count + turn for n in range(count)]
    return [(radius * math.cos(angle), radius * math.sin(angle)) for angle in angles]


def _teeth(left: float, right: float, y: float, height: float, count: int) -> tuple[float, ...]:
    """Return the points of a row of teeth along a horizontal edge."""
    step = (right - left) / count
    rows = [(left + n * step, y, left + (n + 0.5) * step, y + height) for n in range(count)]
    return (*(number for row in rows for number in row), right, y)


_SUN_RAYS = [line("amber", 0.09, 0.62 * x, 0.62 * y, 0.92 * x, 0.92 * y) for x, y in _around(10, 1.0)]
_PETALS = [oval("main", x, y - 0.38, 0.22) for x, y in _around(6, 0.3)]
_WEB = [
    *(line("grey", 0.035, 0, 0, x, y) for x, y in _around(8, 0.95)),
    *(
        line("grey", 0.035, *(number for point in _around(8, radius) for number in point), radius, 0)
        for radius in (0.25, 0.5, 0.75, 0.95)
    ),
]
_TYRE = [oval("black", 0, 0.1, 0.75), oval("silver", 0, 0.1, 0.42), oval("grey", 0, 0.1, 0.12)]
_LEAF = (0, -0.9, 0.45, -0.45, 0.5, 0.05, 0.25, 0.5, 0, 0.7, -0.25, 0.5, -0.5, 0.05, -0.45, -0.45)


def _leaf(fill: str, vein: str) -> list[Mark]:
    veins = [line(vein, 0.04, 0, y, side * 0.3, y - 0.25) for y in (-0.3, 0.0, 0.3) for side in (-1, 1)]
    return [poly(fill, *_LEAF), line(vein, 0.06, 0, -0.7, 0, 0.95), *veins]


def _butterfly() -> list[Mark]:
    wings = [oval(fill, side * 0.45, y, rx, ry) for side in (-1, 1) for fill, y, rx, ry in
             (("main", -0.32, 0.42, 0.42), ("dark", 0.38, 0.32, 0.36), ("yellow", -0.34, 0.17, 0.19))]  # fmt: skip
    feelers = [line("black", 0.04, 0, -0.55, side * 0.22, -0.92) for side in (-1, 1)]
    return [*wings, oval("black", 0, 0, 0.09, 0.6), *feelers]


def _bee() -> list[Mark]:
    wings = [oval("glass", -0.15, -0.45, 0.28, 0.36), oval("glass", 0.25, -0.42, 0.26, 0.32)]
    stripes = [box("black", x, -0.4, x + 0.16, 0.46) for x in (-0.32, 0.02, 0.34)]
    head = [oval("black", -0.72, 0.03, 0.26), oval("white", -0.8, -0.04, 0.07)]
    return [
        *wings,
        poly("black", 0.6, -0.12, 0.6, 0.18, 0.95, 0.03),
        oval("yellow", 0, 0.03, 0.72, 0.45),
        *stripes,
        *head,
    ]


def _spider() -> list[Mark]:
    legs = [
        line("black", 0.06, 0, y, side * 0.5, y - 0.32 + lift, side * 0.88, y + lift)
        for side in (-1, 1)
        for y, lift in ((-0.15, -0.2), (-0.02, -0.05), (0.1, 0.18), (0.22, 0.4))
    ]
    eyes = [oval("white", side * 0.11, -0.42, 0.07) for side in (-1, 1)]
    return [*legs, oval("black", 0, 0.25, 0.42, 0.46), oval("black", 0, -0.3, 0.27), *eyes]


def _frog() -> list[Mark]:
    sides = [
        mark
        for side in (-1, 1)
        for mark in (
            oval("green", side * 0.62, 0.45, 0.34, 0.28),
            oval("leaf", side * 0.38, -0.5, 0.24),
            oval("white", side * 0.38, -0.52, 0.16),
            oval("black", side * 0.38, -0.5, 0.08),
            line("green", 0.12, side * 0.35, 0.6, side * 0.55, 0.8),
        )
    ]
    return [*sides[:1], *sides[5:6], oval("leaf", 0, 0.15, 0.62, 0.58), *sides[1:5], *sides[6:],
            arc("bark", 0.06, 0, -0.05, 0.36, 0.3, 20, 160), oval("cream", 0, 0.5, 0.3, 0.2)]  # fmt: skip


def _caterpillar() -> list[Mark]:
    rings = [oval(fill, x, 0.25 + rise, 0.27) for fill, x, rise in
             (("green", 0.72, 0.1), ("leaf", 0.4, 0), ("green", 0.06, -0.08), ("leaf", -0.28, 0))]  # fmt: skip
    feet = [line("bark", 0.07, x, 0.5, x, 0.66) for x in (0.7, 0.4, 0.06, -0.28)]
    face = [oval("green", -0.62, -0.02, 0.32), oval("white", -0.72, -0.1, 0.1), oval("black", -0.74, -0.1, 0.05)]
    feelers = [line("bark", 0.05, -0.62, -0.3, x, -0.58) for x in (-0.78, -0.46)]
    return [*feet, *rings, *feelers, *face]


def _snowman() -> list[Mark]:
    balls = [
        oval("cloud", 0, 0.5, 0.5),
        oval("white", 0, 0.5, 0.46),
        oval("cloud", 0, -0.15, 0.37),
        oval("white", 0, -0.15, 0.33),
    ]
    face = [oval("black", x, -0.24, 0.05) for x in (-0.12, 0.12)] + [poly("orange", 0, -0.16, 0, -0.06, 0.34, -0.08)]
    hat = [box("main", -0.36, -0.55, 0.36, -0.44), box("main", -0.24, -0.95, 0.24, -0.5)]
    return [*balls, *face, *hat, *(oval("black", 0, y, 0.05) for y in (0.32, 0.54))]


def _tree() -> list[Mark]:
    crown = [oval("green", x, y, 0.42) for x, y in ((-0.4, -0.15), (0.4, -0.15), (0, 0.02), (0, -0.5))]
    return [box("bark", -0.13, 0.1, 0.13, 0.95), *crown, oval("leaf", -0.1, -0.35, 0.32)]


def _mouse() -> list[Mark]:
    return [
        line("pink", 0.07, 0.6, 0.4, 0.9, 0.3, 0.95, -0.05),
        oval("grey", 0.12, 0.28, 0.6, 0.4),
        oval("grey", -0.12, -0.25, 0.26), oval("pink", -0.12, -0.25, 0.16),
        oval("grey", -0.5, 0.2, 0.36, 0.28), oval("black", -0.55, 0.1, 0.06), oval("pink", -0.87, 0.24, 0.08),
        *(line("black", 0.025, -0.7, 0.26, -0.95, y) for y in (0.12, 0.42)),
    ]  # fmt: skip


def _chick() -> list[Mark]:
    return [
        *(line("orange", 0.07, x, 0.7, x, 0.92) for x in (-0.1, 0.16)),
        oval("yellow", 0.06, 0.32, 0.55, 0.46), oval("yellow", -0.22, -0.34, 0.38),
        poly("orange", -0.55, -0.42, -0.55, -0.2, -0.86, -0.3), oval("black", -0.34, -0.4, 0.07),
        oval("amber", 0.2, 0.32, 0.26, 0.18),
    ]  # fmt: skip


_DRAWINGS: dict[str, tuple[str, list[Mark]]] = {
    "padlock": ("a padlock", [
        arc("grey", 0.18, 0, -0.25, 0.42, 0.6, 180, 360), line("grey", 0.17, -0.34, -0.25, -0.34, 0.1),
        line("grey", 0.17, 0.34, -0.25, 0.34, 0.1), box("main", -0.62, -0.05, 0.62, 0.85, 0.12),
        oval("black", 0, 0.3, 0.13), poly("black", -0.05, 0.35, 0.05, 0.35, 0.1, 0.65, -0.1, 0.65)]),
    "key": ("a key", [
        arc("main", 0.16, -0.55, 0, 0.38, 0.38, 0, 360), line("main", 0.15, -0.2, 0, 0.88, 0),
        line("main", 0.13, 0.5, 0, 0.5, 0.3), line("main", 0.13, 0.8, 0, 0.8, 0.34)]),
    "bottle": ("a corked wine bottle", [
        box("dark", -0.32, -0.2, 0.32, 0.95, 0.12), box("dark", -0.13, -0.72, 0.13, 0.0),
        poly("dark", -0.13, -0.45, 0.13, -0.45, 0.32, -0.1, -0.32, -0.1), box("wood", -0.1, -0.95, 0.1, -0.7),
        box("cream", -0.32, 0.2, 0.32, 0.65), line("main", 0.07, -0.18, 0.42, 0.18, 0.42)]),
    "corkscrew": ("a corkscrew", [
        box("main", -0.75, -0.85, 0.75, -0.55, 0.14), line("silver", 0.12, 0, -0.6, 0, -0.1),
        line("grey", 0.09, 0, -0.15, 0.2, -0.02, -0.2, 0.14, 0.2, 0.3, -0.2, 0.46, 0.2, 0.62, 0, 0.72, 0, 0.95)]),
    "tin": ("a closed tin of food", [
        box("silver", -0.55, -0.65, 0.55, 0.7), oval("silver", 0, 0.7, 0.55, 0.18),
        box("main", -0.55, -0.42, 0.55, 0.55), oval("grey", 0, -0.65, 0.55, 0.19), oval("silver", 0, -0.65, 0.44, 0.13),
        oval("cream", 0, 0.06, 0.3, 0.26)]),
    "tin opener": ("a tin opener", [
        line("main", 0.17, -0.05, -0.2, -0.5, 0.9), line("main", 0.17, 0.12, -0.2, 0.3, 0.9),
        box("silver", -0.3, -0.8, 0.34, -0.15, 0.08), oval("grey", 0.05, -0.48, 0.26),
        *(oval("grey", 0.05 + x, -0.48 + y, 0.06) for x, y in _around(10, 0.27)), oval("black", 0.05, -0.48, 0.08),
        line("grey", 0.12, 0.35, -0.48, 0.75, -0.48), oval("grey", 0.78, -0.48, 0.15, 0.26)]),
    "paper": ("a sheet of paper", [
        poly("cloud", -0.56, -0.86, 0.3, -0.86, 0.62, -0.54, 0.62, 0.92, -0.56, 0.92),
        poly("white", -0.6, -0.9, 0.26, -0.9, 0.58, -0.58, 0.58, 0.88, -0.6, 0.88),
        poly("cloud", 0.26, -0.9, 0.26, -0.58, 0.58, -0.58),
        *(line("grey", 0.04, -0.4, y, 0.36, y) for y in (-0.3, -0.05, 0.2, 0.45, 0.68))]),
    "scissors": ("a pair of scissors", [
        poly("silver", -0.1, 0.12, 0.34, -0.95, 0.44, -0.6, 0.08, 0.2),
        poly("grey", 0.1, 0.12, -0.34, -0.95, -0.44, -0.6, -0.08, 0.2),
        arc("main", 0.15, -0.38, 0.6, 0.32, 0.36, 0, 360), arc("main", 0.15, 0.38, 0.6, 0.32, 0.36, 0, 360),
        line("main", 0.15, -0.22, 0.36, 0.02, 0.1), line("main", 0.15, 0.22, 0.36, -0.02, 0.1),
        oval("black", 0, 0.05, 0.06)]),
    "log": ("a log of wood", [
        box("bark", -0.55, -0.36, 0.9, 0.4, 0.1), line("brown", 0.05, -0.2, -0.15, 0.4, -0.15),
        line("brown", 0.05, 0.1, 0.15, 0.75, 0.15), oval("straw", -0.58, 0.02, 0.3, 0.39),
        arc("wood", 0.05, -0.58, 0.02, 0.2, 0.26, 0, 360), oval("wood", -0.58, 0.02, 0.07, 0.1)]),
    "saw": ("a hand saw", [
        poly("silver", -0.3, -0.4, 0.95, -0.1, 0.95, 0.2, -0.3, 0.3),
        poly("silver", *_teeth(-0.3, 0.95, 0.2, 0.16, 9), 0.95, 0.1, -0.3, 0.1),
        box("main", -0.95, -0.5, -0.25, 0.4, 0.18), box("black", -0.76, -0.22, -0.46, 0.14, 0.12)]),
    "loaf": ("a loaf of bread", [
        oval("crust", 0, -0.15, 0.85, 0.42), box("crust", -0.78, -0.15, 0.78, 0.5, 0.12),
        *(line("cream", 0.08, x, -0.34, x + 0.16, 0.02) for x in (-0.5, -0.1, 0.3))]),
    "bread knife": ("a bread knife", [
        poly("silver", -0.2, -0.16, 0.95, -0.16, 0.85, 0.12, -0.2, 0.12), line("grey", 0.03, -0.2, -0.1, 0.9, -0.1),
        poly("silver", *_teeth(-0.2, 0.85, 0.1, 0.12, 10)), box("main", -0.95, -0.2, -0.18, 0.16, 0.1),
        oval("silver", -0.72, -0.02, 0.05), oval("silver", -0.42, -0.02, 0.05)]),
    "grass": ("a patch of tall grass", [
        poly("brown", -0.95, 0.7, 0.95, 0.7, 0.85, 0.92, -0.85, 0.92),
        *(poly("green" if n % 2 else "leaf", x - 0.1, 0.74, x + 0.1, 0.74, x + lean, top) for n, (x, lean, top) in
          enumerate(((-0.8, -0.1, -0.3), (-0.55, 0.12, -0.75), (-0.3, -0.12, -0.4), (-0.05, 0.1, -0.85),
                     (0.2, -0.1, -0.5), (0.45, 0.14, -0.8), (0.7, 0.16, -0.35))))]),
    "mower": ("a lawn mower", [
        line("grey", 0.09, 0.3, 0.3, 0.88, -0.8), line("black", 0.13, 0.7, -0.82, 0.95, -0.82),
        poly("main", -0.85, 0.55, -0.7, 0.1, 0.4, 0.1, 0.55, 0.55), box("dark", -0.45, -0.15, 0.1, 0.12, 0.06),
        oval("black", -0.6, 0.62, 0.27), oval("silver", -0.6, 0.62, 0.11), oval("black", 0.38, 0.62, 0.27),
        oval("silver", 0.38, 0.62, 0.11)]),
    "nail": ("a nail", [
        oval("grey", 0, -0.82, 0.34, 0.12), poly("silver", -0.1, -0.8, 0.1, -0.8, 0.1, 0.55, 0, 0.95, -0.1, 0.55)]),
    "hammer": ("a hammer", [
        box("main", -0.12, -0.6, 0.12, 0.95, 0.06), box("grey", -0.35, -0.85, 0.6, -0.45, 0.05),
        poly("grey", -0.3, -0.85, -0.3, -0.5, -0.85, -0.32, -0.8, -0.55), box("black", 0.52, -0.9, 0.72, -0.4, 0.04)]),
    "screw": ("a screw", [
        oval("silver", 0, -0.75, 0.42, 0.2), box("black", -0.3, -0.8, 0.3, -0.72), box("grey", -0.12, -0.6, 0.12, 0.6),
        poly("grey", -0.12, 0.6, 0.12, 0.6, 0, 0.95),
        *(line("silver", 0.09, -0.24, y + 0.1, 0.24, y - 0.06) for y in (-0.35, -0.12, 0.11, 0.34, 0.57))]),
    "screwdriver": ("a screwdriver", [
        box("main", -0.2, -0.95, 0.2, -0.15, 0.14), line("dark", 0.05, -0.07, -0.8, -0.07, -0.3),
        line("dark", 0.05, 0.07, -0.8, 0.07, -0.3), box("silver", -0.07, -0.15, 0.07, 0.75),
        poly("silver", -0.07, 0.7, 0.07, 0.7, 0.13, 0.95, -0.13, 0.95)]),
    "bolt": ("a bolt with a nut", [
        box("silver", -0.15, -0.5, 0.15, 0.95),
        *(line("grey", 0.05, -0.17, y, 0.17, y - 0.06) for y in (0.1, 0.25, 0.72, 0.86)),
        poly("grey", -0.5, -0.9, 0.5, -0.9, 0.5, -0.5, -0.5, -0.5), line("silver", 0.05, -0.18, -0.9, -0.18, -0.5),
        line("silver", 0.05, 0.18, -0.9, 0.18, -0.5), box("grey", -0.38, 0.35, 0.38, 0.65)]),
    "spanner": ("a spanner", [
        line("main", 0.24, -0.25, -0.25, 0.55, 0.55), arc("main", 0.24, -0.5, -0.5, 0.4, 0.4, 285, 165),
        arc("main", 0.2, 0.64, 0.64, 0.3, 0.3, 0, 360)]),
    "button": ("a button", [
        oval("dark", 0.03, 0.04, 0.78), oval("main", 0, 0, 0.76), arc("dark", 0.06, 0, 0, 0.55, 0.55, 0, 360),
        *(oval("white", x, y, 0.1) for x in (-0.18, 0.18) for y in (-0.18, 0.18))]),
    "needle": ("a needle with thread", [
        line("main", 0.06, 0.55, -0.7, 0.2, -0.95, -0.3, -0.6, -0.75, -0.85, -0.85, -0.2, -0.4, 0.1, -0.8, 0.5),
        line("grey", 0.13, 0.62, -0.75, 0.1, 0.2), poly("grey", 0.16, 0.24, 0.04, 0.16, -0.28, 0.95),
        line("white", 0.05, 0.6, -0.72, 0.5, -0.54)]),
    "tooth": ("a tooth", [
        poly("cream", -0.5, 0.0, -0.12, 0.1, -0.2, 0.95, -0.42, 0.8),
        poly("cream", 0.5, 0.0, 0.12, 0.1, 0.2, 0.95, 0.42, 0.8), oval("cloud", 0, -0.3, 0.72, 0.58),
        oval("white", -0.3, -0.35, 0.38, 0.5),
        oval("white", 0.3, -0.35, 0.38, 0.5), box("white", -0.5, -0.4, 0.5, 0.2, 0.2),
        arc("cloud", 0.06, 0, -0.75, 0.2, 0.16, 20, 160)]),
    "toothbrush": ("a toothbrush", [
        box("main", -0.95, 0.1, 0.95, 0.3, 0.09), *(box("silver", x, -0.25, x + 0.1, 0.12) for x in
        (-0.9, -0.77, -0.64, -0.51, -0.38)), *(box("dark", x, -0.25, x + 0.1, -0.12) for x in
        (-0.9, -0.77, -0.64, -0.51, -0.38))]),
    "dirt": ("a heap of dirt", [
        poly("brown", -0.9, 0.75, -0.5, 0.25, -0.1, -0.05, 0.25, 0.1, 0.6, 0.35, 0.9, 0.75),
        *(oval("bark", x, y, 0.07) for x, y in ((-0.4, 0.45), (0.0, 0.2), (0.2, 0.55), (0.5, 0.5), (-0.1, 0.6))),
        *(oval("brown", x, y, 0.06) for x, y in ((-0.85, 0.45), (0.75, 0.2), (0.45, -0.1)))]),
    "broom": ("a broom", [
        line("main", 0.11, 0, -0.95, 0, 0.2), poly("straw", -0.18, 0.15, 0.18, 0.15, 0.6, 0.95, -0.6, 0.95),
        *(line("crust", 0.04, x * 0.3, 0.3, x, 0.92) for x in (-0.42, -0.14, 0.14, 0.42)),
        line("red", 0.09, -0.24, 0.27, 0.24, 0.27)]),
    "plate": ("a dirty plate", [
        oval("cloud", 0, 0.04, 0.9, 0.9), oval("white", 0, 0, 0.88, 0.88), arc("main", 0.08, 0, 0, 0.62, 0.62, 0, 360),
        oval("brown", -0.15, 0.1, 0.32, 0.2), oval("crust", 0.2, -0.15, 0.2, 0.15), oval("red", 0.25, 0.28, 0.12)]),
    "sponge": ("a sponge", [
        box("yellow", -0.8, -0.25, 0.8, 0.5, 0.12), box("green", -0.8, 0.3, 0.8, 0.52, 0.08),
        *(oval("amber", x, y, r) for x, y, r in ((-0.5, -0.05, 0.1), (-0.15, 0.12, 0.07), (0.15, -0.08, 0.09),
                                                 (0.5, 0.08, 0.11), (-0.35, 0.2, 0.06))),
        *(oval("white", x, y, r) for x, y, r in ((0.55, -0.42, 0.16), (0.78, -0.3, 0.1), (0.32, -0.36, 0.1)))]),
    "torch": ("an electric torch", [
        box("main", -0.95, -0.2, 0.2, 0.2, 0.08), poly("dark", 0.15, -0.2, 0.5, -0.42, 0.5, 0.42, 0.15, 0.2),
        poly("yellow", 0.5, -0.36, 0.95, -0.62, 0.95, 0.62, 0.5, 0.36), box("black", -0.45, -0.1, -0.2, 0.1, 0.05)]),
    "battery": ("a battery", [
        box("black", -0.35, -0.7, 0.35, 0.9, 0.06), box("main", -0.35, -0.7, 0.35, 0.1),
        box("silver", -0.14, -0.9, 0.14, -0.7),
        line("white", 0.08, -0.13, -0.3, 0.13, -0.3), line("white", 0.08, 0, -0.43, 0, -0.17),
        line("white", 0.08, -0.13, 0.55, 0.13, 0.55)]),
    "car": ("a car", [
        poly("main", -0.5, -0.05, -0.25, -0.5, 0.4, -0.5, 0.65, -0.05), box("main", -0.95, -0.08, 0.95, 0.4, 0.14),
        poly("glass", -0.36, -0.06, -0.18, -0.4, 0.04, -0.4, 0.04, -0.06),
        poly("glass", 0.12, -0.06, 0.12, -0.4, 0.34, -0.4, 0.5, -0.06), oval("yellow", -0.87, 0.1, 0.08),
        *(mark for x in (-0.5, 0.5) for mark in (oval("black", x, 0.42, 0.24), oval("silver", x, 0.42, 0.11)))]),
    "fuel can": ("a fuel can", [
        box("main", -0.65, -0.45, 0.55, 0.9, 0.1), arc("main", 0.14, -0.1, -0.45, 0.36, 0.36, 180, 360),
        line("dark", 0.14, 0.45, -0.4, 0.85, -0.85), box("dark", -0.55, -0.62, -0.25, -0.42),
        line("dark", 0.09, -0.5, -0.25, 0.4, 0.72), line("dark", 0.09, 0.4, -0.25, -0.5, 0.72)]),
    "campfire": ("a burning campfire", [
        poly("orange", -0.55, 0.55, -0.5, -0.1, -0.25, 0.12, 0.0, -0.92, 0.28, 0.05, 0.5, -0.2, 0.55, 0.55),
        poly("yellow", -0.28, 0.55, -0.2, 0.15, 0.02, -0.35, 0.2, 0.2, 0.28, 0.55),
        line("bark", 0.19, -0.75, 0.8, 0.7, 0.5), line("brown", 0.19, 0.75, 0.8, -0.7, 0.5)]),
    "caterpillar": ("a caterpillar", _caterpillar()),
    "butterfly": ("a butterfly", _butterfly()),
    "tadpole": ("a tadpole", [
        line("black", 0.3, 0.0, 0.0, 0.5, 0.2), line("black", 0.17, 0.5, 0.2, 0.75, -0.02, 0.95, 0.12),
        oval("black", -0.35, -0.05, 0.48, 0.4), oval("white", -0.55, -0.15, 0.11), oval("black", -0.57, -0.15, 0.05)]),
    "frog": ("a frog", _frog()),
    "acorn": ("an acorn", [
        oval("wood", 0, 0.2, 0.48, 0.6), poly("wood", -0.15, 0.7, 0.15, 0.7, 0, 0.95),
        oval("bark", 0, -0.32, 0.6, 0.32),
        box("bark", -0.07, -0.9, 0.07, -0.5),
        *(line("brown", 0.05, x, -0.5, x + 0.1, -0.15) for x in (-0.4, -0.15, 0.1, 0.35))]),
    "tree": ("a tree", _tree()),
    "bud": ("a closed flower bud", [
        line("green", 0.1, 0, 0.0, 0, 0.95), poly("leaf", 0, 0.75, 0.5, 0.3, 0.55, 0.55),
        oval("main", 0, -0.4, 0.24, 0.46),
        poly("green", -0.26, -0.3, 0, -0.05, 0.26, -0.3, 0.2, 0.08, -0.2, 0.08)]),
    "flower": ("a flower in bloom", [
        line("green", 0.1, 0, -0.2, 0, 0.95), poly("leaf", 0, 0.75, 0.5, 0.3, 0.55, 0.55), *_PETALS,
        oval("yellow", 0, -0.38, 0.2)]),
    "candle": ("a new tall candle", [
        box("main", -0.22, -0.6, 0.22, 0.85), line("black", 0.05, 0, -0.6, 0, -0.78),
        box("silver", -0.5, 0.82, 0.5, 0.95)]),
    "candle stub": ("a burnt-down candle stub", [
        oval("main", 0, 0.72, 0.46, 0.14), box("main", -0.22, 0.35, 0.22, 0.8), oval("dark", 0, 0.36, 0.22, 0.08),
        line("black", 0.05, 0, 0.36, 0.05, 0.18), box("silver", -0.5, 0.82, 0.5, 0.95),
        line("main", 0.09, -0.26, 0.4, -0.28, 0.7)]),
    "snowman": ("a snowman", _snowman()),
    "puddle": ("a puddle of water", [
        oval("water", -0.1, 0.5, 0.85, 0.28), oval("water", 0.35, 0.62, 0.5, 0.2), oval("water", -0.4, 0.66, 0.4, 0.16),
        arc("white", 0.05, -0.1, 0.48, 0.5, 0.13, 190, 300)]),
    "dough": ("a ball of dough in a bowl", [
        oval("cream", 0, -0.08, 0.6, 0.45), poly("main", -0.85, 0.05, 0.85, 0.05, 0.5, 0.8, -0.5, 0.8),
        box("dark", -0.9, -0.02, 0.9, 0.12, 0.07)]),
    "green leaf": ("a green leaf", _leaf("leaf", "green")),
    "brown leaf": ("a withered brown leaf", _leaf("crust", "bark")),
    "egg": ("an egg", [oval("crust", 0.02, 0.13, 0.55, 0.7), oval("cream", 0, 0.1, 0.53, 0.68),
        oval("white", -0.18, -0.15, 0.12, 0.18)]),
    "chick": ("a chick", _chick()),
    "rain cloud": ("a rain cloud", [
        *(oval("cloud", x, y, r) for x, y, r in ((-0.45, -0.2, 0.34), (0.0, -0.42, 0.44), (0.48, -0.2, 0.34), (0.0,
        -0.12, 0.4))),
        *(line("blue", 0.07, x, 0.35, x - 0.12, 0.65) for x in (-0.5, -0.15, 0.2, 0.55)),
        *(line("blue", 0.07, x, 0.65, x - 0.1, 0.92) for x in (-0.3, 0.05, 0.4))]),
    "broken window": ("a broken window", [
        box("wood", -0.85, -0.85, 0.85, 0.85), box("glass", -0.7, -0.7, 0.7, 0.7),
        poly("black", -0.05, -0.35, 0.12, -0.1, 0.45, -0.15, 0.2, 0.12, 0.3, 0.45, 0.02, 0.22, -0.3, 0.4, -0.16, 0.08,
        -0.45, -0.12, -0.12, -0.1),
        line("grey", 0.04, 0.3, 0.45, 0.5, 0.7), line("grey", 0.04, -0.45, -0.12, -0.7, -0.3),
        line("grey", 0.04, 0.45, -0.15, 0.7, -0.4)]),
    "ball": ("a ball", [
        oval("white", 0, 0.1, 0.78), poly("main", 0, -0.2, 0.29, 0.0, 0.18, 0.35, -0.18, 0.35, -0.29, 0.0),
        *(poly("main", 0.78 * x - 0.0, 0.1 + 0.78 * y, 0.55 * x - 0.2 * y, 0.1 + 0.55 * y + 0.2 * x, 0.55 * x + 0.2 * y,
               0.1 + 0.55 * y - 0.2 * x) for x, y in _around(5, 1.0, turn=math.pi / 10)),
        arc("dark", 0.05, 0, 0.1, 0.78, 0.78, 0, 360)]),
    "web": ("a spider web", _WEB),
    "spider": ("a spider", _spider()),
    "cheese": ("a gnawed piece of cheese", [
        poly("amber", -0.85, 0.1, 0.8, 0.1, 0.8, 0.65, -0.85, 0.65), poly("yellow", -0.85, 0.1, 0.55, -0.5, 0.8, 0.1),
        *(oval("crust", x, y, r) for x, y, r in ((-0.3, 0.38, 0.12), (0.15, 0.3, 0.08), (0.3, 0.5, 0.09))),
        *(oval("bark", x, y, 0.17) for x, y in ((0.78, 0.15), (0.84, 0.38), (0.74, 0.6)))]),
    "mouse": ("a mouse", _mouse()),
    "ice cream": ("a melting ice cream", [
        poly("wood", -0.3, 0.0, 0.3, 0.0, 0, 0.9), line("crust", 0.04, -0.2, 0.1, 0.08, 0.6),
        line("crust", 0.04, 0.2, 0.1, -0.08, 0.6),
        oval("main", 0, -0.35, 0.44), box("main", -0.42, -0.25, -0.26, 0.3, 0.08),
        box("main", 0.02, -0.2, 0.16, 0.5, 0.07),
        box("main", 0.28, -0.25, 0.42, 0.12, 0.07), oval("main", 0.2, 0.9, 0.4, 0.09)]),
    "sun": ("the sun", [*_SUN_RAYS, oval("yellow", 0, 0, 0.52)]),
    "footprints": ("footprints", [
        mark for x, y in ((-0.38, 0.45), (0.38, -0.25)) for mark in
        (oval("bark", x, y - 0.22, 0.25, 0.34), oval("bark", x, y + 0.3, 0.18, 0.17))]),
    "boot": ("a boot", [
        box("main", -0.5, -0.9, 0.12, 0.6, 0.06), oval("main", 0.3, 0.42, 0.52, 0.32), box("main", -0.5, 0.3, 0.4, 0.7),
        box("black", -0.54, 0.68, 0.84, 0.86, 0.05), line("dark", 0.07, -0.5, -0.72, 0.12, -0.72)]),
    "flat tyre": ("a flat tyre", [*_TYRE, box("black", -0.72, 0.62, 0.72, 0.86, 0.1),
        line("grey", 0.05, -0.5, 0.74, 0.5, 0.74)]),
    "honey": ("a jar of honey", [
        box("amber", -0.55, -0.4, 0.55, 0.9, 0.16), box("main", -0.5, -0.72, 0.5, -0.45, 0.06),
        box("cream", -0.55, 0.02, 0.55, 0.52),
        poly("amber", *(n for x, y in _around(6, 0.22) for n in (x, 0.27 + y)))]),
    "bee": ("a bee", _bee()),
    "match": ("a burning match", [
        line("straw", 0.12, 0.55, 0.92, -0.05, 0.0), oval("bark", -0.1, -0.05, 0.12),
        poly("orange", -0.4, 0.0, -0.38, -0.35, -0.15, -0.95, 0.16, -0.4, 0.15, 0.0, -0.1, 0.15),
        poly("yellow", -0.26, -0.04, -0.24, -0.28, -0.13, -0.6, 0.02, -0.28, 0.02, -0.02)]),
    "chair": ("a chair", [
        box("main", -0.5, -0.95, -0.34, 0.95), box("main", -0.5, 0.0, 0.5, 0.18), box("main", 0.34, 0.1, 0.5, 0.95),
        box("dark", -0.5, -0.85, -0.3, -0.05), line("dark", 0.06, -0.4, 0.6, 0.4, 0.6)]),
    "cup": ("a cup", [
        arc("main", 0.15, 0.45, 0.05, 0.38, 0.36, 270, 90), box("main", -0.6, -0.5, 0.5, 0.7, 0.16),
        oval("dark", -0.05, -0.48, 0.55, 0.13)]),
    "hat": ("a hat", [
        oval("main", 0, 0.45, 0.95, 0.22), box("main", -0.5, -0.5, 0.5, 0.42, 0.2),
        box("dark", -0.5, 0.12, 0.5, 0.34)]),
    "fish": ("a fish", [
        poly("dark", 0.45, 0.0, 0.95, -0.4, 0.85, 0.0, 0.95, 0.4), oval("main", -0.15, 0, 0.72, 0.42),
        poly("dark", -0.2, -0.1, 0.2, -0.05, 0.0, 0.25), oval("white", -0.58, -0.1, 0.12),
        oval("black", -0.6, -0.1, 0.06)]),
}  # fmt: skip

OBJECTS = {name: DrawnObject(name, words, tuple(marks)) for name, (words, marks) in _DRAWINGS.items()}
"""Name to object."""
