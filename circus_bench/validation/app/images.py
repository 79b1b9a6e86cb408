"""Serve the images of a study under opaque names, and nothing else, whatever name is asked for."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from PIL.Image import Image

from circus_bench.benchmark import Benchmark
from circus_bench.errors import MismatchError, format_ids
from circus_bench.images import UnreadableImageError, decode
from circus_bench.validation.app.worklist import opaque_name
from circus_bench.validation.study import Study

THUMBNAIL = 384  # pixels of the longer side: enough for two device pixels each
_KEPT_BYTES = 64 * 2**20
_SIGNATURES = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png", b"GIF8": "image/gif"}


@dataclass(frozen=True, slots=True)
class StudyImage:
    """Image file as a browser gets it.

    Attributes:
        data: the file.
        media_type: of its content, not of anybody's say-so.
    """

    data: bytes
    media_type: str


class StudyImages:
    """Images of a study: references, targets and candidates of its items.

    Args:
        study: the study.
        benchmarks: by the names that the items use.

    Raises:
        MismatchError: an image that an item needs is not among its benchmark's.
    """

    def __init__(self, study: Study, benchmarks: Mapping[str, Benchmark]) -> None:
        self._study = study
        self._images: dict[str, Mapping[str, bytes]] = {}
        for name, benchmark in benchmarks.items():
            if benchmark.gallery.images is None:
                raise MismatchError(f"benchmark {name!r} has annotations only; join its images first")
            self._images[name] = benchmark.gallery.images
        queries = {name: {query.id: query for query in of.queries} for name, of in benchmarks.items()}
        needed = {
            (item.benchmark, image)
            for item in study.items
            for query in [queries[item.benchmark][item.query]]
            for image in (query.reference, *query.targets, *item.panel)
        }
        missing = sorted(f"{name}: {image}" for name, image in needed if image not in self._images[name])
        if missing:
            raise MismatchError(f"study {study.name!r} needs images that its benchmarks lack ({format_ids(missing)})")
        self._of_name = {self.name(*image): image for image in needed}
        self._kept: OrderedDict[tuple[str, bool], StudyImage] = OrderedDict()
        self._lock = threading.Lock()

    def name(self, benchmark: str, image: str) -> str:
        """Name an image."""
        return opaque_name(self._study, "image", benchmark, image)

    def image_of(self, name: str) -> str | None:
        """Find the id, within its benchmark, of the image of this name."""
        return self._of_name[name][1] if name in self._of_name else None

    def get(self, name: str, *, small: bool = False) -> StudyImage | None:
        """Load an image; None where no image of the study has this name or its file is unreadable.

        Args:
            name: see `name`.
            small: reduced to `THUMBNAIL`, where it is larger.
        """
        if name not in self._of_name:
            return None
        benchmark, image = self._of_name[name]
        with self._lock:  # a benchmark's images are not made for several threads
            kept = self._kept.get((name, small))
            if kept is None:
                data = self._images[benchmark][image]
        if kept is None:
            try:
                kept = _reduced(data) if small else _for_browsers(data)
            except UnreadableImageError:
                return None
        self._keep((name, small), kept)
        return kept

    def _keep(self, key: tuple[str, bool], image: StudyImage) -> None:
        with self._lock:
            self._kept[key] = image
            self._kept.move_to_end(key)
            while sum(len(kept.data) for kept in self._kept.values()) > _KEPT_BYTES and len(self._kept) > 1:
                self._kept.popitem(last=False)


def _media_type(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES.items() if data.startswith(start)), None)


def _for_browsers(data: bytes) -> StudyImage:
    """Take the original file if every browser shows its kind, else its pixels as PNG."""
    image = decode(data).image
    kind = _media_type(data)
    return StudyImage(data, kind) if kind else _encoded(image, "PNG")


def _reduced(data: bytes) -> StudyImage:
    image = decode(data).image
    kind = _media_type(data)
    if kind and max(image.size) <= THUMBNAIL:
        return StudyImage(data, kind)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    return _encoded(image, "JPEG", quality=88)


def _encoded(image: Image, file_format: str, **options: int) -> StudyImage:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return StudyImage(file.getvalue(), f"image/{file_format.lower()}")
