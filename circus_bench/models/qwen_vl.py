r"""What the embedders built on Qwen2-VL, Qwen2.5-VL and Qwen3-VL have in common.

The processors that transformers offers for these models need torchvision, and mteb's loaders need more. Here an input
is put together from the tokenizer and the PIL image processor alone: the image placeholder of a prompt is expanded to
one token for each merged patch, and the model is told which tokens are image tokens. The tokenizer may append tokens
of its own to a prompt, as it does in the code of the authors.

A family is a `QwenVLFamily`: data, and one pure function that writes the prompt. Its module has this shape:

    from circus_bench.models.qwen_vl import IMAGE, Item, QwenVLFamily, load_qwen_vl

    def layout(item: Item) -> str:  # source: ORG/REPOSITORY, path/to/file.py
        image = IMAGE if item.has_image else ""
        return f"<|im_start|>user\n{image}{item.text}<|im_end|>\n<|im_start|>assistant\n"

    FAMILY = QwenVLFamily(model_class="Qwen2VLModel", layout=layout, min_pixels=4 * 28 * 28, max_pixels=1280 * 28 * 28)

    def load(model_name: str, revision: str | None = None, **kwargs: Any) -> QwenVLEncoder:
        return load_qwen_vl(FAMILY, model_name, revision, **kwargs)

Importing a family, and this module, loads no torch. What a family does differently is a method of `QwenVLEncoder` to
override: `embed` (one batch to vectors), `tensors` (its preparation), `hidden_states` (the run of the model) or `pool`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from mteb.models.abs_encoder import AbsEncoder
from mteb.types import PromptType

from circus_bench.errors import EmbeddingError, FormatError, some
from circus_bench.models.checkpoints import Checkpoint

if TYPE_CHECKING:
    import torch
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import BatchedInput
    from PIL.Image import Image
    from torch.utils.data import DataLoader

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
"""How the chat templates of the three generations write an image; `<|image_pad|>` is the placeholder."""

MAX_ASPECT_RATIO = 200  # the image processors of all three generations refuse more

_logger = logging.getLogger(__name__)


class Pooling(StrEnum):
    """Which of the last hidden states becomes the embedding."""

    LAST = "last"
    """That of the last token which is not padding."""
    MEAN = "mean"
    """The mean over all tokens which are not padding."""


class Positions(StrEnum):
    """The rotary positions of the tokens."""

    MROPE = "mrope"
    """Image tokens are placed by row and column, as Qwen-VL was trained."""
    SEQUENTIAL = "sequential"
    """All tokens are counted 0, 1, 2, ...; what a family gets whose code calls the language model past the wrapper that
    computes positions, in training as well as in use."""


@dataclass(frozen=True, slots=True)
class Item:
    """One input, as the layout of a family sees it.

    Attributes:
        is_query: a query, or else a document of the gallery.
        instruction: the benchmark's instruction; empty for documents and where there is none, as in the image-only
            condition.
        has_image: whether there is an image, which the layout then writes as one `IMAGE`.
        text: the text; empty when there is none.
    """

    is_query: bool
    instruction: str
    has_image: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenVLFamily:
    """All that tells one family of embedders from another.

    Attributes:
        model_class: the class of transformers that holds the weights, such as `Qwen2VLModel`. The class that ends in
            `ForConditionalGeneration` is needed by families that generate only.
        layout: writes the prompt of an item, with one placeholder if it has an image.
        min_pixels: images of fewer pixels are enlarged.
        max_pixels: images of more pixels are reduced.
        first_limits: (min_pixels, max_pixels) of a resize before that one, where the authors' code resizes twice.
        max_tokens: longer inputs lose the end of their text.
        pooling: see `Pooling`.
        positions: see `Positions`.
        padding_side: where the shorter inputs of a batch are padded.
        image_token: the placeholder.
    """

    model_class: str
    layout: Callable[[Item], str]
    min_pixels: int
    max_pixels: int
    first_limits: tuple[int, int] | None = None
    max_tokens: int = 32768
    pooling: Pooling = Pooling.LAST
    positions: Positions = Positions.MROPE
    padding_side: Literal["left", "right"] = "right"
    image_token: str = "<|image_pad|>"  # noqa: S105  # a token of a vocabulary


@dataclass(frozen=True, slots=True)
class Parts:
    """A checkpoint in memory.

    Attributes:
        model: a transformers model, in evaluation mode.
        tokenizer: a transformers tokenizer.
        image_processor: a transformers image processor with `patch_size` and `merge_size`.
    """

    model: Any
    tokenizer: Any
    image_processor: Any


class QwenVLEncoder(AbsEncoder):
    """A Qwen-VL embedder: images, texts or pairs of both to unit vectors.

    Args:
        family: see `QwenVLFamily`.
        parts: the checkpoint.

    Raises:
        FormatError: tokenizer and model do not agree on the image token.
    """

    def __init__(self, family: QwenVLFamily, parts: Parts) -> None:
        self.family = family
        self.model: Any = parts.model
        self.tokenizer = parts.tokenizer
        self.image_processor = parts.image_processor
        self._image_token_id: int = self.tokenizer.convert_tokens_to_ids(family.image_token)
        known = getattr(self.model.config, "image_token_id", self._image_token_id)
        if known != self._image_token_id:
            raise FormatError(
                f"the tokenizer has {family.image_token!r} as token {self._image_token_id}, the model's configuration "
                f"says {known}; they belong to different checkpoints"
            )

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        device: torch.device = self.model.device
        return device

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
    ) -> npt.NDArray[np.float32]:
        """Embed every batch of a loader.

        Args:
            inputs: batches with the key `image` (PIL images), `text`, or both.
            task_metadata: its `prompt` is the instruction of queries; none is used when it has none.
            hf_split: not used.
            hf_subset: not used.
            prompt_type: documents get no instruction of the task; whatever is not a document is a query.
            show_progress_bar: whether to show a progress bar.
            kwargs: not used; mteb passes the batch size, which the loader already has.

        Returns:
            float32 unit vectors, shape (inputs, dim).

        Raises:
            EmbeddingError: a batch has neither images nor texts, or an input cannot be shown to the model.
        """
        from tqdm import tqdm

        is_query = prompt_type != PromptType.document
        instruction = task_instruction(task_metadata) if is_query else ""
        vectors = []
        for batch in tqdm(inputs, desc="encoding", disable=not show_progress_bar):
            images, texts = _columns(batch)
            pairs = zip(images, texts, strict=True)
            items = [Item(is_query, instruction, image is not None, text) for image, text in pairs]
            vectors.append(self.embed(items, images))
        return np.concatenate(vectors)

    def embed(self, items: Sequence[Item], images: Sequence[Image | None]) -> npt.NDArray[np.float32]:
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
            pooled = self.pool(self.hidden_states(tensors), tensors["attention_mask"])
            unit: npt.NDArray[np.float32] = torch.nn.functional.normalize(pooled.float(), dim=-1).cpu().numpy()
        return unit

    def tensors(self, items: Sequence[Item], images: Sequence[Image | None]) -> dict[str, torch.Tensor]:
        """Prepare one batch for the model.

        Returns:
            `input_ids`, `attention_mask` and `mm_token_type_ids` (int64 [items, tokens]); `pixel_values` and
            `image_grid_thw` if there are images; `position_ids` (int64 [3, items, tokens]) where the model would not
            compute those of the family itself. All on the model's device.

        Raises:
            EmbeddingError: an image is too elongated, or a text contains the image token.
        """
        shown = [image.convert("RGB") for image in images if image is not None]
        tensors = self._pixels(shown) if shown else {}
        patches = iter(tensors["image_grid_thw"].prod(-1).tolist() if shown else [])
        merged = self.image_processor.merge_size**2
        counts = [next(patches) // merged if item.has_image else 0 for item in items]
        rows = [self._tokens(item, count) for item, count in zip(items, counts, strict=True)]
        tensors["input_ids"], mask = self._pad(rows)
        tensors["attention_mask"] = mask
        tensors["mm_token_type_ids"] = (tensors["input_ids"] == self._image_token_id).long()
        if self.family.positions is Positions.SEQUENTIAL or not shown:
            # Positions count from the first token, not from the padding before it.
            tensors["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0).expand(3, -1, -1)
        on_device: dict[str, torch.Tensor] = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        return on_device

    def hidden_states(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Run the model.

        Returns:
            the last hidden states [items, tokens, dim], after the final norm.
        """
        backbone = getattr(self.model, "model", self.model)
        states: torch.Tensor = backbone(**tensors, use_cache=False).last_hidden_state
        return states

    def pool(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Make one vector of the hidden states of each item.

        Args:
            states: [items, tokens, dim].
            mask: 1 for tokens, 0 for padding, [items, tokens].

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

    def _pixels(self, images: Sequence[Image]) -> dict[str, torch.Tensor]:
        long = [image.size for image in images if max(image.size) / min(image.size) > MAX_ASPECT_RATIO]
        if long:
            raise EmbeddingError(
                f"images whose sides differ more than {MAX_ASPECT_RATIO}-fold cannot be shown to a Qwen-VL model "
                f"({some(long)}); leave them out of the benchmark"
            )
        if self.family.first_limits:
            images = [self._resized(image, *self.family.first_limits) for image in images]
        features = self.image_processor(images=list(images), return_tensors="pt")
        return {name: features[name] for name in ("pixel_values", "image_grid_thw")}

    def _resized(self, image: Image, min_pixels: int, max_pixels: int) -> Image:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        factor = self.image_processor.patch_size * self.image_processor.merge_size
        height, width = smart_resize(image.height, image.width, factor, min_pixels, max_pixels)
        return image.resize((width, height))  # bicubic, as in the second resize

    def _tokens(self, item: Item, image_tokens: int) -> list[int]:
        ids = self._tokenized(item)
        while (excess := len(ids) + max(image_tokens - 1, 0) - self.family.max_tokens) > 0:
            shortened = self._shortened(item.text, excess)
            _logger.warning("cut a text of %d characters to %d", len(item.text), len(shortened))
            item = dataclasses.replace(item, text=shortened)
            ids = self._tokenized(item)
        if item.has_image:
            place = ids.index(self._image_token_id)
            ids[place : place + 1] = [self._image_token_id] * image_tokens
        return ids

    def _tokenized(self, item: Item) -> list[int]:
        ids: list[int] = self.tokenizer(self.family.layout(item))["input_ids"]
        if ids.count(self._image_token_id) != item.has_image:
            raise EmbeddingError(
                f"the prompt of {item.text!r} has {ids.count(self._image_token_id)} image tokens instead of "
                f"{int(item.has_image)}; a text must not contain {self.family.image_token!r}"
            )
        return ids

    def _shortened(self, text: str, excess: int) -> str:
        """The text without its last tokens, `excess` in number."""
        offsets = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if len(offsets) < excess:
            raise EmbeddingError(
                f"an image and its prompt take more than the {self.family.max_tokens} tokens that the model reads, "
                f"even without the text {text!r}"
            )
        return text[: offsets[len(offsets) - excess][0]]

    def _pad(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        length = max(len(row) for row in rows)
        ids = torch.full((len(rows), length), self.tokenizer.pad_token_id)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            place = slice(length - len(row), length) if self.family.padding_side == "left" else slice(len(row))
            ids[index, place] = torch.tensor(row)
            mask[index, place] = 1
        return ids, mask


def load_qwen_vl(
    family: QwenVLFamily,
    model_name: str,
    revision: str | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    path: Path | None = None,
) -> QwenVLEncoder:
    """Load an embedder of a family; see `load_parts` for the arguments."""
    return QwenVLEncoder(family, load_parts(family, model_name, revision, device=device, dtype=dtype, path=path))


def load_parts(
    family: QwenVLFamily,
    model_name: str,
    revision: str | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    path: Path | None = None,
) -> Parts:
    """Load model, tokenizer and image processor of a checkpoint.

    Args:
        family: gives the class of the model and the image limits.
        model_name: the repository on the Hub.
        revision: of the repository.
        device: a GPU when None and there is one.
        dtype: `bfloat16`, `float16` or `float32`; bfloat16 on a GPU and float32 on a CPU when None.
        path: a local checkpoint folder to load instead.

    Raises:
        FormatError: the checkpoint lacks weights that the model class has.
    """
    import transformers
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    checkpoint = Checkpoint(model_name, revision, path)
    model_class = getattr(transformers, family.model_class)
    config = model_class.config_class.from_pretrained(**checkpoint.source)
    model = checkpoint.weights(model_class, config, device=device, dtype=dtype)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**checkpoint.source)
    # Under these names the limits take the place of those in the checkpoint's file, whichever way it writes them.
    image_processor = Qwen2VLImageProcessorPil.from_pretrained(
        **checkpoint.source, min_pixels=family.min_pixels, max_pixels=family.max_pixels
    )
    return Parts(model, tokenizer, image_processor)


def task_instruction(task: TaskMetadata | None) -> str:
    """The instruction that a task gives to its queries, empty if it gives none.

    mteb's own way falls back to the prompt of the task's type, which would give the image-only condition an instruction
    that its task does not have.
    """
    prompt: Any = task.prompt if task is not None else None
    return (prompt.get("query") if isinstance(prompt, Mapping) else prompt) or ""


def _columns(batch: Mapping[str, Any]) -> tuple[list[Image | None], list[str]]:
    """The images and texts of a batch, with None and the empty string for what is not there."""
    columns = [batch[name] for name in ("image", "text") if name in batch]
    if not columns:
        raise EmbeddingError(f"a batch has neither 'image' nor 'text', but {sorted(batch)}")
    count = len(columns[0])
    return list(batch.get("image", [None] * count)), [text or "" for text in batch.get("text", [""] * count)]
