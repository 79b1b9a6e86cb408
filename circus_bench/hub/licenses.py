"""What may be done with a benchmark's annotations and pixels, and what people should know of how it was collected.

Licence texts, origin and citation come from the benchmark's own `source`, as `circus_bench.sources` writes it. The rule
whether pixels may be passed on is data of this module for the benchmarks it knows, whatever a `source` says; any other
benchmark must allow it in so many words (`source["images_redistributable"]`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from circus_bench.benchmark import Benchmark

CIRCUS_CITATION = """@misc{circus2026,
  title  = {Do Composed Image Retrieval Benchmarks Require Multimodal Composition?},
  year   = {2026},
  eprint = {2605.14787},
  archivePrefix = {arXiv}
}"""

_NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True)
class Known:
    """What this package knows of a benchmark.

    Attributes:
        title: its full name.
        licence: identifier of the annotations' licence as the Hub spells it; `other` where there is none.
        redistributable: whether the pixels may be passed on.
        collection: how it was collected, for people who judge its biases.
        bibtex: how to cite it; empty where its `source` has to tell.
    """

    title: str
    licence: str
    redistributable: bool
    collection: str
    bibtex: str = ""


KNOWN: dict[str, Known] = {
    # NLVR2's photographs are not licensed for redistribution.
    "cirr": Known(
        "CIRR (Compose Image Retrieval on Real-life images)",
        "mit",
        redistributable=False,
        collection="Crowd workers described in English how one photograph differs from a similar one.",
        bibtex="""@inproceedings{liu2021cirr,
  title     = {Image Retrieval on Real-life Images with Pre-trained Vision-and-Language Models},
  author    = {Liu, Zheyuan and Rodriguez-Opazo, Cristian and Teney, Damien and Gould, Stephen},
  booktitle = {ICCV},
  year      = {2021}
}""",
    ),
    # Product photographs of an online shop, by address; the CDLA variant of the captions is not stated.
    "fashioniq": Known(
        "FashionIQ",
        "other",
        redistributable=False,
        collection="Crowd workers described in two short English captions how one product differs from a similar one.",
        bibtex="""@inproceedings{wu2021fashioniq,
  title     = {Fashion IQ: A New Dataset Towards Retrieving Images by Natural Language Feedback},
  author    = {Wu, Hui and Gao, Yupeng and Guo, Xiaoxiao and Al-Halah, Ziad and Rennie, Steven and Grauman, Kristen
               and Feris, Rogerio},
  booktitle = {CVPR},
  year      = {2021}
}""",
    ),
    # COCO photographs are under Flickr's terms, each by its photographer; the same holds for CIRCO.
    "lasco": Known(
        "LaSCo (Large Scale Composed image retrieval)",
        "mit",
        redistributable=False,
        collection="Triplets were derived by machine from a visual question answering set, texts by a language model.",
        bibtex="""@inproceedings{levy2024lasco,
  title     = {Data Roaming and Quality Assessment for Composed Image Retrieval},
  author    = {Levy, Matan and Ben-Ari, Rami and Darshan, Nir and Lischinski, Dani},
  booktitle = {AAAI},
  year      = {2024}
}""",
    ),
    "circo": Known(
        "CIRCO (Composed Image Retrieval on Common Objects in context)",
        "cc-by-nc-4.0",
        redistributable=False,
        collection="Annotators wrote an English caption for a pair of photographs, and marked further positives among "
        "the results of a retrieval model.",
        bibtex="""@inproceedings{baldrati2023circo,
  title     = {Zero-Shot Composed Image Retrieval with Textual Inversion},
  author    = {Baldrati, Alberto and Agnolucci, Lorenzo and Bertini, Marco and {Del Bimbo}, Alberto},
  booktitle = {ICCV},
  year      = {2023}
}""",
    ),
    # Visual Genome and Open Images; the licence of the annotations is unknown.
    "rmir": Known("RMIR", "other", redistributable=False, collection="Queries were generated and filtered by machine."),
    "scenes": Known(
        "scenes, a rendered benchmark of known truth",
        "apache-2.0",
        redistributable=True,
        collection="A program draws the images and writes the texts from a seed; no person or photograph is involved.",
    ),
}


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which terms a benchmark may be used, and where it comes from.

    Attributes:
        title: its full name.
        licence: identifier of the annotations' licence as the Hub spells it.
        annotations: the annotations' licence in words.
        images: the images' licence in words.
        redistributable: whether the pixels may be passed on.
        origin: where it can be had.
        collection: how it was collected; empty when unknown.
        citation: how to cite it; empty when unknown.
    """

    title: str
    licence: str
    annotations: str
    images: str
    redistributable: bool
    origin: str
    collection: str
    citation: str


def terms_of(benchmark: Benchmark) -> Terms:
    """The terms of a benchmark, known by its name or by the first part of its protocol's id.

    Example:
        >>> from circus_bench.sources.scenes import scenes
        >>> terms_of(scenes(queries=40, gallery=400)).redistributable
        True
    """
    source = benchmark.source

    def said(*names: str, default: str) -> str:
        return next((str(source[name]) for name in names if source.get(name)), default)

    known = _known(benchmark.name, benchmark.protocol.id)
    annotations = said("license", "licence", default=_NOT_STATED)
    return Terms(
        title=known.title if known else benchmark.name,
        licence=known.licence if known else "other",
        annotations=annotations,
        images=said("image_license", default=annotations),
        redistributable=may_pass_on_pixels(benchmark.name, benchmark.protocol.id, source),
        origin=said("origin", "generator", default=_NOT_STATED),
        collection=known.collection if known else "",
        citation=(known.bibtex if known else "") or said("citation", default=""),
    )


def may_pass_on_pixels(name: str, protocol: str, source: Mapping[str, Any]) -> bool:
    """Whether a benchmark's images may be redistributed.

    Args:
        name: of the benchmark.
        protocol: the protocol's id.
        source: the benchmark's provenance.
    """
    known = _known(name, protocol)
    return known.redistributable if known else source.get("images_redistributable") is True


def _known(name: str, protocol: str) -> Known | None:
    # A renamed CIRR is still CIRR: where name and protocol disagree the stricter rule holds.
    candidates = [KNOWN[key] for key in (name, protocol.partition("/")[0]) if key in KNOWN]
    return min(candidates, key=lambda found: found.redistributable, default=None)
