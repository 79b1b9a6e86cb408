"""CIRR against its published counts (protocols.md, sections 1, 4.1 and 6) and the published labels."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from circus_bench.benchmark import Benchmark, Defect, ReferencePolicy
from circus_bench.errors import BenchmarkError, FormatError
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.sources import load_source
from circus_bench.sources.cirr import image_id

# protocols.md, section 6.1: 0-based M-BEIR indices of the queries whose soft labels hold the reference.
REFERENCE_IS_POSITIVE = [
    20, 41, 297, 496, 562, 1126, 1382, 1386, 1387, 1543, 1593, 1601, 1647, 1685, 1730, 1789, 1994, 2100, 2111, 2112,
    2118, 2322, 2336, 2433, 2568, 2594, 2603, 2679, 3224, 3368, 3389, 3535, 3546, 3547, 3552, 3980, 4022,
]  # fmt: skip


@pytest.fixture(scope="session")
def cirr(shared: Path) -> dict[str, Benchmark]:
    """Every protocol, from the real files."""
    return {
        name: load_source(f"cirr/{name}", shared / "data/cirr") for name in ("official", "test1", "mbeir", "circus")
    }


def rows(benchmark: Benchmark) -> list[int]:
    return [row for query in benchmark.queries for row in query.details["rows"]]


def test_official_has_the_published_counts(cirr):
    official = cirr["official"]
    assert (len(official.queries), len(official.gallery.ids)) == (4181, 2297)
    assert official.protocol.reference is ReferencePolicy.REMOVED


def test_test1_has_the_published_counts_and_no_targets(cirr):
    test1 = cirr["test1"]
    assert (len(test1.queries), len(test1.gallery.ids)) == (4148, 2315)
    assert test1.protocol.hidden_targets
    assert not any(query.targets for query in test1.queries)


def test_the_blank_caption_of_test1_is_a_finding(cirr):
    # data/README.md: one empty test1 caption.
    (finding,) = cirr["test1"].findings
    assert finding.defect is Defect.EMPTY_TEXT
    assert len(finding.ids) == 1


def test_mbeir_merges_the_rows_step_by_step(cirr):
    counts = cirr["mbeir"].source["counts"]
    assert counts == {"rows": 4181, "groups": 4175, "groups_without_positive": 5, "queries": 4170, "targets": 4216}


def test_mbeir_gallery_is_that_of_three_splits(cirr):
    assert len(cirr["mbeir"].gallery.ids) == 16939 + 2297 + 2315 == 21551


def test_mbeir_positives_are_distributed_as_published(cirr):
    queries = cirr["mbeir"].queries
    assert Counter(len(query.targets) for query in queries) == {1: 4127, 2: 40, 3: 3}
    assert len({target for query in queries for target in query.targets}) == 2199


def test_mbeir_texts_have_the_total_length_that_mteb_publishes(cirr):
    assert sum(len(query.text) for query in cirr["mbeir"].queries) == 244_365


def test_mbeir_keeps_the_reference_and_ids_are_indices(cirr):
    assert cirr["mbeir"].protocol.reference is ReferencePolicy.KEPT
    assert [query.id for query in cirr["mbeir"].queries] == [str(index) for index in range(4170)]


def test_circus_is_mbeir_with_the_first_positive_alone(cirr):
    for circus, mbeir in zip(cirr["circus"].queries, cirr["mbeir"].queries, strict=True):
        assert (circus.id, circus.reference, circus.text) == (mbeir.id, mbeir.reference, mbeir.text)
        assert circus.targets == mbeir.targets[:1]


def test_the_published_37_queries_are_found_under_mbeir(cirr):
    (finding,) = cirr["mbeir"].findings
    assert finding.defect is Defect.REFERENCE_IS_TARGET
    assert list(finding.ids) == [str(index) for index in REFERENCE_IS_POSITIVE]


def test_the_37_queries_miss_the_hard_target_and_have_one_or_two_other_positives(cirr):
    of_id = {query.id: query for query in cirr["mbeir"].queries}
    found = [of_id[str(index)] for index in REFERENCE_IS_POSITIVE]
    assert not any(set(query.details["target_hard"]) & set(query.targets) for query in found)
    assert Counter(len(query.targets) - 1 for query in found) == {1: 34, 2: 3}


def test_the_published_11_of_the_37_are_found_under_circus(cirr):
    (finding,) = cirr["circus"].findings
    assert finding.defect is Defect.REFERENCE_IS_TARGET
    assert len(finding.ids) == 11
    assert set(map(int, finding.ids)) < set(REFERENCE_IS_POSITIVE)


def test_soft_values_are_those_published(cirr):
    # protocols.md, section 6.3.
    soft = [query.details["target_soft"][0] for query in cirr["official"].queries]
    hard = [query.details["target_hard"][0] for query in cirr["official"].queries]
    assert Counter(value for values in soft for value in values.values()) == {1.0: 4216, -1.0: 807, 0.5: 62, 0.2: 6}
    assert sum(len(values) > 1 for values in soft) == 645
    found = Counter(values.get(target, "absent") for values, target in zip(soft, hard, strict=True))
    assert found == {1.0: 4139, "absent": 37, -1.0: 3, 0.2: 1, 0.5: 1}
    negative = [q.id for q, v, t in zip(cirr["official"].queries, soft, hard, strict=True) if v.get(t) == -1.0]
    assert negative == ["29045", "29156", "36851"]


def test_unique_references_captions_targets_and_sets_are_those_published(cirr):
    # protocols.md, section 7.
    queries = cirr["official"].queries
    assert len({query.reference for query in queries}) == 2165
    assert len({query.text for query in queries}) == 4157
    assert len({query.targets for query in queries}) == 2206
    assert len({query.details["img_sets"][0]["id"] for query in queries}) == 503


def test_texts_keep_their_quirks(cirr):
    # protocols.md, section 6.5: double spaces in 48 val and 44 test1 captions, non-ASCII in 2 and 1.
    for name, double, odd in (("official", 48, 2), ("test1", 44, 1)):
        texts = [query.text for query in cirr[name].queries]
        assert sum("  " in text for text in texts) == double
        assert sum(not text.isascii() for text in texts) == odd


@pytest.mark.parametrize("name", ["official", "test1"])
def test_subsets_hold_six_images_the_reference_and_targets_among_them(cirr, name):
    for query in cirr[name].queries:
        assert len(set(query.subset)) == 6
        assert {query.reference, *query.targets} <= set(query.subset)


def test_every_row_is_in_a_query_but_those_without_positive(cirr):
    assert rows(cirr["official"]) == list(range(4181))
    # 4,175 groups lose 5 of one row each; none of the 6 repeated pairs is among them.
    assert len(set(rows(cirr["mbeir"]))) == 4181 - 5


def test_published_labels_join_with_no_query_left_over(cirr, shared):
    with (shared / "data/circus/cirr_shortcut_labels.csv").open(newline="") as file:
        published = list(csv.DictReader(file))
    assert [row["query_idx"] for row in published] == [query.id for query in cirr["mbeir"].queries]
    for row, query in zip(published, cirr["mbeir"].queries, strict=True):
        assert row["reference"] == query.reference
        assert row["positives"].split() == list(query.targets)
        assert row["pairids"].split() == [str(pairid) for pairid in query.details["pairids"]]


def test_validated_queries_agree_in_every_part(cirr, shared):
    lines = (shared / "data/circus/validated_queries_resolved.jsonl").read_text().splitlines()
    published = [row for row in map(json.loads, lines) if row["dataset"] == "cirr"]
    assert len(published) == 147 + 156  # data/README.md: solved and unsolved
    of_id = {query.id: query for query in cirr["mbeir"].queries}
    for row in published:
        query = of_id[str(row["query_idx"])]
        assert (row["reference"], row["text"], row["positives"]) == (query.reference, query.text, list(query.targets))
        assert row["source"] == query.details["pairids"]


def test_source_names_files_and_license(cirr):
    source = cirr["mbeir"].source
    assert set(source["files"]) == {
        "captions/cap.rc2.val.json",
        *(f"image_splits/split.rc2.{split}.json" for split in ("train", "val", "test1")),
    }
    assert source["license"] == "MIT"
    assert not source["images_redistributable"]


def test_a_benchmark_survives_saving_and_loading(cirr, tmp_path):
    save_benchmark(cirr["circus"], tmp_path)
    loaded = load_benchmark(tmp_path)
    assert loaded.fingerprint == cirr["circus"].fingerprint
    assert loaded.findings == cirr["circus"].findings
    assert loaded.queries[20].details == cirr["circus"].queries[20].details


def made(folder: Path, **changes: Any) -> Path:
    """A generated CIRR folder: two rows about four images, the second row changed."""
    row = {
        "pairid": 1,
        "reference": "dev-0-0-img0",
        "target_hard": "dev-0-0-img1",
        "target_soft": {"dev-0-0-img1": 1.0},
        "caption": ' "is red" ',
        "img_set": {"id": 0, "members": ["dev-0-0-img0", "dev-0-0-img1"], "reference_rank": 0, "target_rank": 1},
    }
    second = {**row, "pairid": 2, "caption": "why?", "reference": "dev-0-1-img0", **changes}
    (folder / "captions").mkdir()
    (folder / "image_splits").mkdir()
    (folder / "captions" / "cap.rc2.val.json").write_text(json.dumps([row, second]))
    images = {"train": ["train-0-0-img0"], "val": ["dev-0-0-img0", "dev-0-0-img1", "dev-0-1-img0"], "test1": []}
    for split, names in images.items():
        split_file = folder / "image_splits" / f"split.rc2.{split}.json"
        split_file.write_text(json.dumps({name: f"./{name}.png" for name in names}))
    return folder


def test_mbeir_formats_texts_and_official_does_not(tmp_path):
    folder = made(tmp_path)
    assert [query.text for query in load_source("cirr/mbeir", folder).queries] == ["Is red.", "Why?"]
    assert [query.text for query in load_source("cirr/official", folder).queries] == [' "is red" ', "why?"]


def test_rows_of_one_reference_and_caption_are_merged_and_a_later_soft_value_counts(tmp_path):
    soft = {"dev-0-0-img1": 0.5, "dev-0-1-img0": 1.0}
    folder = made(tmp_path, caption=' "is red" ', reference="dev-0-0-img0", target_soft=soft)
    (query,) = load_source("cirr/mbeir", folder).queries
    assert query.targets == ("dev-0-1-img0",)
    assert query.details["pairids"] == [1, 2]


def test_a_query_without_positive_is_dropped_and_counted(tmp_path):
    benchmark = load_source("cirr/mbeir", made(tmp_path, target_soft={"dev-0-0-img1": 0.5}))
    assert [query.id for query in benchmark.queries] == ["0"]
    assert benchmark.source["counts"]["groups_without_positive"] == 1


def test_a_soft_value_that_is_no_number_is_named(tmp_path):
    with pytest.raises(FormatError, match=r"row 2 gives 'dev-0-0-img1' the soft value '1\.0', expected a number"):
        load_source("cirr/mbeir", made(tmp_path, target_soft={"dev-0-0-img1": "1.0"}))


def test_an_image_set_without_members_is_named(tmp_path):
    with pytest.raises(FormatError, match="row 2 has an 'img_set' without the list 'members'"):
        load_source("cirr/official", made(tmp_path, img_set={"id": 1}))


def test_a_repeated_pairid_is_refused(tmp_path):
    with pytest.raises(BenchmarkError, match=r"query ids occur more than once \(1: '1'\)"):
        load_source("cirr/official", made(tmp_path, pairid=1))


def test_the_rule_for_image_files_knows_cirr_names():
    assert image_id(Path("images/train/34/train-11041-2-img0.png")) == "train-11041-2-img0"
    assert image_id(Path("dev/thumbnail-1.png")) is None
