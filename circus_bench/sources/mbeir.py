"""M-BEIR: any composed retrieval task from its own JSON lines files, and M-BEIR's text format.

The files of a task, as M-BEIR lays them out:

- queries, `query/<split>/mbeir_<name>_<split>.jsonl`: `qid`, `query_txt`, `query_img_path`, `query_modality`
  (`image,text`), `pos_cand_list`, `neg_cand_list`;
- the candidate pool, `cand_pool/local/mbeir_<name>_cand_pool.jsonl`: `did`, `img_path`, `modality` (`image`);
- optional qrels, `qrels/<split>/mbeir_<name>_<split>_qrels.txt`: `qid 0 did relevance [task]` a line.

The keys were read in M-BEIR's documentation, not checked against its files, so the other names in `ALIASES` are
accepted too. Only composed queries (image and text) over images can be read: other modalities are an error.

The query id is the query's place in the file, from 0: the index that labels published for M-BEIR go by. `qid` is in
`Query.details`, with `neg_cand_list`. An image's id is its path in M-BEIR (`mbeir_images/...`), since reference and
candidates have nothing else in common; `did` is used only to join the positives. The reference stays in the gallery.
Positives that are their query's own reference occur in M-BEIR (CIRR): they are kept and recorded as findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from circus_bench.benchmark import Benchmark, Defect, Gallery, Protocol, Query, ReferencePolicy
from circus_bench.errors import FormatError, some
from circus_bench.sources.annotations import (
    Origin,
    Row,
    choose,
    locate,
    provenance,
    read_rows,
    read_text,
    require_one_kind,
)

ORIGIN = Origin(
    place="the Hugging Face dataset TIGER-Lab/M-BEIR",
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
    """M-BEIR's text format: no carriage returns, outer white space or outer double quotes; a capital; an end mark.

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
    """The part of a path from its last `mbeir_images` on; None for files outside such a folder."""
    before, found, after = path.as_posix().rpartition(f"{_ROOT}/")
    return found + after if found and (not before or before.endswith("/")) else None


def load(
    protocol: str,
    folder: Path | None,
    *,
    name: str,
    split: str = "test",
    queries: str | Path | None = None,
    candidates: str | Path | None = None,
    qrels: str | Path | None = None,
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
    choose(protocol, PROTOCOLS, what="protocol of M-BEIR")
    query_path = locate(folder, str(queries or f"query/{split}/mbeir_{name}_{split}.jsonl"), origin=ORIGIN.place)
    pool_path = locate(
        folder,
        *([str(candidates)] if candidates else _pool_places(name)),
        origin=ORIGIN.place,
    )
    files = [query_path, pool_path]
    pool = _pool(pool_path)
    rows = read_rows(query_path, origin=ORIGIN.place, aliases=ALIASES)
    require_one_kind(rows, "qid", path=query_path)
    positives = {row.identifier("qid"): row.identifiers("pos_cand_list") for row in rows} if qrels is None else None
    if positives is None:
        files.append(locate(folder, str(qrels), origin=ORIGIN.place))
        positives = _qrels(files[-1])
        known = {row.identifier("qid") for row in rows}
        strangers = [qid for qid in positives if qid not in known]
        if strangers:
            raise FormatError(f"{files[-1]}: judges queries that {query_path} does not hold ({some(strangers)})")
    dangling = [did for dids in positives.values() for did in dids if did not in pool]
    made = tuple(_query(row, positives.get(row.identifier("qid"), ()), pool) for row in rows)
    return Benchmark(
        name=name,
        protocol=Protocol(
            id=f"mbeir/{name}",
            reference=ReferencePolicy.KEPT,
            instruction=instruction,
            gallery=PROTOCOLS["mbeir"].gallery,
            positives=PROTOCOLS["mbeir"].positives,
            captions=PROTOCOLS["mbeir"].captions,
        ),
        queries=made,
        gallery=Gallery(tuple(pool.values()), images),
        source=provenance(
            ORIGIN,
            files,
            folder=folder or query_path.parent,
            split=split,
            counts={
                "queries": len(made),
                "targets": sum(len(query.targets) for query in made),
                "dangling_positives": len(dangling),
            },
        ),
        allow=frozenset(allow) | {Defect.REFERENCE_IS_TARGET},
    )


def _pool_places(name: str) -> tuple[str, ...]:
    return tuple(f"cand_pool/{where}mbeir_{name}_cand_pool.jsonl" for where in ("local/", ""))


def _pool(path: Path) -> dict[str, str]:
    """Candidate id to image id, in file order."""
    rows = read_rows(path, origin=ORIGIN.place, aliases=ALIASES)
    require_one_kind(rows, "did", path=path)
    pool: dict[str, str] = {}
    for row in rows:
        if row.get("modality", str) != "image":
            row.fail(
                f"is a candidate of modality {row['modality']!r}, expected 'image': only images can be ranked here"
            )
        did = row.identifier("did")
        if did in pool:
            row.fail(f"repeats the candidate id {did!r}")
        pool[did] = row.get("img_path", str)
    return pool


def _qrels(path: Path) -> dict[str, tuple[str, ...]]:
    """Query id to the candidates of positive relevance, in file order."""
    positives: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(path, origin=ORIGIN.place).split("\n"), start=1):
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


def _query(row: Row, positives: Sequence[str], pool: Mapping[str, str]) -> Query:
    modality = row.get("query_modality", str)
    if {part.strip() for part in modality.split(",")} != _COMPOSED:
        row.fail(f"is a query of modality {modality!r}, expected 'image,text': only composed queries can be read")
    negatives = list(row.identifiers("neg_cand_list")) if "neg_cand_list" in row else []
    return Query(
        id=str(row.number),
        reference=row.get("query_img_path", str),
        text=row.get("query_txt", str),
        # A positive outside the pool keeps its own id: the benchmark then reports it as dangling.
        targets=tuple(pool.get(did, did) for did in positives),
        details={"qid": row["qid"], "positives": list(positives), "negatives": negatives},
    )
