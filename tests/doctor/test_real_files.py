"""The known defects of the official files are found. Numbers without another source: the facts cited at each test."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from circus_bench.benchmark import Benchmark
from circus_bench.doctor import Agreement, Diagnosis, HashKind, HealthReport, Severity, check_all, read_hashes
from circus_bench.hub.loading import load_labeled_benchmarks

# protocols.md, section 6.1: 0-based M-BEIR indices, recomputed from the annotation files.
# fmt: off
REFERENCE_FOR_HARD_TARGET = [
    20, 41, 297, 496, 562, 1126, 1382, 1386, 1387, 1543, 1593, 1601, 1647, 1685, 1730, 1789, 1994, 2100, 2111, 2112,
    2118, 2322, 2336, 2433, 2568, 2594, 2603, 2679, 3224, 3368, 3389, 3535, 3546, 3547, 3552, 3980, 4022,
]
# fmt: on

Examine = Callable[[str], HealthReport]


def official(protocol: str, shared: Path) -> list[Benchmark]:
    return [part.benchmark for part in load_labeled_benchmarks(protocol, data=shared / "data")]


@pytest.fixture(scope="session")
def examine(shared: Path) -> Examine:
    """`examine(protocol)`: the report on the official annotation files."""
    return cache(lambda protocol: check_all(official(protocol, shared)))


@pytest.fixture(scope="session")
def fashioniq(examine: Examine) -> dict[str, Diagnosis]:
    return {diagnosis.category: diagnosis for diagnosis in examine("fashioniq/original").diagnoses}


def numbers(parts: dict[str, Diagnosis], check: str) -> list[int]:
    results = [part.result(check) for part in parts.values()]
    return [len(result.items) if result else 0 for result in results]


@pytest.mark.parametrize(
    "protocol",
    [
        "cirr/official",
        "cirr/mbeir",
        "cirr/circus",
        "cirr/test1",
        "fashioniq/original",
        "fashioniq/mbeir",
        "fashioniq/circus",
        "circo/val",
        "circo/test",
        "lasco/val+cl-lasco",
    ],
)
def test_the_counts_are_the_published_ones(protocol: str, examine: Examine) -> None:
    counts = [count for diagnosis in examine(protocol).diagnoses for count in diagnosis.counts]
    assert [count for count in counts if count.agreement is Agreement.DIFFER] == []
    compared = {count.what for count in counts if count.agreement is Agreement.MATCH}
    assert {"queries", "gallery"} <= compared


def test_cirr_has_37_queries_with_the_reference_for_the_hard_target(examine: Examine) -> None:
    (found,) = examine("cirr/mbeir").diagnoses
    result = found.result("reference_for_hard_target")
    assert result is not None
    assert ([int(i) for i in result.ids], result.severity) == (REFERENCE_FOR_HARD_TARGET, Severity.DEFECT)
    assert found.result("hard_target_missed") is None
    assert not found.healthy


def test_eleven_of_them_have_the_reference_as_primary_positive(examine: Examine) -> None:
    # protocols.md, 6.1: "in 11 the reference is the first positive"; the other 26 have another wrong one.
    (found,) = examine("cirr/circus").diagnoses
    results = [found.result("reference_for_hard_target"), found.result("hard_target_missed")]
    ids = [set(map(int, result.ids)) for result in results if result]
    assert [len(part) for part in ids] == [11, 26]
    assert set.union(*ids) == set(REFERENCE_FOR_HARD_TARGET)


def test_the_official_protocol_is_warned_of_the_same_37_soft_labels(examine: Examine) -> None:
    (found,) = examine("cirr/official").diagnoses
    result = found.result("soft_label_is_reference")
    assert result is not None
    assert (len(result.ids), found.healthy) == (37, True)


def test_cirr_has_6_pairs_of_the_same_query(examine: Examine) -> None:
    # protocols.md, 4.1: 6 pairs of (reference, caption) occur twice with different hard targets.
    assert [len(group) for group in examine("cirr/official").diagnoses[0].irreducible] == [2] * 6


@pytest.mark.parametrize(("protocol", "doubled", "foreign"), [("cirr/official", 48, 2), ("cirr/test1", 44, 1)])
def test_cirr_has_double_spaces_and_non_ascii(protocol: str, doubled: int, foreign: int, examine: Examine) -> None:
    # protocols.md, 6.5.
    parts = {protocol: examine(protocol).diagnoses[0]}
    assert (numbers(parts, "double_space"), numbers(parts, "non_ascii")) == ([doubled], [foreign])


def test_the_blank_caption_of_test1_is_a_defect(examine: Examine) -> None:
    assert numbers({"": examine("cirr/test1").diagnoses[0]}, "empty_text") == [1]


def test_published_hashes_give_the_near_duplicates_of_the_cirr_gallery(shared: Path) -> None:
    # protocols.md, 6.4: 18 pairs at distance 0 (one hash shared by three images), 30 at distance 1 at most; 52 queries
    # whose target has a twin of the same hash.
    hashes = read_hashes(shared / "data" / "nlvr2" / "dev_hashes.json")
    (found,) = check_all(official("cirr/official", shared), hashes=hashes).diagnoses
    counted = found.near_duplicates[HashKind.PUBLISHED]
    assert (counted.images, counted.pairs_same, counted.pairs_within_1) == (2297, 18, 30)
    same, twins = found.result("same_published_hash"), found.result("target_twin_by_published_hash")
    assert same is not None
    assert twins is not None
    # 18 pairs are 15 groups of two and one of three.
    assert sorted(map(len, same.groups)) == [2] * 15 + [3]
    assert len(twins.ids) == 52


def test_fashioniq_has_3_rows_with_an_empty_caption(fashioniq: dict[str, Diagnosis]) -> None:
    # Data README: 1 shirt row, 2 toptee rows.
    assert list(fashioniq) == ["dress", "shirt", "toptee"]
    assert numbers(fashioniq, "empty_caption") == [0, 1, 2]


def test_fashioniq_contradicts_itself_5_1_and_3_times(fashioniq: dict[str, Diagnosis]) -> None:
    assert numbers(fashioniq, "contradictory_targets") == [5, 1, 3]  # protocols.md, section 5


def test_fashioniq_has_4_11_and_7_identical_captions(fashioniq: dict[str, Diagnosis]) -> None:
    assert numbers(fashioniq, "identical_captions") == [4, 11, 7]  # protocols.md, section 5


def test_fashioniq_has_7_very_short_captions(fashioniq: dict[str, Diagnosis]) -> None:
    assert numbers(fashioniq, "short_caption") == [7, 0, 0]  # protocols.md, section 5


def test_shirt_and_toptee_share_121_images_and_no_other_pair_any(examine: Examine) -> None:
    # protocols.md, section 5: 15,415 distinct images of 15,536.
    found = examine("fashioniq/original").shared
    assert [(result.check, len(result.ids)) for result in found] == [("shared_by_shirt_and_toptee", 121)]


def test_circo_has_9_queries_with_more_than_10_positives(examine: Examine) -> None:
    (found,) = examine("circo/val").diagnoses
    # protocols.md, section 2: 9 queries have more than 10 ground truths and 57 more than 5; 1 to 14 each.
    assert numbers({"": found}, "many_positives") == [9]
    assert sum(queries for number, queries in found.positives.items() if number > 5) == 57
    assert (min(found.positives), max(found.positives)) == (1, 14)


def test_no_circo_reference_is_its_own_positive(examine: Examine) -> None:
    (found,) = examine("circo/val").diagnoses
    assert found.findings == ()
    assert found.healthy


def test_real_photos_have_no_near_duplicates(shared: Path) -> None:
    # Data README: the 372 clothing photos have no duplicates by bytes.
    from circus_bench.doctor.image_checks import check_images, scan_images
    from circus_bench.images import ImageFiles

    photos = ImageFiles.folder(shared / "data" / "photos" / "clothing" / "test")
    scanned = scan_images(photos, photos)
    assert len(scanned.inspection.readable) == 372
    assert check_images(scanned) == ()
