"""Decode images to RGB under written rules, compute their digests, and read and write them in files and parquet.

A file is decoded in the same way on every machine, so that its digest means the same on all of them:

1. The first frame of an animation or multi-page file is used (flag `animated`).
2. The EXIF orientation is applied. Metadata that cannot be read are ignored (flag `broken_metadata`).
3. 16-bit gray is rescaled by its bit depth; other integer or float modes wider than 8 bits are refused, for their
   range is unknown.
4. Transparency, in a channel or a palette, is composited over white (flag `alpha`).
5. CMYK and YCCK (flag `cmyk`), palette and gray are converted to RGB. ICC profiles are ignored.
6. An image with a side under `MIN_SIDE` pixels is centered on white (flag `padded`): image processors mistake a side of
   1 or 3 pixels for the channel axis.

What cannot be decoded in full (empty, not an image, truncated, corrupt, too large) is an `UnreadableImageError` with a
reason. Nothing is ever put in its place.
"""

from __future__ import annotations

import hashlib
import io
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from circus_bench._typing import StrPath
from circus_bench.distributed import SINGLE_PROCESS, DistributedJob
from circus_bench.errors import FormatError, ImageError
from circus_bench.io import open_parquet, read_parquet, write_row_groups

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
    """Reason why an image cannot be decoded."""

    MISSING = "missing"
    EMPTY = "empty"
    NOT_AN_IMAGE = "not_an_image"
    TRUNCATED = "truncated"
    CORRUPT = "corrupt"
    TOO_LARGE = "too_large"
    UNKNOWN_RANGE = "unknown_range"


class ImageFlag(StrEnum):
    """Notable fact about the way an image was decoded."""

    ANIMATED = "animated"
    ALPHA = "alpha"
    BROKEN_METADATA = "broken_metadata"
    CMYK = "cmyk"
    PADDED = "padded"
    ROTATED = "rotated"
    SIXTEEN_BIT = "sixteen_bit"


class UnreadableImageError(ImageError):
    """Failure to decode an image in full.

    Attributes:
        reason: the class of the failure.
    """

    def __init__(self, reason: Unreadable, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Decoded:
    """RGB image and the flags raised while decoding it."""

    image: Image.Image
    flags: frozenset[ImageFlag]


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """Facts about a decodable image.

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
    """Outcome of decoding a set of images once.

    Attributes:
        readable: facts by image id.
        unreadable: reasons by image id.
    """

    readable: Mapping[str, ImageInfo]
    unreadable: Mapping[str, Unreadable]

    def covers(self, ids: Iterable[str]) -> bool:
        """Tell whether the facts of all these images are known."""
        return all(image_id in self.readable or image_id in self.unreadable for image_id in ids)

    def __repr__(self) -> str:
        """Name the counts rather than each image."""
        return f"Inspection({len(self.readable):,} readable, {len(self.unreadable):,} unreadable images)"


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
    """Hash mode, size and pixels with SHA-256: equal for equal pixels, whatever file they came from.

    Example:
        >>> digest(black((100, 50))) == digest(black((50, 100)))
        False
    """
    head = f"{image.mode} {image.width} {image.height}\n".encode()
    return hashlib.sha256(head + image.tobytes()).hexdigest()


def black(size: tuple[int, int]) -> Image.Image:
    """Make the black RGB image of `size` = (width, height) that replaces a reference in the text-only condition."""
    return Image.new("RGB", size)


def inspect_images(
    images: Mapping[str, bytes],
    ids: Iterable[str],
    *,
    trust_records: bool = True,
    advance: Callable[[], object] = lambda: None,
    job: DistributedJob = SINGLE_PROCESS,
) -> Inspection:
    """Decode every image once and collect its facts, or the reason why it cannot be decoded.

    Args:
        images: image id to the bytes of its file.
        ids: the images wanted. An id absent from `images` is `Unreadable.MISSING`.
        trust_records: take the facts that `ParquetImages` recorded when it was written, without decoding again.
        advance: called after each image, for a progress bar.
        job: the processes that share the work; every one of them has to call this.
    """
    wanted = list(dict.fromkeys(ids))
    recorded = images.inspection if trust_records and isinstance(images, ParquetImages) else Inspection({}, {})
    facts: dict[str, ImageInfo | Unreadable] = {**recorded.readable, **recorded.unreadable}
    unknown = [image_id for image_id in wanted if image_id not in facts]
    for _ in range(len(wanted) - len(unknown)):
        advance()

    def inspect_share() -> dict[str, ImageInfo | Unreadable]:
        # Neighbors lie together in most files, so a share is a run of them.
        first, last = (len(unknown) * rank // job.count for rank in (job.rank, job.rank + 1))
        found: dict[str, ImageInfo | Unreadable] = {}
        for image_id in unknown[first:last]:
            found[image_id] = _facts(images.get(image_id))
            advance()
        for _ in range(len(unknown) - (last - first)):  # by the others, at the same pace
            advance()
        return found

    for part in job.run_on_all("decoding images", inspect_share) if unknown else ():
        facts |= part
    found = {image_id: facts[image_id] for image_id in wanted}
    return Inspection(
        {image_id: info for image_id, info in found.items() if isinstance(info, ImageInfo)},
        {image_id: reason for image_id, reason in found.items() if isinstance(reason, Unreadable)},
    )


class ImageFiles(Mapping[str, bytes]):
    """Read images from files, when they are asked for.

    Args:
        paths: file paths by image id. A path that does not exist counts as absent.
    """

    def __init__(self, paths: Mapping[str, StrPath]) -> None:
        self._paths = {image_id: Path(path) for image_id, path in paths.items()}

    @classmethod
    def folder(
        cls,
        folder: StrPath,
        *,
        suffixes: tuple[str, ...] = (".jpg", ".jpeg", ".png", ".webp"),
        image_id: Callable[[Path], str | None] = lambda path: path.stem,
    ) -> ImageFiles:
        """Collect every image file under `folder`, at any depth.

        Args:
            folder: the folder.
            suffixes: the ends of the names of image files.
            image_id: the id of the image in a file, or None for a file to pass over. By default the file name without
                its suffix.

        Raises:
            ImageError: two files share an id, or the folder does not exist.
        """
        folder = Path(folder)
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

    def __contains__(self, image_id: object) -> bool:
        path = self._paths.get(image_id) if isinstance(image_id, str) else None
        return path is not None and path.is_file()

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
    """Read images from parquet files; only a few row groups are in memory at a time.

    Args:
        columns: of each file the path, the column of ids, and that of the images: bytes, or structs with a field
            `bytes`. An id may occur again: its first image counts.
        inspection: the facts recorded when the images were written; empty where none were.
    """

    _KEPT_GROUPS = 8
    _ROWS_PER_GROUP = 64

    def __init__(self, columns: Iterable[tuple[StrPath, str, str]], *, inspection: Inspection) -> None:
        import pyarrow as pa

        self.inspection = inspection
        self._columns: list[tuple[Any, str, str]] = []
        self._paths: list[Path] = []
        self._groups: dict[tuple[int, int], Mapping[str, bytes]] = {}
        self._group_of: dict[str, tuple[int, int]] = {}
        for number, (path, ids, images) in enumerate(columns):
            file = open_parquet(path, schema=pa.schema([(ids, pa.null()), (images, pa.null())]))  # names alone count
            self._columns.append((file, ids, images))
            self._paths.append(Path(path))
            for group in range(file.num_row_groups):
                held = self._read(number, group, ids)[ids].to_pylist()
                if _has_nulls(file.metadata.row_group(group), images):
                    held = [image_id for image_id, data in self._load((number, group)).items() if data is not None]
                for image_id in held:
                    self._group_of.setdefault(image_id, (number, group))

    @classmethod
    def load(cls, path: StrPath) -> ParquetImages:
        """Open a file that `write` made.

        Raises:
            FormatError: the file is missing, or no such table.
        """
        return cls([(path, "id", "bytes")], inspection=read_image_facts(path))

    @classmethod
    def write(cls, path: StrPath, images: Mapping[str, bytes], *, inspection: Inspection) -> None:
        """Write the inspected images with their original bytes, unreadable ones too, and with what was found."""
        import pyarrow as pa

        ids = [*inspection.readable, *inspection.unreadable]
        schema = image_schema(with_bytes=True)
        groups = (ids[start : start + cls._ROWS_PER_GROUP] for start in range(0, len(ids), cls._ROWS_PER_GROUP))
        rows = ([{**_fact_row(i, inspection), "bytes": images.get(i)} for i in group] for group in groups)
        write_row_groups(path, (pa.Table.from_pylist(group, schema=schema) for group in rows), schema=schema)

    def __contains__(self, image_id: object) -> bool:
        return image_id in self._group_of  # without reading the image, as the inherited one would

    def __getitem__(self, image_id: str) -> bytes:
        place = self._group_of[image_id]
        if place not in self._groups:
            while len(self._groups) >= self._KEPT_GROUPS:
                self._groups.pop(next(iter(self._groups)))
            self._groups[place] = {name: data for name, data in self._load(place).items() if data is not None}
        return self._groups[place][image_id]

    def _load(self, place: tuple[int, int]) -> dict[str, bytes | None]:
        _, ids, images = self._columns[place[0]]
        table = self._read(*place, ids, images)
        held = (image["bytes"] if isinstance(image, dict) else image for image in table[images].to_pylist())
        return dict(zip(table[ids].to_pylist(), held, strict=True))

    def _read(self, number: int, group: int, *columns: str) -> pa.Table:
        import pyarrow as pa

        try:
            return self._columns[number][0].read_row_group(group, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            raise FormatError(f"{self._paths[number]}: damaged ({error}); make or download it again") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._group_of)

    def __len__(self) -> int:
        return len(self._group_of)


def _has_nulls(group: Any, images: str) -> bool:
    """Tell whether a row group lacks images, by the statistics in its file, which are read without the images."""
    chunks = (group.column(place) for place in range(group.num_columns))
    held = [chunk.statistics for chunk in chunks if chunk.path_in_schema in {images, f"{images}.bytes"}]
    return not all(found is not None and found.has_null_count and found.null_count == 0 for found in held)


def write_image_facts(path: StrPath, inspection: Inspection) -> None:
    """Write what an inspection found, one row per image: digest, width, height and flags, or why it is unreadable."""
    import pyarrow as pa

    schema = image_schema(with_bytes=False)
    rows = [_fact_row(i, inspection) for i in (*inspection.readable, *inspection.unreadable)]
    write_row_groups(path, [pa.Table.from_pylist(rows, schema=schema)], schema=schema)


def read_image_facts(path: StrPath) -> Inspection:
    """Read the facts that `write_image_facts` or `ParquetImages.write` recorded.

    Raises:
        FormatError: the file is missing, or no such table.
    """
    schema = image_schema(with_bytes=False)
    rows = read_parquet(path, schema=schema).to_pylist()
    readable: dict[str, ImageInfo] = {}
    unreadable: dict[str, Unreadable] = {}
    try:
        for row in rows:
            if row["unreadable"]:
                unreadable[row["id"]] = Unreadable(row["unreadable"])
            else:
                flags = frozenset(map(ImageFlag, row["flags"]))
                readable[row["id"]] = ImageInfo(row["digest"], row["width"], row["height"], flags)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{path}: {error}; see docs/formats.md") from error
    return Inspection(readable, unreadable)


def image_schema(*, with_bytes: bool) -> pa.Schema:
    """Return the schema of a table of images or, without their bytes, of facts about images."""
    import pyarrow as pa

    return pa.schema(
        [
            ("id", pa.string()),
            *([("bytes", pa.large_binary())] if with_bytes else []),
            ("digest", pa.string()),
            ("width", pa.int32()),
            ("height", pa.int32()),
            ("flags", pa.list_(pa.string())),
            ("unreadable", pa.string()),
        ]
    )


def _fact_row(image_id: str, inspection: Inspection) -> dict[str, object]:
    info = inspection.readable.get(image_id)
    if info is None:
        return {"id": image_id, "unreadable": inspection.unreadable[image_id].value}
    facts = {"digest": info.digest, "width": info.width, "height": info.height, "flags": sorted(info.flags)}
    return {"id": image_id, **facts}


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
    """Read the EXIF orientation (1 when there is none); returns also whether all metadata could be read."""
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
        gray = ((values + 128) // 257).astype(np.uint8)
        if (transparent := image.info.get("transparency")) is not None:
            flags.add(ImageFlag.ALPHA)
            gray[values == transparent] = 255
        return Image.fromarray(gray).convert("RGB")
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
