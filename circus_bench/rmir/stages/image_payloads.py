"""Load the images of requests, and describe results that are no usable answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from circus_bench.api.chat.messages import Malformed, ParseResult, Refused
from circus_bench.errors import ImageError
from circus_bench.rmir.records import FailureReason


class ImageLoader:
    """Loader of the images of requests that reads each once: an input image goes with a hundred requests.

    Args:
        images: image id to the bytes of its file.
    """

    def __init__(self, images: Mapping[str, bytes]) -> None:
        self._images = images
        self._read: dict[str, tuple[str, bytes]] = {}

    def __call__(self, *ids: str) -> dict[str, bytes]:
        """Load the images of a request by the SHA-256 of their files, in order.

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


def failure(result: ParseResult) -> tuple[FailureReason, str] | None:
    """Tell why a result is no answer, with the reply itself; None for an answer."""
    if isinstance(result, Refused):
        return FailureReason.REFUSED, result.raw
    return (FailureReason.MALFORMED, result.raw) if isinstance(result, Malformed) else None


def describe(result: ParseResult) -> str:
    """Return the text in place of a judge's reason where there is no answer."""
    return result.error if isinstance(result, Malformed) else "the model declined"
