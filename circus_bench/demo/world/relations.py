"""Define the relations between the synthetic world's objects, and the questions about them.

A relation leads from an object to one other object. Its question does not name the object that it is about, so that
nobody can answer it without the image: "What opens this?" is answered by a key or by a corkscrew. Three flawed wordings
of the same question each break one constraint of the pipeline.

Example:
    >>> meaning = meaning_of("... What opens this? ...")
    >>> meaning.relation.name, meaning.flaw, sorted(meaning.answers("padlock"))
    ('opens', None, ['key'])
    >>> meaning_of("What opens a padlock?").flaw, sorted(meaning_of("What opens a padlock?").answers("bottle"))
    (<Constraint.MULTIMODAL: 'multimodal'>, ['key'])
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from circus_bench.demo.world.objects import OBJECTS
from circus_bench.errors import CircusError
from circus_bench.rmir.records import Category, Constraint


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation.

    Attributes:
        name: such as `opens`.
        category: of the reasoning that it takes.
        wording: of its question, with a gap for what it is about.
        pairs: object to the object that answers.
    """

    name: str
    category: Category
    wording: str
    pairs: Mapping[str, str]


def _both_ways(pairs: Mapping[str, str]) -> dict[str, str]:
    return {answer: subject for subject, answer in pairs.items()}


_BECOMES = {
    "caterpillar": "butterfly",
    "tadpole": "frog",
    "acorn": "tree",
    "bud": "flower",
    "candle": "candle stub",
    "dough": "loaf",
    "green leaf": "brown leaf",
    "egg": "chick",
}
_CAUSES = {
    "rain cloud": "puddle",
    "ball": "broken window",
    "spider": "web",
    "mouse": "cheese",
    "sun": "ice cream",
    "boot": "footprints",
    "nail": "flat tyre",
    "bee": "honey",
    "match": "campfire",
}

RELATIONS = (
    Relation(
        "opens",
        Category.FUNCTIONAL,
        "What opens {}?",
        {"padlock": "key", "bottle": "corkscrew", "tin": "tin opener"},
    ),
    Relation(
        "cuts",
        Category.FUNCTIONAL,
        "What is used to cut {}?",
        {"paper": "scissors", "log": "saw", "loaf": "bread knife", "grass": "mower"},
    ),
    Relation(
        "fastens",
        Category.FUNCTIONAL,
        "With what does one fasten {}?",
        {"nail": "hammer", "screw": "screwdriver", "bolt": "spanner", "button": "needle"},
    ),
    Relation(
        "cleans",
        Category.FUNCTIONAL,
        "What takes care of {} when it is time to clean up?",
        {"tooth": "toothbrush", "dirt": "broom", "plate": "sponge"},
    ),
    Relation(
        "feeds",
        Category.FUNCTIONAL,
        "What keeps {} going?",
        {"torch": "battery", "car": "fuel can", "campfire": "log"},
    ),
    # A snowman turns into a puddle, but not every puddle was a snowman.
    Relation("becomes", Category.TEMPORAL, "How will {} look some time from now?", {**_BECOMES, "snowman": "puddle"}),
    Relation("was", Category.TEMPORAL, "How did {} look some time ago?", _both_ways(_BECOMES)),
    Relation("is caused by", Category.CAUSAL, "What brought {} about?", _both_ways(_CAUSES)),
    Relation("causes", Category.CAUSAL, "What does {} bring about?", _CAUSES),
)

_PLAIN = "this"
_GAPS = {
    Constraint.STEPS: "what the neighbour of whoever made this would have made",
    Constraint.UNIQUE: "this or anything like it",
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """Meaning of a question.

    Attributes:
        relation: that it is about.
        flaw: the constraint that it breaks, if any.
        named: the object that it names where it should point; empty where it names none.
    """

    relation: Relation
    flaw: Constraint | None = None
    named: str = ""

    @property
    def text(self) -> str:
        """The question."""
        return self.relation.wording.format(OBJECTS[self.named].words if self.named else self._gap)

    @property
    def _gap(self) -> str:
        return _PLAIN if self.flaw is None else _GAPS[self.flaw]

    def answers(self, subject: str) -> frozenset[str]:
        """Return the objects that answer it, asked about an image of an object.

        A question that takes too many steps has no answer, one that is too broad has all of the relation's.
        """
        if self.flaw is Constraint.STEPS:
            return frozenset()
        if self.flaw is Constraint.UNIQUE:
            return frozenset(self.relation.pairs.values())
        answer = self.relation.pairs.get(self.named or subject)
        return frozenset({answer} if answer else ())


def make_question(relation: Relation, subject: str, *, flaw: Constraint | None = None) -> Meaning:
    """Make the question of a relation about an image of an object, with a flaw if wanted."""
    return Meaning(relation, flaw, named=subject if flaw is Constraint.MULTIMODAL else "")


def relations_of(subject: str, category: Category) -> list[Relation]:
    """List the relations of a category that lead on from an object."""
    return [relation for relation in RELATIONS if relation.category is category and subject in relation.pairs]


@functools.lru_cache(maxsize=10_000)
def meaning_of(text: str) -> Meaning:
    """Parse the question in a text.

    Args:
        text: a question, or a prompt that holds one.

    Raises:
        CircusError: the text holds no question of this world.
    """
    if not (found := _pattern().search(text)):
        raise CircusError(f"the synthetic world has no such question: {text[:200]!r}")
    return _meanings()[found.group()]


@functools.cache
def _meanings() -> dict[str, Meaning]:
    every = [
        make_question(relation, subject, flaw=flaw)
        for relation in RELATIONS
        for subject in relation.pairs
        for flaw in (None, *Constraint)
    ]
    return {meaning.text: meaning for meaning in every}


@functools.cache
def _pattern() -> re.Pattern[str]:
    return re.compile("|".join(sorted(map(re.escape, _meanings()), key=len, reverse=True)))
