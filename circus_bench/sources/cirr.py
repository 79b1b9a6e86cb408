"""Read CIRR: the validation and test1 splits, from the official annotation files.

| protocol | queries | positives | gallery | reference | query id |
|---|---|---|---|---|---|
| `cirr/official` | one per row of `cap.rc2.val.json` | `target_hard` | val | removed | `pairid` |
| `cirr/test1` | one per row of `cap.rc2.test1.json` | hidden | test1 | removed | `pairid` |
| `cirr/mbeir` | as M-BEIR (and so MTEB) merges rows | soft value 1.0 | train, val, test1 | kept | index, from 0 |
| `cirr/circus` | the same | the first of them | the same | kept | the same |

How M-BEIR merges: rows with the same reference and raw caption are one query; their `target_soft` maps are merged, a
later value replacing an earlier one; the positives are the images whose value is exactly 1.0, in order of appearance;
`target_hard` is not consulted; a query without a positive is dropped. Where a soft map gives the reference itself 1.0,
the reference becomes a positive: those queries are kept and recorded as findings (`Defect.REFERENCE_IS_TARGET`).

The instruction of every protocol is the CIRCUS paper's; CIRR itself has none. `Query.subset` is the image set under the
official protocols (its six members hold the reference, which ranking leaves out). `Query.details` holds `pairids`,
`rows` (from 0), `target_hard`, `target_soft`, `captions` (raw) and `img_sets` (`id`, `reference_rank`, `target_rank`),
one entry per row that the query was made of; the M-BEIR protocols add `mbeir_targets`, all positives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Defect, Protocol, Query, ReferencePolicy
from circus_bench.sources.annotations import (
    AnnotationRow,
    SourceInfo,
    build_benchmark,
    check_choice,
    check_id_types,
    find_file,
    group_rows,
    protocols_by_id,
    read_json,
    read_rows,
)
from circus_bench.sources.mbeir import mbeir_text

INFO = SourceInfo(
    origin="github.com/Cuberick-Orion/CIRR, branch cirr_dataset",
    license="MIT",
    image_license="NLVR2 images: not licensed for redistribution; access by request form",
    images_redistributable=False,
    citation='Liu et al., "Image Retrieval on Real-life Images with Pre-trained Vision-and-Language Models" (CIRR), '
    "ICCV 2021",
)
INSTRUCTION = "Retrieve a day-to-day image that aligns with the modification instructions of the provided image."
_SPLITS = ("train", "val", "test1")
_official = partial(Protocol, reference=ReferencePolicy.REMOVED, instruction=INSTRUCTION, captions="caption, unchanged")
_merged = partial(
    Protocol,
    reference=ReferencePolicy.KEPT,
    instruction=INSTRUCTION,
    gallery="all images of train, val and test1, the reference among them (M-BEIR)",
    captions="caption without carriage returns, outer white space and outer double quotes; first letter upper case; "
    "full stop added; rows with the same reference and caption merged (M-BEIR)",
)
PROTOCOLS = protocols_by_id(
    _official(id="cirr/official", gallery="all images of val", positives="target_hard"),
    _official(
        id="cirr/test1",
        gallery="all images of test1",
        positives="known to the test server only",
        hidden_targets=True,
    ),
    _merged(id="cirr/mbeir", positives="all images of soft value 1.0, target_hard not consulted (M-BEIR)"),
    _merged(id="cirr/circus", positives="the first image of soft value 1.0, target_hard not consulted (CIRCUS)"),
)
# One test1 caption is blank in the official file; M-BEIR's positives contain references.
_KNOWN_DEFECTS = {
    "cirr/test1": frozenset({Defect.EMPTY_TEXT}),
    "cirr/mbeir": frozenset({Defect.REFERENCE_IS_TARGET}),
    "cirr/circus": frozenset({Defect.REFERENCE_IS_TARGET}),
}
# Published by the authors of CIRR (its repository), of M-BEIR and of the CIRCUS paper, in this order.
_IMAGE_NAME = re.compile(r"(dev|test1|train)-\d+-\d+-img\d+")


def image_id(path: Path) -> str | None:
    """Return the CIRR name of an image file, such as `dev-1-0-img0`; None for other files."""
    return path.stem if _IMAGE_NAME.fullmatch(path.stem) else None


def load(
    protocol: str,
    folder: StrPath | None,
    *,
    images: Mapping[str, bytes] | None = None,
    allow: Iterable[Defect] = (),
) -> Benchmark:
    """Read CIRR from a folder that holds `captions/` and `image_splits/`; see `load_source` for arguments and errors.

    Defects that the official files are known for are allowed besides those in `allow`.
    """
    check_choice(protocol, PROTOCOLS, what="protocol of CIRR")
    split = "test1" if protocol == "cirr/test1" else "val"
    captions = _find(folder, "captions", f"cap.rc2.{split}.json")
    merged = protocol in {"cirr/mbeir", "cirr/circus"}
    lists = [_find(folder, "image_splits", f"split.rc2.{part}.json") for part in (_SPLITS if merged else [split])]
    rows = read_rows(captions, origin=INFO.origin)
    check_id_types(rows, "pairid", path=captions)
    counts = {"rows": len(rows)}
    if merged:
        groups = group_rows(rows, lambda row: (row.get_id("reference"), row.get("caption", str)))
        made = [_merge(group) for group in groups]
        kept = [query for query in made if query[2]]
        positives = slice(None) if protocol == "cirr/mbeir" else slice(1)
        queries = [
            Query(str(index), reference, text, targets[positives], details=details)
            for index, (reference, text, targets, details) in enumerate(kept)
        ]
        counts |= {"groups": len(groups), "groups_without_positive": len(groups) - len(kept)}
    else:
        queries = [_query(row, hidden=split == "test1") for row in rows]
    return build_benchmark(
        "cirr",
        PROTOCOLS[protocol],
        queries=queries,
        gallery=(name for file in lists for name in read_json(file, dict, origin=INFO.origin)),
        images=images,
        allow={*_KNOWN_DEFECTS.get(protocol, ()), *allow},
        info=INFO,
        files=[captions, *lists],
        folder=captions.parent.parent,
        split=split,
        counts=counts,
    )


def _find(folder: StrPath | None, part: str, name: str) -> Path:
    return find_file(folder, f"{part}/{name}", f"cirr/{part}/{name}", origin=INFO.origin)


def _query(row: AnnotationRow, *, hidden: bool) -> Query:
    return Query(
        id=row.get_id("pairid"),
        reference=row.get_id("reference"),
        text=row.get("caption", str),
        targets=() if hidden else (row.get_id("target_hard"),),
        subset=tuple(row.check_id(name, "img_set") for name in _image_set(row).get("members", ())),
        details=_details([row], hidden=hidden),
    )


def _merge(group: list[AnnotationRow]) -> tuple[str, str, tuple[str, ...], dict[str, Any]]:
    """Merge rows into an M-BEIR query: reference, text, positives and details."""
    details = _details(group, hidden=False)
    soft: dict[str, float] = {}
    for values in details["target_soft"]:
        soft |= values
    positives = tuple(name for name, value in soft.items() if value == 1.0)
    details["mbeir_targets"] = list(positives)
    return group[0].get_id("reference"), mbeir_text(group[0].get("caption", str)), positives, details


def _details(group: list[AnnotationRow], *, hidden: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "pairids": [row["pairid"] for row in group],
        "rows": [row.number for row in group],
        "captions": [row.get("caption", str) for row in group],
        "img_sets": [{k: v for k, v in _image_set(row).items() if k != "members"} for row in group],
    }
    if not hidden:
        facts["target_hard"] = [row.get_id("target_hard") for row in group]
        facts["target_soft"] = [_soft(row) for row in group]
    return facts


def _soft(row: AnnotationRow) -> dict[str, float]:
    values: dict[str, Any] = row.get("target_soft", dict)
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            row.fail(f"gives {name!r} the soft value {value!r}, expected a number")
    return dict(values)


def _image_set(row: AnnotationRow) -> dict[str, Any]:
    image_set: dict[str, Any] = row.get("img_set", dict)
    members = image_set.get("members")
    if not isinstance(members, list) or not members:
        row.fail("has an 'img_set' without the list 'members' of image names")
    return image_set
