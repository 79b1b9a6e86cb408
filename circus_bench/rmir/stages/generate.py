"""Generate a query for every seed image and category, with a description of an image that answers it: stage 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from circus_bench.api.chat.messages import ChatClient, Parsed, ParseResult
from circus_bench.errors import CircusError
from circus_bench.rmir.config import GenerateSettings, ReadabilityMetric
from circus_bench.rmir.records import Category, Draft, FailedRequest, FailureReason, Seed
from circus_bench.rmir.stages.image_payloads import ImageLoader, failure
from circus_bench.rmir.templates import Template

VERSION = 1


def generate(
    seeds: Sequence[Seed],
    *,
    images: Mapping[str, bytes],
    client: ChatClient,
    templates: Mapping[Category, Template],
    settings: GenerateSettings,
) -> tuple[list[Draft], list[FailedRequest]]:
    """Generate queries with a model.

    Returns:
        The queries, by image and category, and the requests without one.

    Raises:
        CircusError: the reading grade is wanted and cannot be measured; no request was sent then.
    """
    grade = reading_grade(settings.reading)
    pairs = [(seed.image, category) for seed in seeds for category in settings.categories]
    load_images = ImageLoader(images)
    requests = [
        templates[category].render(
            settings.model,
            {},
            images=load_images(image),
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
        )
        for image, category in pairs
    ]
    drafts, failed = [], []
    for (image, category), result in zip(pairs, client.complete(requests), strict=True):
        if why := _no_draft(result):
            failed.append(FailedRequest(image, templates[category].id, *why))
            continue
        assert isinstance(result, Parsed)
        text, answer = (str(result.value[name]).strip() for name in ("text", "answer"))
        drafts.append(Draft(f"{image}-{category}", image, category, text, answer, grade(text), settings.model))
    return drafts, failed


def reading_grade(reading: ReadabilityMetric) -> Callable[[str], float | None]:
    """Return the function that measures the Flesch-Kincaid grade of a text.

    Raises:
        CircusError: `textstat`, or the dictionary that it counts syllables by, is not installed. It would look for the
            dictionary on the network by itself, and only when the first text is measured.
    """
    if reading is ReadabilityMetric.OFF:
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


def _no_draft(result: ParseResult) -> tuple[FailureReason, str] | None:
    """Tell why a result holds no query, with the reply itself; None when it holds one."""
    if not isinstance(result, Parsed):
        return failure(result)
    if not result.value["possible"]:
        return FailureReason.IMPOSSIBLE, ""
    empty = [name for name in ("text", "answer") if not str(result.value[name]).strip()]
    return (FailureReason.MALFORMED, str(dict(result.value))) if empty else None
