"""Look up the ground truth of the synthetic world: the images that answer a question, and the flawless queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from circus_bench.demo.world.collection import World
from circus_bench.demo.world.objects import OBJECTS
from circus_bench.demo.world.relations import Meaning, make_question, meaning_of, relations_of
from circus_bench.rmir.records import Category, Draft
from circus_bench.validation.hash_order import hash_shuffle


@dataclass(frozen=True, slots=True)
class GroundTruthQuery:
    """Flawless query of the collection, with all its positives.

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


def ground_truth_query(world: World, image: str, category: Category) -> GroundTruthQuery | None:
    """Return the query of a category about an image, or None where nothing in the collection answers one.

    Of several relations that lead on from the object shown, one is sampled.
    """
    subject = world.contents[image].subject
    known = {relation.name: relation for relation in relations_of(subject, category)}
    known = {name: relation for name, relation in known.items() if relation.pairs[subject] in world.showing}
    if not known:
        return None
    relation = known[hash_shuffle(known, world.seed, "relation", image)[0]]
    meaning = make_question(relation, subject)
    words = OBJECTS[relation.pairs[subject]].words
    return GroundTruthQuery(
        query=f"{image}-{category}",
        image=image,
        category=category,
        meaning=meaning,
        answer=f"A picture of {words}.",
        answers=answers_to(world, image, meaning.text),
    )


def ground_truth_queries(world: World, categories: Iterable[Category] = tuple(Category)) -> dict[str, GroundTruthQuery]:
    """Return all flawless queries of the collection, by id."""
    wanted = list(categories)
    found = [ground_truth_query(world, image, category) for image in world.contents for category in wanted]
    return {entry.query: entry for entry in found if entry is not None}


def answers_to(world: World, image: str, text: str) -> frozenset[str]:
    """Return all images that answer a question about an image, which is never among them.

    Raises:
        CircusError: the text holds no question of this world.
    """
    answers = meaning_of(text).answers(world.contents[image].subject)
    return frozenset[str]().union(*(world.showing.get(answer, frozenset()) for answer in answers)) - {image}


def ground_truth_pairs(world: World, drafts: Iterable[Draft]) -> dict[str, frozenset[str]]:
    """Map each query id to all images that answer it.

    Raises:
        CircusError: a draft's text holds no question of this world.
    """
    return {draft.query: answers_to(world, draft.image, draft.text) for draft in drafts}
