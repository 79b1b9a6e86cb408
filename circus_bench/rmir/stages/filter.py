"""Stage 2: every constraint on a draft is checked again, each by a question of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from circus_bench.api.chat.messages import Asker, Parsed
from circus_bench.rmir.config import FilterSettings, Undecided
from circus_bench.rmir.records import Check, Constraint, Draft
from circus_bench.rmir.stages.image_payloads import Shown, describe
from circus_bench.rmir.templates import Template

VERSION = 1


def check(
    drafts: Sequence[Draft],
    *,
    images: Mapping[str, bytes],
    asker: Asker,
    templates: Mapping[Constraint, Template],
    settings: FilterSettings,
) -> list[Check]:
    """Let a model check drafts.

    Args:
        drafts: the queries.
        images: image id to the bytes of its file.
        asker: puts the questions.
        templates: of each constraint that is checked.
        settings: model, sampling and constraints.

    Returns:
        One row a draft and constraint, in their order.
    """
    asked = [(draft, constraint) for draft in drafts for constraint in settings.constraints]
    shown = Shown(images)
    questions = [
        templates[constraint].question(
            settings.model,
            {"text": draft.text, "answer": draft.answer},
            images=shown(draft.image),
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
        )
        for draft, constraint in asked
    ]
    checks = []
    for (draft, constraint), outcome in zip(asked, asker.ask(questions), strict=True):
        if isinstance(outcome, Parsed):
            passed, reason, raw = bool(outcome.value["passed"]), str(outcome.value["reason"]), ""
        else:
            passed, reason, raw = None, describe(outcome), outcome.raw
        checks.append(Check(draft.query, constraint, passed, reason, settings.model, raw))
    return checks


def passed(drafts: Sequence[Draft], checks: Sequence[Check], *, undecided: Undecided) -> list[Draft]:
    """The drafts that pass every check.

    Args:
        drafts: all that were checked.
        checks: the outcomes.
        undecided: what a check without a usable verdict means.
    """
    fine = {True, None} if undecided is Undecided.PASS else {True}
    failed = {row.query for row in checks if row.passed not in fine}
    return [draft for draft in drafts if draft.query not in failed]
