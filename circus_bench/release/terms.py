"""What is known of the benchmarks' licences, origins and citations, and whether their pixels may be passed on.

Sources: the licence files and READMEs of the benchmarks' own repositories. Pixels are redistributed only where a licence
allows it in so many words; a benchmark that is not listed here must say so itself (`source["redistribute_images"]`).
"""

from __future__ import annotations

from dataclasses import dataclass

from circus_bench.benchmark import Benchmark

_COCO = "COCO / Flickr terms of use; each photograph belongs to its photographer"

CIRCUS_CITATION = """@misc{circus2026,
  title  = {Do Composed Image Retrieval Benchmarks Require Multimodal Composition?},
  year   = {2026},
  note   = {NeurIPS 2026},
  eprint = {2605.14787},
  archivePrefix = {arXiv}
}"""


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which terms a benchmark's parts may be used, and where it comes from.

    Attributes:
        title: the benchmark's full name.
        licence: identifier of the annotations' licence, as the Hub spells it; `other` where there is no such identifier.
        annotations: the annotations' licence in words.
        images: the terms of the images, in words.
        redistributable: whether the pixels may be passed on.
        origin: where annotations and images come from.
        collection: how the data were collected, for people who judge its biases.
        homepage: address of the benchmark's project; empty when there is none.
        citation: BibTeX; empty when there is none.
    """

    title: str
    licence: str
    annotations: str
    images: str
    redistributable: bool
    origin: str
    collection: str = ""
    homepage: str = ""
    citation: str = ""


TERMS: dict[str, Terms] = {
    "cirr": Terms(
        title="CIRR (Compose Image Retrieval on Real-life images), validation split",
        licence="mit",
        annotations="MIT",
        images="NLVR2 photographs: not licensed for redistribution; access through NLVR2's request form",
        redistributable=False,
        origin="captions and image splits of Cuberick-Orion/CIRR (branch cirr_dataset); photographs of NLVR2",
        collection="Crowd workers described in English how one photograph of a set of six similar ones differs from another.",
        homepage="https://github.com/Cuberick-Orion/CIRR",
        citation="""@inproceedings{liu2021cirr,
  title     = {Image Retrieval on Real-Life Images With Pre-Trained Vision-and-Language Models},
  author    = {Liu, Zheyuan and Rodriguez-Opazo, Cristian and Teney, Damien and Gould, Stephen},
  booktitle = {ICCV},
  year      = {2021}
}""",
    ),
    "fashioniq": Terms(
        title="FashionIQ, validation split",
        licence="other",
        annotations="CDLA (the README names no variant)",
        images="product photographs by address from an online shop; no right to redistribute them",
        redistributable=False,
        origin="captions and image splits of XiaoxiaoGuo/fashion-iq",
        collection="Crowd workers described in two short English captions how one product differs from a similar one.",
        homepage="https://github.com/XiaoxiaoGuo/fashion-iq",
        citation="""@inproceedings{wu2021fashioniq,
  title     = {Fashion IQ: A New Dataset Towards Retrieving Images by Natural Language Feedback},
  author    = {Wu, Hui and Gao, Yupeng and Guo, Xiaoxiao and Al-Halah, Ziad and Rennie, Steven and Grauman, Kristen and
               Feris, Rogerio},
  booktitle = {CVPR},
  year      = {2021}
}""",
    ),
    "lasco": Terms(
        title="LaSCo (Large Scale Composed image retrieval), validation split",
        licence="mit",
        annotations="MIT",
        images=_COCO,
        redistributable=False,
        origin="triplets and corpus of levymsn/LaSCo; photographs of COCO 2014",
        collection="Triplets were derived by machine from pairs of VQA 2.0 questions with different answers; the texts were "
        "written by a language model.",
        homepage="https://github.com/levymsn/LaSCo",
        citation="""@inproceedings{levy2024lasco,
  title     = {Data Roaming and Quality Assessment for Composed Image Retrieval},
  author    = {Levy, Matan and Ben-Ari, Rami and Darshan, Nir and Lischinski, Dani},
  booktitle = {AAAI},
  year      = {2024}
}""",
    ),
    "circo": Terms(
        title="CIRCO (Composed Image Retrieval on Common Objects in context), validation split",
        licence="cc-by-nc-4.0",
        annotations="CC BY-NC 4.0; what derives from them is non-commercial too",
        images=_COCO,
        redistributable=False,
        origin="annotations of miccunifi/CIRCO; photographs of COCO 2017 unlabeled",
        collection="Annotators wrote an English relative caption for a pair of photographs and marked further positives "
        "among the results of a retrieval model.",
        homepage="https://github.com/miccunifi/CIRCO",
        citation="""@inproceedings{baldrati2023circo,
  title     = {Zero-Shot Composed Image Retrieval with Textual Inversion},
  author    = {Baldrati, Alberto and Agnolucci, Lorenzo and Bertini, Marco and Del Bimbo, Alberto},
  booktitle = {ICCV},
  year      = {2023}
}""",
    ),
    "rmir": Terms(
        title="RMIR",
        licence="other",
        annotations="not stated by its source",
        images="Visual Genome and Open Images terms; each photograph belongs to its photographer",
        redistributable=False,
        origin="the benchmark's own files",
        collection="Queries were generated and filtered by machine.",
    ),
    "scenes": Terms(
        title="scenes, a rendered benchmark of known truth",
        licence="apache-2.0",
        annotations="Apache-2.0",
        images="rendered by a program; Apache-2.0",
        redistributable=True,
        origin="the generator circus_bench.sources.scenes",
        collection="Images, texts and targets are drawn and written by a program from a seed; no person and no photograph is "
        "involved.",
    ),
}


def terms_of(benchmark: Benchmark) -> Terms:
    """The terms of a benchmark, by its name and by the first part of its protocol's id.

    A benchmark that is in no list has the licence that its `source` names, and keeps its pixels to itself unless
    `source["redistribute_images"]` is true.

    Example:
        >>> from circus_bench.sources.scenes import scenes
        >>> terms_of(scenes(queries=40, gallery=400)).redistributable
        True
    """
    source = benchmark.source
    named = [TERMS[name] for name in (benchmark.name, benchmark.protocol.id.partition("/")[0]) if name in TERMS]
    if named:
        # A renamed CIRR is still CIRR: where the two names disagree the stricter terms hold.
        return min(named, key=lambda terms: terms.redistributable)
    licence = str(source.get("license") or source.get("licence") or "not stated")
    allowed = source.get("redistribute_images") is True
    return Terms(
        title=benchmark.name,
        licence="other",
        annotations=licence,
        images=f"{licence}; {'redistribution allowed by its source' if allowed else 'redistribution is not allowed'}",
        redistributable=allowed,
        origin=str(source.get("origin") or "the user's own data"),
    )
