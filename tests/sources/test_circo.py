"""CIRCO against its published counts (protocols.md, sections 1, 2 and 6)."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from circus_bench.benchmark import Benchmark, ReferencePolicy
from circus_bench.errors import FormatError
from circus_bench.sources import join_images, load_source
from circus_bench.sources.circo import image_id


@pytest.fixture(scope="session")
def circo(shared: Path) -> dict[str, Benchmark]:
    return {split: load_source(f"circo/{split}", shared / "data/circo") for split in ("val", "test")}


def test_val_has_the_published_counts(circo):
    val = circo["val"]
    assert (len(val.queries), len(val.gallery.ids)) == (220, 123_403)
    assert sum(len(query.targets) for query in val.queries) == 916
    assert val.findings == ()


def test_val_ids_are_those_of_the_annotations_and_the_reference_is_kept(circo):
    assert [query.id for query in circo["val"].queries] == [str(number) for number in range(220)]
    assert circo["val"].protocol.reference is ReferencePolicy.KEPT


def test_test_has_the_published_counts_and_no_targets(circo):
    assert [query.id for query in circo["test"].queries] == [str(number) for number in range(800)]
    assert circo["test"].protocol.hidden_targets
    assert not any(query.targets for query in circo["test"].queries)


def test_ground_truths_are_distributed_as_published(circo):
    sizes = [len(query.targets) for query in circo["val"].queries]
    assert (min(sizes), max(sizes)) == (1, 14)
    assert sum(size > 10 for size in sizes) == 9
    assert sum(size > 5 for size in sizes) == 57


def test_the_first_target_is_the_single_one(circo):
    assert all(query.details["target_img_id"] == query.targets[0] for query in circo["val"].queries)


def test_semantic_aspects_are_counted_as_published(circo):
    # protocols.md, section 2.
    aspects = Counter(aspect for query in circo["val"].queries for aspect in query.details["semantic_aspects"])
    assert aspects == {
        "statement_with_conjunction": 164,
        "direct_addressing": 119,
        "spatial_relations_background": 100,
        "compare_change": 86,
        "addition": 80,
        "viewpoint": 54,
        "comparative_statement": 50,
        "cardinality": 37,
        "negation": 21,
    }


def test_no_reference_is_among_its_targets_and_1121_images_are_touched(circo):
    queries = circo["val"].queries
    assert not any(query.reference in query.targets for query in queries)
    assert len({query.reference for query in queries}) == 220
    # protocols.md, section 10.
    assert len({image for query in queries for image in (query.reference, *query.targets)}) == 1121


def test_published_labels_join_with_no_query_left_over(circo, shared):
    with (shared / "data/circus/circo_audit_full.csv").open(newline="") as file:
        published = [(row["query_idx"], row["reference_img_id"]) for row in csv.DictReader(file)]
    assert published == [(query.id, query.reference) for query in circo["val"].queries]


def test_validated_queries_agree_in_every_part(circo, shared):
    lines = (shared / "data/circus/validated_queries_resolved.jsonl").read_text().splitlines()
    published = [row for row in map(json.loads, lines) if row["dataset"] == "circo"]
    assert len(published) == 39 + 3  # data/README.md: solved and unsolved
    of_id = {query.id: query for query in circo["val"].queries}
    for row in published:
        query = of_id[str(row["query_idx"])]
        assert (str(row["reference"]), row["text"]) == (query.reference, query.text)
        assert tuple(map(str, row["positives"])) == query.targets
        assert (row["shared_concept"], row["semantic_aspects"]) == (
            query.details["shared_concept"],
            query.details["semantic_aspects"],
        )


def test_source_says_that_annotations_are_non_commercial(circo):
    assert circo["val"].source["license"] == "CC BY-NC 4.0"
    assert set(circo["val"].source["files"]) == {"annotations/val.json", "coco_unlabeled2017_ids.txt.gz"}


def test_real_photos_are_found_by_their_padded_names(circo, shared):
    # photos/circo_query_7: the reference, two ground truths and nine distractors of query 7.
    photos = shared / "data/photos/circo_query_7"
    query = circo["val"].queries[7]
    small = circo["val"].without_images(
        set(circo["val"].gallery.ids) - {p.stem.lstrip("0") for p in photos.glob("*.jpg")}
    )
    joined = join_images(small, photos)
    assert [q.id for q in joined.queries] == ["7"]
    assert len(joined.gallery.ids) == 12
    assert joined.gallery.images is not None
    assert joined.gallery.images[query.reference] == (photos / "000000530944.jpg").read_bytes()


def made(folder: Path, gallery: str) -> Path:
    """A generated CIRCO folder with one query and a gallery file of this text."""
    row = {
        "id": 0,
        "reference_img_id": 8,
        "target_img_id": 42,
        "relative_caption": "is red",
        "shared_concept": "a car",
        "gt_img_ids": [42],
        "semantic_aspects": [],
    }
    (folder / "val.json").write_text(json.dumps([row]))
    name = "image_info_unlabeled2017.json" if gallery.startswith("{") else "coco_unlabeled2017_ids.txt"
    (folder / name).write_text(gallery)
    return folder


def test_the_gallery_may_be_coco_image_info(tmp_path):
    images = [{"id": 8, "file_name": "000000000008.jpg"}, {"id": 42, "file_name": "000000000042.jpg"}]
    benchmark = load_source("circo/val", made(tmp_path, json.dumps({"info": {}, "images": images})))
    assert benchmark.gallery.ids == ("8", "42")


def test_padded_ids_of_a_text_file_are_written_without_padding(tmp_path):
    assert load_source("circo/val", made(tmp_path, "000000000008\n42\n")).gallery.ids == ("8", "42")


def test_image_info_without_images_is_named(tmp_path):
    with pytest.raises(FormatError, match=r"image_info_unlabeled2017\.json: lacks the list 'images'"):
        load_source("circo/val", made(tmp_path, "{}"))


def test_the_rule_for_image_files_knows_padded_numbers():
    assert image_id(Path("unlabeled2017/000000000008.jpg")) == "8"
    assert image_id(Path("unlabeled2017/8.jpg")) is None
    assert image_id(Path("unlabeled2017/000000000008.png")) is None
