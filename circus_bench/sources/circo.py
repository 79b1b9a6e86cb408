"""Read CIRCO: the validation and test splits over COCO 2017 unlabeled, from the official annotation files.

| protocol | queries | positives | query id |
|---|---|---|---|
| `circo/val` | one per row of `val.json` | `gt_img_ids`, in order | annotation `id` |
| `circo/test` | one per row of `test.json` | hidden | annotation `id` |

The gallery is all of COCO 2017 unlabeled: the ids of `image_info_unlabeled2017.json` (COCO's layout) or of a text file
`coco_unlabeled2017_ids.txt[.gz]`, one id per line. Image ids are COCO's numbers as strings, without padding. The
reference is left in the gallery, as the official script does. The text is `relative_caption`; `shared_concept` is not
part of it. The instruction is the CIRCUS paper's, which gives CIRCO the one of CIRR; CIRCO itself has none.

`Query.details` holds `row` (from 0), `shared_concept` and, for val, `target_img_id` and `semantic_aspects`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Defect, Protocol, Query, ReferencePolicy
from circus_bench.errors import FormatError
from circus_bench.sources.annotations import (
    AnnotationRow,
    SourceInfo,
    build_benchmark,
    check_choice,
    check_id_types,
    find_file,
    protocols_by_id,
    read_json,
    read_rows,
    read_text,
    wrap_rows,
)

INFO = SourceInfo(
    origin="github.com/miccunifi/CIRCO (gallery: COCO 2017 unlabeled image info)",
    license="CC BY-NC 4.0",
    image_license="COCO / Flickr terms",
    images_redistributable=False,
    citation='Baldrati et al., "Zero-Shot Composed Image Retrieval with Textual Inversion" (CIRCO), ICCV 2023',
)
INSTRUCTION = "Retrieve a day-to-day image that aligns with the modification instructions of the provided image."
_protocol = partial(
    Protocol,
    reference=ReferencePolicy.KEPT,
    instruction=INSTRUCTION,
    gallery="COCO 2017 unlabeled, the reference among them",
    captions="relative_caption, unchanged; shared_concept unused",
)
PROTOCOLS = protocols_by_id(
    _protocol(id="circo/val", positives="all ground truths (gt_img_ids)"),
    _protocol(id="circo/test", positives="known to the test server only", hidden_targets=True),
)
_GALLERY_PLACES = (
    "COCO2017_unlabeled/annotations/image_info_unlabeled2017.json",
    "annotations/image_info_unlabeled2017.json",
    "image_info_unlabeled2017.json",
    "coco_unlabeled2017_ids.txt.gz",
    "coco_unlabeled2017_ids.txt",
)
_FILE_NAME = re.compile(r"\d{12}")


def image_id(path: Path) -> str | None:
    """Return the COCO id in the name of an image file, `000000000008.jpg`; None for other files."""
    return str(int(path.stem)) if _FILE_NAME.fullmatch(path.stem) and path.suffix.lower() == ".jpg" else None


def load(
    protocol: str,
    folder: StrPath | None,
    *,
    images: Mapping[str, bytes] | None = None,
    allow: Iterable[Defect] = (),
) -> Benchmark:
    """Read CIRCO from a folder that holds `annotations/val.json` or `test.json`, and the gallery's ids in either form.

    See `load_source` for arguments and errors.
    """
    check_choice(protocol, PROTOCOLS, what="protocol of CIRCO")
    split = protocol.removeprefix("circo/")
    annotations = find_file(folder, f"annotations/{split}.json", f"{split}.json", origin=INFO.origin)
    listed = find_file(folder, *_GALLERY_PLACES, origin=INFO.origin)
    rows = read_rows(annotations, origin=INFO.origin)
    check_id_types(rows, "reference_img_id", "target_img_id", "gt_img_ids", path=annotations)
    check_id_types(rows, "id", path=annotations)
    return build_benchmark(
        "circo",
        PROTOCOLS[protocol],
        queries=(_query(row, hidden=split == "test") for row in rows),
        gallery=_gallery(listed),
        images=images,
        allow=allow,
        info=INFO,
        files=[annotations, listed],
        folder=folder,
        split=split,
        counts={"rows": len(rows)},
    )


def _query(row: AnnotationRow, *, hidden: bool) -> Query:
    details: dict[str, Any] = {"row": row.number, "shared_concept": row.get("shared_concept", str)}
    targets: tuple[str, ...] = ()
    if not hidden:
        targets = row.get_ids("gt_img_ids")
        details["target_img_id"] = row.get_id("target_img_id")
        details["semantic_aspects"] = list(row.get_strings("semantic_aspects"))
        if details["target_img_id"] not in targets:
            row.fail("has a 'target_img_id' that is not among its 'gt_img_ids'")
    return Query(
        row.get_id("id"),
        row.get_id("reference_img_id"),
        row.get("relative_caption", str),
        targets,
        details=details,
    )


def _gallery(path: Path) -> tuple[str, ...]:
    """Read the image ids of a COCO image info file, or of a text file with one id per line."""
    if path.suffix == ".json":
        info = read_json(path, dict, origin=INFO.origin)
        if not isinstance(info.get("images"), list):
            raise FormatError(f"{path}: lacks the list 'images' of COCO's image info; get it from {INFO.origin}")
        rows = wrap_rows(info["images"], path=path, origin=INFO.origin)
        return tuple(str(row.get("id", int)) for row in rows)
    ids = []
    for number, line in enumerate(read_text(path, origin=INFO.origin).split("\n"), start=1):
        entry = line.strip()
        if entry and not (entry.isascii() and entry.isdecimal()):
            raise FormatError(f"{path}: line {number:,} holds {entry[:40]!r}, expected a COCO image id; mend the line")
        if entry:
            ids.append(str(int(entry)))
    return tuple(ids)
