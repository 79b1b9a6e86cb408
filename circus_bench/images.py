"""Image bytes to RGB pixels, under written rules.

A file is decoded in the same way everywhere, so that its digest means the same everywhere:

1. The first frame of an animation or multi-page file is used (flag `animated`).
2. The EXIF orientation is applied. Metadata that cannot be read are ignored (flag `broken_metadata`).
3. 16-bit grey is rescaled by its bit depth; other integer or float modes wider than 8 bits are refused, for their
   range is unknown.
4. Transparency, in a channel or a palette, is composited over white (flag `alpha`).
5. CMYK and YCCK (flag `cmyk`), palette and grey are converted to RGB. ICC profiles are ignored.
6. An image with a side under `MIN_SIDE` pixels is centred on white (flag `padded`): image processors mistake a side of
   1 or 3 pixels for the channel axis.

What cannot be decoded in full (empty, not an image, truncated, corrupt, too large) is an `UnreadableImageError` with a
reason. Nothing is ever put in its place.
"""

from __future__ import annotations

import hashlib
import io
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from circus_bench.distributed import ALONE, Processes
from circus_bench.errors import FormatError, ImageError
from circus_bench.io import open_parquet, write_row_groups

if TYPE_CHECKING:
    import pyarrow as pa

MIN_SIDE = 28  # the patch grid of the Qwen-VL family, the largest among the pool's processors
MAX_PIXELS = 89_478_485  # Pillow's own threshold for a suspected decompression bomb

_EXIF_ORIENTATION = 0x0112
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_METADATA_ERRORS = (UnicodeDecodeError, SyntaxError, ValueError, KeyError, TypeError, OSError, struct.error)


class Unreadable(StrEnum):
    """Why an image is in quarantine."""

    MISSING = "missing"
    EMPTY = "empty"
    NOT_AN_IMAGE = "not_an_image"
    TRUNCATED = "truncated"
    CORRUPT = "corrupt"
    TOO_LARGE = "too_large"
    UNKNOWN_RANGE = "unknown_range"


class ImageFlag(StrEnum):
    """What a reader of the result should know about how an image was decoded."""

    ANIMATED = "animated"
    ALPHA = "alpha"
    BROKEN_METADATA = "broken_metadata"
    CMYK = "cmyk"
    PADDED = "padded"
    ROTATED = "rotated"
    SIXTEEN_BIT = "sixteen_bit"


class UnreadableImageError(ImageError):
    """An image cannot be decoded in full.

    Attributes:
        reason: the class of the failure.
    """

    def __init__(self, reason: Unreadable, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Decoded:
    """An RGB image and the flags raised while decoding it."""

    image: Image.Image
    flags: frozenset[ImageFlag]


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What is known of a decodable image without keeping its pixels.

    Attributes:
        digest: see `digest`.
        width: pixels, after orientation and padding.
        height: pixels, after orientation and padding.
        flags: see `ImageFlag`.
    """

    digest: str
    width: int
    height: int
    flags: frozenset[ImageFlag] = frozenset()

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.width, self.height


@dataclass(frozen=True, slots=True)
class Inspection:
    """The outcome of decoding a set of images once.

    Attributes:
        readable: image id to its facts.
        unreadable: image id to the reason of its quarantine.
    """

    readable: Mapping[str, ImageInfo]
    unreadable: Mapping[str, Unreadable]


def decode(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Decoded:
    """Decode image bytes to RGB under the rules in this module's docstring.

    Args:
        data: the bytes of an image file.
        max_pixels: width times height above which the image is refused.

    Raises:
        UnreadableImageError: the image cannot be decoded in full.
    """
    if not data:
        raise UnreadableImageError(Unreadable.EMPTY, "0 bytes")
    flags: set[ImageFlag] = set()
    image = _open(data, max_pixels)
    # A multi-picture JPEG is one photograph with previews, not an animation.
    if getattr(image, "is_animated", False) and image.format != "MPO":
        flags.add(ImageFlag.ANIMATED)
    orientation, metadata_read = _orientation(image)
    if not metadata_read:
        flags.add(ImageFlag.BROKEN_METADATA)
    _load(image)
    rgb = _to_rgb(image, flags)
    if orientation in _TRANSPOSE:
        if image.format != "TIFF":  # Pillow turns a TIFF itself while loading it
            rgb = rgb.transpose(_TRANSPOSE[orientation])
        flags.add(ImageFlag.ROTATED)
    if min(rgb.size) < MIN_SIDE:
        rgb = _pad(rgb)
        flags.add(ImageFlag.PADDED)
    return Decoded(rgb, frozenset(flags))


def digest(image: Image.Image) -> str:
    """SHA-256 over mode, size and pixels: equal for equal pictures, whatever file they came from.

    Example:
        >>> digest(black((100, 50))) == digest(black((50, 100)))
        False
    """
    head = f"{image.mode} {image.width} {image.height}\n".encode()
    return hashlib.sha256(head + image.tobytes()).hexdigest()


def black(size: tuple[int, int]) -> Image.Image:
    """The all-black RGB image of `size` = (width, height) that stands in for a reference in the text-only condition."""
    return Image.new("RGB", size)


def inspect_images(
    images: Mapping[str, bytes],
    ids: Iterable[str],
    *,
    trust_records: bool = True,
    advance: Callable[[], object] = lambda: None,
    processes: Processes = ALONE,
) -> Inspection:
    """Decode every image once and keep its facts, or the reason why it cannot be decoded.

    Args:
        images: image id to the bytes of its file.
        ids: the images wanted. An id absent from `images` is `Unreadable.MISSING`.
        trust_records: take the facts that `ParquetImages` recorded when it was written, without decoding again.
        advance: called after each image, for a progress bar.
        processes: those that share the work; every one of them has to call this.
    """
    wanted = list(dict.fromkeys(ids))
    recorded = images.inspection if trust_records and isinstance(images, ParquetImages) else Inspection({}, {})
    facts: dict[str, ImageInfo | Unreadable] = {**recorded.readable, **recorded.unreadable}
    unknown = [image_id for image_id in wanted if image_id not in facts]
    for _ in range(len(wanted) - len(unknown)):
        advance()

    def inspect_share() -> dict[str, ImageInfo | Unreadable]:
        # Neighbours lie together in most files, so a share is a run of them.
        first, last = (len(unknown) * rank // processes.count for rank in (processes.rank, processes.rank + 1))
        found: dict[str, ImageInfo | Unreadable] = {}
        for image_id in unknown[first:last]:
            found[image_id] = _facts(images.get(image_id))
            advance()
        for _ in range(len(unknown) - (last - first)):  # by the others, at the same pace
            advance()
        return found

    for part in processes.everywhere("decoding images", inspect_share) if unknown else ():
        facts |= part
    found = {image_id: facts[image_id] for image_id in wanted}
    return Inspection(
        {image_id: info for image_id, info in found.items() if isinstance(info, ImageInfo)},
        {image_id: reason for image_id, reason in found.items() if isinstance(reason, Unreadable)},
    )


class ImageFiles(Mapping[str, bytes]):
    """Images that lie in files: id to path. The bytes are read when asked for.

    Args:
        paths: image id to file path. A path that does not exist counts as absent.
    """

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = dict(paths)

    @classmethod
    def folder(
        cls,
        folder: Path,
        *,
        suffixes: tuple[str, ...] = (".jpg", ".jpeg", ".png", ".webp"),
        image_id: Callable[[Path], str | None] = lambda path: path.stem,
    ) -> ImageFiles:
        """Take every image file under `folder`, at any depth.

        Args:
            folder: the folder.
            suffixes: the ends of the names of image files.
            image_id: the id of the image in a file, or None for a file to pass over. By default the file name without
                its suffix.

        Raises:
            ImageError: two files share an id, or the folder does not exist.
        """
        if not folder.is_dir():
            raise ImageError(f"{folder}: no such folder of images")
        paths: dict[str, Path] = {}
        for path in sorted(folder.rglob("*")):
            identifier = image_id(path) if path.suffix.lower() in suffixes else None
            if identifier is None:
                continue
            if identifier in paths:
                raise ImageError(f"{folder}: {paths[identifier]} and {path} share the id {identifier!r}")
            paths[identifier] = path
        return cls(paths)

    def __getitem__(self, image_id: str) -> bytes:
        try:
            return self._paths[image_id].read_bytes()
        except FileNotFoundError:
            raise KeyError(image_id) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class ParquetImages(Mapping[str, bytes]):
    """Images in a parquet file, as `write` makes it. Only a few row groups are in memory at a time.

    Attributes:
        inspection: the facts recorded when the file was written.
    """

    _KEPT_GROUPS = 8
    _ROWS_PER_GROUP = 64

    def __init__(self, path: Path) -> None:
        columns = ["id", "digest", "width", "height", "flags", "unreadable"]
        self._file = open_parquet(path, schema=_image_schema())
        self._groups: dict[int, Mapping[str, bytes]] = {}
        self._group_of: dict[str, int] = {}
        readable: dict[str, ImageInfo] = {}
        unreadable: dict[str, Unreadable] = {}
        try:
            for group in range(self._file.num_row_groups):
                for row in self._file.read_row_group(group, columns=columns).to_pylist():
                    if row["unreadable"] != Unreadable.MISSING:
                        self._group_of[row["id"]] = group
                    if row["unreadable"]:
                        unreadable[row["id"]] = Unreadable(row["unreadable"])
                    else:
                        flags = frozenset(map(ImageFlag, row["flags"]))
                        readable[row["id"]] = ImageInfo(row["digest"], row["width"], row["height"], flags)
        except (TypeError, ValueError) as error:
            raise FormatError(f"{path}: {error}; see docs/formats.md") from error
        self.inspection = Inspection(readable, unreadable)

    @classmethod
    def write(cls, path: Path, images: Mapping[str, bytes], *, inspection: Inspection) -> None:
        """Write the inspected images with their original bytes, unreadable ones too, and with what was found."""
        ids = [*inspection.readable, *inspection.unreadable]
        groups = (ids[start : start + cls._ROWS_PER_GROUP] for start in range(0, len(ids), cls._ROWS_PER_GROUP))
        tables = (_image_table([_image_row(i, images.get(i), inspection) for i in group]) for group in groups)
        write_row_groups(path, tables, schema=_image_schema())

    def __getitem__(self, image_id: str) -> bytes:
        group = self._group_of[image_id]
        if group not in self._groups:
            while len(self._groups) >= self._KEPT_GROUPS:
                self._groups.pop(next(iter(self._groups)))
            table = self._file.read_row_group(group, columns=["id", "bytes"])
            self._groups[group] = dict(zip(table["id"].to_pylist(), table["bytes"].to_pylist(), strict=True))
        return self._groups[group][image_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._group_of)

    def __len__(self) -> int:
        return len(self._group_of)


def _image_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("id", pa.string()),
            ("bytes", pa.large_binary()),
            ("digest", pa.string()),
            ("width", pa.int32()),
            ("height", pa.int32()),
            ("flags", pa.list_(pa.string())),
            ("unreadable", pa.string()),
        ]
    )


def _image_row(image_id: str, data: bytes | None, inspection: Inspection) -> dict[str, object]:
    info = inspection.readable.get(image_id)
    if info is None:
        return {"id": image_id, "bytes": data, "unreadable": inspection.unreadable[image_id].value}
    facts = {"digest": info.digest, "width": info.width, "height": info.height, "flags": sorted(info.flags)}
    return {"id": image_id, "bytes": data, **facts}


def _image_table(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=_image_schema())


def _facts(data: bytes | None) -> ImageInfo | Unreadable:
    if data is None:
        return Unreadable.MISSING
    try:
        decoded = decode(data)
    except UnreadableImageError as error:
        return error.reason
    return ImageInfo(digest(decoded.image), *decoded.image.size, decoded.flags)


def _open(data: bytes, max_pixels: int) -> Image.Image:
    try:
        with warnings.catch_warnings():
            # The size is checked below, against a limit of our own; metadata are judged by `_orientation`.
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        raise UnreadableImageError(Unreadable.NOT_AN_IMAGE, f"starts with {data[:16]!r}") from None
    except Image.DecompressionBombError as error:
        raise UnreadableImageError(Unreadable.TOO_LARGE, f"the limit is {max_pixels:,} pixels ({error})") from error
    except MemoryError:
        raise
    except Exception as error:  # Pillow's readers raise whatever they come across
        raise UnreadableImageError(Unreadable.CORRUPT, str(error)) from error
    if image.width * image.height > max_pixels:
        detail = f"{image.width} x {image.height} pixels, the limit is {max_pixels:,}"
        raise UnreadableImageError(Unreadable.TOO_LARGE, detail)
    return image


def _load(image: Image.Image) -> None:
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ImageError("PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, so damaged images would pass unnoticed; unset it")
    try:
        image.load()
    except MemoryError:
        raise
    except Exception as error:  # see `_open`
        reason = Unreadable.TRUNCATED if "truncat" in str(error).lower() else Unreadable.CORRUPT
        raise UnreadableImageError(reason, str(error)) from error


def _orientation(image: Image.Image) -> tuple[int, bool]:
    """The EXIF orientation (1 when there is none), and whether all metadata could be read."""
    orientation, complete = 1, True
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        try:
            orientation = image.getexif().get(_EXIF_ORIENTATION, 1)
        except _METADATA_ERRORS:
            complete = False
        # The EXIF block alone: `getexif` also looks into XMP, which may be the only broken part, and Pillow reads a
        # JPEG's block when it opens the file and drops the error.
        exif = Image.Exif()
        try:
            exif.load(image.info.get("exif", b""))
            orientation = exif.get(_EXIF_ORIENTATION, orientation)
        except _METADATA_ERRORS:
            complete = False
    return orientation, complete and not complaints


def _to_rgb(image: Image.Image, flags: set[ImageFlag]) -> Image.Image:
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        flags.add(ImageFlag.SIXTEEN_BIT)
        values = np.asarray(image).astype(np.uint32)
        grey = ((values + 128) // 257).astype(np.uint8)
        if (transparent := image.info.get("transparency")) is not None:
            flags.add(ImageFlag.ALPHA)
            grey[values == transparent] = 255
        return Image.fromarray(grey).convert("RGB")
    if image.mode in {"I", "F"}:
        raise UnreadableImageError(Unreadable.UNKNOWN_RANGE, f"{image.format} of mode {image.mode}")
    if image.mode == "CMYK":  # Pillow decodes YCCK to it too
        flags.add(ImageFlag.CMYK)
    if image.has_transparency_data:
        flags.add(ImageFlag.ALPHA)
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB")


def _pad(image: Image.Image) -> Image.Image:
    size = (max(image.width, MIN_SIDE), max(image.height, MIN_SIDE))
    canvas = Image.new("RGB", size, "white")
    canvas.paste(image, ((size[0] - image.width) // 2, (size[1] - image.height) // 2))
    return canvas
