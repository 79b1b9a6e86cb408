"""The mini encoders behind mteb's encoder interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from mteb.models.abs_encoder import AbsEncoder
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from circus_bench.errors import EmbeddingError
from circus_bench.models.mini.meta import checkpoint
from circus_bench.models.mini.modeling import MiniModel
from circus_bench.models.mini.processing import pixels, tokenize
from circus_bench.models.mini.threads import one_thread

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import BatchedInput, PromptType
    from torch.utils.data import DataLoader


class MiniEncoder(AbsEncoder):
    """A mini encoder: images, texts or pairs of both to unit vectors.

    An image without text is fused with an empty text, and a text without image with learned slots for "no image"; a
    black image is encoded like any other. Queries and gallery images are treated alike; instructions are not used.

    Args:
        model_name: `circus-bench/mini-...`.
        revision: recorded by mteb; the installed weights are the only ones there are.
        device: where to compute; a GPU when None and there is one.
        folder: a checkpoint folder to load instead of the installed one.
    """

    def __init__(
        self,
        model_name: str,
        revision: str | None = None,  # noqa: ARG002
        *,
        device: str | None = None,
        folder: Path | None = None,
    ) -> None:
        path = folder or checkpoint(model_name)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        with _quiet():
            model: Any = MiniModel.from_pretrained(path, dtype=torch.float32)
        self.model: Any = model.to(self.device).eval()
        self.tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(path)

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
    ) -> npt.NDArray[np.float32]:
        """Embed every batch of a loader.

        Args:
            inputs: batches with the key `image` (PIL images of any size), `text`, or both.
            task_metadata: not used.
            hf_split: not used.
            hf_subset: not used.
            prompt_type: not used.
            show_progress_bar: whether to show a progress bar.
            kwargs: not used; mteb passes the batch size, which the loader already has.

        Returns:
            float32 unit vectors, shape (inputs, 192).

        Raises:
            EmbeddingError: a batch has neither images nor texts.
        """
        batches = tqdm(inputs, desc="encoding", disable=not show_progress_bar)
        with one_thread():
            return np.concatenate([self._embed(batch) for batch in batches])

    @torch.inference_mode()
    def _embed(self, batch: Any) -> npt.NDArray[np.float32]:
        pixel_values = input_ids = attention_mask = None
        if "image" in batch:
            pixel_values = pixels(batch["image"], self.model.config.image_size).to(self.device)
        if "text" in batch:
            input_ids, attention_mask = (part.to(self.device) for part in tokenize(self.tokenizer, batch["text"]))
        if pixel_values is None and input_ids is None:
            raise EmbeddingError(f"a batch has neither 'image' nor 'text', but {sorted(batch)}")
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
