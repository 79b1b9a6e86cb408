"""The captions that stage 3 searches, of images that the collection brings no description of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from circus_bench.api.chat.messages import Asker, Parsed
from circus_bench.rmir.config import CaptionSettings
from circus_bench.rmir.records import Caption, Seed, Unanswered
from circus_bench.rmir.stages.image_payloads import Shown, failure
from circus_bench.rmir.templates import Template

VERSION = 1


def caption(
    seeds: Sequence[Seed],
    *,
    images: Mapping[str, bytes],
    asker: Asker,
    template: Template,
    settings: CaptionSettings,
) -> tuple[list[Caption], list[Unanswered]]:
    """Let a model describe images.

    Args:
        seeds: the images.
        images: image id to the bytes of its file.
        asker: puts the questions.
        template: of the question.
        settings: model and sampling.

    Returns:
        The captions, in the order of the seeds, and the images without one: the text index cannot find them.
    """
    shown = Shown(images)
    questions = [
        template.question(
            settings.model,
            {},
            images=shown(seed.image),
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
        )
        for seed in seeds
    ]
    captions, unanswered = [], []
    for seed, outcome in zip(seeds, asker.ask(questions), strict=True):
        if isinstance(outcome, Parsed):
            captions.append(Caption(seed.image, str(outcome.value["caption"]).strip(), settings.model))
        elif why := failure(outcome):
            unanswered.append(Unanswered(seed.image, template.id, *why))
    return captions, unanswered
