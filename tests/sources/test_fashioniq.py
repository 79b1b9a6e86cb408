"""FashionIQ against its published counts (protocols.md, sections 1, 4.2 and 5)."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from circus_bench.benchmark import Benchmark, ReferencePolicy
from circus_bench.errors import BenchmarkError, FormatError
from circus_bench.sources import load_source
from circus_bench.sources.fashioniq import CATEGORIES, image_id

# protocols.md, sections 1 and 5: queries, val gallery, and union of val references and targets.
ORIGINAL = {"dress": (2017, 3817, 2628), "shirt": (2038, 6346, 3089), "toptee": (1961, 5373, 2902)}


@pytest.fixture(scope="session")
def folder(shared: Path) -> Path:
    return shared / "data/fashioniq"


@pytest.fixture(scope="session")
def merged(folder: Path) -> dict[str, Benchmark]:
    return {name: load_source(f"fashioniq/{name}", folder) for name in ("mbeir", "circus")}


@pytest.fixture(scope="session")
def original(folder: Path) -> dict[str, Benchmark]:
    return {category: load_source("fashioniq/original", folder, category=category) for category in CATEGORIES}


def test_mbeir_has_the_published_counts(merged):
    assert merged["mbeir"].source["counts"] == {"rows": 6016, "queries": 6003, "targets": 6014}
    assert len(merged["mbeir"].gallery.ids) == 74_381


def test_mbeir_groups_are_those_published(merged):
    # Ten groups have two rows, one has four: 6,016 - 10 - 3 = 6,003.
    sizes = Counter(len(query.details["rows"]) for query in merged["mbeir"].queries)
    assert sizes == {1: 5992, 2: 10, 4: 1}


def test_mbeir_texts_have_the_total_length_that_mteb_publishes(merged):
    assert sum(len(query.text) for query in merged["mbeir"].queries) == 361_250


def test_mbeir_keeps_the_reference_and_ids_are_indices(merged):
    assert merged["mbeir"].protocol.reference is ReferencePolicy.KEPT
    assert [query.id for query in merged["mbeir"].queries] == [str(index) for index in range(6003)]


def test_circus_is_mbeir_with_the_first_positive_alone(merged):
    for circus, mbeir in zip(merged["circus"].queries, merged["mbeir"].queries, strict=True):
        assert (circus.id, circus.reference, circus.text) == (mbeir.id, mbeir.reference, mbeir.text)
        assert circus.targets == mbeir.targets[:1]


def test_the_three_rows_with_an_empty_caption_are_recorded(merged):
    # protocols.md, section 5: 1 shirt and 2 toptee val rows, never both captions.
    places = merged["mbeir"].source["empty_captions"]
    assert Counter(category for category, _, _ in places) == {"shirt": 1, "toptee": 2}
    in_queries = [place for query in merged["mbeir"].queries for place in query.details["empty_captions"]]
    assert sorted(in_queries) == sorted(places)


def test_every_row_is_in_one_query(merged):
    rows = [tuple(row) for query in merged["mbeir"].queries for row in query.details["rows"]]
    assert sorted(rows) == [(category, row) for category in CATEGORIES for row in range(ORIGINAL[category][0])]


def test_validated_queries_agree_in_every_part(merged, shared):
    lines = (shared / "data/circus/validated_queries_resolved.jsonl").read_text().splitlines()
    published = [row for row in map(json.loads, lines) if row["dataset"] == "fashioniq"]
    assert len(published) == 368 + 218  # data/README.md: solved and unsolved
    of_id = {query.id: query for query in merged["mbeir"].queries}
    for row in published:
        query = of_id[str(row["query_idx"])]
        assert (row["reference"], row["text"], row["positives"]) == (query.reference, query.text, list(query.targets))
        assert row["source"] == query.details["rows"]


@pytest.mark.parametrize("category", CATEGORIES)
def test_original_has_the_published_counts(original, category):
    queries, gallery, _ = ORIGINAL[category]
    benchmark = original[category]
    assert (len(benchmark.queries), len(benchmark.gallery.ids)) == (queries, gallery)
    assert benchmark.name == f"fashioniq-{category}"
    assert {query.group for query in benchmark.queries} == {category}


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_union_gallery_has_the_published_size(folder, category):
    benchmark = load_source("fashioniq/original", folder, category=category, gallery="union")
    assert len(benchmark.gallery.ids) == ORIGINAL[category][2]
    assert benchmark.protocol.id == "fashioniq/original+gallery-union"


def test_shirt_and_toptee_share_121_images_and_dress_none(original):
    shared_images = {
        pair: len(set(original[pair[0]].gallery.ids) & set(original[pair[1]].gallery.ids))
        for pair in itertools.combinations(CATEGORIES, 2)
    }
    assert shared_images == {("dress", "shirt"): 0, ("dress", "toptee"): 0, ("shirt", "toptee"): 121}


@pytest.mark.parametrize(
    ("category", "short", "identical"), [("dress", 7, 4), ("shirt", None, 11), ("toptee", None, 7)]
)
def test_captions_are_as_odd_as_published(original, category, short, identical):
    # protocols.md, section 5: captions of at most 2 characters; identical pairs whatever the case.
    pairs = [query.details["captions"][0] for query in original[category].queries]
    assert sum(first.lower() == second.lower() for first, second in pairs) == identical
    if short is not None:
        assert sum(len(caption) <= 2 for pair in pairs for caption in pair) == short


@pytest.mark.parametrize(("policy", "caption"), [("first", 0), ("second", 1)])
def test_rows_without_the_caption_wanted_are_left_out_and_recorded(folder, policy, caption):
    benchmark = load_source("fashioniq/original", folder, category="toptee", captions=policy)
    missing = [row for _, row, position in benchmark.source["empty_captions"] if position == caption]
    assert benchmark.source["left_out_rows"] == missing
    assert len(benchmark.queries) == 1961 - len(missing)


def made(folder: Path, *captions: list[str], targets: tuple[str, ...] = ("B000000002",)) -> Path:
    """A generated FashionIQ folder whose dress rows have these captions; the other categories have one sound row."""
    (folder / "captions").mkdir()
    (folder / "image_splits").mkdir()
    sound: list[dict[str, Any]] = [
        {"candidate": "B000000003", "target": "B000000001", "captions": ["is blue", "is long"]}
    ]
    for category in CATEGORIES:
        rows = sound
        if category == "dress":
            listed = itertools.zip_longest(captions, targets, fillvalue=targets[-1])
            rows = [{"candidate": "B000000001", "target": target, "captions": pair} for pair, target in listed]
        (folder / "captions" / f"cap.{category}.val.json").write_text(json.dumps(rows))
        for split in ("train", "val", "test"):
            ids = ["B000000001", "B000000002", "B000000003"] if split == "val" else []
            (folder / "image_splits" / f"split.{category}.{split}.json").write_text(json.dumps(ids))
    return folder


@pytest.mark.parametrize(
    ("policy", "identifier", "texts"),
    [
        ("joined", "fashioniq/original", ["Is red and has sleeves"]),
        ("reversed", "fashioniq/original+reversed", ["has sleeves and Is red"]),
        ("first", "fashioniq/original+first", ["Is red"]),
        ("second", "fashioniq/original+second", ["has sleeves"]),
        ("separate", "fashioniq/original+separate", ["Is red", "has sleeves"]),
    ],
)
def test_each_caption_policy_has_its_texts_and_its_protocol_id(tmp_path, policy, identifier, texts):
    folder = made(tmp_path, [" Is red. ", "has sleeves,"])
    benchmark = load_source("fashioniq/original", folder, category="dress", captions=policy)
    assert [query.text for query in benchmark.queries] == texts
    assert benchmark.protocol.id == identifier
    assert benchmark.queries[0].details["captions"] == [[" Is red. ", "has sleeves,"]]


def test_separate_captions_are_queries_of_their_own(tmp_path):
    folder = made(tmp_path, ["is red", ""], ["is red", "is short"])
    benchmark = load_source("fashioniq/original", folder, category="dress", captions="separate")
    assert [query.id for query in benchmark.queries] == ["dress-0-0", "dress-1-0", "dress-1-1"]


def test_mbeir_joins_captions_in_its_format(tmp_path):
    folder = made(tmp_path, [" Is red.", "HAS sleeves."], ["", "is short"], ["is it?", "is it?"])
    texts = [query.text for query in load_source("fashioniq/mbeir", folder).queries]
    assert texts[:3] == ["Is red and hAS sleeves.", "Is short.", "Is it? and is it?"]


def test_mbeir_merges_the_targets_of_a_text_without_duplicates(tmp_path):
    pair = ["is red", "is short"]
    folder = made(tmp_path, pair, pair, pair, targets=("B000000002", "B000000003", "B000000002"))
    query = load_source("fashioniq/mbeir", folder).queries[0]
    assert query.targets == ("B000000002", "B000000003")
    assert query.details["rows"] == [["dress", 0], ["dress", 1], ["dress", 2]]


def test_mbeir_merges_across_categories(tmp_path):
    folder = made(tmp_path, ["is blue", "is long"])
    benchmark = load_source("fashioniq/mbeir", folder)
    # The sound row of shirt and toptee is one query of two rows.
    assert [len(query.details["rows"]) for query in benchmark.queries] == [1, 2]
    assert [query.group for query in benchmark.queries] == ["dress", "shirt"]


def test_a_row_with_one_empty_caption_uses_the_other_and_is_recorded(tmp_path):
    query = load_source("fashioniq/original", made(tmp_path, [" ", "is red"]), category="dress").queries[0]
    assert query.text == "is red"
    assert query.details["empty_captions"] == [["dress", 0, 0]]


@pytest.mark.parametrize("protocol", ["fashioniq/mbeir", "fashioniq/original"])
def test_two_empty_captions_are_an_error_that_names_the_row(tmp_path, protocol):
    options = {"category": "dress"} if protocol.endswith("original") else {}
    with pytest.raises(FormatError, match=r"cap\.dress\.val\.json: row 2 has two empty captions"):
        load_source(protocol, made(tmp_path, ["is red", ""], ["", " "]), **options)


def test_a_row_with_three_captions_is_named(tmp_path):
    with pytest.raises(FormatError, match="row 1 has 3 captions, expected two"):
        load_source("fashioniq/mbeir", made(tmp_path, ["a", "b", "c"]))


def test_the_original_protocol_needs_a_category(tmp_path):
    with pytest.raises(BenchmarkError, match=r"unknown category of FashionIQ .*known: dress, shirt, toptee"):
        load_source("fashioniq/original", made(tmp_path, ["is red", "is short"]))


@pytest.mark.parametrize("options", [{"category": "dress"}, {"captions": "first"}, {"gallery": "union"}])
def test_the_merged_protocols_have_no_choice(tmp_path, options):
    with pytest.raises(BenchmarkError, match="no choice of category, captions or gallery"):
        load_source("fashioniq/mbeir", made(tmp_path, ["is red", "is short"]), **options)


def test_the_rule_for_image_files_knows_product_ids():
    assert image_id(Path("images/B0084Y8XIU.JPG")) == "B0084Y8XIU"
    assert image_id(Path("images/readme.png")) is None
    assert image_id(Path("images/B0084Y8XIU.webp")) is None
