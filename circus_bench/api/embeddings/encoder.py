"""An embedding API as an encoder."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.models.abs_encoder import AbsEncoder
from numpy.typing import NDArray
from tqdm import tqdm

from circus_bench.api.embeddings.batcher import Asking, Question
from circus_bench.api.embeddings.connection import Connection
from circus_bench.api.embeddings.images import sent_size, to_rgb
from circus_bench.api.embeddings.settings import ApiSettings
from circus_bench.api.embeddings.vendor import Role, Vendor
from circus_bench.api.runtime import Caller, Meter, RateLimit, Replies, Secret, Usage
from circus_bench.benchmark import Benchmark, Condition
from circus_bench.errors import EmbeddingError, RefusedError
from circus_bench.images import digest
from circus_bench.inputs import inputs_of, role_of
from circus_bench.io import slug, to_json
from circus_bench.models.batches import columns, task_instruction

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import BatchedInput, PromptType
    from torch.utils.data import DataLoader

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a benchmark will use, before anything is asked.

    Attributes:
        inputs: different inputs of the gallery and of the three conditions.
        kept: those whose reply is on disk from an earlier run; they cost nothing.
        usage: of the others, an upper guess.
        usd: US dollars, or None when the price is not known.
    """

    inputs: int
    kept: int
    usage: Usage
    usd: float | None


class ApiEncoder(AbsEncoder):
    """A model behind an API: images, texts or pairs of both to vectors.

    Every reply is on disk before the next question, by the digest of what was asked, so that nothing is paid for twice:
    not after a kill, not for the probe of a second run, not for an image that two benchmarks share. Equal inputs have
    one vector, so a probe finds no deviation between single and batched inputs.

    Args:
        vendor: the model.
        settings: from the environment by default.

    Raises:
        RemoteError: there is no key in the environment.
    """

    def __init__(self, vendor: Vendor, settings: ApiSettings | None = None) -> None:
        self.vendor = vendor
        self.settings = settings or ApiSettings.from_environment(url_variable=vendor.url_variable)
        limits, clock = vendor.limits, self.settings.clock
        limit = RateLimit(
            self.settings.requests_per_minute or limits.requests_per_minute,
            tokens=self.settings.tokens_per_minute or limits.tokens_per_minute,
            clock=clock,
        )
        self.caller = Caller(limit, policy=self.settings.retries, seconds=self.settings.seconds, clock=clock)
        self.meter = Meter(vendor.price, self.settings.budget_usd)
        self.connection = Connection(
            vendor,
            Secret.from_environment(*vendor.key_variables),
            base_url=self.settings.base_url,
            timeout=self.settings.timeout,
            threads=self.settings.threads,
        )
        self.replies = Replies(self.settings.replies / f"{slug(vendor.name)}.sqlite")

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata | None = None,
        hf_split: str = "",  # noqa: ARG002
        hf_subset: str = "",  # noqa: ARG002
        prompt_type: PromptType | None = None,
        show_progress_bar: bool = False,
        **kwargs: Any,  # noqa: ARG002
    ) -> Floats:
        """Embed every batch of a loader.

        Args:
            inputs: batches with the key `image` (PIL images of any size and mode), `text`, or both.
            task_metadata: its prompt is the instruction of queries that have a text.
            hf_split: not used.
            hf_subset: not used.
            prompt_type: query or document.
            show_progress_bar: whether to show a progress bar.
            kwargs: not used; requests are cut by the vendor's limits, not by the batch size.

        Returns:
            float32 vectors as the service gives them, shape (inputs, dimensions).

        Raises:
            RefusedError: the service refused inputs; the vectors of all others are kept.
            BudgetError: a budget of money or time is used up, or too small to begin with.
            RemoteError: the service cannot be used.
            EmbeddingError: an input has neither image nor text.
        """
        role = Role(prompt_type.value) if prompt_type else None
        instruction = task_instruction(task_metadata) if role is Role.QUERY else ""
        keys: list[str] = []
        with Asking(self, role) as asking:
            for batch in tqdm(inputs, desc="asking", disable=not show_progress_bar):
                questions = list(self._questions(batch, role, instruction))
                if not keys:
                    self._check_first(asking.open(questions), len(questions), inputs)
                keys.extend(question.key for question in questions)
                asking.add(questions)
        if asking.refused:
            positions = (position for position, key in enumerate(keys) if key in asking.refused)
            raise RefusedError(self.vendor.name, {position: asking.refused[keys[position]] for position in positions})
        return np.stack([asking.vectors[key] for key in keys])

    def estimate(self, benchmark: Benchmark) -> Estimate:
        """What the gallery and the three conditions of a benchmark will use. Nothing is asked.

        Args:
            benchmark: has images, all of them decodable.
        """
        infos = benchmark.inspect().readable
        usage_of: dict[str, Usage] = {}
        for condition in (None, *Condition):
            role = Role.QUERY if condition else Role.DOCUMENT
            instruction = role_of(benchmark, condition).instruction
            for item in inputs_of(benchmark, condition, infos):
                text = _text(item.text or "", role, instruction, self.vendor)
                usage_of[self._key(role, text, item.image_digest)] = self._estimate(text, item.size)
        kept = self.replies.known(usage_of)
        usage: Counter[str] = Counter()
        for key, used in usage_of.items():
            if key not in kept:
                usage.update(used)
        price = self.vendor.price
        return Estimate(len(usage_of), len(kept), usage, price.cost(usage) if price else None)

    def check_budget(self, benchmark: Benchmark, *, processes: int = 1) -> Estimate:
        """Refuse a benchmark that costs more than the budget, before the first call.

        Args:
            benchmark: what is to be encoded.
            processes: how many share the work; each has its part of the budget.

        Returns:
            The estimate of all of it.

        Raises:
            BudgetError: it does, or no budget is set.
        """
        estimate = self.estimate(benchmark)
        if estimate.kept < estimate.inputs:
            self.meter.check({unit: amount / processes for unit, amount in estimate.usage.items()})
        return estimate

    def _check_first(self, opened: Sequence[Question], n_batch: int, inputs: Any) -> None:
        """Refuse what the first batch shows to be above the budget; replies on disk are taken to go on likewise."""
        usage: Counter[str] = Counter()
        for question in opened:
            usage.update(question.estimate)
        if usage:
            factor = max(1.0, _length(inputs) / n_batch)
            self.meter.check({unit: amount * factor for unit, amount in usage.items()})

    def _questions(self, batch: Any, role: Role | None, instruction: str) -> Iterator[Question]:
        for position, (shown, words) in enumerate(zip(*columns(batch), strict=True)):
            image = to_rgb(shown) if shown is not None else None
            text = _text(words, role, instruction, self.vendor)
            if image is None and text is None:
                raise EmbeddingError(f"input {position} of a batch has an empty text and no image")
            key = self._key(role, text, digest(image) if image else None)
            yield Question(key, text, image, self._estimate(text, image.size if image else None))

    def _estimate(self, text: str | None, size: tuple[int, int] | None) -> Usage:
        sent = None if size is None else sent_size(size, max_pixels=self.vendor.limits.image_pixels)
        return self.vendor.estimate(text, sent)

    def _key(self, role: Role | None, text: str | None, image_digest: str | None) -> str:
        asked = {
            "model": self.vendor.name,
            "revision": self.vendor.revision,
            "dimensions": self.vendor.dimensions,
            "role": self.vendor.told_role(role),
            "text": text,
            "image": image_digest,
        }
        return hashlib.sha256(to_json(asked).encode()).hexdigest()


def make_encoder(vendor: Vendor, **settings: Any) -> ApiEncoder:
    """An encoder with settings from the environment, and those that are given here."""
    settings.pop("device", None)  # mteb passes one to every loader
    found = ApiSettings.from_environment(url_variable=vendor.url_variable)
    return ApiEncoder(vendor, dataclasses.replace(found, **settings))


def _text(text: str, role: Role | None, instruction: str, vendor: Vendor) -> str | None:
    """The text as it is sent: instruction, line break, text, all in the vendor's prompt; None for an empty text."""
    if not text.strip():
        return None
    return vendor.prompt(f"{instruction}\n{text}" if instruction else text, role)


def _length(inputs: Any) -> int:
    """Inputs of a loader, as far as it tells."""
    try:
        return len(inputs.dataset)
    except (AttributeError, TypeError):
        return 0
