"""What is true in the embedded world: every image that answers a question, and the queries of faultless oracles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from circus_bench.demo.world.collection import World
from circus_bench.demo.world.objects import THINGS
from circus_bench.demo.world.relations import Meaning, ask, meaning_of, relations_of
from circus_bench.rmir.records import Category, Draft
from circus_bench.validation.hash_order import shuffled


@dataclass(frozen=True, slots=True)
class Planted:
    """A query that the collection holds.

    Attributes:
        query: its id, as stage 1 gives it.
        image: id of the input image.
        category: the kind of reasoning.
        meaning: what it asks for, without a flaw.
        answer: a description of an image that answers it.
        answers: all images that do.
    """

    query: str
    image: str
    category: Category
    meaning: Meaning
    answer: str
    answers: frozenset[str]


def planted_query(world: World, image: str, category: Category) -> Planted | None:
    """The query of a category about an image; None where nothing in the collection answers one.

    Of several relations that lead on from the thing shown, one is drawn.
    """
    thing = world.pictures[image].thing
    known = {relation.name: relation for relation in relations_of(thing, category)}
    known = {name: relation for name, relation in known.items() if relation.pairs[thing] in world.showing}
    if not known:
        return None
    relation = known[shuffled(known, world.seed, "relation", image)[0]]
    meaning = ask(relation, thing)
    words = THINGS[relation.pairs[thing]].words
    return Planted(
        query=f"{image}-{category}",
        image=image,
        category=category,
        meaning=meaning,
        answer=f"A picture of {words}.",
        answers=answers_to(world, image, meaning.text),
    )


def planted(world: World, categories: Iterable[Category] = tuple(Category)) -> dict[str, Planted]:
    """All queries of the collection, by id."""
    wanted = list(categories)
    found = [planted_query(world, image, category) for image in world.pictures for category in wanted]
    return {entry.query: entry for entry in found if entry is not None}


def answers_to(world: World, image: str, text: str) -> frozenset[str]:
    """All images that answer a question about an image, which is never among them.

    Raises:
        CircusError: the text holds no question of this world.
    """
    things = meaning_of(text).answers(world.pictures[image].thing)
    return frozenset[str]().union(*(world.showing.get(thing, frozenset()) for thing in things)) - {image}


def correct_pairs(world: World, drafts: Iterable[Draft]) -> dict[str, frozenset[str]]:
    """Query id to all images that answer it.

    Raises:
        CircusError: a draft's text holds no question of this world.
    """
    return {draft.query: answers_to(world, draft.image, draft.text) for draft in drafts}
