"""Stage 4: every judge says of every candidate whether it answers the query."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from circus_bench.api.chat.messages import Asker, Outcome, Parsed
from circus_bench.rmir.config import Judge, JudgeSettings
from circus_bench.rmir.records import Decision, Draft, Vote
from circus_bench.rmir.stages.image_payloads import Shown, describe
from circus_bench.rmir.templates import Template

VERSION = 1


@dataclass(frozen=True, slots=True)
class Case:
    """A query and the images that may answer it."""

    draft: Draft
    images: tuple[str, ...]


def judge(
    cases: Sequence[Case],
    *,
    images: Mapping[str, bytes],
    asker: Asker,
    template: Template,
    settings: JudgeSettings,
) -> list[Vote]:
    """Let the judges vote.

    A judge sees the input image, the question and one candidate at a time. The candidates of a query come before it in
    an order of their own, so that what a judge does worse over time, or did not get to, has nothing to do with ranks.

    Args:
        cases: the queries with their candidates.
        images: image id to the bytes of its file.
        asker: puts the questions.
        template: of the question.
        settings: the panel, and the seed of the order.

    Returns:
        One row a case, candidate and judge, in their order. A reply that is no verdict is an abstention with its text.
    """
    asked = [
        (case, image, member)
        for case in cases
        for member in settings.judges
        for image in _shuffled(case, member, settings.seed)
    ]
    shown = Shown(images)
    questions = [
        template.question(
            member.model,
            {"text": case.draft.text},
            images=shown(case.draft.image, image),
            temperature=member.temperature,
            sample=member.sample,
            max_tokens=settings.max_tokens,
        )
        for case, image, member in asked
    ]
    votes = {
        (case.draft.query, image, member): _vote(case.draft.query, image, member.name, outcome)
        for (case, image, member), outcome in zip(asked, asker.ask(questions), strict=True)
    }
    return [
        votes[case.draft.query, image, member] for case in cases for image in case.images for member in settings.judges
    ]


def _shuffled(case: Case, member: Judge, seed: int) -> list[str]:
    """The candidates in an order that depends on nothing but the seed, the judge and the query."""

    def order(image: str) -> str:
        return hashlib.sha256(f"{seed} {member.name} {case.draft.query} {image}".encode()).hexdigest()

    return sorted(case.images, key=order)


def _vote(query: str, image: str, judge: str, outcome: Outcome) -> Vote:
    if isinstance(outcome, Parsed):
        return Vote(query, image, judge, Decision(outcome.value["decision"]), str(outcome.value["reason"]))
    return Vote(query, image, judge, Decision.ABSTAIN, describe(outcome), outcome.raw)
