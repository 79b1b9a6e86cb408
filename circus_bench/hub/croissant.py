"""Croissant 1.1 metadata of a dataset folder, with the fields of its responsible-AI extension.

Vocabulary: http://mlcommons.org/croissant/1.1 and http://mlcommons.org/croissant/RAI/1.0. Every parquet file is a
`FileObject` with its SHA-256, every configuration a `RecordSet`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from circus_bench.hub.card import SUBSET_WORDS, TITLE
from circus_bench.hub.licenses import CIRCUS_CITATION
from circus_bench.hub.tables import Table, features

_PARQUET = "application/x-parquet"
_TYPES = {"string": "sc:Text", "int32": "cr:Int32", "bool": "sc:Boolean"}
_LICENSES = {
    "mit": "https://spdx.org/licenses/MIT.html",
    "cc-by-nc-4.0": "https://spdx.org/licenses/CC-BY-NC-4.0.html",
    "apache-2.0": "https://spdx.org/licenses/Apache-2.0.html",
}
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def croissant(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Make the Croissant JSON-LD of a dataset folder.

    Args:
        manifest: of the folder; `files` need to name the parquet files only.
    """
    benchmarks = dict(sorted(manifest["benchmarks"].items()))
    licenses = sorted({_LICENSES.get(e["terms"]["licence"], e["terms"]["annotations"]) for e in benchmarks.values()})
    citations = dict.fromkeys(e["terms"]["citation"] for e in benchmarks.values())
    if any(entry["verdicts"] for entry in benchmarks.values()):
        citations = {CIRCUS_CITATION: None, **citations}
    configs = {name: (entry, of) for entry in benchmarks.values() for name, of in entry["configs"].items()}
    tables = [of["folder"] for _, of in configs.values()]
    others = [name.rpartition("/")[0] for name in manifest["files"] if name.endswith(".parquet")]
    places = {place: _shards(manifest, place) for place in (*tables, *others)}
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": "circus",
        "description": f"{TITLE}. Benchmarks: {', '.join(entry['terms']['title'] for entry in benchmarks.values())}.",
        "version": f"{manifest['schema_version']}.0.0",
        **({"datePublished": manifest["date"]} if manifest["date"] else {}),
        "license": licenses,
        "citeAs": "\n\n".join(citation for citation in citations if citation) or "none",
        "inLanguage": ["en"],
        "keywords": ["composed image retrieval", "benchmark", "shortcut audit"],
        "distribution": _distribution(manifest, places),
        "recordSet": [_record_set(name, entry, of, places[of["folder"]]) for name, (entry, of) in configs.items()],
        **_responsible(benchmarks),
    }


def _shards(manifest: Mapping[str, Any], place: str) -> list[str]:
    return sorted(name for name in manifest["files"] if name.startswith(f"{place}/"))


def _distribution(manifest: Mapping[str, Any], places: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = []
    for place, shards in places.items():
        files += [
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "contentUrl": name,
                "contentSize": f"{manifest['files'][name]['bytes']} B",
                "encodingFormat": _PARQUET,
                "sha256": manifest["files"][name]["sha256"],
            }
            for name in shards
        ]
        if len(shards) > 1:
            files.append(
                {
                    "@type": "cr:FileSet",
                    "@id": place,
                    "name": place,
                    "encodingFormat": _PARQUET,
                    "includes": f"{place}/*.parquet",
                }
            )
    return files


def _record_set(name: str, entry: Mapping[str, Any], config: Mapping[str, Any], shards: list[str]) -> dict[str, Any]:
    table = Table(config["table"])
    words = {
        Table.ROWS: f"{SUBSET_WORDS[config['subset']]}, one record a query",
        Table.CORPUS: "the gallery that the queries search",
        Table.QUERIES: f"{SUBSET_WORDS[config['subset']]}: text and reference",
        Table.QRELS: "pairs of a query and one of its targets",
    }
    source = {"fileObject": {"@id": shards[0]}} if len(shards) == 1 else {"fileSet": {"@id": config["folder"]}}
    columns = features(table, with_images=entry["pixels"])
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": f"{entry['terms']['title']}: {words[table]}.",
        **({"key": {"@id": f"{name}/query_id"}} if table is Table.ROWS else {}),
        "field": [_field(name, column, feature, source) for column, feature in columns.items()],
    }


def _field(record_set: str, column: str, feature: Any, source: Mapping[str, Any]) -> dict[str, Any]:
    field: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": f"{record_set}/{column}",
        "name": column,
        "source": {**source, "extract": {"column": column}},
    }
    kind = type(feature).__name__
    if kind == "Image":
        field["dataType"] = "sc:ImageObject"
        field["source"]["transform"] = {"jsonPath": "bytes"}
    elif kind == "List":
        field |= {"dataType": _TYPES[feature.feature.dtype], "isArray": True, "arrayShape": "-1"}
    else:
        field["dataType"] = _TYPES[feature.dtype]
    return field


def _responsible(benchmarks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Make the fields of the RAI extension."""
    collection = [f"{name}: {entry['terms']['collection'] or 'not stated'}" for name, entry in benchmarks.items()]
    missing = [name for name, entry in benchmarks.items() if not entry["pixels"]]
    return {
        "rai:dataCollection": " ".join(collection),
        "rai:dataCollectionType": ["Secondary Data Analysis"],
        "rai:dataCollectionMissingData": f"No images: {', '.join(missing)}." if missing else "None.",
        "rai:dataPreprocessingProtocol": [
            f"{name}: positives: {entry['protocol']['positives'] or 'not stated'}; "
            f"captions: {entry['protocol']['captions'] or 'not stated'}"
            for name, entry in benchmarks.items()
        ],
        "rai:dataAnnotationProtocol": (
            "Labels: a query is a shortcut when a model of the pool ranks a target within the cut-off from text or "
            "image alone; else composition_required when one does from both; else unresolved. Judgments: people saw "
            "reference, text, target and candidate images, and judged a query valid or gave reasons against it."
        ),
        "rai:dataUseCases": ["Evaluation of composed image retrieval", "Study of unimodal shortcuts in benchmarks"],
        "rai:dataBiases": [
            "Labels depend on the pool of models that gave them, and favor or disfavor the models of that pool.",
            "Validated queries may come from a sample that takes equal parts of two labels, not from all queries.",
            "Images and texts carry the geographic, cultural and linguistic biases of their sources.",
        ],
        "rai:dataLimitations": [
            "Images other than the listed targets may answer a query.",
            "Scores under different protocols are not comparable.",
            "Not for training.",
        ],
        "rai:dataSocialImpact": "Shows how much of a retrieval score needs both modalities.",
        "rai:personalSensitiveInformation": [
            "Photographs of the sources may show people; no attribute of a person is annotated. No annotator is named."
        ],
        "rai:dataReleaseMaintenancePlan": "Corrections appear as new revisions; manifest.json states what is in them.",
    }
