"""Encode what mteb hands over, batch by batch: images and texts, and the instruction of a task."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from mteb.models.abs_encoder import AbsEncoder
from mteb.types import PromptType
from tqdm import tqdm

from circus_bench.errors import EmbeddingError

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import BatchedInput
    from PIL.Image import Image
    from torch.utils.data import DataLoader


class BatchEncoder(AbsEncoder):
    """An encoder that embeds one batch after another."""

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
            inputs: batches with the key `image` (PIL images of any size and mode), `text`, or both.
            task_metadata: its `prompt` is the instruction of queries; none is used when it has none.
            hf_split: not used.
            hf_subset: not used.
            prompt_type: documents get no instruction of the task; whatever is not a document is a query.
            show_progress_bar: whether to show a progress bar.
            kwargs: not used; mteb passes the batch size, which the loader already has.

        Returns:
            float32 [inputs, dim].

        Raises:
            EmbeddingError: a batch has neither images nor texts, or an input cannot be shown to the model.
        """
        is_query = prompt_type != PromptType.document
        instruction = task_instruction(task_metadata) if is_query else ""
        batches = tqdm(inputs, desc="encoding", disable=not show_progress_bar)
        return np.concatenate(
            [self.embed_batch(batch, is_query=is_query, instruction=instruction) for batch in batches]
        )

    @abstractmethod
    def embed_batch(self, batch: Mapping[str, Any], *, is_query: bool, instruction: str) -> npt.NDArray[np.float32]:
        """Embed one batch.

        Args:
            batch: has the key `image`, `text`, or both.
            is_query: queries, or else documents of the gallery.
            instruction: of the task, empty for documents.

        Returns:
            float32 [inputs, dim].
        """

    def __repr__(self) -> str:
        meta = self.mteb_model_meta
        return f"{type(self).__name__}({meta.name if meta else ''})"


def columns(batch: Mapping[str, Any]) -> tuple[list[Image | None], list[str]]:
    """List the images and texts of a batch, with None and the empty string for what is not there.

    Raises:
        EmbeddingError: it has neither.
    """
    there = [batch[name] for name in ("image", "text") if name in batch]
    if not there:
        raise EmbeddingError(f"a batch has neither 'image' nor 'text', but {sorted(batch)}")
    count = len(there[0])
    return list(batch.get("image", [None] * count)), [text or "" for text in batch.get("text", [""] * count)]


def task_instruction(task: TaskMetadata | None) -> str:
    """Return the instruction that a task gives to its queries, empty if it gives none.

    mteb's own way falls back to the prompt of the task's type, which would give the image-only condition an instruction
    that its task does not have.
    """
    prompt: Any = task.prompt if task is not None else None
    return (prompt.get("query") if isinstance(prompt, Mapping) else prompt) or ""
