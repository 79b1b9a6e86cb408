"""LaSCo: the real corpus and the real subset of 1,300; the complete file's layout on a generated sample."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from circus_bench.benchmark import Benchmark, ReferencePolicy
from circus_bench.errors import FormatError
from circus_bench.sources import load_source
from circus_bench.sources.lasco import image_id

SUBSET = "lasco/val+cl-lasco"


@pytest.fixture(scope="session")
def subset(shared: Path) -> Benchmark:
    return load_source(SUBSET, shared / "data/lasco")


def test_the_real_subset_searches_the_whole_gallery(subset):
    assert (len(subset.queries), len(subset.gallery.ids)) == (1300, 39_826)
    assert subset.findings == ()


def test_the_subset_has_100_queries_of_each_of_13_super_categories(subset):
    # data/README.md
    groups = Counter(query.group for query in subset.queries)
    assert len(groups) == 13
    assert set(groups.values()) == {100}


def test_query_ids_are_qids_and_details_keep_the_entities(subset):
    query = subset.queries[0]
    assert query.details["row"] == 0
    assert query.details["super_entity"] == query.group
    assert query.details["entity"]


def test_there_is_no_instruction_and_the_reference_is_kept(subset):
    assert subset.protocol.instruction == ""
    assert subset.protocol.reference is ReferencePolicy.KEPT


def test_the_subset_has_a_protocol_id_of_its_own(subset):
    assert (subset.name, subset.protocol.id) == ("lasco", SUBSET)


def test_the_subset_is_refused_as_the_whole(shared):
    with pytest.raises(FormatError, match=r"holds the triplets of lasco/val\+cl-lasco, not of lasco/val"):
        load_source("lasco/val", shared / "data/lasco", annotations="subset_1300/CL-LaSCO_val.json")


def test_the_missing_complete_file_is_named(shared):
    with pytest.raises(FormatError, match=r"holds none of lasco_val\.json"):
        load_source("lasco/val", shared / "data/lasco")


def image(number: int) -> list[Any]:
    return [number, f"val2014/COCO_val2014_{number:012}.jpg"]


def made(folder: Path, **changes: Any) -> Path:
    """A generated LaSCo folder in the complete layout: two triplets, the second changed."""
    rows = [
        {"qid": 1, "query-image": image(42), "query-text": "is red", "target-image": image(73)},
        {"qid": 2, "query-image": image(73), "query-text": "is blue", "target-image": image(74), **changes},
    ]
    corpus = [{"id": number, "path": f"val/{image(number)[1]}"} for number in (42, 73, 74)]
    (folder / "lasco_val.json").write_text(json.dumps(rows))
    (folder / "lasco_val_corpus.json").write_text(json.dumps(corpus))
    return folder


def test_the_complete_layout_is_matched_by_id_though_paths_differ(tmp_path):
    benchmark = load_source("lasco/val", made(tmp_path))
    assert [(query.id, query.reference, query.targets) for query in benchmark.queries] == [
        ("1", "42", ("73",)),
        ("2", "73", ("74",)),
    ]
    assert benchmark.gallery.ids == ("42", "73", "74")
    assert [query.details["row"] for query in benchmark.queries] == [0, 1]


def test_a_path_of_another_image_is_named(tmp_path):
    with pytest.raises(FormatError, match=r"row 2 has the id '74' but the path 'val2014/COCO_val2014_0+75\.jpg'"):
        load_source("lasco/val", made(tmp_path, **{"target-image": [74, image(75)[1]]}))


def test_an_image_without_path_is_named(tmp_path):
    with pytest.raises(FormatError, match=r"row 2 has \[74\] under 'target-image', expected \[id, path\]"):
        load_source("lasco/val", made(tmp_path, **{"target-image": [74]}))


def test_a_triplet_under_another_key_than_its_qid_is_named(tmp_path):
    made(tmp_path)
    triplet = {"qid": 1, "query-image": image(42), "query-text": "is red", "target-image": image(73)}
    (tmp_path / "CL-LaSCO_val.json").write_text(json.dumps({"person": {"2": triplet}}))
    with pytest.raises(FormatError, match="the triplet '2' of 'person' has the qid 1"):
        load_source(SUBSET, tmp_path)


def test_the_rule_for_image_files_knows_coco_names():
    assert image_id(Path("val/val2014/COCO_val2014_000000000042.jpg")) == "42"
    assert image_id(Path("train2014/COCO_train2014_000000000042.jpg")) is None
