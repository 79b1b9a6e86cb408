"""The labels that ship with the package are what the CIRCUS project published, and join the benchmarks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from circus_bench.benchmark import Benchmark, Condition, Protocol, Query, ReferencePolicy
from circus_bench.errors import CircusError, FormatError, MismatchError
from circus_bench.labels.labels import Labels, Subset
from circus_bench.labels.provenance import Provenance
from circus_bench.labels.published import PUBLISHED, build, packing, published_labels
from circus_bench.labels.query_label import QueryLabel
from circus_bench.metrics.shortcut import Label, Shortcut
from circus_bench.sources import load_source

PUBLISHED_FOLDER = Path(build.__file__).parent
SC, CR, UN = Label.SHORTCUT, Label.COMPOSITION_REQUIRED, Label.UNRESOLVED


# What is published (facts/circus-paper.md, sections 5 and 10).


@pytest.mark.parametrize(("name", "counts"), [("cirr", (3485, 271, 414)), ("circo", (164, 53, 3))])
def test_the_published_labels_have_the_published_totals(name: str, counts: tuple[int, int, int]) -> None:
    found = Counter(label.label for label in published_labels(name).by_query.values())
    assert tuple(found[label] for label in (SC, CR, UN)) == counts


@pytest.mark.parametrize(
    ("name", "counts"), [("cirr", (147, 156)), ("fashioniq", (368, 218)), ("circo", (39, 3)), ("lasco", (452, 306))]
)
def test_the_validated_queries_have_the_published_totals_by_stratum(name: str, counts: tuple[int, int]) -> None:
    found = Counter(label.stratum for label in published_labels(name).by_query.values() if label.valid)
    assert (found[CR], found[UN]) == counts


def test_the_validated_queries_are_1689_in_all() -> None:
    assert sum(bool(v.valid) for name in PUBLISHED for v in published_labels(name).by_query.values()) == 1689


def test_every_shortcut_free_query_of_cirr_and_circo_was_audited() -> None:
    for name in ("cirr", "circo"):
        for label in published_labels(name).by_query.values():
            assert label.audited == (label.label is not SC) == (label.valid is not None)


def test_the_shortcuts_of_circo_are_of_the_published_kinds() -> None:
    found = Counter(label.detail for label in published_labels("circo").by_query.values() if label.label is SC)
    assert found == {Shortcut.TEXT_ONLY: 54, Shortcut.IMAGE_ONLY: 63, Shortcut.BOTH: 47}


def test_the_kind_of_cirr_s_shortcuts_is_not_made_up() -> None:
    labels = published_labels("cirr").by_query.values()
    assert {label.detail for label in labels} == {""}
    assert {(v.label is SC) == (v.best_rank[Condition.TEXT_ONLY] is None) for v in labels} == {True}


def shortcuts_at(name: str, k: int) -> int:
    """Queries labeled a shortcut, and those whose best unimodal rank is at most k."""

    def within(label: QueryLabel) -> bool:
        text, image = (label.best_rank[c] for c in (Condition.TEXT_ONLY, Condition.IMAGE_ONLY))
        return text is not None and image is not None and min(text, image) <= k

    labels = published_labels(name).by_query.values()
    return sum((label.label is SC and k >= 10) or within(label) for label in labels)


def test_the_shipped_ranks_give_cirr_s_sensitivity_to_k() -> None:
    # 255 of the 685 shortcut-free queries have a best unimodal rank of 11 to 20: 3,485 + 255 = 3,740 at K = 20.
    assert [shortcuts_at("cirr", k) for k in (10, 20)] == [3485, 3740]


def test_the_shipped_ranks_give_circo_s_sensitivity_to_k() -> None:
    assert [shortcuts_at("circo", k) for k in (5, 10, 20)] == [137, 164, 189]


def test_the_shipped_supports_reach_twelve_models_for_22_circo_queries() -> None:
    supports = Counter(label.support[Condition.MULTIMODAL] for label in published_labels("circo").by_query.values())
    assert supports[12] == 22


def test_the_shipped_supports_of_cirr_say_which_shortcut_free_queries_some_model_solves() -> None:
    for label in published_labels("cirr").by_query.values():
        support = label.support[Condition.MULTIMODAL]
        assert (label.label is SC) == (support is None)
        assert label.label is SC or (label.label is CR) == bool(support)


def test_each_published_list_names_source_paper_and_license() -> None:
    licenses = {name: published_labels(name).provenance.license for name in PUBLISHED}
    assert licenses == {"cirr": "MIT", "fashioniq": "not stated", "circo": "CC-BY-NC-4.0", "lasco": "MIT"}
    assert {(published_labels(n).provenance.source, published_labels(n).provenance.paper) for n in PUBLISHED} == {
        ("matteoattimonelli/CIRCUS", "arXiv:2605.14787")
    }


def test_there_is_nothing_published_about_other_benchmarks() -> None:
    with pytest.raises(CircusError, match="no labels are published for 'rmir'"):
        published_labels("rmir")


def test_the_published_files_are_small_and_hold_numbers_alone() -> None:
    files = {name: (PUBLISHED_FOLDER / f"{name}.json").read_text(encoding="utf-8") for name in PUBLISHED}
    assert sum(map(len, files.values())) < 100_000
    for text in files.values():
        content = json.loads(text)
        words = {"schema_version", "benchmark", "origin", "audited", "labels"}
        assert set(content.get("labels", "")) <= set("tibscu")
        columns = [value for key, value in content.items() if key not in words]
        for column in columns:
            for part in column.values():
                assert part in ("all", "shortcut_free") or all(type(number) is int for number in part)


def test_a_published_file_of_another_schema_is_refused() -> None:
    with pytest.raises(FormatError, match="schema version 2, expected 1"):
        packing.unpack({"schema_version": 2}, where=Path("x.json"))


def test_packing_refuses_what_the_format_cannot_hold() -> None:
    rows = (QueryLabel("0", CR), QueryLabel("1", SC, best_rank={**dict.fromkeys(Condition), Condition.TEXT_ONLY: 3}))
    labels = Labels("x", Provenance(n_queries=2), {row.query: row for row in rows})
    with pytest.raises(CircusError, match="the packed format cannot hold these labels"):
        packing.pack(labels)


# Against the real files.


def test_the_published_files_are_made_again_byte_for_byte(shared: Path, tmp_path: Path) -> None:
    build.main([str(shared / "data" / "circus"), "--out", str(tmp_path)])
    for name in PUBLISHED:
        assert (tmp_path / f"{name}.json").read_bytes() == (PUBLISHED_FOLDER / f"{name}.json").read_bytes()


@pytest.mark.parametrize(
    ("protocol", "sizes"),
    [
        ("cirr/circus", (4170, 685, 303)),
        ("cirr/mbeir", (4170, 685, 303)),
        ("circo/val", (220, 56, 42)),
    ],
)
def test_labels_join_the_annotations_with_none_left_over(
    shared: Path, protocol: str, sizes: tuple[int, int, int]
) -> None:
    name = protocol.partition("/")[0]
    benchmark = load_source(protocol, shared / "data" / name)
    labels = published_labels(name)
    assert list(labels.align(benchmark)) == [query.id for query in benchmark.queries]
    assert tuple(len(labels.select(benchmark, subset)) for subset in Subset) == sizes


@pytest.mark.parametrize("protocol", ["fashioniq/circus", "fashioniq/mbeir"])
def test_fashioniq_has_a_validated_subset_but_no_shortcut_free_one(shared: Path, protocol: str) -> None:
    benchmark = load_source(protocol, shared / "data" / "fashioniq")
    labels = published_labels("fashioniq")
    assert len(labels.select(benchmark, Subset.V)) == 586
    with pytest.raises(MismatchError, match=r"queries without a label \(5,417"):  # 6,003 - 586
        labels.select(benchmark, Subset.SF)


def test_lasco_s_positions_join_a_complete_list(toy_benchmark: Callable[..., Benchmark]) -> None:
    protocol = Protocol("lasco/val", ReferencePolicy.KEPT)
    queries = [Query(str(1000 + number), "a", "x", ("b",)) for number in range(30_031)]
    benchmark = toy_benchmark(name="lasco", protocol=protocol, queries=queries, with_images=False)
    selected = published_labels("lasco").select(benchmark, Subset.V)
    assert len(selected) == 758
    first = min(int(query) for query in published_labels("lasco").by_query)
    assert selected[0].id == str(1000 + first)


def test_lasco_s_positions_are_refused_in_the_subset_of_1300(shared: Path) -> None:
    benchmark = load_source("lasco/val+cl-lasco", shared / "data" / "lasco")
    with pytest.raises(MismatchError, match="hold for the protocol lasco/val, not for"):
        published_labels("lasco").select(benchmark, Subset.V)


@pytest.mark.parametrize("protocol", ["cirr/mbeir", "fashioniq/mbeir", "circo/val"])
def test_the_joined_queries_are_those_that_were_validated(shared: Path, protocol: str) -> None:
    # The released lists name reference and positives; indices alone could be off by one and still join.
    name = protocol.partition("/")[0]
    benchmark = load_source(protocol, shared / "data" / name)
    lines = (shared / "data" / "circus" / "validated_queries_resolved.jsonl").read_text(encoding="utf-8").splitlines()
    rows = {str(row["query_idx"]): row for row in map(json.loads, lines) if row["dataset"] == name}
    selected = published_labels(name).select(benchmark, Subset.V)
    assert {query.id for query in selected} == set(rows)
    for query in selected:
        row = rows[query.id]
        assert (query.reference, list(query.targets)) == (str(row["reference"]), list(map(str, row["positives"])))
