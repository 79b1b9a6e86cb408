"""What the stages that ask have in common: the images of a question, and outcomes that are no answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from circus_bench.errors import ImageError
from circus_bench.rmir.questions import Malformed, Outcome, Refused
from circus_bench.rmir.records import Why


def shown(images: Mapping[str, bytes], *ids: str) -> dict[str, bytes]:
    """The images of a question by the SHA-256 of their files, in order.

    Raises:
        ImageError: an image is not there.
    """
    try:
        files = [images[image] for image in ids]
    except KeyError as error:
        raise ImageError(f"the collection has no image {error.args[0]!r}, which an earlier stage had found") from None
    return {hashlib.sha256(file).hexdigest(): file for file in files}


def failure(outcome: Outcome) -> tuple[Why, str] | None:
    """Why an outcome is no answer, and the reply itself; None for an answer."""
    if isinstance(outcome, Refused):
        return Why.REFUSED, outcome.raw
    return (Why.MALFORMED, outcome.raw) if isinstance(outcome, Malformed) else None


def describe(outcome: Outcome) -> str:
    """What to write in place of a reason where there is no answer."""
    return outcome.error if isinstance(outcome, Malformed) else "the model declined"
