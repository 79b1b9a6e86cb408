"""Planting: a gallery of scenes, and queries whose kind is known because it was built in and checked on the scenes.

What keeps a unimodal query away from a target is a crowd. Without one, an edit of a single attribute is answered by the
reference alone: its target is the nearest image. So the references of composed queries stand in families:
near-duplicates that come before any edit in an image-only ranking, the targets of all queries of the family, and
further edits that nobody asks for, so that a wrong edit does not hit its target by elimination.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from circus_bench.errors import BenchmarkError
from circus_bench.sources.scenes.language import (
    BROAD,
    LARGE_EDITS,
    REPLACEMENTS,
    SMALL_EDITS,
    UNCHANGED,
    Claim,
    Edit,
    On,
    broad_claims,
    caption,
    claims_of,
    fulfils,
    garble,
    random_edit,
)
from circus_bench.sources.scenes.world import (
    Scene,
    code,
    difference,
    held_out,
    random_scene,
    things,
    with_cells,
)

_T = TypeVar("_T")

COPIES = 12  # near-duplicates in every family that are other images of the reference's own scene
CROWD = (12, 20)  # near-duplicates of a family; those beyond COPIES show the reference with one thing resized
SPARSE = (0, 6)  # near-duplicates of the reference of an image shortcut
FAMILY_QUERIES = 8
BYSTANDERS = 10  # edits of a family's reference that no query asks for
TWO_STEPS = 0.4  # share of edits in two steps
TEXT_CROWD = 120  # gallery images that fulfil the text of a composed query, at the least
TEXT_CROWD_SHARE = 0.1  # of a gallery that is too small for TEXT_CROWD
MAX_PARTIAL = 6  # gallery images that fulfil the text of a text shortcut, at the most
_PARTIAL_DETAIL = 0.5
_MIN_DIFFERENCE = 3  # between an unrelated reference and the target
_TRIES = 20_000


class Kind(StrEnum):
    """What a query is planted to be."""

    TEXT_SHORTCUT = "text_shortcut"
    """The text describes the target, in full or nearly so; the reference is unrelated."""
    IMAGE_SHORTCUT = "image_shortcut"
    """The target is a near-duplicate of the reference, and few others are."""
    COMPOSITION_REQUIRED = "composition_required"
    """The text edits the reference; a crowd stands before the target in either unimodal ranking."""
    TOO_BROAD = "too_broad"
    """Many images answer the query; one of them is called the target."""
    INVALID_TARGET = "invalid_target"
    """The target is not what the text asks for."""
    INVALID_TEXT = "invalid_text"
    """The text is unreadable, or was written for another reference."""


SHARES = {
    Kind.TEXT_SHORTCUT: 0.2,
    Kind.IMAGE_SHORTCUT: 0.2,
    Kind.COMPOSITION_REQUIRED: 0.35,
    Kind.TOO_BROAD: 0.1,
    Kind.INVALID_TARGET: 0.075,
    Kind.INVALID_TEXT: 0.075,
}
_FAMILY_KINDS = (Kind.COMPOSITION_REQUIRED, Kind.INVALID_TARGET, Kind.INVALID_TEXT)


@dataclass(frozen=True, slots=True)
class Plant:
    """A planted query.

    Attributes:
        kind: what it is planted to be.
        edit: how it was made: kinds of edits, or a variant of the plant.
        text: the modification text.
        reference: index of the reference in the gallery.
        target: index of the target in the gallery.
        claims: what the text alone says of its outcome; nothing for an unreadable text.
        n_near: near-duplicates of the reference, all of which come before the target in an image-only ranking. All
            other images when the reference has nothing to do with the target.
        n_text: gallery images, without the reference, that the text alone cannot tell from the target: those that
            fulfil its claims. All other images when the text does not lead to the target.
    """

    kind: Kind
    edit: str
    text: str
    reference: int
    target: int
    claims: tuple[Claim, ...]
    n_near: int
    n_text: int = 0


@dataclass(frozen=True, slots=True)
class Planting:
    """A gallery of scenes and the queries planted in it."""

    scenes: tuple[Scene, ...]
    plants: tuple[Plant, ...]


def plant(*, seed: int, queries: int, gallery: int) -> Planting:
    """Plant queries of every kind in a gallery.

    Raises:
        BenchmarkError: the gallery is too small for the queries.
    """
    counts = _counts(queries)
    planter = _Planter(random.Random(seed), gallery, reserved=counts[Kind.TEXT_SHORTCUT])  # noqa: S311
    kinds = [kind for kind in _FAMILY_KINDS for _ in range(counts[kind])]
    planter.rng.shuffle(kinds)
    families = [
        (planter.family(), kinds[start : start + FAMILY_QUERIES]) for start in range(0, len(kinds), FAMILY_QUERIES)
    ]
    plants = [planter.image_shortcut() for _ in range(counts[Kind.IMAGE_SHORTCUT])]
    planter.fill(len(kinds))
    for family, members in families:
        plants += [planter.family_query(family, kind) for kind in members]
    plants += [planter.text_shortcut(full=index % 2 == 0) for index in range(counts[Kind.TEXT_SHORTCUT])]
    plants += [planter.too_broad() for _ in range(counts[Kind.TOO_BROAD])]
    return planter.finish(plants)


def _counts(queries: int) -> Counter[Kind]:
    counts = Counter({kind: round(queries * share) for kind, share in SHARES.items()})
    # Rounding may lose or add a query or two; the largest kind absorbs them.
    counts[Kind.COMPOSITION_REQUIRED] += queries - counts.total()
    if min(counts.values()) < 1:
        raise BenchmarkError(f"{queries} queries are too few to plant {len(SHARES)} kinds; ask for 20 or more")
    return counts


@dataclass(frozen=True, slots=True)
class _Family:
    number: int
    reference: int
    near: int
    bystanders: tuple[int, ...]


class _Planter:
    """A gallery under construction, with an index from claims to the images that fulfil them."""

    def __init__(self, rng: random.Random, size: int, *, reserved: int) -> None:
        self.rng = rng
        self._size = size
        self._reserved = reserved  # places kept for the targets of text shortcuts
        self._scenes: list[Scene] = []
        self._family_of: list[int | None] = []
        self._seen: set[Scene] = set()
        self._fulfilling: dict[Claim, set[int]] = {}
        self._families = 0

    def family(self) -> _Family:
        """Add a reference, its crowd of near-duplicates, and edits that no query asks for."""
        number, self._families = self._families, self._families + 1
        scene = self._fresh((2, 2, 3, 3, 4))
        reference = self._add(scene, number)
        near = self.rng.randint(*CROWD)
        for index in range(near):
            # Resized copies are held out like their original: the held-out part does not depend on sizes.
            self._add(scene if index < COPIES else self._resized(scene), number)
        bystanders = tuple(self._add(self._edit(scene).scene, number) for _ in range(BYSTANDERS))
        return _Family(number, reference, near, bystanders)

    def family_query(self, family: _Family, kind: Kind) -> Plant:
        """Add the outcome of an edit that many gallery images fulfil, and plant a query of a kind with a crowd."""
        crowd = min(TEXT_CROWD, self._size * TEXT_CROWD_SHARE)
        edit = self._first(
            lambda: self._edit(self._scenes[family.reference]),
            lambda edit: _determinate(edit) and len(self._matching(edit.claims)) >= crowd,
            "composed query",
        )
        outcome = self._add(edit.scene, family.number)
        planted = Plant(kind, edit.kind, edit.text, family.reference, outcome, edit.claims, family.near)
        if kind is Kind.INVALID_TARGET:
            return self._with_invalid_target(planted, family, edit)
        if kind is Kind.INVALID_TEXT:
            return self._with_invalid_text(planted, edit)
        return planted

    def image_shortcut(self) -> Plant:
        """Add a reference with a few near-duplicates, and another image of it or a small edit as the target."""
        scene = self._fresh((2, 3, 3, 4))
        reference = self._add(scene)
        near = self.rng.randint(*SPARSE)
        for _ in range(near):
            self._add(scene)
        if self.rng.random() < 0.5:
            edit = Edit(self.rng.choice(UNCHANGED), scene, (), "same")
        else:
            edit = self._edit(scene, kinds=SMALL_EDITS, two_steps=0)
        target = self._add(edit.scene)
        return Plant(Kind.IMAGE_SHORTCUT, edit.kind, edit.text, reference, target, edit.claims, near)

    def text_shortcut(self, *, full: bool) -> Plant:
        """Add a target that its text describes: all of it, or so much that only a few other images fit."""
        self._reserved -= 1

        def describe() -> tuple[Scene, str, tuple[Claim, ...]]:
            scene = self._fresh((2, 2, 3))
            return scene, *caption(self.rng, scene, detail=1.0 if full else _PARTIAL_DETAIL)

        def suits(described: tuple[Scene, str, tuple[Claim, ...]]) -> bool:
            others = len(self._matching(described[2]))
            if full:
                return others == 0
            # Descriptions that fit one other image are the most frequent by far; a drawn least number evens that out.
            return _anchored(described[2]) and self.rng.choice((1, 2, 4)) <= others < MAX_PARTIAL

        scene, text, claims = self._first(describe, suits, "text shortcut")
        target = self._add(scene)
        text = self.rng.choice(REPLACEMENTS).format(text)
        edit = "full" if full else "partial"
        return Plant(Kind.TEXT_SHORTCUT, edit, text, self._unrelated(target), target, claims, self._all_others)

    def too_broad(self) -> Plant:
        """Plant a query that any of many images answers, without adding an image."""
        phrase, claim = self.rng.choice(broad_claims())
        target = self.rng.choice(sorted(self._matching((claim,))))
        text = self.rng.choice(BROAD).format(phrase)
        edit = type(claim).__name__.lower()
        return Plant(Kind.TOO_BROAD, edit, text, self._unrelated(target), target, (claim,), self._all_others)

    def fill(self, targets: int) -> None:
        """Add unrelated scenes, leaving room for the targets still to come."""
        for _ in range(self._size - len(self._scenes) - self._reserved - targets):
            self._add(self._fresh((1, 2, 2, 3, 3, 3, 4)))

    def finish(self, plants: Sequence[Plant]) -> Planting:
        """Count the images that each text fits, and bring gallery and queries into a random order."""
        counted = [replace(planted, n_text=self._text_crowd(planted)) for planted in plants]
        self.rng.shuffle(counted)
        order = list(range(len(self._scenes)))
        self.rng.shuffle(order)
        place = {old: new for new, old in enumerate(order)}
        return Planting(
            tuple(self._scenes[index] for index in order),
            tuple(replace(p, reference=place[p.reference], target=place[p.target]) for p in counted),
        )

    @property
    def _all_others(self) -> int:
        return self._size - 2

    def _with_invalid_target(self, planted: Plant, family: _Family, edit: Edit) -> Plant:
        """Half of the targets are another edit of the same reference, half come from elsewhere."""

        def wrong(target: int) -> bool:
            scene = self._scenes[target]
            return scene != edit.scene and not (edit.claims and fulfils(scene, edit.claims))

        siblings = [index for index in family.bystanders if wrong(index)]
        if siblings and self.rng.random() < 0.5:
            return replace(planted, edit="sibling", target=self.rng.choice(siblings))
        strangers = [index for index, of in enumerate(self._family_of) if of != family.number]
        target = self._first(lambda: self.rng.choice(strangers), wrong, "invalid target")
        return replace(planted, edit="elsewhere", target=target)

    def _with_invalid_text(self, planted: Plant, edit: Edit) -> Plant:
        """Half of the texts are unreadable, half were written for another reference and contradict the target."""
        if self.rng.random() < 0.5:
            return replace(planted, edit="garbled", text=garble(self.rng, edit.text), claims=())
        other = self._first(
            lambda: random_edit(self.rng, random_scene(self.rng, 3), kinds=("recolor", "reshape", "move"), two_steps=0),
            lambda other: not fulfils(edit.scene, other.claims),
            "mismatched text",
        )
        return replace(planted, edit="mismatched", text=other.text, claims=other.claims)

    def _text_crowd(self, planted: Plant) -> int:
        if planted.kind in (Kind.INVALID_TARGET, Kind.INVALID_TEXT):
            return self._all_others
        return len(self._matching(planted.claims) - {planted.reference})

    def _matching(self, claims: Sequence[Claim]) -> set[int]:
        """The images that fulfil all claims; every image when there is none."""
        if not claims:
            return set(range(len(self._scenes)))
        return set.intersection(*(self._fulfilling.get(claim, set()) for claim in claims))

    def _add(self, scene: Scene, family: int | None = None) -> int:
        index = len(self._scenes)
        if index + self._reserved >= self._size:
            raise BenchmarkError(f"a gallery of {self._size} images has no room for the queries; ask for fewer queries")
        self._scenes.append(scene)
        self._family_of.append(family)
        self._seen.add(scene)
        for claim in claims_of(scene):
            self._fulfilling.setdefault(claim, set()).add(index)
        return index

    def _fresh(self, counts: Sequence[int]) -> Scene:
        """A held-out scene that the gallery does not have yet."""
        return self._first(lambda: random_scene(self.rng, self.rng.choice(counts)), self._is_new, "new scene")

    def _edit(self, scene: Scene, *, kinds: Sequence[str] = LARGE_EDITS, two_steps: float = TWO_STEPS) -> Edit:
        """An edit whose outcome is a held-out scene that the gallery does not have yet."""
        return self._first(
            lambda: random_edit(self.rng, scene, kinds=kinds, two_steps=two_steps),
            lambda edit: self._is_new(edit.scene),
            "new edit",
        )

    def _is_new(self, scene: Scene) -> bool:
        return scene not in self._seen and held_out(scene)

    def _resized(self, scene: Scene) -> Scene:
        thing = self.rng.choice(things(scene))
        return with_cells(scene, {thing.place: code(thing.shape, thing.colour, 1 - thing.size)})

    def _unrelated(self, target: int) -> int:
        """An image that shares no more with the target than chance brings."""
        scene = self._scenes[target]
        return self._first(
            lambda: self.rng.randrange(len(self._scenes)),
            lambda index: difference(self._scenes[index], scene) >= _MIN_DIFFERENCE,
            "unrelated reference",
        )

    def _first(self, draw: Callable[[], _T], accept: Callable[[_T], bool], what: str) -> _T:
        for _ in range(_TRIES):
            if accept(drawn := draw()):
                return drawn
        raise BenchmarkError(
            f"no {what} found in {_TRIES} draws with a gallery of {self._size} images; "
            "ask for a larger gallery or fewer queries"
        )


def _determinate(edit: Edit) -> bool:
    """Whether the text leaves little open: an addition does not say all of what it adds, which is enough by itself."""
    return "+" not in edit.kind or "add" not in edit.kind


def _anchored(claims: Sequence[Claim]) -> bool:
    """Whether a description gives a place or the background, and not just a list of things, no two of them alike."""
    named = [(claim.shape, claim.colour) for claim in claims if not isinstance(claim, On)]
    placed = any(isinstance(claim, On) or claim.place is not None for claim in claims)
    return placed and len(set(named)) == len(named)
