"""Adapt encoders to the pipeline: embed images, documents and queries."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from circus_bench.encoding.encoder import to_numpy
from circus_bench.errors import EmbeddingError
from circus_bench.inputs import Input, Inputs, collate

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol

Floats = NDArray[np.float32]


class PromptRole(StrEnum):
    """Prompt type of a text; text encoders tell the two apart."""

    QUERY = "query"
    DOCUMENT = "document"


class EmbedderProtocol(Protocol):
    """Encoder of images, of texts, or of both."""

    def images(self, files: Sequence[bytes]) -> Floats:
        """Encode images: float32 [n, dim]."""
        ...

    def texts(self, texts: Sequence[str], *, role: PromptRole) -> Floats:
        """Encode texts: float32 [n, dim]."""
        ...


class MtebEmbedder:
    """Embedder around an mteb encoder; threads take turns, for not every encoder is thread-safe.

    Args:
        encoder: follows mteb's `EncoderProtocol`.
        batch_size: inputs per forward pass.
    """

    def __init__(self, encoder: EncoderProtocol, *, batch_size: int = 32) -> None:
        self._encoder = encoder
        self._batch_size = batch_size
        self._lock = threading.Lock()

    @classmethod
    def load(cls, name: str, *, device: str | None = None, batch_size: int = 32) -> MtebEmbedder:
        """Load an encoder.

        Args:
            name: of a model of `circus_bench.models.load_encoder`, or `<name>@<revision>`.
            device: such as `cuda:0`; the model's own choice when None.
            batch_size: inputs per forward pass.
        """
        from circus_bench.models import load_encoder

        model, _, revision = name.partition("@")
        return cls(load_encoder(model, revision=revision or None, device=device), batch_size=batch_size)

    def images(self, files: Sequence[bytes]) -> Floats:
        """See `EmbedderProtocol`."""
        named = {str(place): data for place, data in enumerate(files)}
        # Decoded one batch at a time. Of an input only the image is looked at.
        return self._encode(Inputs([Input(place, "", (0, 0)) for place in named], named), PromptRole.DOCUMENT)

    def texts(self, texts: Sequence[str], *, role: PromptRole) -> Floats:
        """See `EmbedderProtocol`."""
        from datasets import Dataset

        return self._encode(Dataset.from_dict({"text": list(texts)}), role)

    def _encode(self, data: Any, role: PromptRole) -> Floats:
        from mteb import TaskMetadata
        from mteb.types import PromptType
        from torch.utils.data import DataLoader

        modality: Literal["image", "text"] = "image" if "image" in data.column_names else "text"
        loader: DataLoader[Any] = DataLoader(data, batch_size=self._batch_size, collate_fn=collate)
        # Under this name mteb finds no prompt of a registered task, only the model's own for queries and documents.
        task = TaskMetadata(
            name="CIRCUS-RMIR-candidates",
            description="Search for images that may answer a question.",
            dataset={"path": "rmir", "revision": "candidates"},
            type="Any2AnyRetrieval" if modality == "image" else "Retrieval",
            category="i2i" if modality == "image" else "t2t",
            modalities=[modality],
            eval_langs=["eng-Latn"],
            main_score="hit_rate_at_10",
        )
        with self._lock:
            output: Any = self._encoder.encode(
                loader,
                task_metadata=task,
                hf_split="test",
                hf_subset="default",
                prompt_type=PromptType.query if role is PromptRole.QUERY else PromptType.document,
                batch_size=self._batch_size,
                show_progress_bar=False,
            )
        vectors = to_numpy(output)
        if vectors.ndim != 2 or len(vectors) != len(data):
            raise EmbeddingError(f"the encoder gave shape {vectors.shape} for {len(data)} inputs")
        return vectors
