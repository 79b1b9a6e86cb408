"""Encode with a dual encoder such as CLIP or SigLIP, and fuse its image and text vectors in a named way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from circus_bench.errors import CircusError, EmbeddingError
from circus_bench.models.batches import BatchEncoder
from circus_bench.models.checkpoint import Checkpoint
from circus_bench.models.metas import CircusModelMeta, describe_model
from circus_bench.models.spec import Fusion, ModelSpec
from circus_bench.vectors import Floats, to_unit_length

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mteb.models import ModelMeta
    from PIL.Image import Image
    from torch import Tensor


class DualEncoder(BatchEncoder):
    """A dual encoder of transformers, with a fusion for inputs that have an image and a text.

    Instructions are not shown to it. Texts are padded to the length that the model was trained with, which SigLIP needs
    (its text vector is that of the last position) and CLIP does not mind; longer ones are cut there.

    Args:
        spec: which one, and how to fuse.
        revision: of the repository; its newest when None.
        device: such as `cpu` or `cuda:0`; a GPU when None and there is one.
        dtype: of the weights; bfloat16 on a GPU and float32 on a CPU when None.

    Raises:
        CircusError: the model is no dual encoder.
        FormatError: a file or weights are missing.
    """

    mteb_model_meta: ModelMeta

    def __init__(
        self,
        spec: ModelSpec,
        *,
        revision: str | None = None,
        device: str | None = None,
        dtype: str | None = None,
    ) -> None:
        from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoTokenizer

        if spec.fusion is None:
            raise CircusError(f"{spec.source}: a dual encoder needs a fusion, one of {', '.join(Fusion)}")
        self.fusion = spec.fusion
        checkpoint = Checkpoint(spec.source, revision, device=device, dtype=dtype)
        pinned = spec.revision(revision, file="config.json")
        config = AutoConfig.from_pretrained(**checkpoint.source)
        self.model: Any = checkpoint.weights(AutoModel, config)
        if not (hasattr(self.model, "get_image_features") and hasattr(self.model, "get_text_features")):
            raise CircusError(f"{spec.source}: {type(self.model).__name__} has no vectors of single images and texts")
        self._tokenizer: Any = AutoTokenizer.from_pretrained(**checkpoint.source)
        self._processor: Any = AutoImageProcessor.from_pretrained(**checkpoint.source)
        self._length = min(self._tokenizer.model_max_length, self.model.config.text_config.max_position_embeddings)
        self.mteb_model_meta = _meta(spec.name, pinned, self.model, max_tokens=self._length)

    def embed_batch(self, batch: Mapping[str, Any], *, is_query: bool, instruction: str) -> Floats:  # noqa: ARG002
        """Embed one batch, not to unit length; see `BatchEncoder.embed_batch`.

        Raises:
            EmbeddingError: there are neither images nor texts, or the two have vectors of different lengths.
        """
        images = self.images(batch["image"]) if "image" in batch else None
        texts = self.texts(batch["text"]) if "text" in batch else None
        return fuse(images, texts, self.fusion)

    @torch.inference_mode()
    def images(self, images: Sequence[Image]) -> Floats:
        """Embed images: float32 [images, dim]."""
        pixels = self._processor(images=[image.convert("RGB") for image in images], return_tensors="pt")["pixel_values"]
        return _vectors(self.model.get_image_features(pixel_values=pixels.to(self.model.device, self.model.dtype)))

    @torch.inference_mode()
    def texts(self, texts: Sequence[str]) -> Floats:
        """Embed texts: float32 [texts, dim]."""
        tokens = self._tokenizer(
            list(texts), padding="max_length", max_length=self._length, truncation=True, return_tensors="pt"
        )
        return _vectors(self.model.get_text_features(**tokens.to(self.model.device)))


def fuse(images: Floats | None, texts: Floats | None, fusion: Fusion) -> Floats:
    """Fuse the vectors of images and texts, row by row.

    Args:
        images: float32 [n, dim]; None where the inputs have no image.
        texts: float32 [n, dim]; None where the inputs have no text.
        fusion: how. It matters only where there are both.

    Returns:
        float32 [n, dim]

    Raises:
        EmbeddingError: there are neither, or the shapes differ.
    """
    if images is None or texts is None:
        present = texts if images is None else images
        if present is None:
            raise EmbeddingError("a batch has neither 'image' nor 'text'")
        return present
    if images.shape != texts.shape:
        raise EmbeddingError(f"image vectors of shape {images.shape} and text vectors of shape {texts.shape}")
    match fusion:
        case Fusion.MEAN:
            return np.float32(0.5) * (to_unit_length(images) + to_unit_length(texts))
        case Fusion.SUM:
            return images + texts
        case Fusion.TEXT:
            return texts
        case Fusion.IMAGE:
            return images


def _vectors(output: Any) -> Floats:
    tensor: Tensor = getattr(output, "pooler_output", output)
    vectors: Floats = tensor.float().cpu().numpy()
    return vectors


def _meta(name: str, revision: str | None, model: Any, *, max_tokens: int) -> CircusModelMeta:
    n_bytes = sum(parameter.nbytes for parameter in model.parameters())
    return describe_model(
        None,
        name=name,
        revision=revision,
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        memory_usage_mb=round(n_bytes / 2**20, 1),
        max_tokens=max_tokens,
        framework=["PyTorch", "Transformers"],
        use_instructions=False,
    )
