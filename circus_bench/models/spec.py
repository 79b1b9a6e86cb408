"""Name models that mteb's registry need not know: `st:SOURCE` and `dual:FUSION:SOURCE`.

SOURCE is a folder or a repository on the Hub. `st:` takes a sentence-transformers model that reads an image and a text
at once; `dual:` takes one encoder for images and one for texts, such as CLIP or SigLIP, and says how their vectors are
brought together.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from circus_bench.errors import CircusError
from circus_bench.models.checkpoint import Checkpoint


class Fusion(StrEnum):
    """A fusion of the vectors of an image and of a text into one."""

    MEAN = "mean"
    """The mean of the two unit vectors: both have the same say."""
    SUM = "sum"
    """The sum of the vectors as they come: the longer one has more say. mteb's loaders of CLIP and SigLIP do this."""
    TEXT = "text"
    """The text alone, where there is one."""
    IMAGE = "image"
    """The image alone, where there is one."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model named by its source.

    Attributes:
        source: a folder, or a repository on the Hub.
        fusion: how image and text are brought together; None for a sentence-transformers model.
    """

    source: str
    fusion: Fusion | None

    @property
    def name(self) -> str:
        """The name that Runs carry; it differs between fusions, and from the model's own loader in mteb."""
        folder = Path(self.source)
        base = f"local/{folder.resolve().name}" if folder.is_dir() else self.source
        return f"{base}+{self.fusion or 'st'}"

    def revision(self, wanted: str | None, *, file: str) -> str | None:
        """Identify the weights.

        Args:
            wanted: the revision that was asked for.
            file: a file that the model has.

        Returns:
            The commit, for a repository; for a folder the first 12 hexadecimal digits of the SHA-256 of its files.

        Raises:
            FormatError: there is no such file.
        """
        folder = Path(self.source)
        found = Checkpoint(self.source, wanted).file(file)
        if folder.is_dir():
            return _digest(folder)
        # The cache of the Hub keeps a file under snapshots/COMMIT/.
        parts = found.parts
        return parts[parts.index("snapshots") + 1] if "snapshots" in parts else wanted


def parse_model_spec(name: str) -> ModelSpec | None:
    """Parse `st:SOURCE` or `dual:FUSION:SOURCE`; None for any other name.

    Raises:
        CircusError: there is no such fusion, no source, or neither a folder nor a repository can have that name.

    Example:
        >>> parse_model_spec("dual:mean:openai/clip-vit-base-patch32").name
        'openai/clip-vit-base-patch32+mean'
    """
    scheme, _, rest = name.partition(":")
    if scheme not in {"st", "dual"}:
        return None
    fusion = None
    if scheme == "dual":
        wanted, _, rest = rest.partition(":")
        if wanted not in set(Fusion):
            raise CircusError(
                f"{name!r}: no fusion {wanted!r}; write dual:FUSION:SOURCE with one of {', '.join(Fusion)}"
            )
        fusion = Fusion(wanted)
    if not rest or (not Path(rest).is_dir() and (rest.count("/") != 1 or not all(rest.split("/")))):
        raise CircusError(f"{name!r}: {rest!r} is neither a folder nor a name such as organization/model")
    return ModelSpec(rest, fusion)


def _digest(folder: Path) -> str:
    content = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            content.update(f"{path.relative_to(folder).as_posix()} ".encode())
            content.update(hashlib.file_digest(file, "sha256").digest())
    return content.hexdigest()[:12]
