"""Load the labels and human verdicts that the CIRCUS project released; see README.md for sources and licenses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from circus_bench.errors import CircusError
from circus_bench.io import read_json
from circus_bench.labels.labels import Labels
from circus_bench.labels.provenance import IdScheme, Provenance

PUBLISHED_K = 10
"""The cut-off of the published labels."""

_POOL = (  # section 2 of the release's metadata; the supports show a twelfth, unnamed run
    "Haon-Chen/e5-omni-7B",
    "Alibaba-NLP/gme-Qwen2-VL-7B-Instruct",
    "code-kunkun/LamRA-Ret",
    "code-kunkun/LamRA-Ret-Qwen2.5VL-7b",
    "nvidia/MM-Embed",
    "Qwen/Qwen3-VL-Embedding-2B",
    "Qwen/Qwen3-VL-Embedding-8B",
    "qihoo360/RzenEmbed",
    "VLM2Vec/VLM2Vec-V2.0",
    "gemini-embedding-2-preview",
    "voyage-multimodal-3.5",
)
_CIRCUS = Provenance(
    source="matteoattimonelli/CIRCUS",
    paper="arXiv:2605.14787",
    citation='"Do Composed Image Retrieval Benchmarks Require Multimodal Composition?" (CIRCUS), NeurIPS 2026',
    k=PUBLISHED_K,
    pool=_POOL,
)
PUBLISHED = {
    "cirr": dataclasses.replace(_CIRCUS, license="MIT", protocols=("cirr/circus", "cirr/mbeir"), n_queries=4170),
    "fashioniq": dataclasses.replace(
        _CIRCUS, license="not stated", protocols=("fashioniq/circus", "fashioniq/mbeir"), n_queries=6003
    ),
    "circo": dataclasses.replace(_CIRCUS, license="CC-BY-NC-4.0", protocols=("circo/val",), n_queries=220),
    "lasco": dataclasses.replace(
        _CIRCUS, license="MIT", protocols=("lasco/val",), n_queries=30031, id_scheme=IdScheme.POSITION
    ),
}
"""Benchmark to the provenance of its released labels. What derives from annotations is under their license."""


def published_labels(name: str) -> Labels:
    """Load the labels that the CIRCUS project released on a benchmark.

    CIRR and CIRCO have all labels and the complete human validation of their shortcut-free queries. Of FashionIQ and
    LaSCo the validated queries alone are known: there is `v`, but no `sf`.

    Args:
        name: `cirr`, `fashioniq`, `circo` or `lasco`. Query ids are 0-based indices: of the M-BEIR query list for CIRR
            and FashionIQ, of the annotation for CIRCO, and of the list of validation triplets for LaSCo.

    Raises:
        CircusError: there are none for this name.

    Example:
        >>> len([label for label in published_labels("circo").by_query.values() if label.valid])
        42
    """
    from circus_bench.labels.published.packing import unpack

    if name not in PUBLISHED:
        raise CircusError(f"no labels are published for {name!r}; there are some for {', '.join(PUBLISHED)}")
    path = Path(__file__).parent / f"{name}.json"
    return unpack(read_json(path), where=path)
