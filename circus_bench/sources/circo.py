"""CIRCO: the validation and test splits over COCO 2017 unlabeled, from the official annotation files.

| protocol | queries | positives | query id |
|---|---|---|---|
| `circo/val` | one a row of `val.json` | `gt_img_ids`, in order | annotation `id` |
| `circo/test` | one a row of `test.json` | hidden | annotation `id` |

The gallery is all of COCO 2017 unlabeled: the ids of `image_info_unlabeled2017.json` (COCO's layout) or of a text file
`coco_unlabeled2017_ids.txt[.gz]`, one id a line. Image ids are COCO's numbers as strings, without padding. The
reference is left in the gallery, as the official script does. The text is `relative_caption`; `shared_concept` is not
part of it. The instruction is the CIRCUS paper's, which gives CIRCO the one of CIRR; CIRCO itself has none.

`Query.details` holds `row` (from 0), `shared_concept` and, for val, `target_img_id` and `semantic_aspects`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from circus_bench.benchmark import Benchmark, Defect, Gallery, Protocol, Query, ReferencePolicy
from circus_bench.errors import FormatError
from circus_bench.sources.annotations import (
    Origin,
    Row,
    choose,
    locate,
    provenance,
    read_json,
    read_rows,
    read_text,
    require_one_kind,
    rows_of,
)

ORIGIN = Origin(
    place="github.com/miccunifi/CIRCO (gallery: COCO 2017 unlabeled image info)",
    license="CC BY-NC 4.0",
    image_license="COCO / Flickr terms",
    images_redistributable=False,
    citation='Baldrati et al., "Zero-Shot Composed Image Retrieval with Textual Inversion" (CIRCO), ICCV 2023',
)
INSTRUCTION = "Retrieve a day-to-day image that aligns with the modification instructions of the provided image."
_GALLERY = "COCO 2017 unlabeled, the reference among them"
_CAPTIONS = "relative_caption, unchanged; shared_concept unused"

PROTOCOLS = {
    protocol.id: protocol
    for protocol in (
        Protocol(
            id="circo/val",
            reference=ReferencePolicy.KEPT,
            instruction=INSTRUCTION,
            gallery=_GALLERY,
            positives="all ground truths (gt_img_ids)",
            captions=_CAPTIONS,
        ),
        Protocol(
            id="circo/test",
            reference=ReferencePolicy.KEPT,
            instruction=INSTRUCTION,
            gallery=_GALLERY,
            positives="known to the test server only",
            captions=_CAPTIONS,
            hidden_targets=True,
        ),
    )
}
# Published by the authors of CIRCO.
_GALLERY_PLACES = (
    "COCO2017_unlabeled/annotations/image_info_unlabeled2017.json",
    "annotations/image_info_unlabeled2017.json",
    "image_info_unlabeled2017.json",
    "coco_unlabeled2017_ids.txt.gz",
    "coco_unlabeled2017_ids.txt",
)
_FILE_NAME = re.compile(r"\d{12}")


def image_id(path: Path) -> str | None:
    """The COCO id in the name of an image file, `000000000008.jpg`; None for other files."""
    return str(int(path.stem)) if _FILE_NAME.fullmatch(path.stem) and path.suffix.lower() == ".jpg" else None


def load(
    protocol: str,
    folder: Path | None,
    *,
    images: Mapping[str, bytes] | None = None,
    allow: Iterable[Defect] = (),
) -> Benchmark:
    """Read CIRCO.

    Args:
        protocol: one of `PROTOCOLS`.
        folder: holds `annotations/val.json` or `test.json`, and the gallery's ids in one of the two forms.
        images: image id to the bytes of its file; without them the benchmark has annotations only.
        allow: defects to allow.

    Raises:
        FormatError: a file is missing or does not follow its schema.
        BenchmarkError: the annotations contradict each other.
    """
    choose(protocol, PROTOCOLS, what="protocol of CIRCO")
    split = protocol.removeprefix("circo/")
    annotations = locate(folder, f"annotations/{split}.json", f"{split}.json", origin=ORIGIN.place)
    listed = locate(folder, *_GALLERY_PLACES, origin=ORIGIN.place)
    rows = read_rows(annotations, origin=ORIGIN.place)
    require_one_kind(rows, "reference_img_id", "target_img_id", "gt_img_ids", path=annotations)
    require_one_kind(rows, "id", path=annotations)
    queries = [_query(row, hidden=split == "test") for row in rows]
    return Benchmark(
        name="circo",
        protocol=PROTOCOLS[protocol],
        queries=tuple(queries),
        gallery=Gallery(_gallery(listed), images),
        source=provenance(
            ORIGIN,
            [annotations, listed],
            folder=folder or annotations.parent,
            split=split,
            counts={
                "rows": len(rows),
                "queries": len(queries),
                "targets": sum(len(query.targets) for query in queries),
            },
        ),
        allow=frozenset(allow),
    )


def _query(row: Row, *, hidden: bool) -> Query:
    details: dict[str, Any] = {"row": row.number, "shared_concept": row.get("shared_concept", str)}
    targets: tuple[str, ...] = ()
    if not hidden:
        targets = row.identifiers("gt_img_ids")
        details["target_img_id"] = row.identifier("target_img_id")
        details["semantic_aspects"] = list(row.strings("semantic_aspects"))
        if details["target_img_id"] not in targets:
            row.fail("has a 'target_img_id' that is not among its 'gt_img_ids'")
    return Query(
        row.identifier("id"),
        row.identifier("reference_img_id"),
        row.get("relative_caption", str),
        targets,
        details=details,
    )


def _gallery(path: Path) -> tuple[str, ...]:
    """The image ids of a COCO image info file, or of a text file with one id a line."""
    if path.suffix == ".json":
        info = read_json(path, dict, origin=ORIGIN.place)
        if not isinstance(info.get("images"), list):
            raise FormatError(f"{path}: lacks the list 'images' of COCO's image info; get it from {ORIGIN.place}")
        rows = rows_of(info["images"], path=path, origin=ORIGIN.place)
        return tuple(str(row.get("id", int)) for row in rows)
    ids = []
    for number, line in enumerate(read_text(path, origin=ORIGIN.place).split("\n"), start=1):
        entry = line.strip()
        if entry and not (entry.isascii() and entry.isdecimal()):
            raise FormatError(f"{path}: line {number:,} holds {entry[:40]!r}, expected a COCO image id; mend the line")
        if entry:
            ids.append(str(int(entry)))
    return tuple(ids)
