"""Compare the counts of a benchmark with published ones, which are kept here as data.

"annotation files" means: recomputed from the official files of the release named. Where two counts are in circulation
both are listed, and either is a match.
"""

from __future__ import annotations

from circus_bench.benchmark import Benchmark
from circus_bench.doctor.results import Count

_CIRR = "CIRR's annotation files, release rc2"
_CIRR_README = "CIRR's README (the paper's 4,184 is corrected there)"
_CIRR_MTEB = "MTEB's CIRRIT2IRetrieval, a repack of M-BEIR"
_FASHIONIQ = "FashionIQ's annotation files"
_FASHIONIQ_MTEB = "MTEB's FashionIQIT2IRetrieval, a repack of M-BEIR"
_CIRCUS = "the CIRCUS paper (arXiv:2605.14787)"
_PRIMARY = "one primary positive a query, after the CIRCUS paper (arXiv:2605.14787)"
_CIRCO = "CIRCO's annotation files"
_COCO = "COCO's unlabeled2017 image list"
_LASCO = "LaSCo's corpus file"
_CL_LASCO = "CL-LaSCO_val.json: 13 super-categories of 100 triplets"
_RMIR = "the RMIR paper"

PUBLISHED: dict[str, dict[str, tuple[tuple[int, str], ...]]] = {
    "cirr/official": {
        "queries": ((4181, _CIRR_README),),
        "positives": ((4181, _CIRR),),
        "distinct positives": ((2206, _CIRR),),
        "gallery": ((2297, _CIRR),),
        "references": ((2165, _CIRR),),
        "texts": ((4157, _CIRR),),
    },
    "cirr/test1": {
        "queries": ((4148, _CIRR),),
        "gallery": ((2315, _CIRR),),
    },
    "cirr/mbeir": {
        "queries": ((4170, _CIRR_MTEB),),
        "positives": ((4216, _CIRR_MTEB),),
        "distinct positives": ((2199, _CIRR),),
        "gallery": ((21551, _CIRR_MTEB),),
        "characters": ((244365, _CIRR_MTEB),),
    },
    "cirr/circus": {
        "queries": ((4170, _CIRCUS),),
        "positives": ((4170, _PRIMARY),),
        "gallery": ((21551, _CIRR_MTEB),),
        "characters": ((244365, _CIRR_MTEB),),
    },
    "fashioniq/original/dress": {
        "queries": ((2017, _FASHIONIQ),),
        "positives": ((2017, _FASHIONIQ),),
        "gallery": ((3817, _FASHIONIQ),),
        "references": ((1331, _FASHIONIQ),),
    },
    "fashioniq/original/shirt": {
        "queries": ((2038, _FASHIONIQ),),
        "positives": ((2038, _FASHIONIQ),),
        "gallery": ((6346, _FASHIONIQ),),
        "references": ((1541, _FASHIONIQ),),
    },
    "fashioniq/original/toptee": {
        "queries": ((1961, _FASHIONIQ),),
        "positives": ((1961, _FASHIONIQ),),
        "gallery": ((5373, _FASHIONIQ),),
        "references": ((1454, _FASHIONIQ),),
    },
    "fashioniq/mbeir": {
        "queries": ((6003, _FASHIONIQ_MTEB),),
        "positives": ((6014, _FASHIONIQ_MTEB),),
        "gallery": ((74381, _FASHIONIQ_MTEB),),
        "characters": ((361250, _FASHIONIQ_MTEB),),
    },
    "fashioniq/circus": {
        "queries": ((6003, _CIRCUS),),
        "positives": ((6003, _PRIMARY),),
        "gallery": ((74381, _FASHIONIQ_MTEB),),
        "characters": ((361250, _FASHIONIQ_MTEB),),
    },
    "lasco/val": {
        "queries": ((30037, "a thread on levymsn/LaSCo (unverified)"), (30031, _CIRCUS)),
        "gallery": ((39826, _LASCO),),
    },
    "lasco/val+cl-lasco": {
        "queries": ((1300, _CL_LASCO),),
        "positives": ((1300, _CL_LASCO),),
        "gallery": ((39826, _LASCO),),
    },
    "circo/val": {
        "queries": ((220, _CIRCO),),
        "positives": ((916, _CIRCO),),
        "gallery": ((123403, _COCO),),
        "references": ((220, _CIRCO),),
    },
    "circo/test": {
        "queries": ((800, _CIRCO),),
        "gallery": ((123403, _COCO),),
    },
    "rmir/test": {
        "queries": ((1634, _RMIR),),
        "gallery": ((35803, _RMIR),),
    },
    "rmir/train": {
        "queries": ((6687, _RMIR),),
        "gallery": ((35803, _RMIR),),
    },
}
"""Protocol id (with the category, where each has a gallery of its own) to what is counted to its published values."""


def category_of(benchmark: Benchmark) -> str:
    """Return the category that a benchmark is about, where its protocol has one per category; else empty."""
    return str(benchmark.source.get("category", ""))


def counts_of(benchmark: Benchmark) -> tuple[Count, ...]:
    """Count a benchmark's parts and put the published numbers beside them.

    Returns:
        `queries`, `positives` and `distinct positives`, `gallery`, `references` and `texts` (distinct ones), and
        `characters` of all texts.
    """
    queries = benchmark.queries
    found = {
        "queries": len(queries),
        "positives": sum(len(query.targets) for query in queries),
        "distinct positives": len({target for query in queries for target in query.targets}),
        "gallery": len(benchmark.gallery.ids),
        "references": len({query.reference for query in queries}),
        "texts": len({query.text for query in queries}),
        "characters": sum(len(query.text) for query in queries),
    }
    category = category_of(benchmark)
    protocol = benchmark.protocol.id
    known = PUBLISHED.get(f"{protocol}/{category}" if category else protocol, {})
    return tuple(_compared(what, number, known.get(what, ())) for what, number in found.items())


def _compared(what: str, found: int, published: tuple[tuple[int, str], ...]) -> Count:
    if not published:
        return Count(what, found)
    number, source = next((entry for entry in published if entry[0] == found), published[0])
    return Count(what, found, number, source)
