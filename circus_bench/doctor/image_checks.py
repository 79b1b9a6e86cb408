"""Check images: what cannot be decoded, what was altered, what occurs twice, and what is covered."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from circus_bench.benchmark import Benchmark
from circus_bench.doctor.annotation_checks import grouped
from circus_bench.doctor.hashes import NearDuplicates, phash
from circus_bench.doctor.results import Coverage, Result, defect, note, note_of_groups
from circus_bench.images import ImageFlag, ImageInfo, Inspection, Unreadable, UnreadableImageError, decode, digest

_REASONS = {
    Unreadable.MISSING: "images without a file; fetch them, or run without them and say so",
    Unreadable.EMPTY: "image files of 0 bytes, left by a broken download; fetch them again",
    Unreadable.NOT_AN_IMAGE: "files that are no images (an error page saved under the name, say); fetch them again",
    Unreadable.TRUNCATED: "image files that end too early; fetch them again",
    Unreadable.CORRUPT: "image files that are damaged; fetch them again",
    Unreadable.TOO_LARGE: "images above the limit of pixels; scale them down",
    Unreadable.UNKNOWN_RANGE: "images whose values have no known range; convert them to 8 or 16 bits",
}
_FLAGS = {
    ImageFlag.ANIMATED: "animations, of which the first frame is used",
    ImageFlag.ALPHA: "images with transparency, shown on white",
    ImageFlag.BROKEN_METADATA: "images with metadata that cannot be read; an orientation in them is lost",
    ImageFlag.CMYK: "images in print colors (CMYK), converted without their color profile; other tools may show "
    "other colors, or fail",
    ImageFlag.PADDED: "images with a very short side, centered on white",
    ImageFlag.ROTATED: "images that their metadata turn; tools that ignore this show them lying down",
    ImageFlag.SIXTEEN_BIT: "images of 16 bits a pixel, rescaled; tools that cut the values off show them white",
}


class HashKind(StrEnum):
    """Source of a perceptual hash."""

    COMPUTED = "computed"
    """`circus_bench.doctor.hashes.phash` of the images at hand."""
    PUBLISHED = "published"
    """A file of someone else's hashes."""


@dataclass(frozen=True)
class ImageReport:
    """Facts about every image of a benchmark, from decoding it.

    Attributes:
        inspection: the facts of those that can be decoded, and why others cannot.
        files: image id to the SHA-256 of the file, of those that can be decoded.
        phashes: image id to the perceptual hash; see `circus_bench.doctor.hashes`.
    """

    inspection: Inspection
    files: Mapping[str, str] = field(default_factory=dict)
    phashes: Mapping[str, int] = field(default_factory=dict)


def scan_images(
    images: Mapping[str, bytes], ids: Iterable[str], *, advance: Callable[[], object] = lambda: None
) -> ImageReport:
    """Decode every image, trusting no record, and hash its file and its picture.

    Args:
        images: image id to the bytes of its file.
        ids: the images wanted.
        advance: called after each image, for a progress bar.
    """
    readable: dict[str, ImageInfo] = {}
    unreadable: dict[str, Unreadable] = {}
    files: dict[str, str] = {}
    phashes: dict[str, int] = {}
    for image_id in dict.fromkeys(ids):
        data = images.get(image_id)
        if data is None:
            unreadable[image_id] = Unreadable.MISSING
        else:
            try:
                decoded = decode(data)
            except UnreadableImageError as error:
                unreadable[image_id] = error.reason
            else:
                readable[image_id] = ImageInfo(digest(decoded.image), *decoded.image.size, decoded.flags)
                files[image_id] = hashlib.sha256(data).hexdigest()
                phashes[image_id] = phash(decoded.image)
        advance()
    return ImageReport(Inspection(readable, unreadable), files, phashes)


def altered_images(recorded: Inspection, decoded: Inspection) -> tuple[str, ...]:
    """List images whose pixels are not those recorded when the benchmark was written."""
    states: Mapping[str, object] = {**decoded.unreadable, **decoded.readable}
    return tuple(
        image_id
        for image_id, info in recorded.readable.items()
        if image_id in states and (image_id not in decoded.readable or decoded.readable[image_id].digest != info.digest)
    )


def same_pixels(inspection: Inspection) -> tuple[tuple[str, ...], ...]:
    """Group images with the same digest."""
    found = grouped(inspection.readable, lambda image_id: inspection.readable[image_id].digest)
    return tuple(map(tuple, found))


def same_files(files: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Group images whose files are the same, byte for byte."""
    return tuple(map(tuple, grouped(files, files.__getitem__)))


def check_images(scanned: ImageReport, *, altered: tuple[str, ...] = ()) -> tuple[Result, ...]:
    """List what is wrong with the images, or worth knowing: one result per reason, flag and kind of duplicate."""
    inspection = scanned.inspection
    results = [
        defect(reason.value, [i for i, why in inspection.unreadable.items() if why is reason], _REASONS[reason])
        for reason in Unreadable
    ]
    meaning = "images whose pixels are not those recorded when the benchmark was written; restore them"
    results.append(defect("altered", altered, meaning))
    for flag in ImageFlag:
        flagged = [image_id for image_id, info in inspection.readable.items() if flag in info.flags]
        results.append(note(flag.value, flagged, _FLAGS[flag]))
    meaning = "images whose files are the same, byte for byte: a model cannot rank one above the other"
    results.append(note_of_groups("same_bytes", same_files(scanned.files), meaning))
    meaning = "images with the same pixels: a model cannot rank one above the other, and ties count against it"
    results.append(note_of_groups("same_pixels", same_pixels(inspection), meaning))
    return tuple(filter(None, results))


def check_near_duplicates(benchmark: Benchmark, found: NearDuplicates, *, of: HashKind) -> tuple[Result, ...]:
    """List candidates for near duplicates, and the queries that suffer from them.

    Args:
        benchmark: the benchmark.
        found: near duplicates in its gallery.
        of: which hash was used.
    """
    look = "candidates for near duplicates, to be looked at"
    name = f"{of.value} hash"
    results = (
        note_of_groups(
            f"same_{of}_hash",
            found.exact,
            f"images with the same {name} (pairs: {found.n_exact_pairs:,}): {look}",
        ),
        note_of_groups(
            f"near_{of}_hash",
            ((*one, *other) for one, other in found.near),
            f"images whose {name} differs in one bit (pairs within one bit: {found.n_near_pairs:,}): {look}",
        ),
        note(
            f"target_twin_by_{of}_hash",
            target_twins(benchmark, found.exact),
            f"queries with a target whose {name} a gallery image shares that is no target: it may be right too",
        ),
    )
    return tuple(filter(None, results))


def target_twins(benchmark: Benchmark, groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """List queries with a target that shares a group with a gallery image which is none of its targets."""
    group_of = {image_id: group for group in groups for image_id in group}
    return tuple(
        query.id
        for query in benchmark.queries
        if any(set(group_of.get(target, ())).difference(query.targets) for target in query.targets)
    )


def coverage(benchmark: Benchmark, readable: Iterable[str]) -> tuple[Coverage, ...]:
    """Count how much of a benchmark has images that can be decoded.

    Args:
        benchmark: the benchmark.
        readable: ids of the images that can be decoded.
    """
    there = frozenset(readable)

    def share(what: str, ids: Iterable[str]) -> Coverage:
        wanted = frozenset(ids)
        return Coverage(what, len(wanted & there), len(wanted))

    complete = sum(there.issuperset((query.reference, *query.targets)) for query in benchmark.queries)
    return (
        share("gallery", benchmark.gallery.ids),
        share("references", (query.reference for query in benchmark.queries)),
        share("targets", (target for query in benchmark.queries for target in query.targets)),
        Coverage("queries", complete, len(benchmark.queries)),
    )
