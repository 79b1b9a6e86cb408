"""Dual encoders such as CLIP and SigLIP: a vector for an image, one for a text, and a named way to fuse the two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ScoringFunction
from tqdm import tqdm

from circus_bench.errors import CircusError, EmbeddingError
from circus_bench.models.checkpoint import Checkpoint
from circus_bench.models.metas import CircusModelMeta
from circus_bench.models.spec import Choice, Fusion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from mteb.types import BatchedInput, PromptType
    from PIL.Image import Image
    from torch import Tensor
    from torch.utils.data import DataLoader

Floats = npt.NDArray[np.float32]


class DualEncoder(AbsEncoder):
    """A dual encoder of transformers, with a fusion for inputs that have an image and a text.

    Instructions are not shown to it. Texts are padded to the length that the model was trained with, which SigLIP needs
    (its text vector is that of the last position) and CLIP does not mind; longer ones are cut there.

    Args:
        choice: which one, and how to fuse.
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
        choice: Choice,
        *,
        revision: str | None = None,
        device: str | None = None,
        dtype: str | None = None,
    ) -> None:
        from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoTokenizer

        if choice.fusion is None:
            raise CircusError(f"{choice.source}: a dual encoder needs a fusion, one of {', '.join(Fusion)}")
        self.fusion = choice.fusion
        checkpoint = Checkpoint(choice.source, revision)
        pinned = choice.revision(revision, file="config.json")
        config = AutoConfig.from_pretrained(**checkpoint.source)
        self.model: Any = checkpoint.weights(AutoModel, config, device=device, dtype=dtype)
        if not (hasattr(self.model, "get_image_features") and hasattr(self.model, "get_text_features")):
            raise CircusError(f"{choice.source}: {type(self.model).__name__} has no vectors of single images and texts")
        self._tokenizer: Any = AutoTokenizer.from_pretrained(**checkpoint.source)
        self._processor: Any = AutoImageProcessor.from_pretrained(**checkpoint.source)
        self._length = min(self._tokenizer.model_max_length, self.model.config.text_config.max_position_embeddings)
        self.mteb_model_meta = _meta(choice.name, pinned, self.model, max_tokens=self._length)

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata | None = None,  # noqa: ARG002
        hf_split: str = "",  # noqa: ARG002
        hf_subset: str = "",  # noqa: ARG002
        prompt_type: PromptType | None = None,  # noqa: ARG002
        show_progress_bar: bool = False,
        **kwargs: Any,  # noqa: ARG002
    ) -> Floats:
        """Embed every batch of a loader.

        Args:
            inputs: batches with the key `image` (PIL images), `text`, or both.
            task_metadata: not used.
            hf_split: not used.
            hf_subset: not used.
            prompt_type: not used.
            show_progress_bar: whether to show a progress bar.
            kwargs: not used; mteb passes the batch size, which the loader already has.

        Returns:
            float32 [inputs, dim], not of unit length.

        Raises:
            EmbeddingError: a batch has neither images nor texts, or the two have vectors of different lengths.
        """
        return np.concatenate([self._embed(batch) for batch in tqdm(inputs, disable=not show_progress_bar)])

    def _embed(self, batch: Any) -> Floats:
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
    """Bring the vectors of images and texts together, row by row.

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
            return np.float32(0.5) * (_unit(images) + _unit(texts))
        case Fusion.SUM:
            return images + texts
        case Fusion.TEXT:
            return texts
        case Fusion.IMAGE:
            return images


def _unit(vectors: Floats) -> Floats:
    unit: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _vectors(output: Any) -> Floats:
    tensor: Tensor = getattr(output, "pooler_output", output)
    vectors: Floats = tensor.float().cpu().numpy()
    return vectors


def _meta(name: str, revision: str | None, model: Any, *, max_tokens: int) -> CircusModelMeta:
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    n_bytes = sum(parameter.nbytes for parameter in model.parameters())
    return CircusModelMeta(
        loader=None,
        name=name,
        revision=revision,
        release_date=None,
        languages=None,
        n_parameters=n_parameters,
        memory_usage_mb=round(n_bytes / 2**20, 1),
        max_tokens=max_tokens,
        embed_dim=None,
        license=None,
        open_weights=True,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch", "Transformers"],
        similarity_fn_name=ScoringFunction.COSINE,
        use_instructions=False,
        training_datasets=None,
        modalities=["text", "image"],
    )
