"""FashionIQ: the validation split, from the official annotation files.

| protocol | queries | positives | gallery | query id |
|---|---|---|---|---|
| `fashioniq/original` | one a row, one category at a time | `target` | the category's val list | `<category>-<row>` |
| `fashioniq/mbeir` | as M-BEIR (and so MTEB) merges rows | the targets of the merged rows | all nine lists | index |
| `fashioniq/circus` | the same | the first of them | the same | the same |

Rows and the M-BEIR index count from 0. The reference stays in the gallery under all of them: for the original protocol
that is the custom of common code bases, not a written rule. The instruction is the CIRCUS paper's; FashionIQ has none.

Each row has two captions. M-BEIR's text: per caption white space off, first letter lower case, one final full stop off;
joined with " and "; then M-BEIR's text format. Rows with the same reference and text are one query, across categories.
Of a row with one empty caption the other alone is used; `Query.details["empty_captions"]` names the row. Two empty
captions are an error.

`fashioniq/original` takes two options, and a benchmark of other than the default ones has another protocol id, so that
unlike scores are never mixed: `captions` = `joined` ("c1 and c2", white space and the marks `.?,` off both ends;
default), `reversed` ("c2 and c1"), `first`, `second` (that caption alone; rows where it is empty are left out and
counted) or `separate` (each caption its own query, `<category>-<row>-<0|1>`); `gallery` = `split` (default) or `union`
(val references and targets only, the "VAL protocol"). The mean of both orders, also in use, averages embeddings: it is
not a set of queries and not offered.

`Query.details` holds `rows` ([category, row]), `captions` (both raw captions, one pair a row), `empty_captions`
([category, row, 0 or 1]) and, under the M-BEIR protocols, `mbeir_targets`, all positives.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from circus_bench.benchmark import Benchmark, Defect, Gallery, Protocol, Query, ReferencePolicy
from circus_bench.errors import BenchmarkError, FormatError, some
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
    place="github.com/XiaoxiaoGuo/fashion-iq",
    license="CDLA (variant not stated)",
    image_license="Amazon product photos by URL: no redistribution right",
    images_redistributable=False,
    citation='Wu et al., "Fashion IQ: A New Dataset Towards Retrieving Images by Natural Language Feedback", CVPR 2021',
)
INSTRUCTION = "Find a fashion image that aligns with the reference image and style note."
CATEGORIES = ("dress", "shirt", "toptee")
CAPTION_POLICIES = ("joined", "reversed", "first", "second", "separate")
_SPLITS = ("train", "val", "test")
_MBEIR_CAPTIONS = (
    'both captions (the one, where the other is empty) joined with " and " in file order, in M-BEIR\'s text format; '
    "rows with the same reference and text merged"
)
_MBEIR_GALLERY = "union of the image lists of all categories and splits, the reference among them (M-BEIR)"
_CAPTIONS = {
    "joined": '"c1 and c2"',
    "reversed": '"c2 and c1"',
    "first": "the first caption alone",
    "second": "the second caption alone",
    "separate": "each caption a query of its own",
}
_GALLERIES = {
    "split": "all images of the category's val list",
    "union": "references and targets of the category's val queries only",
}

PROTOCOLS = {
    protocol.id: protocol
    for protocol in (
        Protocol(
            id="fashioniq/original",
            reference=ReferencePolicy.KEPT,
            instruction=INSTRUCTION,
            gallery=_GALLERIES["split"],
            positives="target",
            captions=f"{_CAPTIONS['joined']}, white space and the marks .?, off both ends",
        ),
        Protocol(
            id="fashioniq/mbeir",
            reference=ReferencePolicy.KEPT,
            instruction=INSTRUCTION,
            gallery=_MBEIR_GALLERY,
            positives="the targets of all merged rows (M-BEIR)",
            captions=_MBEIR_CAPTIONS,
        ),
        Protocol(
            id="fashioniq/circus",
            reference=ReferencePolicy.KEPT,
            instruction=INSTRUCTION,
            gallery=_MBEIR_GALLERY,
            positives="the target of the first merged row (CIRCUS)",
            captions=_MBEIR_CAPTIONS,
        ),
    )
}
# Published by the authors of M-BEIR and of the CIRCUS paper.
_ASIN = re.compile(r"[0-9A-Z]{10}")


@dataclasses.dataclass(frozen=True)
class _Row:
    """A row of a caption file, checked."""

    category: str
    number: int
    reference: str
    target: str
    captions: tuple[str, str]

    @property
    def empty(self) -> list[list[Any]]:
        """[category, row, caption] of the empty captions."""
        blanks = [position for position, caption in enumerate(self.captions) if not caption.strip()]
        return [[self.category, self.number, position] for position in blanks]


def image_id(path: Path) -> str | None:
    """The product id in the name of an image file, `<asin>.jpg` or `.png`; None for other files."""
    known = path.suffix.lower() in {".jpg", ".jpeg", ".png"} and _ASIN.fullmatch(path.stem)
    return path.stem if known else None


def load(
    protocol: str,
    folder: Path | None,
    *,
    images: Mapping[str, bytes] | None = None,
    allow: Iterable[Defect] = (),
    category: str | None = None,
    captions: str = "joined",
    gallery: str = "split",
) -> Benchmark:
    """Read FashionIQ.

    Args:
        protocol: one of `PROTOCOLS`.
        folder: holds `captions/` and `image_splits/` of the official annotations.
        images: product id to the bytes of its image file; without them the benchmark has annotations only.
        allow: defects to allow.
        category: `dress`, `shirt` or `toptee`, under `fashioniq/original`.
        captions: one of `CAPTION_POLICIES`, under `fashioniq/original`.
        gallery: `split` or `union`, under `fashioniq/original`.

    Raises:
        FormatError: a file is missing or does not follow its schema.
        BenchmarkError: the annotations contradict each other, or an option makes no sense.
    """
    choose(protocol, PROTOCOLS, what="protocol of FashionIQ")
    choose(captions, CAPTION_POLICIES, what="caption policy of FashionIQ")
    choose(gallery, _GALLERIES, what="gallery of FashionIQ")
    if protocol == "fashioniq/original":
        category = choose(category or "(none given)", CATEGORIES, what="category of FashionIQ")
        return _original(folder, category, captions, gallery, images=images, allow=frozenset(allow))
    if category or (captions, gallery) != ("joined", "split"):
        raise BenchmarkError(f"{protocol} has no choice of category, captions or gallery; use fashioniq/original")
    return _merged(protocol, folder, images=images, allow=frozenset(allow))


def _original(
    folder: Path | None,
    category: str,
    captions: str,
    gallery: str,
    *,
    images: Mapping[str, bytes] | None,
    allow: frozenset[Defect],
) -> Benchmark:
    """The queries of one category, as the official files have them."""
    path, listed = _caption_file(folder, category), _image_list(folder, category, "val")
    rows = _read(path, category)
    queries = [query for row in rows for query in _queries(row, captions)]
    ids = (
        _read_list(listed)
        if gallery == "split"
        else tuple(dict.fromkeys(image for row in rows for image in (row.reference, row.target)))
    )
    return Benchmark(
        name=f"fashioniq-{category}",
        protocol=_variant(captions, gallery),
        queries=tuple(queries),
        gallery=Gallery(ids, images),
        source=provenance(
            ORIGIN,
            [path, listed] if gallery == "split" else [path],
            folder=path.parent.parent,
            split="val",
            counts={"rows": len(rows), "queries": len(queries), "targets": len(queries)},
            category=category,
            empty_captions=[place for row in rows for place in row.empty],
            left_out_rows=sorted({row.number for row in rows} - {query.details["rows"][0][1] for query in queries}),
        ),
        allow=allow,
    )


def _merged(
    protocol: str, folder: Path | None, *, images: Mapping[str, bytes] | None, allow: frozenset[Defect]
) -> Benchmark:
    """The queries of all categories, as M-BEIR merges them."""
    files = [_caption_file(folder, category) for category in CATEGORIES]
    lists = [_image_list(folder, category, split) for category in CATEGORIES for split in _SPLITS]
    rows = [row for category, file in zip(CATEGORIES, files, strict=True) for row in _read(file, category)]
    groups = group_by(rows, lambda row: (row.reference, _mbeir_caption(row.captions)))
    queries = []
    for index, group in enumerate(groups):
        targets = tuple(dict.fromkeys(row.target for row in group))
        queries.append(
            Query(
                id=str(index),
                reference=group[0].reference,
                text=_mbeir_caption(group[0].captions),
                targets=targets if protocol == "fashioniq/mbeir" else targets[:1],
                group=group[0].category,
                details={**_details(group), "mbeir_targets": list(targets)},
            )
        )
    return Benchmark(
        name="fashioniq",
        protocol=PROTOCOLS[protocol],
        queries=tuple(queries),
        gallery=Gallery(tuple(dict.fromkeys(image for file in lists for image in _read_list(file))), images),
        source=provenance(
            ORIGIN,
            [*files, *lists],
            folder=files[0].parent.parent,
            split="val",
            counts={
                "rows": len(rows),
                "queries": len(queries),
                "targets": sum(len(query.targets) for query in queries),
            },
            empty_captions=[place for row in rows for place in row.empty],
        ),
        allow=allow,
    )


def _caption_file(folder: Path | None, category: str) -> Path:
    name = f"cap.{category}.val.json"
    return locate(folder, f"captions/{name}", name, origin=ORIGIN.place)


def _image_list(folder: Path | None, category: str, split: str) -> Path:
    name = f"split.{category}.{split}.json"
    return locate(folder, f"image_splits/{name}", name, origin=ORIGIN.place)


def _read(path: Path, category: str) -> list[_Row]:
    rows = read_rows(path, origin=ORIGIN.place)
    require_one_kind(rows, "candidate", "target", path=path)
    return [_checked(row, category) for row in rows]


def _checked(row: Row, category: str) -> _Row:
    captions = row.strings("captions")
    if len(captions) != 2:
        row.fail(f"has {len(captions)} captions, expected two")
    if not any(caption.strip() for caption in captions):
        row.fail("has two empty captions: nothing says what to change")
    return _Row(category, row.number, row.identifier("candidate"), row.identifier("target"), (captions[0], captions[1]))


def _read_list(path: Path) -> tuple[str, ...]:
    ids = read_json(path, list, origin=ORIGIN.place)
    wrong = [entry for entry in ids if not isinstance(entry, str)]
    if wrong:
        raise FormatError(f"{path}: image ids are not strings ({some(wrong)}); get it again from {ORIGIN.place}")
    return tuple(ids)


def _mbeir_caption(captions: Sequence[str]) -> str:
    """Example: `("Is red.", "has sleeves")` becomes `Is red and has sleeves.`."""
    cleaned = [caption.strip() for caption in captions if caption.strip()]
    lowered = [caption[0].lower() + caption[1:] for caption in cleaned]
    return mbeir_text(" and ".join(caption.removesuffix(".") for caption in lowered))


def _variant(captions: str, gallery: str) -> Protocol:
    """The original protocol with other captions or another gallery, and then with another id."""
    changes = [captions] * (captions != "joined") + [f"gallery-{gallery}"] * (gallery != "split")
    original = PROTOCOLS["fashioniq/original"]
    return dataclasses.replace(
        original,
        id="+".join([original.id, *changes]),
        captions=f"{_CAPTIONS[captions]}, white space and the marks .?, off both ends",
        gallery=_GALLERIES[gallery],
    )


def _queries(row: _Row, policy: str) -> list[Query]:
    """The query of a row under a caption policy: two under `separate`, none where the caption wanted is empty."""
    identifier = f"{row.category}-{row.number}"
    cleaned = [caption.strip().strip(".?, ") for caption in row.captions]
    texts = {
        "joined": {identifier: " and ".join(filter(None, cleaned))},
        "reversed": {identifier: " and ".join(filter(None, reversed(cleaned)))},
        "first": {identifier: cleaned[0]},
        "second": {identifier: cleaned[1]},
        "separate": {f"{identifier}-{position}": caption for position, caption in enumerate(cleaned)},
    }[policy]
    return [
        Query(name, row.reference, text, (row.target,), group=row.category, details=_details([row]))
        for name, text in texts.items()
        if text or policy in {"joined", "reversed"}  # a blank join is a defect that the benchmark reports
    ]


def _details(rows: Sequence[_Row]) -> dict[str, Any]:
    return {
        "rows": [[row.category, row.number] for row in rows],
        "captions": [list(row.captions) for row in rows],
        "empty_captions": [place for row in rows for place in row.empty],
    }
