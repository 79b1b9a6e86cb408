"""Describe the mini encoders to mteb, from their checkpoint files. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

from mteb.models import ModelMeta

from circus_bench._typing import StrPath
from circus_bench.errors import FormatError
from circus_bench.models.metas import describe_model

CHECKPOINTS = Path(__file__).parent / "checkpoints"
_PREFIX = "circus-bench/mini-"


def mini_metas() -> list[ModelMeta]:
    """Describe every checkpoint that is installed."""
    return [_meta(folder) for folder in sorted(CHECKPOINTS.iterdir()) if (folder / "model.safetensors").is_file()]


def checkpoint(model_name: str) -> Path:
    """Find the folder of an installed checkpoint.

    Raises:
        FormatError: there is none of that name.
    """
    folder = CHECKPOINTS / model_name.removeprefix(_PREFIX)
    if not (folder / "model.safetensors").is_file():
        raise FormatError(f"{folder}: no checkpoint of {model_name!r}; train it with circus_bench.models.mini.training")
    return folder


def revision(folder: StrPath) -> str:
    """Return the revision of a checkpoint: the first 12 hexadecimal digits of the SHA-256 of its weights."""
    return hashlib.sha256((Path(folder) / "model.safetensors").read_bytes()).hexdigest()[:12]


def load(
    model_name: str,
    revision: str | None = None,  # noqa: ARG001
    *,
    device: str | None = None,
    folder: StrPath | None = None,
) -> Any:
    """Load a mini encoder; the loader that mteb calls.

    Args:
        model_name: `circus-bench/mini-...`.
        revision: recorded by mteb; the installed weights are the only ones there are.
        device: where to compute; a GPU when None and there is one.
        folder: a checkpoint folder to load instead of the installed one.
    """
    from circus_bench.models.mini.encoder import MiniEncoder

    return MiniEncoder(folder or checkpoint(model_name), device=device)


def _meta(folder: Path) -> ModelMeta:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    sizes = _sizes(folder / "model.safetensors")
    return describe_model(
        load,
        name=_PREFIX + folder.name,
        revision=revision(folder),
        languages=["eng-Latn"],
        n_parameters=sum(sizes.values()),
        n_embedding_parameters=sizes["words.weight"],
        memory_usage_mb=round(4 * sum(sizes.values()) / 2**20, 1),  # computed in float32
        max_tokens=config["max_position_embeddings"],
        embed_dim=config["embedding_size"],
        license="apache-2.0",
        use_instructions=False,
        training_datasets=set(),
    )


def _sizes(path: Path) -> dict[str, int]:
    """Count the elements of each tensor, from the header of a safetensors file."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return {name: math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
