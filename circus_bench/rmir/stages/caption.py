"""Caption the images that the collection brings no description of, for the text index of stage 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from circus_bench.api.chat.messages import ChatClient, Parsed
from circus_bench.rmir.config import CaptionSettings
from circus_bench.rmir.records import Caption, FailedRequest, Seed
from circus_bench.rmir.stages.image_payloads import ImageLoader, failure
from circus_bench.rmir.templates import Template

VERSION = 1


def caption(
    seeds: Sequence[Seed],
    *,
    images: Mapping[str, bytes],
    client: ChatClient,
    template: Template,
    settings: CaptionSettings,
) -> tuple[list[Caption], list[FailedRequest]]:
    """Caption images with a model.

    Returns:
        The captions, in the order of the seeds, and the images without one: the text index cannot find them.
    """
    load_images = ImageLoader(images)
    requests = [
        template.render(
            settings.model,
            {},
            images=load_images(seed.image),
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
        )
        for seed in seeds
    ]
    captions, failed = [], []
    for seed, result in zip(seeds, client.complete(requests), strict=True):
        if isinstance(result, Parsed):
            captions.append(Caption(seed.image, str(result.value["caption"]).strip(), settings.model))
        elif why := failure(result):
            failed.append(FailedRequest(seed.image, template.id, *why))
    return captions, failed
