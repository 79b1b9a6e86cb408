"""What the stages that ask have in common: the images of a question, and outcomes that are no answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from circus_bench.api.chat.messages import Malformed, Outcome, Refused
from circus_bench.errors import ImageError
from circus_bench.rmir.records import Why


class Shown:
    """Reads the images of some questions, each once: an input image goes with a hundred of them.

    Args:
        images: image id to the bytes of its file.
    """

    def __init__(self, images: Mapping[str, bytes]) -> None:
        self._images = images
        self._read: dict[str, tuple[str, bytes]] = {}

    def __call__(self, *ids: str) -> dict[str, bytes]:
        """The images of a question by the SHA-256 of their files, in order.

        Raises:
            ImageError: an image is not there.
        """
        for image in ids:
            if image not in self._read:
                if image not in self._images:
                    raise ImageError(f"the collection has no image {image!r}, which an earlier stage had found")
                data = self._images[image]
                self._read[image] = hashlib.sha256(data).hexdigest(), data
        return dict(self._read[image] for image in ids)


def failure(outcome: Outcome) -> tuple[Why, str] | None:
    """Why an outcome is no answer, and the reply itself; None for an answer."""
    if isinstance(outcome, Refused):
        return Why.REFUSED, outcome.raw
    return (Why.MALFORMED, outcome.raw) if isinstance(outcome, Malformed) else None


def describe(outcome: Outcome) -> str:
    """What to write in place of a reason where there is no answer."""
    return outcome.error if isinstance(outcome, Malformed) else "the model declined"
