"""CIRR: the validation and test1 splits, from the official annotation files.

| protocol | queries | positives | gallery | reference | query id |
|---|---|---|---|---|---|
| `cirr/official` | one a row of `cap.rc2.val.json` | `target_hard` | val | removed | `pairid` |
| `cirr/test1` | one a row of `cap.rc2.test1.json` | hidden | test1 | removed | `pairid` |
| `cirr/mbeir` | as M-BEIR (and so MTEB) merges rows | soft value 1.0 | train, val, test1 | kept | index, from 0 |
| `cirr/circus` | the same | the first of them | the same | kept | the same |

How M-BEIR merges: rows with the same reference and raw caption are one query; their `target_soft` maps are merged, a
later value replacing an earlier one; the positives are the images whose value is exactly 1.0, in order of appearance;
`target_hard` is not consulted; a query without a positive is dropped. Where a soft map gives the reference itself 1.0,
the reference becomes a positive: those queries are kept and recorded as findings (`Defect.REFERENCE_IS_TARGET`).

The instruction of every protocol is the CIRCUS paper's; CIRR itself has none. `Query.subset` is the image set under the
official protocols (its six members hold the reference, which ranking leaves out). `Query.details` holds `pairids`,
`rows` (from 0), `target_hard`, `target_soft`, `captions` (raw) and `img_sets` (`id`, `reference_rank`, `target_rank`),
one entry a row that the query was made of; the M-BEIR protocols add `mbeir_targets`, all positives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from circus_bench.benchmark import Benchmark, Defect, Gallery, Protocol, Query, ReferencePolicy
from circus_bench.sources.annotations import (
    Origin,
    Row,
    choose,
    group_by,
    locate,
    provenance,
    read_json,
    read_rows,
    require_one_kind,
)
from circus_bench.sources.mbeir import mbeir_text

ORIGIN = Origin(
    place="github.com/Cuberick-Orion/CIRR, branch cirr_dataset",
    license="MIT",
    image_license="NLVR2 images: not licensed for redistribution; access by request form",
    images_redistributable=False,
    citation='Liu et al., "Image Retrieval on Real-life Images with Pre-trained Vision-and-Language Models" (CIRR), '
    "ICCV 2021",
)
INSTRUCTION = "Retrieve a day-to-day image that aligns with the modification instructions of the provided image."
_MBEIR_CAPTIONS = (
    "caption without carriage returns, outer white space and outer double quotes; first letter upper case; full stop "
    "added; rows with the same reference and caption merged (M-BEIR)"
)
_MBEIR_GALLERY = "all images of train, val and test1, the reference among them (M-BEIR)"
_SPLITS = ("train", "val", "test1")

PROTOCOLS = {
    protocol.id: protocol
    for protocol in (
        Protocol(
            id="cirr/official",
            reference=ReferencePolicy.REMOVED,
            instruction=INSTRUCTION,
            gallery="all images of val",
            positives="target_hard",
            captions="caption, unchanged",
        ),
        Protocol(
            id="cirr/test1",
            reference=ReferencePolicy.REMOVED,
            instruction=INSTRUCTION,
            gallery="all images of test1",
            positives="known to the test server only",
            captions="caption, unchanged",
            hidden_targets=True,
        ),
        Protocol(
            id="cirr/mbeir",
            reference=ReferencePolicy.KEPT,
            instruction=INSTRUCTION,
            gallery=_MBEIR_GALLERY,
            positives="all images of soft value 1.0, target_hard not consulted (M-BEIR)",
            captions=_MBEIR_CAPTIONS,
        ),
        Protocol(
            id="cirr/circus",
            reference=ReferencePolicy.KEPT,
            instruction=INSTRUCTION,
            gallery=_MBEIR_GALLERY,
            positives="the first image of soft value 1.0, target_hard not consulted (CIRCUS)",
            captions=_MBEIR_CAPTIONS,
        ),
    )
}
# One test1 caption is blank in the official file; M-BEIR's positives contain references.
_KNOWN_DEFECTS = {
    "cirr/test1": frozenset({Defect.EMPTY_TEXT}),
    "cirr/mbeir": frozenset({Defect.REFERENCE_IS_TARGET}),
    "cirr/circus": frozenset({Defect.REFERENCE_IS_TARGET}),
}
# Published by the authors of CIRR (its repository), of M-BEIR and of the CIRCUS paper, in this order.
_IMAGE_NAME = re.compile(r"(dev|test1|train)-\d+-\d+-img\d+")


def image_id(path: Path) -> str | None:
    """The CIRR name of an image file, such as `dev-1-0-img0`; None for other files."""
    return path.stem if _IMAGE_NAME.fullmatch(path.stem) else None


def load(
    protocol: str,
    folder: Path | None,
    *,
    images: Mapping[str, bytes] | None = None,
    allow: Iterable[Defect] = (),
) -> Benchmark:
    """Read CIRR.

    Args:
        protocol: one of `PROTOCOLS`.
        folder: holds `captions/` and `image_splits/` of the official annotations.
        images: image name to the bytes of its file; without them the benchmark has annotations only.
        allow: defects to allow besides those that the official files are known for.

    Raises:
        FormatError: a file is missing or does not follow its schema.
        BenchmarkError: the annotations contradict each other.
    """
    choose(protocol, PROTOCOLS, what="protocol of CIRR")
    split = "test1" if protocol == "cirr/test1" else "val"
    captions = _locate(folder, "captions", f"cap.rc2.{split}.json")
    merged = protocol in {"cirr/mbeir", "cirr/circus"}
    lists = [_locate(folder, "image_splits", f"split.rc2.{part}.json") for part in (_SPLITS if merged else [split])]
    rows = read_rows(captions, origin=ORIGIN.place)
    require_one_kind(rows, "pairid", path=captions)
    counts = {"rows": len(rows)}
    if merged:
        groups = group_by(rows, lambda row: (row.identifier("reference"), row.get("caption", str)))
        made = [_merge(group) for group in groups]
        kept = [query for query in made if query[2]]
        positives = slice(None) if protocol == "cirr/mbeir" else slice(1)
        queries = [
            Query(str(index), reference, text, targets[positives], details=details)
            for index, (reference, text, targets, details) in enumerate(kept)
        ]
        counts |= {"groups": len(groups), "groups_without_positive": len(groups) - len(kept)}
    else:
        queries = [_official(row, hidden=split == "test1") for row in rows]
    counts |= {"queries": len(queries), "targets": sum(len(query.targets) for query in queries)}
    return Benchmark(
        name="cirr",
        protocol=PROTOCOLS[protocol],
        queries=tuple(queries),
        gallery=Gallery(tuple(name for file in lists for name in read_json(file, dict, origin=ORIGIN.place)), images),
        source=provenance(
            ORIGIN,
            [captions, *lists],
            folder=captions.parent.parent,
            split=split,
            counts=counts,
        ),
        allow=_KNOWN_DEFECTS.get(protocol, frozenset()) | frozenset(allow),
    )


def _locate(folder: Path | None, part: str, name: str) -> Path:
    return locate(folder, f"{part}/{name}", f"cirr/{part}/{name}", origin=ORIGIN.place)


def _official(row: Row, *, hidden: bool) -> Query:
    return Query(
        id=row.identifier("pairid"),
        reference=row.identifier("reference"),
        text=row.get("caption", str),
        targets=() if hidden else (row.identifier("target_hard"),),
        subset=tuple(row.as_identifier(name, "img_set") for name in _image_set(row).get("members", ())),
        details=_details([row], hidden=hidden),
    )


def _merge(group: list[Row]) -> tuple[str, str, tuple[str, ...], dict[str, Any]]:
    """Reference, text, positives and details of the M-BEIR query that some rows make up."""
    details = _details(group, hidden=False)
    soft: dict[str, float] = {}
    for values in details["target_soft"]:
        soft |= values
    positives = tuple(name for name, value in soft.items() if value == 1.0)
    details["mbeir_targets"] = list(positives)
    return group[0].identifier("reference"), mbeir_text(group[0].get("caption", str)), positives, details


def _details(group: list[Row], *, hidden: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "pairids": [row["pairid"] for row in group],
        "rows": [row.number for row in group],
        "captions": [row.get("caption", str) for row in group],
        "img_sets": [{k: v for k, v in _image_set(row).items() if k != "members"} for row in group],
    }
    if not hidden:
        facts["target_hard"] = [row.identifier("target_hard") for row in group]
        facts["target_soft"] = [_soft(row) for row in group]
    return facts


def _soft(row: Row) -> dict[str, float]:
    values: dict[str, Any] = row.get("target_soft", dict)
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            row.fail(f"gives {name!r} the soft value {value!r}, expected a number")
    return dict(values)


def _image_set(row: Row) -> dict[str, Any]:
    image_set: dict[str, Any] = row.get("img_set", dict)
    members = image_set.get("members")
    if not isinstance(members, list) or not members:
        row.fail("has an 'img_set' without the list 'members' of image names")
    return image_set
