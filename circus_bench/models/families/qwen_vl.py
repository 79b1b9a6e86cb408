r"""Encode with embedders built on Qwen2-VL, Qwen2.5-VL and Qwen3-VL.

The processors that transformers offers for these models need torchvision, and mteb's loaders need more. Here an input
is put together from the tokenizer and the PIL image processor alone: the image placeholder of a prompt is expanded to
one token for each merged patch, and the model is told which tokens are image tokens.

A family is a `QwenVLFamily`: data, and one pure function that writes the prompt. Its module has this shape:

from circus_bench.models.base import PromptInput
    from circus_bench.models.families.qwen_vl import IMAGE, TOKEN_PIXELS, QwenVLFamily, chat, load_qwen_vl

    def prompt_template(item: PromptInput) -> str:  # source: ORG/REPOSITORY, path/to/file.py
        return chat((IMAGE if item.has_image else "") + item.text)

    FAMILY = QwenVLFamily(
        model_class="Qwen2VLModel",
        prompt_template=prompt_template,
        min_pixels=4 * TOKEN_PIXELS,
        max_pixels=1280 * TOKEN_PIXELS,
    )

    def load(model_name: str, revision: str | None = None, **kwargs: Any) -> QwenVLEncoder:
        return load_qwen_vl(FAMILY, model_name, revision, **kwargs)

Importing a family, and this module, loads no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Unpack

from circus_bench.errors import EmbeddingError, format_ids
from circus_bench.models.base import Embedder, EmbedderFamily, LoadedModel, PromptInput
from circus_bench.models.checkpoint import Checkpoint, CheckpointOptions

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
"""An image in the chat templates of the three generations; `<|image_pad|>` is the placeholder."""
SYSTEM = "You are a helpful assistant."
"""The default system turn of their chat templates."""
TOKEN_PIXELS = 28 * 28
"""Pixels that an image token of Qwen2-VL and Qwen2.5-VL stands for."""
MAX_ASPECT_RATIO = 200  # the image processors of all three generations refuse more


class Positions(StrEnum):
    """The rotary positions of the tokens."""

    MROPE = "mrope"
    """Image tokens are placed by row and column, as Qwen-VL was trained."""
    SEQUENTIAL = "sequential"
    """All tokens are counted 0, 1, 2, ...; what a family gets whose code calls the language model past the wrapper that
    computes positions, in training as well as in use."""


def chat(user: str, *, system: str = SYSTEM) -> str:
    """Write a prompt by the chat templates: the system's turn, the user's, and the opening of the answer."""
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenVLFamily(EmbedderFamily):
    """All that tells one family of Qwen-VL embedders from another.

    Attributes:
        model_class: the class of transformers that holds the weights, such as `Qwen2VLModel`. The class that ends in
            `ForConditionalGeneration` is needed by families that generate only.
        min_pixels: images of fewer pixels are enlarged.
        max_pixels: images of more pixels are reduced.
        first_limits: (min_pixels, max_pixels) of a resize before that one, where the authors' code resizes twice.
        positions: see `Positions`.
        image_token: the placeholder.
    """

    model_class: str
    min_pixels: int
    max_pixels: int
    first_limits: tuple[int, int] | None = None
    positions: Positions = Positions.MROPE
    image_token: str = "<|image_pad|>"  # noqa: S105  # a token of a vocabulary


class QwenVLEncoder(Embedder):
    """A Qwen-VL embedder: images, texts or pairs of both to unit vectors.

    Args:
        family: see `QwenVLFamily`.
        loaded: the checkpoint; the image processor has `patch_size` and `merge_size`.

    Raises:
        FormatError: tokenizer and model do not agree on the image token.
    """

    family: QwenVLFamily

    def __init__(self, family: QwenVLFamily, loaded: LoadedModel) -> None:
        super().__init__(family, loaded)
        self.check_image_token(self.model.config.image_token_id)

    def tensors(self, items: Sequence[PromptInput], images: Sequence[Image | None]) -> dict[str, torch.Tensor]:
        """Prepare one batch for the model.

        Returns:
            as in the base class, and `mm_token_type_ids` (int64 [items, tokens]); `pixel_values` and `image_grid_thw`
            if there are images; `position_ids` (int64 [3, items, tokens]) where the model would not compute those of
            the family itself.

        Raises:
            EmbeddingError: an image is too elongated, or a text contains the image token.
        """
        shown = [image.convert("RGB") for image in images if image is not None]
        tensors = self._pixels(shown) if shown else {}
        patches = iter(tensors["image_grid_thw"].prod(-1).tolist() if shown else [])
        merged = self.image_processor.merge_size**2
        counts = [next(patches) // merged if item.has_image else 0 for item in items]
        tensors |= self.padded([self.tokens(item, count) for item, count in zip(items, counts, strict=True)])
        tensors["mm_token_type_ids"] = (tensors["input_ids"] == self.image_token_id).long()
        if self.family.positions is Positions.SEQUENTIAL or not shown:
            # Positions count from the first token, not from the padding before it.
            tensors["position_ids"] = (tensors["attention_mask"].cumsum(-1) - 1).clamp(min=0).expand(3, -1, -1)
        return self.on_device(tensors)

    def _pixels(self, images: Sequence[Image]) -> dict[str, torch.Tensor]:
        long = [image.size for image in images if max(image.size) / min(image.size) > MAX_ASPECT_RATIO]
        if long:
            raise EmbeddingError(
                f"images whose sides differ more than {MAX_ASPECT_RATIO}-fold cannot be shown to a Qwen-VL model "
                f"({format_ids(long)}); leave them out of the benchmark"
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


def load_qwen_vl(
    family: QwenVLFamily, model_name: str, revision: str | None = None, **options: Unpack[CheckpointOptions]
) -> QwenVLEncoder:
    """Load an embedder of a family; see `load_model` for the arguments."""
    return QwenVLEncoder(family, load_model(family, model_name, revision, **options))


def load_model(
    family: QwenVLFamily,
    model_name: str,
    revision: str | None = None,
    **options: Unpack[CheckpointOptions],
) -> LoadedModel:
    """Load model, tokenizer and image processor of a checkpoint.

    Args:
        family: gives the class of the model and the image limits.
        model_name: the repository on the Hub.
        revision: of the repository.
        options: see `Checkpoint`.

    Raises:
        FormatError: the checkpoint lacks weights that the model class has.
    """
    import transformers
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    checkpoint = Checkpoint(model_name, revision, **options)
    model_class = getattr(transformers, family.model_class)
    config = model_class.config_class.from_pretrained(**checkpoint.source)
    model = checkpoint.weights(model_class, config)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**checkpoint.source)
    # Under these names the limits take the place of those in the checkpoint's file, whichever way it writes them.
    image_processor = Qwen2VLImageProcessorPil.from_pretrained(
        **checkpoint.source, min_pixels=family.min_pixels, max_pixels=family.max_pixels
    )
    return LoadedModel(model, tokenizer, image_processor)
