"""Compute 64-bit perceptual hashes, read published ones, and find near duplicates by either.

**Definition of `phash`.** The RGB picture of `circus_bench.images.decode` is turned to 8-bit gray (Pillow's mode `L`,
ITU-R 601-2 luma) and resized to 32 x 32 (Pillow's Lanczos filter). Of its two-dimensional DCT-II the 8 x 8 lowest
frequencies are kept, the constant one included, rounded to 6 decimals so that a flat picture has no bits made of
rounding errors. Read row by row, a coefficient above the mean of the 63 that are not constant is a 1, the first one
the highest bit. (The `ImageHash` package compares with the median of the 64. Then every hash has 32 ones and two never
differ in one bit, so that a re-encoded copy is found only where no bit moved; its hashes cannot be compared with
these.)

Equal or neighboring hashes make two images *candidates* for near duplicates. They prove nothing: line drawings and
photographs on a white ground collide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from circus_bench.errors import FormatError, format_ids
from circus_bench.io import read_json

BITS = 64
_SIDE = 32
_KEPT = 8
_DECIMALS = 6
_HEX = re.compile(r"[0-9a-fA-F]{16}")


def phash(image: Image.Image) -> int:
    """Compute the perceptual hash of an RGB image, as defined above: a whole number below 2**64.

    Example:
        >>> f"{phash(Image.new('RGB', (50, 40), 'white')):016x}"
        '8000000000000000'
    """
    from scipy.fft import dctn

    gray = image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    low = dctn(np.asarray(gray, np.float64), type=2)[:_KEPT, :_KEPT].round(_DECIMALS)
    values = low.ravel()
    return int.from_bytes(np.packbits(values > values[1:].mean()).tobytes(), "big")


def read_hashes(path: Path) -> dict[str, int]:
    """Read a file of published hashes: a JSON object of file names and 16 hexadecimal digits each.

    Returns:
        Image id (the file name without folders and suffix) to hash.

    Raises:
        FormatError: the file is missing, is no such object, or two names share an id with different hashes.
    """
    content = read_json(path)
    wrong = [name for name, value in content.items() if not (isinstance(value, str) and _HEX.fullmatch(value))]
    if wrong or not content:
        what = f"no 16 hexadecimal digits for the names {format_ids(wrong)}" if wrong else "no hashes"
        raise FormatError(f'{path}: {what}; expected a JSON object like {{"dev-0-0-img0.png": "00ff00ff00ff00ff"}}')
    hashes: dict[str, int] = {}
    clashing = []
    for name, value in content.items():
        number = int(value, 16)
        if hashes.setdefault(_image_id(name), number) != number:
            clashing.append(name)
    if clashing:
        raise FormatError(
            f"{path}: names with the same image id and another hash ({format_ids(clashing)}); keep one of each"
        )
    return hashes


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Candidates for near duplicates among images.

    Attributes:
        exact: groups of two or more image ids with the same hash.
        near: pairs of groups (of one or more ids) whose hashes differ in one bit.
    """

    exact: tuple[tuple[str, ...], ...]
    near: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]

    @property
    def n_exact_pairs(self) -> int:
        """Pairs of images at distance 0."""
        return sum(len(group) * (len(group) - 1) // 2 for group in self.exact)

    @property
    def n_near_pairs(self) -> int:
        """Pairs of images at distance 0 or 1."""
        return self.n_exact_pairs + sum(len(one) * len(other) for one, other in self.near)


def near_duplicates(hashes: Mapping[str, int]) -> NearDuplicates:
    """Find images whose hashes are equal or differ in one bit.

    Images are put into buckets by hash; the neighbors of a bucket are looked up in the sorted hashes, one bit at a
    time. That takes 64 n log n steps rather than n squared, and no pair is written out.

    Args:
        hashes: image id to hash, whole numbers from 0 to 2**64 - 1.

    Example:
        >>> near_duplicates({"a": 0b1100, "b": 0b1100, "c": 0b1101, "d": 0b0011})
        NearDuplicates(exact=(('a', 'b'),), near=((('a', 'b'), ('c',)),))
    """
    buckets: dict[int, list[str]] = {}
    for image_id, value in hashes.items():
        buckets.setdefault(value, []).append(image_id)
    values = np.sort(np.fromiter(buckets, np.uint64, len(buckets)))
    neighbors: list[tuple[int, int]] = []
    for bit in range(BITS if len(values) else 0):
        # A pair is found from its smaller hash, by setting the bit that it lacks.
        lower = values[values & np.uint64(1 << bit) == 0]
        wanted = lower | np.uint64(1 << bit)
        position = np.searchsorted(values, wanted).clip(max=len(values) - 1)
        found = values[position] == wanted
        neighbors += zip(lower[found].tolist(), wanted[found].tolist(), strict=True)
    # In the order in which the images were given, whatever the hashes are.
    place = {value: index for index, value in enumerate(buckets)}
    ordered = sorted(sorted(pair, key=place.__getitem__) for pair in neighbors)
    ordered.sort(key=lambda pair: (place[pair[0]], place[pair[1]]))
    return NearDuplicates(
        exact=tuple(tuple(group) for group in buckets.values() if len(group) > 1),
        near=tuple((tuple(buckets[one]), tuple(buckets[other])) for one, other in ordered),
    )


def _image_id(name: str) -> str:
    base = name.replace("\\", "/").rsplit("/", 1)[-1]
    return re.sub(r"\.(jpe?g|png|webp|gif|bmp|tiff?)$", "", base, flags=re.IGNORECASE)
