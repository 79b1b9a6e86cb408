"""Synthetic judges know the ground truth, and err at set rates: alone, or all of a family together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from circus_bench.api.chat.messages import Malformed, Parsed, ParseResult, Refused, Request
from circus_bench.api.chat.parsing import parse_response
from circus_bench.api.runtime import RemoteError
from circus_bench.demo.world.collection import World, make_world
from circus_bench.demo.world.relations import make_question, meaning_of, relations_of
from circus_bench.demo.world.synthetic_judges import PERFECT, ErrorRates, SyntheticClient, SyntheticProvider, family_of
from circus_bench.demo.world.truth import ground_truth_queries
from circus_bench.errors import CircusError
from circus_bench.rmir.records import Category, Constraint
from circus_bench.rmir.templates import load_template

FEW = ("padlock", "key", "bottle", "corkscrew", "tin", "tin opener", "egg", "chick")
MODEL = "owl/light"


@pytest.fixture(scope="module")
def world() -> World:
    """Six pictures of each of a few things."""
    return make_world(seed=5, views=6, objects=FEW)


def shown(world: World, *images: str) -> dict[str, bytes]:
    digests = {image: found for found, image in world.by_digest.items()}
    return {digests[image]: world.images[image] for image in images}


def make_request(
    world: World, template: str, *images: str, model: str = MODEL, sample: int = 0, **fields: str
) -> Request:
    return load_template(template).render(model, fields, images=shown(world, *images), sample=sample)


def answer(world: World, errors: ErrorRates, request: Request) -> ParseResult:
    return parse_response(SyntheticProvider(world, {request.model: errors}).answer(request), request.schema)


def value(outcome: ParseResult) -> Any:
    assert isinstance(outcome, Parsed)
    return outcome.value


def cases(world: World, *, right: bool, tempting: bool | None = None) -> Iterator[tuple[str, str, str]]:
    """Question, input image and candidate of every pair that is right, or that is not."""
    for entry in ground_truth_queries(world).values():
        relation, shows = entry.meaning.relation, world.contents[entry.image].subject
        for candidate, content in world.contents.items():
            tempts = content.subject == shows or content.subject in relation.pairs.values()
            if candidate != entry.image and (candidate in entry.answers) is right and tempting in {None, tempts}:
                yield entry.meaning.text, entry.image, candidate


def decisions(world: World, errors: ErrorRates, pairs: list[tuple[str, str, str]], **options: Any) -> list[str]:
    requests = [make_request(world, "judge", image, other, text=text, **options) for text, image, other in pairs]
    provider = SyntheticProvider(world, {MODEL: errors, options.get("model", MODEL): errors})
    outcomes = [parse_response(provider.answer(request), request.schema) for request in requests]
    return [
        value(outcome)["decision"] if isinstance(outcome, Parsed) else type(outcome).__name__ for outcome in outcomes
    ]


def is_about(found: int, n: int, chance: float) -> bool:
    """Whether a number of errors lies within four standard deviations of what is expected."""
    return abs(found - n * chance) < 4 * math.sqrt(n * chance * (1 - chance))


def test_a_perfect_generator_writes_the_ground_truth_queries(world: World) -> None:
    truth = ground_truth_queries(world)
    for image in world.contents:
        for category in Category:
            found = value(answer(world, PERFECT, make_request(world, f"generate_{category}", image)))
            entry = truth.get(f"{image}-{category}")
            wanted = (True, entry.meaning.text, entry.answer) if entry else (False, "", "")
            assert (found["possible"], found["text"], found["answer"]) == wanted


@pytest.mark.parametrize("constraint", Constraint)
def test_a_perfect_checker_fails_the_flaw_and_nothing_else(world: World, constraint: Constraint) -> None:
    image = min(world.showing["padlock"])
    (relation,) = relations_of("padlock", Category.FUNCTIONAL)
    for flaw in (None, *Constraint):
        text = make_question(relation, "padlock", flaw=flaw).text
        request = make_request(world, f"check_{constraint}", image, text=text, answer="A picture of a key.")
        assert value(answer(world, PERFECT, request))["passed"] is (flaw is not constraint)


def test_a_perfect_judge_accepts_answers_and_nothing_else(world: World) -> None:
    assert set(decisions(world, PERFECT, list(cases(world, right=True)))) == {"accept"}
    assert set(decisions(world, PERFECT, list(cases(world, right=False)))) == {"reject"}


def test_a_perfect_captioner_says_what_is_to_be_seen(world: World) -> None:
    for image, content in world.contents.items():
        assert value(answer(world, PERFECT, make_request(world, "caption", image)))["caption"] == content.caption


def test_misses_come_as_often_as_told(world: World) -> None:
    pairs = list(cases(world, right=True))
    assert is_about(decisions(world, ErrorRates(misses=0.3), pairs).count("reject"), len(pairs), 0.3)


def test_false_accepts_come_as_often_as_told(world: World) -> None:
    pairs = list(cases(world, right=False))
    assert is_about(decisions(world, ErrorRates(false_accepts=0.2), pairs).count("accept"), len(pairs), 0.2)


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        (ErrorRates(abstains=0.25), "abstain"),
        (ErrorRates(refusals=0.25), Refused.__name__),
        (ErrorRates(malformed=0.25), Malformed.__name__),
    ],
)
def test_what_is_no_verdict_comes_as_often_as_told(world: World, errors: ErrorRates, outcome: str) -> None:
    pairs = list(cases(world, right=True))
    assert is_about(decisions(world, errors, pairs).count(outcome), len(pairs), 0.25)


@pytest.mark.parametrize("template", ["judge", "caption", "generate_functional", "check_unique"])
def test_every_kind_of_question_can_get_an_unreadable_reply(world: World, template: str) -> None:
    image, other = sorted(world.showing["padlock"])[:2]
    fields = {"judge": {"text": "What opens this?"}, "check_unique": {"text": "What opens this?", "answer": "A key."}}
    images = (image, other) if template == "judge" else (image,)
    for sample in range(20):  # so that every way of being unreadable comes up
        request = make_request(world, template, *images, sample=sample, **fields.get(template, {}))
        assert isinstance(answer(world, ErrorRates(malformed=1), request), Malformed)


def test_an_untidy_reply_is_mended_and_means_the_same(world: World) -> None:
    text, image, other = next(cases(world, right=True))
    request = make_request(world, "judge", image, other, text=text)
    tidy, untidy = answer(world, PERFECT, request), answer(world, ErrorRates(untidy=1), request)
    assert isinstance(untidy, Parsed)
    assert untidy.repairs == ("a fence around the object", "text around the object")
    assert untidy.value == value(tidy)


def test_a_generator_skips_and_spoils_as_often_as_told() -> None:
    large = make_world(seed=0, views=4)
    entries = list(ground_truth_queries(large).values())
    requests = [make_request(large, f"generate_{entry.category}", entry.image) for entry in entries]
    skipped = [value(answer(large, ErrorRates(skips=0.4), request)) for request in requests]
    assert is_about(sum(not found["possible"] for found in skipped), len(entries), 0.4)
    spoiled = [meaning_of(value(answer(large, ErrorRates(flaws=0.4), request))["text"]) for request in requests]
    assert is_about(sum(meaning.flaw is not None for meaning in spoiled), len(entries), 0.4)
    assert {meaning.flaw for meaning in spoiled} == {None, *Constraint}


def test_a_wrong_caption_names_another_thing(world: World) -> None:
    for image, content in world.contents.items():
        wrong = value(answer(world, ErrorRates(miscaptions=1), make_request(world, "caption", image)))["caption"]
        assert wrong != content.caption
        assert wrong.endswith(f"in front of a {content.look.background} wall.")


def test_a_family_does_not_recognize_the_same_images(world: World) -> None:
    errors = ErrorRates(unseen=0.3)
    pairs = list(cases(world, right=True))

    def unseen(model: str, sample: int) -> set[str]:
        found = decisions(world, errors, pairs, model=model, sample=sample)
        rejected = {other for (_, _, other), decision in zip(pairs, found, strict=True) if decision == "reject"}
        accepted = {other for (_, _, other), decision in zip(pairs, found, strict=True) if decision == "accept"}
        assert not rejected & accepted  # whatever is asked
        return rejected

    assert unseen("owl/light", 0) == unseen("owl/light", 1) == unseen("owl/strong", 0) != unseen("fox/light", 0)


def test_a_family_falls_for_wrong_answers_that_have_to_do_with_the_question(world: World) -> None:
    tempting, others = (list(cases(world, right=False, tempting=flag)) for flag in (True, False))
    assert set(decisions(world, ErrorRates(tempted=1), tempting)) == {"accept"}
    assert set(decisions(world, ErrorRates(tempted=1), others)) == {"reject"}


def test_what_tempts_a_member_tempts_its_family(world: World) -> None:
    pairs, errors = list(cases(world, right=False, tempting=True)), ErrorRates(tempted=0.4)
    first = decisions(world, errors, pairs)
    assert first == decisions(world, errors, pairs, model="owl/strong") == decisions(world, errors, pairs, sample=7)
    assert first != decisions(world, errors, pairs, model="fox/light")


def test_errors_of_two_samples_are_independent(world: World) -> None:
    pairs, errors = list(cases(world, right=True)), ErrorRates(misses=0.5)
    first, second = (decisions(world, errors, pairs, sample=sample) for sample in (0, 1))
    equal = sum(a == b for a, b in zip(first, second, strict=True))
    assert is_about(equal, len(pairs), 0.5)


def test_an_answer_does_not_depend_on_what_was_asked_before(world: World) -> None:
    pairs, errors = list(cases(world, right=True)), ErrorRates(misses=0.5, malformed=0.1)
    assert decisions(world, errors, pairs[::-1])[::-1] == decisions(world, errors, pairs)


def test_another_seed_gives_other_errors(world: World) -> None:
    pairs = list(cases(world, right=True))
    requests = [make_request(world, "judge", image, other, text=text) for text, image, other in pairs]
    made = [
        [SyntheticProvider(world, {MODEL: ErrorRates(misses=0.5)}, seed=seed).answer(q).text for q in requests]
        for seed in (0, 1)
    ]
    assert made[0] != made[1]


def test_only_its_members_can_be_asked(world: World) -> None:
    text, image, other = next(cases(world, right=True))
    request = make_request(world, "judge", image, other, text=text, model="wolf/grey")
    with pytest.raises(RemoteError, match="no synthetic model 'wolf/grey'; there are: owl/light"):
        SyntheticProvider(world, {MODEL: PERFECT}).answer(request)


def test_an_image_of_another_world_is_refused(world: World) -> None:
    request = load_template("caption").render(MODEL, {}, images={"0" * 64: b"..."})
    with pytest.raises(RemoteError, match="no image of the digest 0000"):
        SyntheticProvider(world, {MODEL: PERFECT}).answer(request)


def test_a_question_of_another_world_is_refused(world: World) -> None:
    _, image, other = next(cases(world, right=True))
    with pytest.raises(CircusError, match="no such question"):
        SyntheticProvider(world, {MODEL: PERFECT}).answer(make_request(world, "judge", image, other, text="Who is it?"))


@pytest.mark.parametrize("chance", [-0.1, 1.5, math.nan])
def test_a_chance_that_is_none_is_refused(chance: float) -> None:
    with pytest.raises(CircusError, match="chances from 0 to 1, not misses = "):
        ErrorRates(misses=chance)


def test_the_family_is_what_comes_before_the_slash() -> None:
    assert [family_of(name) for name in ("owl/light", "owl/light@0.85#3", "alone")] == ["owl", "owl", "alone"]


def test_the_client_counts_outcomes_by_model(world: World) -> None:
    pairs = list(cases(world, right=True))[:5]
    requests = [make_request(world, "judge", image, other, text=text) for text, image, other in pairs]
    client = SyntheticClient(SyntheticProvider(world, {MODEL: ErrorRates(malformed=1)}))
    assert all(isinstance(outcome, Malformed) for outcome in client.complete(requests))
    assert dict(client.tally) == {"owl/light Malformed": 5}
