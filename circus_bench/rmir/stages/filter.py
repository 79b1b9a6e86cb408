"""Check every constraint on a draft again, each with a request of its own: stage 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from circus_bench.api.chat.messages import ChatClient, Parsed
from circus_bench.rmir.config import FilterSettings, UndecidedPolicy
from circus_bench.rmir.records import Check, Constraint, Draft
from circus_bench.rmir.stages.image_payloads import ImageLoader, describe
from circus_bench.rmir.templates import Template

VERSION = 1


def check(
    drafts: Sequence[Draft],
    *,
    images: Mapping[str, bytes],
    client: ChatClient,
    templates: Mapping[Constraint, Template],
    settings: FilterSettings,
) -> list[Check]:
    """Check drafts with a model; returns one row per draft and constraint, in their order."""
    pairs = [(draft, constraint) for draft in drafts for constraint in settings.constraints]
    load_images = ImageLoader(images)
    requests = [
        templates[constraint].render(
            settings.model,
            {"text": draft.text, "answer": draft.answer},
            images=load_images(draft.image),
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
        )
        for draft, constraint in pairs
    ]
    checks = []
    for (draft, constraint), result in zip(pairs, client.complete(requests), strict=True):
        if isinstance(result, Parsed):
            passed, reason, raw = bool(result.value["passed"]), str(result.value["reason"]), ""
        else:
            passed, reason, raw = None, describe(result), result.raw
        checks.append(Check(draft.query, constraint, passed, reason, settings.model, raw))
    return checks


def passed(drafts: Sequence[Draft], checks: Sequence[Check], *, undecided: UndecidedPolicy) -> list[Draft]:
    """Select the drafts that pass every check."""
    fine = {True, None} if undecided is UndecidedPolicy.PASS else {True}
    failed = {row.query for row in checks if row.passed not in fine}
    return [draft for draft in drafts if draft.query not in failed]
