"""Read FashionIQ: the validation split, from the official annotation files.

| protocol | queries | positives | gallery | query id |
|---|---|---|---|---|
| `fashioniq/original` | one per row, one category at a time | `target` | the category's val list | `<category>-<row>` |
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

`Query.details` holds `rows` ([category, row]), `captions` (both raw captions, one pair per row), `empty_captions`
([category, row, 0 or 1]) and, under the M-BEIR protocols, `mbeir_targets`, all positives.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Defect, Protocol, Query, ReferencePolicy
from circus_bench.errors import BenchmarkError, FormatError, format_ids
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
    origin="github.com/XiaoxiaoGuo/fashion-iq",
    license="CDLA (variant not stated)",
    image_license="Amazon product photos by URL: no redistribution right",
    images_redistributable=False,
    citation='Wu et al., "Fashion IQ: A New Dataset Towards Retrieving Images by Natural Language Feedback", CVPR 2021',
)
INSTRUCTION = "Find a fashion image that aligns with the reference image and style note."
CATEGORIES = ("dress", "shirt", "toptee")
CAPTION_POLICIES = ("joined", "reversed", "first", "second", "separate")
_SPLITS = ("train", "val", "test")
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

_protocol = partial(Protocol, reference=ReferencePolicy.KEPT, instruction=INSTRUCTION)
_merged = partial(
    _protocol,
    gallery="union of the image lists of all categories and splits, the reference among them (M-BEIR)",
    captions='both captions (the one, where the other is empty) joined with " and " in file order, in M-BEIR\'s text '
    "format; rows with the same reference and text merged",
)
PROTOCOLS = protocols_by_id(
    _protocol(
        id="fashioniq/original",
        gallery=_GALLERIES["split"],
        positives="target",
        captions=f"{_CAPTIONS['joined']}, white space and the marks .?, off both ends",
    ),
    _merged(id="fashioniq/mbeir", positives="the targets of all merged rows (M-BEIR)"),
    _merged(id="fashioniq/circus", positives="the target of the first merged row (CIRCUS)"),
)
_ASIN = re.compile(r"[0-9A-Z]{10}")


@dataclasses.dataclass(frozen=True)
class _CaptionRow:
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
    """Return the product id in the name of an image file, `<asin>.jpg` or `.png`; None for other files."""
    known = path.suffix.lower() in {".jpg", ".jpeg", ".png"} and _ASIN.fullmatch(path.stem)
    return path.stem if known else None


def load(
    protocol: str,
    folder: StrPath | None,
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
    check_choice(protocol, PROTOCOLS, what="protocol of FashionIQ")
    check_choice(captions, CAPTION_POLICIES, what="caption policy of FashionIQ")
    check_choice(gallery, _GALLERIES, what="gallery of FashionIQ")
    original = protocol == "fashioniq/original"
    if original:
        category = check_choice(category or "(none given)", CATEGORIES, what="category of FashionIQ")
    elif category or (captions, gallery) != ("joined", "split"):
        raise BenchmarkError(f"{protocol} has no choice of category, captions or gallery; use fashioniq/original")
    categories = (category,) if category else CATEGORIES
    files = [_find(folder, "captions", f"cap.{name}.val.json") for name in categories]
    splits = ("val",) if original else _SPLITS
    lists = [_find(folder, "image_splits", f"split.{name}.{split}.json") for name in categories for split in splits]
    rows = [row for name, file in zip(categories, files, strict=True) for row in _read(file, name)]
    facts: dict[str, Any] = {"empty_captions": [place for row in rows for place in row.empty]}
    if original:
        queries = [query for row in rows for query in _queries(row, captions)]
        left_out = {row.number for row in rows} - {query.details["rows"][0][1] for query in queries}
        facts |= {"category": category, "left_out_rows": sorted(left_out)}
    else:
        queries = _merge(rows, all_targets=protocol == "fashioniq/mbeir")
    if gallery == "union":
        lists = []
        ids = list(dict.fromkeys(image for row in rows for image in (row.reference, row.target)))
    else:
        ids = [image for file in lists for image in _read_list(file)]
    return build_benchmark(
        f"fashioniq-{category}" if original else "fashioniq",
        _variant(captions, gallery) if original else PROTOCOLS[protocol],
        queries=queries,
        gallery=ids if original else dict.fromkeys(ids),
        images=images,
        allow=allow,
        info=INFO,
        files=[*files, *lists],
        folder=files[0].parent.parent,
        split="val",
        counts={"rows": len(rows)},
        **facts,
    )


def _merge(rows: Sequence[_CaptionRow], *, all_targets: bool) -> list[Query]:
    """Merge the rows of all categories into queries, as M-BEIR does."""
    queries = []
    for index, group in enumerate(group_rows(rows, lambda row: (row.reference, _mbeir_caption(row.captions)))):
        first, targets = group[0], list(dict.fromkeys(row.target for row in group))
        queries.append(
            Query(
                id=str(index),
                reference=first.reference,
                text=_mbeir_caption(first.captions),
                targets=tuple(targets if all_targets else targets[:1]),
                group=first.category,
                details={**_details(group), "mbeir_targets": targets},
            )
        )
    return queries


def _find(folder: StrPath | None, part: str, name: str) -> Path:
    return find_file(folder, f"{part}/{name}", name, origin=INFO.origin)


def _read(path: Path, category: str) -> list[_CaptionRow]:
    rows = read_rows(path, origin=INFO.origin)
    check_id_types(rows, "candidate", "target", path=path)
    return [_checked(row, category) for row in rows]


def _checked(row: AnnotationRow, category: str) -> _CaptionRow:
    captions = row.get_strings("captions")
    if len(captions) != 2:
        row.fail(f"has {len(captions)} captions, expected two")
    if not any(caption.strip() for caption in captions):
        row.fail("has two empty captions: nothing says what to change")
    return _CaptionRow(category, row.number, row.get_id("candidate"), row.get_id("target"), (captions[0], captions[1]))


def _read_list(path: Path) -> tuple[str, ...]:
    ids = read_json(path, list, origin=INFO.origin)
    wrong = [entry for entry in ids if not isinstance(entry, str)]
    if wrong:
        raise FormatError(f"{path}: image ids are not strings ({format_ids(wrong)}); get it again from {INFO.origin}")
    return tuple(ids)


def _mbeir_caption(captions: Sequence[str]) -> str:
    """Join captions as M-BEIR does: `("Is red.", "has sleeves")` becomes `Is red and has sleeves.`."""
    cleaned = [caption.strip() for caption in captions if caption.strip()]
    lowered = [caption[0].lower() + caption[1:] for caption in cleaned]
    return mbeir_text(" and ".join(caption.removesuffix(".") for caption in lowered))


def _variant(captions: str, gallery: str) -> Protocol:
    """Return the original protocol with other captions or another gallery, and then with another id."""
    changes = [captions] * (captions != "joined") + [f"gallery-{gallery}"] * (gallery != "split")
    original = PROTOCOLS["fashioniq/original"]
    return dataclasses.replace(
        original,
        id="+".join([original.id, *changes]),
        captions=f"{_CAPTIONS[captions]}, white space and the marks .?, off both ends",
        gallery=_GALLERIES[gallery],
    )


def _queries(row: _CaptionRow, policy: str) -> list[Query]:
    """Make the query of a row under a caption policy: two under `separate`, none where the caption wanted is empty."""
    name = f"{row.category}-{row.number}"
    cleaned = [caption.strip().strip(".?, ") for caption in row.captions]
    texts = {
        "joined": {name: " and ".join(filter(None, cleaned))},
        "reversed": {name: " and ".join(filter(None, reversed(cleaned)))},
        "first": {name: cleaned[0]},
        "second": {name: cleaned[1]},
        "separate": {f"{name}-{position}": caption for position, caption in enumerate(cleaned)},
    }[policy]
    return [
        Query(query, row.reference, text, (row.target,), group=row.category, details=_details([row]))
        for query, text in texts.items()
        if text or policy in {"joined", "reversed"}  # a blank join is a defect that the benchmark reports
    ]


def _details(rows: Sequence[_CaptionRow]) -> dict[str, Any]:
    return {
        "rows": [[row.category, row.number] for row in rows],
        "captions": [list(row.captions) for row in rows],
        "empty_captions": [place for row in rows for place in row.empty],
    }
