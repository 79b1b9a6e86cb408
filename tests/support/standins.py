"""Encoders for tests: they follow mteb's protocol, and what they do is known."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class StandIn:
    """An encoder whose vector of an input is made by `vector(image, text)`; it counts what it encodes."""

    name = "tests/stand-in"
    dim = 16

    def __init__(self) -> None:
        self.mteb_model_meta = SimpleNamespace(name=self.name, revision="1")
        self.seen: list[tuple[str | None, str | None]] = []
        self.calls: list[dict[str, Any]] = []

    def encode(self, inputs: Any, **options: Any) -> Floats:
        self.calls.append({**options, "features": sorted(inputs.dataset.features)})
        rows = []
        for batch in inputs:
            for i in range(len(next(iter(batch.values())))):
                image = batch["image"][i] if "image" in batch else None
                text = batch["text"][i] if "text" in batch else None
                self.seen.append((None if image is None else digest_of(image), text))
                rows.append(self.vector(image, text))
        return np.array(rows, np.float32)

    def vector(self, image: Any, text: str | None) -> Floats:
        parts = [vector_of(digest_of(image), self.dim)] if image is not None else []
        parts += [vector_of(text, self.dim)] if text is not None else []
        return np.sum(parts, axis=0)


class Constant(StandIn):
    name = "tests/constant"

    def vector(self, image: Any, text: str | None) -> Floats:
        return np.ones(self.dim, np.float32)


class Chance(StandIn):
    """A random vector for every content: unrelated inputs are unrelated, and so are a query and its target."""

    name = "tests/chance"

    def vector(self, image: Any, text: str | None) -> Floats:
        return vector_of(f"{None if image is None else digest_of(image)} {text}", self.dim)


class NotANumber(StandIn):
    """Fails on one input: the image or query whose content it is told."""

    name = "tests/nan"

    def __init__(self, broken: Any) -> None:
        super().__init__()
        self._broken = digest_of(broken)

    def vector(self, image: Any, text: str | None) -> Floats:
        found = super().vector(image, text)
        return np.full_like(found, np.nan) if digest_of(image) == self._broken and text is None else found


class Blind(StandIn):
    """Sees only the text; without one, only that there is an image."""

    name = "tests/blind"

    def vector(self, image: Any, text: str | None) -> Floats:
        return vector_of(text or "", self.dim)


class Deaf(StandIn):
    """Sees only the image."""

    name = "tests/deaf"

    def vector(self, image: Any, text: str | None) -> Floats:
        return vector_of(digest_of(image), self.dim)


class Unsteady(StandIn):
    """Another vector at every call, as with dropout left on."""

    name = "tests/unsteady"

    def vector(self, image: Any, text: str | None) -> Floats:
        return vector_of(str(len(self.seen)), self.dim)


def digest_of(image: Any) -> str:
    return hashlib.sha256(f"{image.mode}{image.size}".encode() + image.tobytes()).hexdigest()


def vector_of(content: str, dim: int) -> Floats:
    seed = int.from_bytes(hashlib.sha256(content.encode()).digest()[:8])
    return np.random.default_rng(seed).standard_normal(dim).astype(np.float32)
