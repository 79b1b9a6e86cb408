"""Make the synthetic set of `scenes`: a gallery, and queries whose kind is known because it was built in and checked.

Distractors keep a unimodal query away from a target. Without them, an edit of a single attribute is answered by the
reference alone: its target is the nearest image. So the references of composed queries stand in families:
near-duplicates that come before any edit in an image-only ranking, the targets of all queries of the family, and
extra distractors, edits that no query asks for, so that a wrong edit does not hit its target by elimination.
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
    BackgroundClaim,
    Claim,
    Edit,
    broad_claims,
    caption,
    fulfills,
    garble,
    iter_claims,
    random_edit,
)
from circus_bench.sources.scenes.world import (
    Scene,
    code,
    difference,
    is_held_out,
    random_scene,
    scene_objects,
    with_cells,
)

_T = TypeVar("_T")

COPIES = 12  # near-duplicates in every family that are other images of the reference's own scene
DISTRACTORS = (12, 20)  # near-duplicates of a family; those beyond COPIES show the reference with one object resized
FEW_DISTRACTORS = (0, 6)  # near-duplicates of the reference of an image shortcut
FAMILY_QUERIES = 8
EXTRA_DISTRACTORS = 10  # edits of a family's reference that no query asks for
TWO_STEPS = 0.4  # share of edits in two steps
MIN_TEXT_DISTRACTORS = 120  # gallery images that fulfill the text of a composed query, at the least
MIN_TEXT_DISTRACTORS_SHARE = 0.1  # of a gallery that is too small for MIN_TEXT_DISTRACTORS
MAX_PARTIAL = 6  # gallery images that fulfill the text of a text shortcut, at the most
_PARTIAL_DETAIL = 0.5
_MIN_DIFFERENCE = 3  # between an unrelated reference and the target
_TRIES = 20_000


class QueryKind(StrEnum):
    """The ground truth of a synthetic query: what it is made to be."""

    TEXT_SHORTCUT = "text_shortcut"
    """The text describes the target, in full or nearly so; the reference is unrelated."""
    IMAGE_SHORTCUT = "image_shortcut"
    """The target is a near-duplicate of the reference, and few others are."""
    COMPOSITION_REQUIRED = "composition_required"
    """The text edits the reference; distractors come before the target in either unimodal ranking."""
    TOO_BROAD = "too_broad"
    """Many images answer the query; one of them is called the target."""
    INVALID_TARGET = "invalid_target"
    """The target is not what the text asks for."""
    INVALID_TEXT = "invalid_text"
    """The text is unreadable, or was written for another reference."""


SHARES = {
    QueryKind.TEXT_SHORTCUT: 0.2,
    QueryKind.IMAGE_SHORTCUT: 0.2,
    QueryKind.COMPOSITION_REQUIRED: 0.35,
    QueryKind.TOO_BROAD: 0.1,
    QueryKind.INVALID_TARGET: 0.075,
    QueryKind.INVALID_TEXT: 0.075,
}
_FAMILY_KINDS = (QueryKind.COMPOSITION_REQUIRED, QueryKind.INVALID_TARGET, QueryKind.INVALID_TEXT)


@dataclass(frozen=True, slots=True)
class SyntheticQuery:
    """A synthetic query.

    Attributes:
        kind: what it is made to be.
        edit: how it was made: kinds of edits, or a variant of the kind.
        text: the modification text.
        reference: index of the reference in the gallery.
        target: index of the target in the gallery.
        claims: what the text alone says of its outcome; nothing for an unreadable text.
        n_near: near-duplicates of the reference, all of which come before the target in an image-only ranking. All
            other images when the reference has nothing to do with the target.
        n_text: gallery images, without the reference, that the text alone cannot tell from the target: those that
            fulfill its claims. All other images when the text does not lead to the target.
    """

    kind: QueryKind
    edit: str
    text: str
    reference: int
    target: int
    claims: tuple[Claim, ...]
    n_near: int
    n_text: int = 0


@dataclass(frozen=True, slots=True)
class SyntheticSet:
    """A gallery of scenes and the queries over it."""

    scenes: tuple[Scene, ...]
    queries: tuple[SyntheticQuery, ...]


def make_synthetic_set(*, seed: int, queries: int, gallery: int) -> SyntheticSet:
    """Make a gallery of scenes with synthetic queries of every kind.

    Raises:
        BenchmarkError: the gallery is too small for the queries.
    """
    counts = _counts(queries)
    builder = _SetBuilder(random.Random(seed), gallery, reserved=counts[QueryKind.TEXT_SHORTCUT])  # noqa: S311
    kinds = [kind for kind in _FAMILY_KINDS for _ in range(counts[kind])]
    builder.rng.shuffle(kinds)
    families = [
        (builder.add_family(), kinds[start : start + FAMILY_QUERIES]) for start in range(0, len(kinds), FAMILY_QUERIES)
    ]
    made = [builder.image_shortcut() for _ in range(counts[QueryKind.IMAGE_SHORTCUT])]
    builder.fill(len(kinds))
    for family, members in families:
        made += [builder.family_query(family, kind) for kind in members]
    made += [builder.text_shortcut(full=index % 2 == 0) for index in range(counts[QueryKind.TEXT_SHORTCUT])]
    made += [builder.too_broad() for _ in range(counts[QueryKind.TOO_BROAD])]
    return builder.finish(made)


def _counts(queries: int) -> Counter[QueryKind]:
    counts = Counter({kind: round(queries * share) for kind, share in SHARES.items()})
    # Rounding may lose or add a query or two; the largest kind absorbs them.
    counts[QueryKind.COMPOSITION_REQUIRED] += queries - counts.total()
    if min(counts.values()) < 1:
        raise BenchmarkError(f"{queries} queries are too few for {len(SHARES)} kinds; ask for 20 or more")
    return counts


@dataclass(frozen=True, slots=True)
class _Family:
    number: int
    reference: int
    near: int
    extra_distractors: tuple[int, ...]


class _SetBuilder:
    """A gallery under construction, with an index from claims to the images that fulfill them."""

    def __init__(self, rng: random.Random, size: int, *, reserved: int) -> None:
        self.rng = rng
        self._size = size
        self._reserved = reserved  # places kept for the targets of text shortcuts
        self._scenes: list[Scene] = []
        self._family_of: list[int | None] = []
        self._seen: set[Scene] = set()
        self._fulfilling: dict[Claim, set[int]] = {}
        self._families = 0

    def add_family(self) -> _Family:
        """Add a reference, near-duplicates of it as distractors, and extra distractors that no query asks for."""
        number, self._families = self._families, self._families + 1
        scene = self._fresh((2, 2, 3, 3, 4))
        reference = self._add(scene, number)
        near = self.rng.randint(*DISTRACTORS)
        for index in range(near):
            # Resized copies are held out like their original: the held-out part does not depend on sizes.
            self._add(scene if index < COPIES else self._resized(scene), number)
        extra_distractors = tuple(self._add(self._edit(scene).scene, number) for _ in range(EXTRA_DISTRACTORS))
        return _Family(number, reference, near, extra_distractors)

    def family_query(self, family: _Family, kind: QueryKind) -> SyntheticQuery:
        """Make a query with distractors: add the outcome of an edit that many gallery images fulfill."""
        distractors = min(MIN_TEXT_DISTRACTORS, self._size * MIN_TEXT_DISTRACTORS_SHARE)
        edit = self._first(
            lambda: self._edit(self._scenes[family.reference]),
            lambda edit: _determinate(edit) and len(self._matching(edit.claims)) >= distractors,
            "composed query",
        )
        outcome = self._add(edit.scene, family.number)
        query = SyntheticQuery(kind, edit.kind, edit.text, family.reference, outcome, edit.claims, family.near)
        if kind is QueryKind.INVALID_TARGET:
            return self._with_invalid_target(query, family, edit)
        if kind is QueryKind.INVALID_TEXT:
            return self._with_invalid_text(query, edit)
        return query

    def image_shortcut(self) -> SyntheticQuery:
        """Add a reference with a few near-duplicates, and another image of it or a small edit as the target."""
        scene = self._fresh((2, 3, 3, 4))
        reference = self._add(scene)
        near = self.rng.randint(*FEW_DISTRACTORS)
        for _ in range(near):
            self._add(scene)
        if self.rng.random() < 0.5:
            edit = Edit(self.rng.choice(UNCHANGED), scene, (), "same")
        else:
            edit = self._edit(scene, kinds=SMALL_EDITS, two_steps=0)
        target = self._add(edit.scene)
        return SyntheticQuery(QueryKind.IMAGE_SHORTCUT, edit.kind, edit.text, reference, target, edit.claims, near)

    def text_shortcut(self, *, full: bool) -> SyntheticQuery:
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
        return SyntheticQuery(
            QueryKind.TEXT_SHORTCUT, edit, text, self._unrelated(target), target, claims, self._all_others
        )

    def too_broad(self) -> SyntheticQuery:
        """Make a query that any of many images answers, without adding an image."""
        phrase, claim = self.rng.choice(broad_claims())
        target = self.rng.choice(sorted(self._matching((claim,))))
        text = self.rng.choice(BROAD).format(phrase)
        edit = "on" if isinstance(claim, BackgroundClaim) else "has"
        return SyntheticQuery(
            QueryKind.TOO_BROAD, edit, text, self._unrelated(target), target, (claim,), self._all_others
        )

    def fill(self, targets: int) -> None:
        """Add unrelated scenes, leaving room for the targets still to come."""
        for _ in range(self._size - len(self._scenes) - self._reserved - targets):
            self._add(self._fresh((1, 2, 2, 3, 3, 3, 4)))

    def finish(self, queries: Sequence[SyntheticQuery]) -> SyntheticSet:
        """Count the images that each text fits, and bring gallery and queries into a random order."""
        counted = [replace(query, n_text=self._count_text_distractors(query)) for query in queries]
        self.rng.shuffle(counted)
        order = list(range(len(self._scenes)))
        self.rng.shuffle(order)
        place = {old: new for new, old in enumerate(order)}
        return SyntheticSet(
            tuple(self._scenes[index] for index in order),
            tuple(replace(p, reference=place[p.reference], target=place[p.target]) for p in counted),
        )

    @property
    def _all_others(self) -> int:
        return self._size - 2

    def _with_invalid_target(self, query: SyntheticQuery, family: _Family, edit: Edit) -> SyntheticQuery:
        """Take another target: half are another edit of the same reference, half come from elsewhere."""

        def wrong(target: int) -> bool:
            scene = self._scenes[target]
            return scene != edit.scene and not (edit.claims and fulfills(scene, edit.claims))

        siblings = [index for index in family.extra_distractors if wrong(index)]
        if siblings and self.rng.random() < 0.5:
            return replace(query, edit="sibling", target=self.rng.choice(siblings))
        others = [index for index, of in enumerate(self._family_of) if of != family.number]
        target = self._first(lambda: self.rng.choice(others), wrong, "invalid target")
        return replace(query, edit="elsewhere", target=target)

    def _with_invalid_text(self, query: SyntheticQuery, edit: Edit) -> SyntheticQuery:
        """Take another text: half are unreadable, half were written for another reference and contradict the target."""
        if self.rng.random() < 0.5:
            return replace(query, edit="garbled", text=garble(self.rng, edit.text), claims=())
        other = self._first(
            lambda: random_edit(self.rng, random_scene(self.rng, 3), kinds=("recolor", "reshape", "move"), two_steps=0),
            lambda other: not fulfills(edit.scene, other.claims),
            "mismatched text",
        )
        return replace(query, edit="mismatched", text=other.text, claims=other.claims)

    def _count_text_distractors(self, query: SyntheticQuery) -> int:
        if query.kind in (QueryKind.INVALID_TARGET, QueryKind.INVALID_TEXT):
            return self._all_others
        return len(self._matching(query.claims) - {query.reference})

    def _matching(self, claims: Sequence[Claim]) -> set[int]:
        """Find the images that fulfill all claims; every image when there is none."""
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
        for claim in iter_claims(scene):
            self._fulfilling.setdefault(claim, set()).add(index)
        return index

    def _fresh(self, counts: Sequence[int]) -> Scene:
        """Draw a held-out scene that the gallery does not have yet."""
        return self._first(lambda: random_scene(self.rng, self.rng.choice(counts)), self._is_new, "new scene")

    def _edit(self, scene: Scene, *, kinds: Sequence[str] = LARGE_EDITS, two_steps: float = TWO_STEPS) -> Edit:
        """Draw an edit whose outcome is a held-out scene that the gallery does not have yet."""
        return self._first(
            lambda: random_edit(self.rng, scene, kinds=kinds, two_steps=two_steps),
            lambda edit: self._is_new(edit.scene),
            "new edit",
        )

    def _is_new(self, scene: Scene) -> bool:
        return scene not in self._seen and is_held_out(scene)

    def _resized(self, scene: Scene) -> Scene:
        obj = self.rng.choice(scene_objects(scene))
        return with_cells(scene, {obj.place: code(obj.shape, obj.color, 1 - obj.size)})

    def _unrelated(self, target: int) -> int:
        """Draw an image that shares no more with the target than chance brings."""
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
    """Return whether the text leaves little open: an addition does not say all of what it adds, enough by itself."""
    return "+" not in edit.kind or "add" not in edit.kind


def _anchored(claims: Sequence[Claim]) -> bool:
    """Return whether a description gives a place or the background, and no two of its objects are alike."""
    named = [(claim.shape, claim.color) for claim in claims if not isinstance(claim, BackgroundClaim)]
    placed = any(isinstance(claim, BackgroundClaim) or claim.place is not None for claim in claims)
    return placed and len(set(named)) == len(named)
