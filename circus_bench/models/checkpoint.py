"""Read a published checkpoint, from the Hub or a folder, without the code that comes with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from circus_bench._typing import StrPath
from circus_bench.errors import FormatError, format_ids

if TYPE_CHECKING:
    import torch


class CheckpointOptions(TypedDict, total=False):
    """The keyword arguments of `Checkpoint`, and so of the loaders of our models."""

    path: StrPath | None
    device: str | None
    dtype: str | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The place of a checkpoint.

    Attributes:
        name: the repository on the Hub, or a folder.
        revision: of the repository; its newest when None.
        path: a folder to read instead.
        device: where its model computes; a GPU when None and there is one.
        dtype: `bfloat16`, `float16` or `float32`; bfloat16 on a GPU and float32 on a CPU when None.
    """

    name: str
    revision: str | None = None
    path: StrPath | None = None
    device: str | None = None
    dtype: str | None = None

    @property
    def where(self) -> str:
        """The folder that is read, or the repository."""
        return self.name if self.path is None else fspath(self.path)

    @property
    def source(self) -> dict[str, Any]:
        """The arguments for a `from_pretrained` of transformers."""
        revision = {"revision": self.revision} if self.revision and self.path is None else {}
        return {"pretrained_model_name_or_path": self.where, **revision}

    def file(self, filename: str) -> Path:
        """Find one file of the checkpoint, downloaded if need be.

        Raises:
            FormatError: the checkpoint has no such file, or cannot be reached.
        """
        from transformers.utils.hub import cached_file

        try:
            found = cached_file(self.where, filename, revision=self.revision)
        except OSError as error:
            raise FormatError(f"{self.where}: cannot read {filename}: {error}") from error
        if found is None:  # that is how it tells that a folder has no config.json
            raise FormatError(f"{self.where}: there is no {filename}")
        return Path(found)

    def json(self, filename: str) -> dict[str, Any]:
        """Read a JSON file of the checkpoint."""
        content: dict[str, Any] = json.loads(self.file(filename).read_text(encoding="utf-8"))
        return content

    def weights(self, model_class: Any, config: Any, *, renamed: Mapping[str, str] | None = None) -> Any:
        """Load the weights of the checkpoint into a model of a class, in evaluation mode.

        Args:
            model_class: of transformers.
            config: its configuration.
            renamed: patterns (regular expressions) of published names and what to put in their place.

        Raises:
            FormatError: the checkpoint lacks weights that the model has, or has them in another shape.
        """
        where, kind = placement(self.device, self.dtype)
        model, report = model_class.from_pretrained(
            **self.source,
            config=config,
            dtype=kind,
            device_map=where,
            key_mapping=dict(renamed) if renamed else None,
            ignore_mismatched_sizes=True,  # they are refused below, with the names
            output_loading_info=True,
        )
        mismatched = (key[0] if isinstance(key, tuple) else key for key in report["mismatched_keys"])
        missing = sorted({*report["missing_keys"], *mismatched})
        if missing:
            # transformers fills them with random numbers and goes on.
            raise FormatError(
                f"{self.where}: weights of {model_class.__name__} are missing or of another shape "
                f"({format_ids(missing)})"
            )
        return model.eval()


def placement(device: str | None, dtype: str | None) -> tuple[torch.device, torch.dtype]:
    """Choose the device and the dtype of a model; see `Checkpoint`."""
    import torch

    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    kind: torch.dtype = getattr(torch, dtype) if dtype else torch.bfloat16 if where.type == "cuda" else torch.float32
    return where, kind
