"""Vote on every candidate with every LLM judge: stage 4."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from circus_bench.api.chat.messages import ChatClient, Parsed, ParseResult
from circus_bench.rmir.config import Judge, JudgeSettings
from circus_bench.rmir.records import Draft, JudgeDecision, Vote
from circus_bench.rmir.stages.image_payloads import ImageLoader, describe
from circus_bench.rmir.templates import Template

VERSION = 1


@dataclass(frozen=True, slots=True)
class CandidateList:
    """Query and the images that may answer it."""

    draft: Draft
    images: tuple[str, ...]


def judge(
    lists: Sequence[CandidateList],
    *,
    images: Mapping[str, bytes],
    client: ChatClient,
    template: Template,
    settings: JudgeSettings,
) -> list[Vote]:
    """Collect the votes of an LLM-as-a-judge panel.

    A judge sees the input image, the question and one candidate at a time. Each judge sees the candidates of a query in
    a random order of its own, so that drift of a judge, or a run that stopped early, is independent of ranks.

    Returns:
        One row per query, candidate and judge, in order. A reply without a verdict is an abstention with its text.
    """
    planned = [
        (entry, image, member)
        for entry in lists
        for member in settings.judges
        for image in _shuffled(entry, member, settings.seed)
    ]
    load_images = ImageLoader(images)
    requests = [
        template.render(
            member.model,
            {"text": entry.draft.text},
            images=load_images(entry.draft.image, image),
            temperature=member.temperature,
            sample=member.sample,
            max_tokens=settings.max_tokens,
        )
        for entry, image, member in planned
    ]
    votes = {
        (entry.draft.query, image, member): _vote(entry.draft.query, image, member.name, result)
        for (entry, image, member), result in zip(planned, client.complete(requests), strict=True)
    }
    return [
        votes[entry.draft.query, image, member]
        for entry in lists
        for image in entry.images
        for member in settings.judges
    ]


def _shuffled(entry: CandidateList, member: Judge, seed: int) -> list[str]:
    """Shuffle the candidates in an order that depends on nothing but the seed, the judge and the query."""

    def order(image: str) -> str:
        return hashlib.sha256(f"{seed} {member.name} {entry.draft.query} {image}".encode()).hexdigest()

    return sorted(entry.images, key=order)


def _vote(query: str, image: str, judge: str, result: ParseResult) -> Vote:
    if isinstance(result, Parsed):
        return Vote(query, image, judge, JudgeDecision(result.value["decision"]), str(result.value["reason"]))
    return Vote(query, image, judge, JudgeDecision.ABSTAIN, describe(result), result.raw)
