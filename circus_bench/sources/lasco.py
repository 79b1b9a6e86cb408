"""Read LaSCo: the validation split over COCO val2014, from the official annotation files.

| protocol | queries | positives | query id |
|---|---|---|---|
| `lasco/val` | one per triplet of `lasco_val.json` | `target-image` | `qid` |
| `lasco/val+cl-lasco` | one per triplet of the balanced subset `CL-LaSCO_val.json` | `target-image` | `qid` |

Either searches the whole of `lasco_val_corpus.json`, the reference kept. The layout tells the files apart: a list of
triplets, or a map of super-categories to maps of `qid` to triplet. The subset is another set of queries, so its
protocol has another id. The paths of triplets and corpus differ (`val2014/...`, `val/val2014/...`): images are matched
by id, and each path must name its id. There is no instruction, as in the CIRCUS paper.

`Query.details` holds `row`, the triplet's place in the file from 0: the index that the CIRCUS paper's lists presumably
count by. Presumably: a complete file has been seen to hold 30,037 triplets, the paper has 30,031 queries, and nothing
published explains the difference. Of the subset it also holds `entity`, `super_entity` (also `Query.group`) and
`categories` (of reference and target: COCO category ids, main category).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    parse_json,
    protocols_by_id,
    read_rows,
    read_text,
    wrap_rows,
)

INFO = SourceInfo(
    origin="github.com/levymsn/LaSCo",
    license="MIT",
    image_license="COCO / Flickr terms",
    images_redistributable=False,
    citation='Levy et al., "Data Roaming and Quality Assessment for Composed Image Retrieval" (LaSCo), AAAI 2024',
)
_SUBSET_INFO = dataclasses.replace(
    INFO,
    origin=f"{INFO.origin} (gallery) and github.com/HaoliangZhou/U2CAR (queries)",
    license="MIT (LaSCo); selection of the subset: no licence stated",
)
SUBSET = "lasco/val+cl-lasco"

_protocol = partial(
    Protocol,
    reference=ReferencePolicy.KEPT,
    gallery="all images of lasco_val_corpus.json (COCO val2014), the reference among them",
    captions="query-text, unchanged",
)
PROTOCOLS = protocols_by_id(
    _protocol(id="lasco/val", positives="target-image"),
    _protocol(id=SUBSET, positives="target-image; queries: the balanced CL-LaSCO subset only"),
)
_TRIPLET_PLACES: Mapping[str, Sequence[StrPath]] = {
    "lasco/val": ("lasco_val.json", "annotations/lasco_val.json"),
    SUBSET: ("CL-LaSCO_val.json", "subset_1300/CL-LaSCO_val.json"),
}
_FILE_NAME = re.compile(r"COCO_val2014_(\d{12})")
_NUMBER = re.compile(r"(\d{12})\.\w+$")


def image_id(path: Path) -> str | None:
    """Return the COCO id in the name of an image file, `COCO_val2014_000000000042.jpg`; None for other files."""
    match = _FILE_NAME.fullmatch(path.stem)
    return str(int(match[1])) if match else None


def load(
    protocol: str,
    folder: StrPath | None,
    *,
    images: Mapping[str, bytes] | None = None,
    allow: Iterable[Defect] = (),
    annotations: StrPath | None = None,
) -> Benchmark:
    """Read LaSCo.

    Args:
        protocol: one of `PROTOCOLS`.
        folder: holds `lasco_val_corpus.json` and the triplets.
        images: image id to the bytes of its file; without them the benchmark has annotations only.
        allow: defects to allow.
        annotations: the file of triplets, relative to `folder`. By default `lasco_val.json`, or `CL-LaSCO_val.json` (in
            the folder or in its `subset_1300`) for the subset.

    Raises:
        FormatError: a file is missing or does not follow its schema, or holds triplets of the other protocol.
        BenchmarkError: the annotations contradict each other.
    """
    check_choice(protocol, PROTOCOLS, what="protocol of LaSCo")
    path = find_file(folder, *([annotations] if annotations else _TRIPLET_PLACES[protocol]), origin=INFO.origin)
    corpus = find_file(folder, "lasco_val_corpus.json", "annotations/lasco_val_corpus.json", origin=INFO.origin)
    rows, subset = _read(path)
    if subset != (protocol == SUBSET):
        found = SUBSET if subset else "lasco/val"
        raise FormatError(f"{path}: holds the triplets of {found}, not of {protocol}; ask for that protocol")
    listed = read_rows(corpus, origin=INFO.origin)
    check_id_types(listed, "id", path=corpus)
    return build_benchmark(
        "lasco",
        PROTOCOLS[protocol],
        queries=map(_query, rows),
        gallery=map(_corpus_id, listed),
        images=images,
        allow=allow,
        info=_SUBSET_INFO if subset else INFO,
        files=[path, corpus],
        folder=folder,
        split="val",
        counts={"rows": len(rows)},
    )


def _read(path: Path) -> tuple[list[AnnotationRow], bool]:
    """Read the triplets in file order, and whether the file has the subset's layout."""
    content = parse_json(read_text(path, origin=INFO.origin), path=path, origin=INFO.origin)
    if not isinstance(content, list | dict):
        raise FormatError(f"{path}: expected a list of triplets or a map of super-categories at the top level")
    subset = isinstance(content, dict)
    rows = wrap_rows(_flat(content, path) if isinstance(content, dict) else content, path=path, origin=INFO.origin)
    check_id_types(rows, "qid", path=path)
    return rows, subset


def _flat(content: Mapping[str, Any], path: Path) -> Iterator[Any]:
    for category, triplets in content.items():
        if not isinstance(triplets, dict):
            raise FormatError(f"{path}: the super-category {category!r} holds no map of query ids to triplets")
        for key, triplet in triplets.items():
            if isinstance(triplet, dict) and str(triplet.get("qid")) != key:
                raise FormatError(f"{path}: the triplet {key!r} of {category!r} has the qid {triplet.get('qid')!r}")
            yield triplet


def _query(row: AnnotationRow) -> Query:
    reference, target = _image(row, "query-image"), _image(row, "target-image")
    details: dict[str, Any] = {"row": row.number}
    group = ""
    if "super_entity" in row:
        group = row.get("super_entity", str)
        details |= {
            "entity": row.get("entity", str),
            "super_entity": group,
            "categories": [row["query-image"][2:], row["target-image"][2:]],
        }
    return Query(row.get_id("qid"), reference, row.get("query-text", str), (target,), group, details=details)


def _image(row: AnnotationRow, key: str) -> str:
    """Return the image id of `[id, path, ...]`."""
    value = row.get(key, list)
    if len(value) < 2 or not isinstance(value[1], str):
        row.fail(f"has {value!r} under {key!r}, expected [id, path]")
    return _checked(row, row.check_id(value[0], key), value[1], key)


def _corpus_id(row: AnnotationRow) -> str:
    return _checked(row, row.get_id("id"), row.get("path", str), "path")


def _checked(row: AnnotationRow, image: str, path: str, key: str) -> str:
    """Return an image id, checked against the number in the image's file name."""
    match = _NUMBER.search(path)
    if match is None or str(int(match[1])) != image:
        row.fail(f"has the id {image!r} but the path {path!r} under {key!r}")
    return image
