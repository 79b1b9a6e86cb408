"""The synthetic world: drawings, relations, the ground truth, encoders, and the quality of labels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from circus_bench.demo.rmir_ground_truth import false_negatives, label_quality
from circus_bench.demo.world.collection import MAX_VIEWS, World, make_world
from circus_bench.demo.world.drawing import BACKGROUNDS, SIDE, Appearance, DrawnObject, draw
from circus_bench.demo.world.encoders import VisualEncoder, WordEncoder
from circus_bench.demo.world.objects import OBJECTS
from circus_bench.demo.world.reader_model import ReaderModel
from circus_bench.demo.world.relations import RELATIONS, make_question, meaning_of, relations_of
from circus_bench.demo.world.truth import answers_to, ground_truth_queries
from circus_bench.errors import CircusError, EmbeddingError
from circus_bench.images import decode, digest
from circus_bench.rmir.embedders import PromptRole
from circus_bench.rmir.records import Category, Constraint

FEW = ("padlock", "key", "bottle", "corkscrew", "egg", "chick", "chair")
APPEARANCE = Appearance("red", "large", "middle", "grey", mirrored=False)


@pytest.fixture(scope="module")
def world() -> World:
    """Three pictures of each of a few things."""
    return make_world(seed=3, views=3, objects=FEW)


def image_of(world: World, subject: str, place: int = 0) -> str:
    return sorted(world.showing[subject])[place]


@pytest.mark.parametrize("subject", OBJECTS.values(), ids=lambda subject: subject.name)
def test_every_object_fills_a_good_part_of_its_image(subject: DrawnObject) -> None:
    drawn = np.asarray(decode(draw(subject, APPEARANCE)).image).reshape(-1, 3)
    ground = {tuple(color) for color in BACKGROUNDS["grey"]}
    covered = np.mean([tuple(pixel) not in ground for pixel in drawn.tolist()])
    assert 0.02 < covered < 0.8


def test_no_two_objects_look_the_same() -> None:
    assert len({draw(subject, APPEARANCE) for subject in OBJECTS.values()}) == len(OBJECTS)


def test_the_chosen_color_shows_where_an_object_has_one() -> None:
    blue = APPEARANCE._replace(color="blue")
    shows = {name for name, subject in OBJECTS.items() if draw(subject, APPEARANCE) != draw(subject, blue)}
    assert shows == {name for name, subject in OBJECTS.items() if subject.is_colored}


def test_a_mirrored_picture_stands_at_the_same_place() -> None:
    # Of a thing that is symmetrical, as the egg's shell is but for its gleam, mirroring changes next to nothing.
    left, mirrored = (
        np.asarray(decode(draw(OBJECTS["egg"], APPEARANCE._replace(place="left", mirrored=flag))).image).astype(int)
        for flag in (False, True)
    )
    assert np.abs(left - mirrored).mean() < 3


def test_the_same_seed_gives_the_same_bytes(world: World) -> None:
    assert make_world(seed=3, views=3, objects=FEW).images == world.images


def test_another_seed_gives_other_pictures(world: World) -> None:
    assert set(make_world(seed=4, views=3, objects=FEW).images.values()) != set(world.images.values())


def test_no_two_images_have_the_same_pixels() -> None:
    every = make_world(seed=0, views=MAX_VIEWS, objects=("egg", "padlock"))
    assert len({digest(decode(data).image) for data in every.images.values()}) == 2 * MAX_VIEWS


def test_images_are_small_rgb_pictures(world: World) -> None:
    opened = [Image.open(io.BytesIO(data)) for data in world.images.values()]
    assert {(image.mode, image.size) for image in opened} == {("RGB", (SIDE, SIDE))}


def test_the_number_of_images_of_an_object_can_vary() -> None:
    counts = {len(images) for images in make_world(seed=0, views=4, fewest=2).showing.values()}
    assert counts == {2, 3, 4}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objects": ("unicorn",)}, "no objects \\['unicorn'\\]"),
        ({"views": 0}, "1 to 36 views"),
        ({"views": MAX_VIEWS + 1}, "1 to 36 views"),
        ({"views": 2, "fewest": 3}, "3 to 2"),
        ({"objects": ()}, "0 objects"),
    ],
)
def test_a_world_that_cannot_be_made_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(CircusError, match=message):
        make_world(**settings)  # type: ignore[arg-type]


def test_everything_that_relations_speak_of_can_be_drawn() -> None:
    named = {subject for relation in RELATIONS for pair in relation.pairs.items() for subject in pair}
    assert named <= set(OBJECTS)


def test_there_are_relations_of_every_category() -> None:
    assert {relation.category for relation in RELATIONS} == set(Category)


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_the_question_of_a_relation_cannot_be_answered_without_the_image(relation: object) -> None:
    assert len(set(relation.pairs.values())) >= 3  # type: ignore[attr-defined]


def test_a_sound_question_names_nothing() -> None:
    texts = [make_question(relation, subject).text for relation in RELATIONS for subject in relation.pairs]
    assert not [text for text in texts if any(subject.words in text for subject in OBJECTS.values())]


@pytest.mark.parametrize("flaw", [None, *Constraint])
def test_every_question_is_understood_again(flaw: Constraint | None) -> None:
    for relation in RELATIONS:
        for subject in relation.pairs:
            meaning = make_question(relation, subject, flaw=flaw)
            assert meaning_of(f"Here it comes:\n<question>\n{meaning.text}\n</question>\nDecide.") == meaning


def test_a_text_without_a_question_of_the_world_is_refused() -> None:
    with pytest.raises(CircusError, match="no such question: 'What is love"):
        meaning_of("What is love?")


def test_flawed_questions_have_the_answers_of_what_they_say() -> None:
    (opens,) = (relation for relation in RELATIONS if relation.name == "opens")
    answers = {flaw: make_question(opens, "padlock", flaw=flaw).answers("bottle") for flaw in (None, *Constraint)}
    assert answers == {
        None: {"corkscrew"},
        Constraint.MULTIMODAL: {"key"},  # "What opens a padlock?", asked about a bottle
        Constraint.STEPS: set(),
        Constraint.UNIQUE: {"key", "corkscrew", "tin opener"},
    }


def test_what_comes_after_came_before() -> None:
    (was,) = (relation for relation in RELATIONS if relation.name == "was")
    assert was.pairs["chick"] == "egg"
    assert "puddle" not in was.pairs  # it need not have been a snowman


def test_all_images_of_the_answer_answer(world: World) -> None:
    entry = ground_truth_queries(world)[f"{image_of(world, 'padlock')}-functional"]
    assert entry.answers == world.showing["key"]
    assert entry.meaning.text == "What opens this?"
    assert entry.answer == "A picture of a key."


def test_every_image_with_a_relation_has_a_query_and_no_other(world: World) -> None:
    # padlock and bottle open with something, an egg becomes a chick and a chick was an egg: three pictures of each.
    objects = [world.contents[entry.image].subject for entry in ground_truth_queries(world).values()]
    assert sorted(objects) == sorted(["padlock", "bottle", "egg", "chick"] * 3)


def test_no_query_is_made_whose_answer_the_collection_lacks() -> None:
    assert not ground_truth_queries(
        make_world(views=2, objects=("padlock", "screw", "screwdriver")), [Category.TEMPORAL]
    )
    found = ground_truth_queries(make_world(views=2, objects=("padlock", "screw", "screwdriver")))
    assert {entry.meaning.relation.name for entry in found.values()} == {"fastens"}


def test_an_image_never_answers_a_question_about_itself() -> None:
    # A campfire is fed by a log, which is cut by a saw; asked too broadly, the log is among the answers to itself.
    fed = make_world(views=2, objects=("log", "campfire"))
    log = image_of(fed, "log")
    broad = make_question(relations_of("campfire", Category.FUNCTIONAL)[0], "campfire", flaw=Constraint.UNIQUE)
    assert answers_to(fed, log, broad.text) == fed.showing["log"] - {log}


def test_labels_are_compared_with_the_ground_truth() -> None:
    truth = {"q1": frozenset("abc"), "q2": frozenset("d"), "q3": frozenset("e")}
    found = label_quality(truth, {"q1": ["a", "x"], "q2": ["d"], "q3": []}, "abdxyz", seen=[("q1", "b"), ("q2", "y")])
    assert (found.queries, found.images, found.positives) == (2, 6, 3)
    assert found.precision.value == pytest.approx(2 / 3)  # a and d of a, x, d
    assert (found.missed, found.rejected) == (1, 1)  # b; c is not in the pool
    assert found.missed_share.value == pytest.approx(1 / 3)  # b of a, b, d
    assert (found.incomplete.value, found.incomplete.n) == (0.5, 2)


def test_a_false_negative_that_no_judge_saw_was_not_rejected() -> None:
    assert label_quality({"q": frozenset("ab")}, {"q": ["a"]}, "ab", seen=[("q", "a")]).rejected == 0


def test_false_negatives_are_those_of_the_pool() -> None:
    assert false_negatives({"q": frozenset("abc")}, {"q": ["a"]}, "ab") == {"q": frozenset("b")}


def test_an_image_lies_nearest_to_the_text_that_names_it(world: World) -> None:
    encoder = VisualEncoder(world)
    images = encoder.images(list(world.images.values()))
    texts = encoder.texts([f"A picture of {OBJECTS[subject].words}." for subject in FEW], role=PromptRole.QUERY)
    nearest = (texts @ (images / np.linalg.norm(images, axis=1, keepdims=True)).T).argsort(axis=1)[:, -3:]
    ids = list(world.images)
    assert [{ids[place] for place in row} for row in nearest.tolist()] == [world.showing[subject] for subject in FEW]


def test_a_mistaken_encoder_takes_every_image_for_another_object(world: World) -> None:
    right, wrong = VisualEncoder(world), VisualEncoder(world, mistaken=1)
    files = list(world.images.values())
    assert (np.linalg.norm(right.images(files) - wrong.images(files), axis=1) > 0.5).all()


def test_noise_moves_images_and_not_texts(world: World) -> None:
    quiet, noisy = VisualEncoder(world), VisualEncoder(world, noise=2)
    files = list(world.images.values())
    assert np.linalg.norm(quiet.images(files) - noisy.images(files), axis=1) == pytest.approx(2, abs=1e-5)
    assert np.array_equal(
        quiet.texts(["A key."], role=PromptRole.QUERY), noisy.texts(["A key."], role=PromptRole.QUERY)
    )


def test_an_image_of_another_world_is_refused(world: World) -> None:
    with pytest.raises(EmbeddingError, match="no image of the digest"):
        VisualEncoder(world).images([b"something else"])


def test_words_find_the_captions_that_hold_them(world: World) -> None:
    encoder = WordEncoder()
    captions = {image: content.caption for image, content in world.contents.items()}
    vectors = encoder.texts(list(captions.values()), role=PromptRole.DOCUMENT)
    scores = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True) @ encoder.texts(["A key."], role=PromptRole.QUERY)[0]
    )
    ids = list(captions)
    assert {ids[place] for place in scores.argsort()[-3:]} == world.showing["key"]


def test_a_text_of_unknown_words_still_has_a_direction() -> None:
    encoder = WordEncoder(unknown=1)
    vectors = encoder.texts(["a padlock", "an egg"], role=PromptRole.QUERY)
    assert np.array_equal(vectors[0], vectors[1])
    assert np.linalg.norm(vectors[0]) > 0


def test_the_word_encoder_reads_texts_only() -> None:
    with pytest.raises(EmbeddingError, match="texts only, and was given 1 images"):
        WordEncoder().images([b""])


def asked_reader(world: World, subject: str | None, text: str) -> list[str]:
    """The things of the three images that the reader ranks first."""
    reader = ReaderModel(world, noise=0.1)
    contents = {image: decode(data).image for image, data in world.images.items()}
    gallery = reader.encode([{"image": list(contents.values())}])  # type: ignore[arg-type]
    batch: dict[str, object] = {"text": [text]} if text else {}
    batch["image"] = [contents[image_of(world, subject)] if subject else Image.new("RGB", (SIDE, SIDE))]
    scores = gallery / np.linalg.norm(gallery, axis=1, keepdims=True) @ reader.encode([batch])[0]  # type: ignore[list-item]
    ids = list(contents)
    return [world.contents[ids[place]].subject for place in (-scores).argsort()[:3]]


def test_the_reader_answers_from_image_and_text(world: World) -> None:
    assert asked_reader(world, "bottle", "What opens this?") == ["corkscrew"] * 3


def test_the_reader_guesses_among_all_answers_from_the_text_alone(world: World) -> None:
    # With three pictures of each, the first three of the six that open something are hardly all of one kind.
    assert set(asked_reader(world, None, "What opens this?")) <= {"key", "corkscrew"}


def test_the_reader_needs_no_image_for_a_question_that_names_the_object(world: World) -> None:
    assert asked_reader(world, None, "What opens a padlock?") == ["key"] * 3


def test_the_reader_finds_like_images_from_the_image_alone(world: World) -> None:
    assert asked_reader(world, "egg", "") == ["egg"] * 3
