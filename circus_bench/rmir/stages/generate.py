"""Stage 1: a question about every seed image in every category, with a description of an image that answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from circus_bench.api.chat.messages import Asker, Outcome, Parsed
from circus_bench.errors import CircusError
from circus_bench.rmir.config import GenerateSettings, Reading
from circus_bench.rmir.records import Category, Draft, Seed, Unanswered, Why
from circus_bench.rmir.stages.image_payloads import Shown, failure
from circus_bench.rmir.templates import Template

VERSION = 1


def generate(
    seeds: Sequence[Seed],
    *,
    images: Mapping[str, bytes],
    asker: Asker,
    templates: Mapping[Category, Template],
    settings: GenerateSettings,
) -> tuple[list[Draft], list[Unanswered]]:
    """Let a model write queries.

    Args:
        seeds: the images.
        images: image id to the bytes of its file.
        asker: puts the questions.
        templates: of each category that is wanted.
        settings: model and sampling.

    Returns:
        The queries, by image and category, and the questions without one.

    Raises:
        CircusError: the reading grade is wanted and cannot be measured; nothing was asked then.
    """
    grade = reading_grade(settings.reading)
    asked = [(seed.image, category) for seed in seeds for category in settings.categories]
    shown = Shown(images)
    questions = [
        templates[category].question(
            settings.model,
            {},
            images=shown(image),
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
        )
        for image, category in asked
    ]
    drafts, unanswered = [], []
    for (image, category), outcome in zip(asked, asker.ask(questions), strict=True):
        why = _no_draft(outcome)
        if why is not None:
            unanswered.append(Unanswered(image, templates[category].id, *why))
            continue
        assert isinstance(outcome, Parsed)
        text, answer = (str(outcome.value[name]).strip() for name in ("text", "answer"))
        drafts.append(Draft(f"{image}-{category}", image, category, text, answer, grade(text), settings.model))
    return drafts, unanswered


def reading_grade(reading: Reading) -> Callable[[str], float | None]:
    """The function that measures the Flesch-Kincaid grade of a text.

    Raises:
        CircusError: `textstat`, or the dictionary that it counts syllables by, is not installed. It would look for the
            dictionary on the network by itself, and only when the first text is measured.
    """
    if reading is Reading.OFF:
        return lambda _: None
    try:
        import nltk
        import textstat
    except ImportError:
        raise CircusError(
            "the reading grade takes textstat: pip install 'circus-bench[judges]', or set generate.reading to off"
        ) from None
    try:
        nltk.data.find("corpora/cmudict")
    except LookupError:
        raise CircusError(
            "the reading grade takes NLTK's pronouncing dictionary: python -m nltk.downloader cmudict, or set "
            "generate.reading to off"
        ) from None
    measure: Callable[[str], float] = textstat.textstat.flesch_kincaid_grade
    return lambda text: float(measure(text))


def _no_draft(outcome: Outcome) -> tuple[Why, str] | None:
    """Why there is no query in an outcome; None when there is one."""
    if not isinstance(outcome, Parsed):
        return failure(outcome)
    if not outcome.value["possible"]:
        return Why.IMPOSSIBLE, ""
    empty = [name for name in ("text", "answer") if not str(outcome.value[name]).strip()]
    return (Why.MALFORMED, str(dict(outcome.value))) if empty else None
