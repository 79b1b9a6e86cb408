"""Where the released verdicts come from, how their queries are numbered, and under which licences they are."""

from __future__ import annotations

import dataclasses

from circus_bench.labels.labels import Keys, Origin

K = 10
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
_CIRCUS = Origin(
    source="matteoattimonelli/CIRCUS",
    paper="arXiv:2605.14787",
    citation='"Do Composed Image Retrieval Benchmarks Require Multimodal Composition?" (CIRCUS), NeurIPS 2026',
    k=K,
    pool=_POOL,
)
ORIGINS = {
    "cirr": dataclasses.replace(_CIRCUS, licence="MIT", protocols=("cirr/circus", "cirr/mbeir"), n_queries=4170),
    "fashioniq": dataclasses.replace(
        _CIRCUS, licence="not stated", protocols=("fashioniq/circus", "fashioniq/mbeir"), n_queries=6003
    ),
    "circo": dataclasses.replace(_CIRCUS, licence="CC-BY-NC-4.0", protocols=("circo/val",), n_queries=220),
    "lasco": dataclasses.replace(_CIRCUS, licence="MIT", protocols=("lasco/val",), n_queries=30031, keys=Keys.POSITION),
}
"""By benchmark. What derives from the annotations of a benchmark is under its licence."""
