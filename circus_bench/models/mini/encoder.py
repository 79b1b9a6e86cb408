"""Encode with a mini model behind mteb's encoder interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from circus_bench._typing import StrPath
from circus_bench.errors import EmbeddingError
from circus_bench.models.batches import BatchEncoder
from circus_bench.models.mini.modeling import MiniModel
from circus_bench.models.mini.processing import pixels, tokenize
from circus_bench.models.mini.threads import one_thread


class MiniEncoder(BatchEncoder):
    """A mini encoder: images, texts or pairs of both to unit vectors.

    An image without text is fused with an empty text, and a text without image with learned slots for "no image"; a
    black image is encoded like any other. Queries and gallery images are treated alike; instructions are not used.

    Args:
        folder: of the checkpoint.
        device: where to compute; a GPU when None and there is one.
    """

    def __init__(self, folder: StrPath, *, device: str | None = None) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        with _quiet():
            model: Any = MiniModel.from_pretrained(folder, dtype=torch.float32)
        self.model: Any = model.to(self.device).eval()
        self.tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(folder)

    @torch.inference_mode()
    def embed_batch(self, batch: Mapping[str, Any], *, is_query: bool, instruction: str) -> npt.NDArray[np.float32]:  # noqa: ARG002
        """Embed one batch to unit vectors; see `BatchEncoder.embed_batch`."""
        pixel_values = input_ids = attention_mask = None
        if "image" in batch:
            pixel_values = pixels(batch["image"], self.model.config.image_size).to(self.device)
        if "text" in batch:
            input_ids, attention_mask = (part.to(self.device) for part in tokenize(self.tokenizer, batch["text"]))
        if pixel_values is None and input_ids is None:
            raise EmbeddingError(f"a batch has neither 'image' nor 'text', but {sorted(batch)}")
        with one_thread():
            embeddings: npt.NDArray[np.float32] = self.model(pixel_values, input_ids, attention_mask).cpu().numpy()
        return embeddings


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from drawing a progress bar over a load that takes milliseconds."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
