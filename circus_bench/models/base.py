"""Embed images and texts with a multimodal language model: a prompt in, a pooled hidden state out.

A family is an `EmbedderFamily`: data, and one pure function, the prompt template. Its encoder is an `Embedder`, which
says how a batch becomes tensors (`tensors`) and, where a family does otherwise, what is run (`hidden_states`) and which
tokens and states make the embedding (`pooled_tokens`, `pool`). Importing this module loads no torch.

The image placeholder of a prompt is expanded here to one token for each place that the image takes. The tokenizer may
append tokens of its own to a prompt, as it does in the code of the authors.
"""

from __future__ import annotations

import dataclasses
import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from circus_bench.errors import EmbeddingError, FormatError
from circus_bench.models.batches import BatchEncoder, columns

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

_logger = logging.getLogger(__name__)


class Pooling(StrEnum):
    """The pooling of the last hidden states into an embedding."""

    LAST = "last"
    """That of the last token which is not padding."""
    MEAN = "mean"
    """The mean over all tokens which are not padding."""


@dataclass(frozen=True, slots=True)
class PromptInput:
    """One input, as the prompt template of a family sees it.

    Attributes:
        is_query: a query, or else a document of the gallery.
        instruction: the benchmark's instruction; empty for documents and where there is none, as in the image-only
            condition.
        has_image: whether there is an image, which the template then writes as one placeholder.
        text: the text; empty when there is none.
    """

    is_query: bool
    instruction: str
    has_image: bool
    text: str

    @property
    def query_text(self) -> str:
        """The instruction and the text, one line each; empty when there is neither.

        So the CIRCUS paper joins them (matteoattimonelli/CIRCUS, retrieval/generate_retrieval_data.py); a family takes
        it where its authors show no composed query.
        """
        return "\n".join(filter(None, (self.instruction, self.text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderFamily:
    """All that tells one family of embedders from another.

    Attributes:
        prompt_template: writes the prompt of an item, with one placeholder if it has an image.
        image_token: the placeholder.
        max_tokens: longer inputs lose the end of their text.
        pooling: see `Pooling`.
        padding_side: where the shorter inputs of a batch are padded.
    """

    prompt_template: Callable[[PromptInput], str]
    image_token: str
    max_tokens: int = 32768
    pooling: Pooling = Pooling.LAST
    padding_side: Literal["left", "right"] = "right"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A checkpoint in memory.

    Attributes:
        model: a transformers model, in evaluation mode.
        tokenizer: a transformers tokenizer.
        image_processor: what prepares images for the model; each encoder says what it asks of it.
    """

    model: Any
    tokenizer: Any
    image_processor: Any


class Embedder(BatchEncoder):
    """Images, texts or pairs of both to unit vectors.

    Args:
        family: see `EmbedderFamily`.
        loaded: the checkpoint.
    """

    def __init__(self, family: EmbedderFamily, loaded: LoadedModel) -> None:
        self.family = family
        self.model: Any = loaded.model
        self.tokenizer = loaded.tokenizer
        self.image_processor = loaded.image_processor
        self.image_token_id: int = self.tokenizer.convert_tokens_to_ids(family.image_token)

    @property
    def device(self) -> torch.device:
        """Return the device that the model computes on."""
        device: torch.device = self.model.device
        return device

    def embed_batch(self, batch: Mapping[str, Any], *, is_query: bool, instruction: str) -> npt.NDArray[np.float32]:
        """Embed one batch; see `BatchEncoder.embed_batch`."""
        images, texts = columns(batch)
        pairs = zip(images, texts, strict=True)
        return self.embed(
            [PromptInput(is_query, instruction, image is not None, text) for image, text in pairs], images
        )

    def embed(self, items: Sequence[PromptInput], images: Sequence[Image | None]) -> npt.NDArray[np.float32]:
        """Embed one batch.

        Args:
            items: what to show.
            images: the image of each item, None where it has none.

        Returns:
            float32 unit vectors, shape (items, dim).
        """
        import torch

        with torch.inference_mode():
            tensors = self.tensors(items, images)
            pooled = self.pool(self.hidden_states(tensors), self.pooled_tokens(items, tensors["attention_mask"]))
            unit: npt.NDArray[np.float32] = torch.nn.functional.normalize(pooled.float(), dim=-1).cpu().numpy()
        return unit

    @abstractmethod
    def tensors(self, items: Sequence[PromptInput], images: Sequence[Image | None]) -> dict[str, torch.Tensor]:
        """Prepare one batch for the model.

        Returns:
            `input_ids` and `attention_mask` (int64 [items, tokens]), and what else the model takes, all on its device.

        Raises:
            EmbeddingError: an input cannot be shown to the model.
        """

    def hidden_states(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Run the model.

        Returns:
            the last hidden states [items, tokens, dim], after the final norm.
        """
        backbone = getattr(self.model, "model", self.model)
        states: torch.Tensor = backbone(**tensors, use_cache=False).last_hidden_state
        return states

    def pooled_tokens(self, items: Sequence[PromptInput], mask: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """Mark the tokens that `pool` reads: all but padding, unless a family leaves out more.

        Args:
            items: the rows.
            mask: 1 for tokens, 0 for padding, [items, tokens].
        """
        return mask

    def pool(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Make one vector of the hidden states of each item.

        Args:
            states: [items, tokens, dim].
            mask: 1 for the tokens that take part, else 0, [items, tokens].

        Returns:
            [items, dim], in the dtype of the model for `Pooling.LAST`, float32 for `Pooling.MEAN`.
        """
        import torch

        if self.family.pooling is Pooling.MEAN:
            weights = mask.unsqueeze(-1).float()
            return (states.float() * weights).sum(1) / weights.sum(1)
        places = torch.arange(mask.shape[1], device=mask.device)
        last = (mask * places).argmax(-1)
        return states[torch.arange(len(states), device=states.device), last]

    def tokens(self, item: PromptInput, image_tokens: int) -> list[int]:
        """Tokenize the prompt of an item, cut to the length that the model reads.

        Args:
            item: what to show.
            image_tokens: how many places its image takes, 0 where it has none.

        Raises:
            EmbeddingError: its text contains the image token, or its image alone is too long.
        """
        ids = self._tokenized(item)
        while (excess := len(ids) + max(image_tokens - 1, 0) - self.family.max_tokens) > 0:
            shortened = self._shortened(item.text, excess)
            _logger.warning("cut a text of %d characters to %d", len(item.text), len(shortened))
            item = dataclasses.replace(item, text=shortened)
            ids = self._tokenized(item)
        if item.has_image:
            place = ids.index(self.image_token_id)
            ids[place : place + 1] = [self.image_token_id] * image_tokens
        return ids

    def padded(self, rows: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        """Pad rows of token ids to `input_ids` and `attention_mask`, int64 [rows, most tokens]."""
        import torch

        length = max(len(row) for row in rows)
        ids = torch.full((len(rows), length), self.tokenizer.pad_token_id)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            place = slice(length - len(row), length) if self.family.padding_side == "left" else slice(len(row))
            ids[index, place] = torch.tensor(row)
            mask[index, place] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def on_device(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Move tensors to where the model computes."""
        return {name: tensor.to(self.device) for name, tensor in tensors.items()}

    def check_image_token(self, configured: int) -> None:
        """Refuse a tokenizer whose image token is not the one that the model's configuration names.

        Raises:
            FormatError: it is not.
        """
        if configured != self.image_token_id:
            raise FormatError(
                f"the tokenizer has {self.family.image_token!r} as token {self.image_token_id}, the model's "
                f"configuration says {configured}; they belong to different checkpoints"
            )

    def _tokenized(self, item: PromptInput) -> list[int]:
        ids: list[int] = self.tokenizer(self.family.prompt_template(item))["input_ids"]
        if ids.count(self.image_token_id) != item.has_image:
            raise EmbeddingError(
                f"the prompt of {item.text!r} has {ids.count(self.image_token_id)} image tokens instead of "
                f"{int(item.has_image)}; a text must not contain {self.family.image_token!r}"
            )
        return ids

    def _shortened(self, text: str, excess: int) -> str:
        """Drop the last tokens of a text, `excess` in number."""
        offsets = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if len(offsets) < excess:
            raise EmbeddingError(
                f"an image and its prompt take more than the {self.family.max_tokens} tokens that the model reads, "
                f"even without the text {text!r}"
            )
        return text[: offsets[len(offsets) - excess][0]]
