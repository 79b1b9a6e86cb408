"""Encode the synthetic world's queries with a model that understands the questions, for the world's audit.

Trained encoders that are small enough to ship know nothing of padlocks. This one reads the relation off the question
and the object off the image. Given the text alone it can only guess among the relation's answers, unless the question
gives the object away; given the image alone it retrieves similar images. So what an audit finds with it follows from
the benchmark, not from luck.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.demo.world.collection import GENERATOR_VERSION, World
from circus_bench.demo.world.encoders import direction, total
from circus_bench.demo.world.relations import meaning_of
from circus_bench.errors import CircusError
from circus_bench.images import decode, digest
from circus_bench.rmir.embedders import Floats

if TYPE_CHECKING:
    from mteb.types import BatchedInput
    from torch.utils.data import DataLoader

_INPUT = 0.3  # weight of the input image's object in a query that asks for another


class ReaderModel:
    """Encoder that understands the synthetic world, behind mteb's interface.

    Args:
        world: the ground truth.
        noise: length of the random part of a vector.
        seed: of directions and noise.
    """

    def __init__(self, world: World, *, noise: float = 0.5, seed: int = 0) -> None:
        revision = f"{GENERATOR_VERSION}, noise {noise:g}, seed {seed}"
        self.mteb_model_meta = SimpleNamespace(name="circus-bench/world-reader", revision=revision)
        self._noise = noise
        self._seed = seed
        self._subject_of = {
            digest(decode(data).image): world.contents[image].subject for image, data in world.images.items()
        }

    def encode(self, inputs: DataLoader[BatchedInput], **_: Any) -> Floats:
        """Embed every batch of a loader: float32 [inputs, dim].

        Args:
            inputs: batches with the key `image` (PIL images), `text`, or both. An image that is none of the world's,
                such as a black one, shows nothing.
        """
        rows: list[NDArray[np.float64]] = []
        for batch in inputs:
            images, texts = batch.get("image"), batch.get("text")
            for position in range(len(images or texts or ())):
                of_image = digest(images[position]) if images else ""
                rows.append(self._vector(of_image, str(texts[position]) if texts else ""))
        return np.stack(rows).astype(np.float32)

    def _vector(self, picture_digest: str, text: str) -> NDArray[np.float64]:
        subject = self._subject_of.get(picture_digest, "")
        noise = self._noise * direction(self._seed, "reader", picture_digest, text)
        shown = self._of(subject) if subject else np.zeros_like(noise)
        if not text:
            return shown + noise
        try:
            meaning = meaning_of(text)
        except CircusError:  # a text of another world says nothing
            return shown + noise + direction(self._seed, "text", text)
        # Without the image any answer of the relation is as likely as the next one.
        wanted = meaning.answers(subject) or frozenset(meaning.relation.pairs.values())
        answers = total(self._of(answer) for answer in sorted(wanted))
        return answers / np.linalg.norm(answers) + _INPUT * shown + noise

    def _of(self, subject: str) -> NDArray[np.float64]:
        return direction(self._seed, "thing", subject)
