"""The mini encoders as mteb knows them. Imports no torch: names and revisions are read from the checkpoint files."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

from mteb.models import ModelMeta
from mteb.models.model_meta import ScoringFunction

from circus_bench.errors import FormatError
from circus_bench.models.metas import CircusModelMeta

CHECKPOINTS = Path(__file__).parent / "checkpoints"
_PREFIX = "circus-bench/mini-"


def mini_metas() -> list[ModelMeta]:
    """The metadata of every checkpoint that is installed."""
    return [_meta(folder) for folder in sorted(CHECKPOINTS.iterdir()) if (folder / "model.safetensors").is_file()]


def checkpoint(model_name: str) -> Path:
    """The folder of an installed checkpoint.

    Raises:
        FormatError: there is none of that name.
    """
    folder = CHECKPOINTS / model_name.removeprefix(_PREFIX)
    if not (folder / "model.safetensors").is_file():
        raise FormatError(f"{folder}: no checkpoint of {model_name!r}; train it with circus_bench.models.mini.training")
    return folder


def revision(folder: Path) -> str:
    """The revision of a checkpoint: the first 12 hexadecimal digits of the SHA-256 of its weights."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:12]


def load(model_name: str, revision: str | None = None, **kwargs: Any) -> Any:
    """Load a mini encoder; the loader that mteb calls."""
    from circus_bench.models.mini.encoder import MiniEncoder

    return MiniEncoder(model_name, revision, **kwargs)


def _meta(folder: Path) -> ModelMeta:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    sizes = _sizes(folder / "model.safetensors")
    return CircusModelMeta(
        loader=load,
        name=_PREFIX + folder.name,
        revision=revision(folder),
        release_date=None,
        languages=["eng-Latn"],
        n_parameters=sum(sizes.values()),
        n_embedding_parameters=sizes["words.weight"],
        memory_usage_mb=round(4 * sum(sizes.values()) / 2**20, 1),  # computed in float32
        max_tokens=config["max_position_embeddings"],
        embed_dim=config["embedding_size"],
        license="apache-2.0",
        open_weights=True,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch", "Transformers", "safetensors"],
        similarity_fn_name=ScoringFunction.COSINE,
        use_instructions=False,
        training_datasets=set(),
        modalities=["text", "image"],
    )


def _sizes(path: Path) -> dict[str, int]:
    """The number of elements of each tensor, from the header of a safetensors file."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return {name: math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
