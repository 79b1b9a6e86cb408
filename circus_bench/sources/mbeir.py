"""Read any composed retrieval task of M-BEIR from its JSON lines files; normalize texts as M-BEIR does.

The files of a task, as M-BEIR lays them out:

- queries, `query/<split>/mbeir_<name>_<split>.jsonl`: `qid`, `query_txt`, `query_img_path`, `query_modality`
  (`image,text`), `pos_cand_list`, `neg_cand_list`;
- the candidate pool, `cand_pool/local/mbeir_<name>_cand_pool.jsonl`: `did`, `img_path`, `modality` (`image`);
- optional qrels, `qrels/<split>/mbeir_<name>_<split>_qrels.txt`: `qid 0 did relevance [task]` per line.

The keys were read in M-BEIR's documentation, not checked against its files, so the other names in `ALIASES` are
accepted too. Only composed queries (image and text) over images can be read: other modalities are an error.

The query id is the query's place in the file, from 0: the index that labels published for M-BEIR go by. `qid` is in
`Query.details`, with `neg_cand_list`. An image's id is its path in M-BEIR (`mbeir_images/...`), since reference and
candidates have nothing else in common; `did` is used only to join the positives. The reference stays in the gallery.
Positives that are their query's own reference occur in M-BEIR (CIRR): they are kept and recorded as findings.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Defect, Protocol, Query, ReferencePolicy
from circus_bench.errors import FormatError, format_ids
from circus_bench.sources.annotations import (
    AnnotationRow,
    SourceInfo,
    build_benchmark,
    check_choice,
    check_id_types,
    find_file,
    read_rows,
    read_text,
)

INFO = SourceInfo(
    origin="the Hugging Face dataset TIGER-Lab/M-BEIR",
    license="that of the underlying data set",
    image_license="that of the underlying data set",
    images_redistributable=False,
    citation='Wei et al., "UniIR: Training and Benchmarking Universal Multimodal Information Retrievers" (M-BEIR), '
    "ECCV 2024",
)
ALIASES: Mapping[str, Sequence[str]] = {
    "qid": ("query_id", "id"),
    "query_txt": ("query_text", "text"),
    "query_img_path": ("query_image_path", "image_path"),
    "pos_cand_list": ("positive_candidates", "positives"),
    "neg_cand_list": ("negative_candidates", "negatives"),
    "did": ("cand_id", "id"),
    "img_path": ("cand_img_path", "image_path"),
    "modality": ("cand_modality",),
}
PROTOCOLS = {
    "mbeir": Protocol(
        id="mbeir",
        reference=ReferencePolicy.KEPT,
        gallery="the task's candidate pool, the reference among them where the pool has it",
        positives="pos_cand_list, or the qrels of positive relevance where a qrels file is given",
        captions="query_txt, unchanged",
    )
}
_ROOT = "mbeir_images"
_COMPOSED = {"image", "text"}


def mbeir_text(text: str) -> str:
    """Normalize a text as M-BEIR does: no carriage returns, outer white space or outer quotes; a capital; an end mark.

    Source: the `format_string` of M-BEIR's preprocessing; the total text lengths of its CIRR and FashionIQ follow.

    Example:
        >>> mbeir_text(' "is red" '), mbeir_text("why?")
        ('Is red.', 'Why?')
    """
    text = text.replace("\r", "").strip().strip('"')
    if not text:
        return text
    return text[0].upper() + text[1:] + ("" if text[-1] in ".?!" else ".")


def image_id(path: Path) -> str | None:
    """Return the part of a path from its last `mbeir_images` on; None for files outside such a folder."""
    before, found, after = path.as_posix().rpartition(f"{_ROOT}/")
    return found + after if found and (not before or before.endswith("/")) else None


def load(
    protocol: str,
    folder: StrPath | None,
    *,
    name: str,
    split: str = "test",
    queries: StrPath | None = None,
    candidates: StrPath | None = None,
    qrels: StrPath | None = None,
    instruction: str = "",
    images: Mapping[str, bytes] | None = None,
    allow: Iterable[Defect] = (),
) -> Benchmark:
    """Read a composed retrieval task of M-BEIR.

    Args:
        protocol: `mbeir`; the benchmark's protocol is then `mbeir/<name>`.
        folder: of M-BEIR.
        name: the task's name in file names, such as `cirr_task7`.
        split: the split's name in file names.
        queries: the query file, relative to `folder`; M-BEIR's own place by default.
        candidates: the candidate pool, likewise.
        qrels: a qrels file that replaces `pos_cand_list`; none by default.
        instruction: the task instruction.
        images: M-BEIR image path to the bytes of its file; without them the benchmark has annotations only.
        allow: defects to allow besides `Defect.REFERENCE_IS_TARGET`.

    Raises:
        FormatError: a file is missing or does not follow its schema, or the task is not a composed one.
        BenchmarkError: the annotations contradict each other.
    """
    check_choice(protocol, PROTOCOLS, what="protocol of M-BEIR")
    query_path = find_file(folder, queries or f"query/{split}/mbeir_{name}_{split}.jsonl", origin=INFO.origin)
    pool_file = f"mbeir_{name}_cand_pool.jsonl"
    pool_places = [candidates] if candidates else [f"cand_pool/local/{pool_file}", f"cand_pool/{pool_file}"]
    pool_path = find_file(folder, *pool_places, origin=INFO.origin)
    files = [query_path, pool_path]
    pool = _pool(pool_path)
    rows = read_rows(query_path, origin=INFO.origin, aliases=ALIASES)
    check_id_types(rows, "qid", path=query_path)
    if qrels is None:
        positives = {row.get_id("qid"): row.get_ids("pos_cand_list") for row in rows}
    else:
        files.append(find_file(folder, qrels, origin=INFO.origin))
        positives = _qrels(files[-1])
        known = {row.get_id("qid") for row in rows}
        unknown = [qid for qid in positives if qid not in known]
        if unknown:
            raise FormatError(f"{files[-1]}: judges queries that {query_path} does not hold ({format_ids(unknown)})")
    dangling = [did for dids in positives.values() for did in dids if did not in pool]
    return build_benchmark(
        name,
        dataclasses.replace(PROTOCOLS["mbeir"], id=f"mbeir/{name}", instruction=instruction),
        queries=(_query(row, positives.get(row.get_id("qid"), ()), pool) for row in rows),
        gallery=pool.values(),
        images=images,
        allow={Defect.REFERENCE_IS_TARGET, *allow},
        info=INFO,
        files=files,
        folder=folder,
        split=split,
        counts={"dangling_positives": len(dangling)},
    )


def _pool(path: Path) -> dict[str, str]:
    """Read the candidate pool: candidate id to image id, in file order."""
    rows = read_rows(path, origin=INFO.origin, aliases=ALIASES)
    check_id_types(rows, "did", path=path)
    pool: dict[str, str] = {}
    for row in rows:
        if row.get("modality", str) != "image":
            row.fail(
                f"is a candidate of modality {row['modality']!r}, expected 'image': only images can be ranked here"
            )
        did = row.get_id("did")
        if did in pool:
            row.fail(f"repeats the candidate id {did!r}")
        pool[did] = row.get("img_path", str)
    return pool


def _qrels(path: Path) -> dict[str, tuple[str, ...]]:
    """Read qrels: query id to the candidates of positive relevance, in file order."""
    positives: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(path, origin=INFO.origin).split("\n"), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) not in {4, 5} or not re.fullmatch(r"-?\d+", fields[3]):
            raise FormatError(
                f"{path}: line {number:,} is {line[:60]!r}, expected `qid 0 did relevance [task]`; mend the line"
            )
        if int(fields[3]) > 0:
            positives.setdefault(fields[0], []).append(fields[2])
    return {qid: tuple(dids) for qid, dids in positives.items()}


def _query(row: AnnotationRow, positives: Sequence[str], pool: Mapping[str, str]) -> Query:
    modality = row.get("query_modality", str)
    if {part.strip() for part in modality.split(",")} != _COMPOSED:
        row.fail(f"is a query of modality {modality!r}, expected 'image,text': only composed queries can be read")
    negatives = list(row.get_ids("neg_cand_list")) if "neg_cand_list" in row else []
    return Query(
        id=str(row.number),
        reference=row.get("query_img_path", str),
        text=row.get("query_txt", str),
        # A positive outside the pool keeps its own id: the benchmark then reports it as dangling.
        targets=tuple(pool.get(did, did) for did in positives),
        details={"qid": row["qid"], "positives": list(positives), "negatives": negatives},
    )
