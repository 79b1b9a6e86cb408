"""Encode with an embedding API."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.models.abs_encoder import AbsEncoder
from mteb.types import PromptType
from numpy.typing import NDArray
from tqdm import tqdm

from circus_bench.api.embeddings.batcher import EmbeddingBatcher, EmbeddingInput
from circus_bench.api.embeddings.connection import Connection
from circus_bench.api.embeddings.settings import ApiSettings
from circus_bench.api.embeddings.vendor import Vendor
from circus_bench.api.images import sent_size, to_rgb
from circus_bench.api.runtime import Budget, RateLimit, ResponseCache, RetryingCaller, Secret, Usage
from circus_bench.benchmark import Benchmark, Condition
from circus_bench.errors import EmbeddingError, RefusedError
from circus_bench.images import digest
from circus_bench.inputs import input_spec, inputs_of
from circus_bench.io import slug, to_json
from circus_bench.models.batches import columns, task_instruction

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import BatchedInput
    from torch.utils.data import DataLoader

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EncodingCost:
    """The cost of encoding a benchmark, before anything is sent.

    Attributes:
        inputs: different inputs of the gallery and of the three conditions.
        kept: those in the response cache from an earlier run; they cost nothing.
        usage: of the others, an upper guess.
        usd: US dollars, or None when the price is not known.
    """

    inputs: int
    kept: int
    usage: Usage
    usd: float | None


class ApiEncoder(AbsEncoder):
    """A model behind an API: images, texts or pairs of both to vectors.

    Every response is on disk before the next request, by the digest of what was asked. So nothing is paid for twice:
    not after a kill, not for the sanity check of a second run, not for an image that two benchmarks share. Equal inputs
    have one vector, so that check finds no deviation between single and batched inputs.

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
        self.caller = RetryingCaller(limit, policy=self.settings.retries, seconds=self.settings.seconds, clock=clock)
        self.budget = Budget(vendor.price, self.settings.budget_usd)
        self.connection = Connection(
            vendor,
            Secret.from_environment(*vendor.key_variables),
            base_url=self.settings.base_url,
            timeout=self.settings.timeout,
            threads=self.settings.threads,
        )
        self.cache = ResponseCache(Path(self.settings.cache_dir) / f"{slug(vendor.name)}.sqlite")

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
        """Embed every batch of a loader; see `BatchEncoder.encode`. Requests are cut by the vendor's limits.

        Raises:
            RefusedError: the service refused inputs; the vectors of all others are kept.
            BudgetError: a budget of money or time is used up, or too small to begin with.
            RemoteError: the service cannot be used.
            EmbeddingError: an input has neither image nor text.
        """
        instruction = task_instruction(task_metadata) if prompt_type is PromptType.query else ""
        keys: list[str] = []
        with EmbeddingBatcher(
            self.vendor,
            prompt_type,
            connection=self.connection,
            caller=self.caller,
            budget=self.budget,
            cache=self.cache,
            threads=self.settings.threads,
        ) as batcher:
            for batch in tqdm(inputs, desc="encoding", disable=not show_progress_bar):
                items = list(self._inputs(batch, prompt_type, instruction))
                if not keys:
                    self._check_first(batcher.open(items), len(items), inputs)
                keys.extend(item.key for item in items)
                batcher.add(items)
        if batcher.refused:
            positions = (position for position, key in enumerate(keys) if key in batcher.refused)
            raise RefusedError(self.vendor.name, {position: batcher.refused[keys[position]] for position in positions})
        return np.stack([batcher.vectors[key] for key in keys])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.vendor.name})"

    def estimate(self, benchmark: Benchmark) -> EncodingCost:
        """Estimate what the gallery and the three conditions of a benchmark will use. Nothing is sent.

        Args:
            benchmark: has images, all of them decodable.
        """
        infos = benchmark.inspect().readable
        usage_of: dict[str, Usage] = {}
        for condition in (None, *Condition):
            prompt_type = PromptType.query if condition else PromptType.document
            instruction = input_spec(benchmark, condition).instruction
            for item in inputs_of(benchmark, condition, infos):
                text = _text(item.text or "", prompt_type, instruction, self.vendor)
                usage_of[self._key(prompt_type, text, item.image_digest)] = self._estimate(text, item.size)
        kept = self.cache.known(usage_of)
        usage: Counter[str] = Counter()
        for key, used in usage_of.items():
            if key not in kept:
                usage.update(used)
        price = self.vendor.price
        return EncodingCost(len(usage_of), len(kept), usage, price.cost(usage) if price else None)

    def check_budget(self, benchmark: Benchmark, *, processes: int = 1) -> EncodingCost:
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
            self.budget.check({unit: amount / processes for unit, amount in estimate.usage.items()})
        return estimate

    def _check_first(self, opened: Sequence[EmbeddingInput], n_batch: int, inputs: Any) -> None:
        """Refuse what the first batch shows to be above the budget; the cache is taken to go on likewise."""
        usage: Counter[str] = Counter()
        for item in opened:
            usage.update(item.estimate)
        if usage:
            factor = max(1.0, _length(inputs) / n_batch)
            self.budget.check({unit: amount * factor for unit, amount in usage.items()})

    def _inputs(self, batch: Any, prompt_type: PromptType | None, instruction: str) -> Iterator[EmbeddingInput]:
        for position, (shown, words) in enumerate(zip(*columns(batch), strict=True)):
            image = to_rgb(shown) if shown is not None else None
            text = _text(words, prompt_type, instruction, self.vendor)
            if image is None and text is None:
                raise EmbeddingError(f"input {position} of a batch has an empty text and no image")
            key = self._key(prompt_type, text, digest(image) if image else None)
            yield EmbeddingInput(key, text, image, self._estimate(text, image.size if image else None))

    def _estimate(self, text: str | None, size: tuple[int, int] | None) -> Usage:
        sent = None if size is None else sent_size(size, max_pixels=self.vendor.limits.image_pixels)
        return self.vendor.estimate(text, sent)

    def _key(self, prompt_type: PromptType | None, text: str | None, image_digest: str | None) -> str:
        asked = {
            "model": self.vendor.name,
            "revision": self.vendor.revision,
            "dimensions": self.vendor.dimensions,
            "role": self.vendor.request_prompt_type(prompt_type),
            "text": text,
            "image": image_digest,
        }
        return hashlib.sha256(to_json(asked).encode()).hexdigest()


def make_encoder(vendor: Vendor, **settings: Any) -> ApiEncoder:
    """Make an encoder with settings from the environment, and those that are given here."""
    settings.pop("device", None)  # mteb passes one to every loader
    found = ApiSettings.from_environment(url_variable=vendor.url_variable)
    return ApiEncoder(vendor, dataclasses.replace(found, **settings))


def _text(text: str, prompt_type: PromptType | None, instruction: str, vendor: Vendor) -> str | None:
    """Write the text as it is sent: instruction, line break, text, in the vendor's prompt; None for an empty text."""
    if not text.strip():
        return None
    return vendor.prompt(f"{instruction}\n{text}" if instruction else text, prompt_type)


def _length(inputs: Any) -> int:
    """Count the inputs of a loader, as far as it tells."""
    try:
        return len(inputs.dataset)
    except (AttributeError, TypeError):
        return 0
