"""What mteb hands to an encoder: batches of images and texts, and the instruction of a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from circus_bench.errors import EmbeddingError

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from PIL.Image import Image


def columns(batch: Mapping[str, Any]) -> tuple[list[Image | None], list[str]]:
    """The images and texts of a batch, with None and the empty string for what is not there.

    Raises:
        EmbeddingError: it has neither.
    """
    there = [batch[name] for name in ("image", "text") if name in batch]
    if not there:
        raise EmbeddingError(f"a batch has neither 'image' nor 'text', but {sorted(batch)}")
    count = len(there[0])
    return list(batch.get("image", [None] * count)), [text or "" for text in batch.get("text", [""] * count)]


def task_instruction(task: TaskMetadata | None) -> str:
    """The instruction that a task gives to its queries, empty if it gives none.

    mteb's own way falls back to the prompt of the task's type, which would give the image-only condition an instruction
    that its task does not have.
    """
    prompt: Any = task.prompt if task is not None else None
    return (prompt.get("query") if isinstance(prompt, Mapping) else prompt) or ""
