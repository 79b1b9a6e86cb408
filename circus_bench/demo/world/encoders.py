"""Encode the synthetic world with symbolic encoders of set weakness, in place of trained models.

An image of the visual index has the direction of the object that it shows, bent toward its colors and by noise; a text
has the direction of the objects that it names. The text index knows words only.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from circus_bench.demo.world.collection import World
from circus_bench.demo.world.objects import OBJECTS
from circus_bench.errors import EmbeddingError
from circus_bench.rmir.embedders import Floats, PromptRole
from circus_bench.validation.hash_order import hash_shuffle, hash_uniform

DIM = 64
_LOOK = 0.35  # length of the part that colors and background add to an image's direction
_STOP_WORDS = {"a", "an", "the", "of", "in", "to", "with", "front", "picture", "parts"}


class VisualEncoder:
    """Encode images, and texts that name objects, into one space.

    Args:
        world: the ground truth.
        noise: length of the random part of an image's vector; that of its object has length 1.
        mistaken: chance that an image is encoded as if it showed another object.
        seed: of directions, noise and mistakes.
    """

    def __init__(self, world: World, *, noise: float = 0.0, mistaken: float = 0.0, seed: int = 0) -> None:
        self._world = world
        self._noise = noise
        self._mistaken = mistaken
        self._seed = seed

    def images(self, files: Sequence[bytes]) -> Floats:
        """See `EmbedderProtocol`.

        Raises:
            EmbeddingError: an image is none of this world.
        """
        return np.stack([self._image(hashlib.sha256(file).hexdigest()) for file in files]).astype(np.float32)

    def texts(self, texts: Sequence[str], *, role: PromptRole) -> Floats:  # noqa: ARG002
        """See `EmbedderProtocol`."""
        return np.stack([self._text(text) for text in texts]).astype(np.float32)

    def _image(self, digest: str) -> NDArray[np.float64]:
        image = self._world.by_digest.get(digest)
        if image is None:
            raise EmbeddingError(f"the embedded world has no image of the digest {digest}")
        content = self._world.contents[image]
        subject = content.subject
        if self._mistaken and hash_uniform(self._seed, "mistaken", image) < self._mistaken:
            others = [name for name in self._world.showing if name != subject] or [subject]
            subject = hash_shuffle(others, self._seed, "mistaken for", image)[0]
        look = direction(self._seed, content.look.color) + direction(self._seed, content.look.background)
        noise = self._noise * direction(self._seed, "noise", image)
        shown: NDArray[np.float64] = direction(self._seed, "thing", subject) + _LOOK * look / np.sqrt(2) + noise
        return shown

    def _text(self, text: str) -> NDArray[np.float64]:
        named = _names().findall(text.lower())
        if not named:
            return direction(self._seed, "text", text)
        return total(direction(self._seed, "thing", _by_words()[words]) for words in named)


class WordEncoder:
    """Encode a text as the sum of its words' directions.

    Args:
        unknown: chance that the encoder does not know a word.
        seed: of the directions and of the unknown words.
    """

    def __init__(self, *, unknown: float = 0.0, seed: int = 0) -> None:
        self._unknown = unknown
        self._seed = seed

    def images(self, files: Sequence[bytes]) -> Floats:
        """See `EmbedderProtocol`.

        Raises:
            EmbeddingError: always, for this encoder reads texts only.
        """
        raise EmbeddingError(f"the word encoder reads texts only, and was given {len(files):,} images")

    def texts(self, texts: Sequence[str], *, role: PromptRole) -> Floats:  # noqa: ARG002
        """See `EmbedderProtocol`."""
        return np.stack([self._text(text) for text in texts]).astype(np.float32)

    def _text(self, text: str) -> NDArray[np.float64]:
        words = [word for word in re.findall("[a-z]+", text.lower()) if word not in _STOP_WORDS and self._knows(word)]
        # Every text has a part in common, so that one without any known word still has a direction.
        return 0.1 * direction(self._seed, "any text") + total(direction(self._seed, "word", word) for word in words)

    def _knows(self, word: str) -> bool:
        return not self._unknown or hash_uniform(self._seed, "unknown", word) >= self._unknown


@functools.lru_cache(maxsize=20_000)
def direction(*key: object) -> NDArray[np.float64]:
    """Return a random unit vector that follows from a key: float64 [DIM], read-only."""
    seed = int.from_bytes(hashlib.sha256("\0".join(map(str, key)).encode()).digest()[:8])
    vector: NDArray[np.float64] = np.random.default_rng(seed).standard_normal(DIM)
    vector /= np.linalg.norm(vector)
    vector.flags.writeable = False
    return vector


def total(vectors: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Sum vectors, none to a vector of zeros: float64 [DIM]."""
    return functools.reduce(np.add, vectors, np.zeros(DIM))


@functools.cache
def _by_words() -> dict[str, str]:
    return {subject.words: name for name, subject in OBJECTS.items()}


@functools.cache
def _names() -> re.Pattern[str]:
    return re.compile("|".join(rf"\b{re.escape(words)}\b" for words in sorted(_by_words(), key=len, reverse=True)))
