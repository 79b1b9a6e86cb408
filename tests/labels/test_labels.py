"""Verdicts join benchmarks strictly, and those that ship are what the CIRCUS project published."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.makers import make_run

from circus_bench.audit.audit import audit_runs
from circus_bench.benchmark import Benchmark, Condition, Protocol, Query, ReferencePolicy
from circus_bench.errors import CircusError, FormatError, MismatchError
from circus_bench.labels.label_table import LabelTable, Subset
from circus_bench.labels.labels import PUBLISHED, Keys, Origin, Reason, Verdict, Verdicts, published
from circus_bench.labels.published import build, packing
from circus_bench.metrics.shortcut import Label, Shortcut
from circus_bench.sources import load_source

PUBLISHED_FOLDER = Path(build.__file__).parent
SC, CR, UN = Label.SHORTCUT, Label.COMPOSITION_REQUIRED, Label.UNRESOLVED


def made(**changes: Any) -> Verdicts:
    """Verdicts on the toy benchmark: a shortcut, a valid query and a rejected one."""
    rows = (
        Verdict("q1", SC, Shortcut.TEXT_ONLY),
        Verdict("q2", CR, audited=True, valid=True, stratum=CR),
        Verdict("q3", UN, audited=True, valid=False, stratum=UN, reasons=(Reason.QUERY_TOO_BROAD,)),
    )
    settings = {"benchmark": "toy", "origin": Origin(k=10), "verdicts": {row.query: row for row in rows}}
    return Verdicts(**{**settings, **changes})


def ids(queries: tuple[Query, ...]) -> list[str]:
    return [query.id for query in queries]


@pytest.fixture
def toy(toy_benchmark: Callable[..., Benchmark]) -> Benchmark:
    return toy_benchmark(with_images=False)


# Subsets.


def test_full_is_every_query_sf_the_shortcut_free_and_v_the_valid(toy: Benchmark) -> None:
    selected = {subset: ids(made().select(toy, subset)) for subset in Subset}
    assert selected == {Subset.FULL: ["q1", "q2", "q3"], Subset.SF: ["q2", "q3"], Subset.V: ["q2"]}


def test_a_subset_is_in_the_order_of_the_benchmark(toy: Benchmark) -> None:
    turned = dataclasses.replace(toy, queries=toy.queries[::-1])
    assert ids(made().select(turned, Subset.SF)) == ["q3", "q2"]


def test_joined_verdicts_are_in_the_order_of_the_benchmark(toy: Benchmark) -> None:
    turned = dataclasses.replace(toy, queries=toy.queries[::-1])
    assert [(key, verdict.label) for key, verdict in made().joined(turned).items()] == [
        ("q3", UN),
        ("q2", CR),
        ("q1", SC),
    ]


@pytest.mark.parametrize("subset", Subset)
def test_a_verdict_that_finds_no_query_is_an_error_in_every_subset(toy: Benchmark, subset: Subset) -> None:
    more = {**made().verdicts, "lost": Verdict("lost", CR)}
    with pytest.raises(MismatchError, match=r"1 of 4 verdicts find no query \(1: 'lost'\)"):
        made(verdicts=more).select(toy, subset)


def test_sf_is_not_known_while_a_query_has_no_label(toy: Benchmark) -> None:
    fewer = {key: verdict for key, verdict in made().verdicts.items() if key != "q1"}
    with pytest.raises(MismatchError, match=r"queries without a label \(1: 'q1'\), so 'sf' is not known"):
        made(verdicts=fewer).select(toy, Subset.SF)


def test_v_needs_no_labels_of_the_other_queries(toy: Benchmark) -> None:
    fewer = {key: verdict for key, verdict in made().verdicts.items() if key == "q2"}
    assert ids(made(verdicts=fewer).select(toy, Subset.V)) == ["q2"]


def test_v_is_not_known_without_human_verdicts(toy: Benchmark) -> None:
    labels = {key: Verdict(key, verdict.label) for key, verdict in made().verdicts.items()}
    with pytest.raises(CircusError, match="no query has a human verdict, so 'v' is not known"):
        made(verdicts=labels).select(toy, Subset.V)


def test_a_mask_goes_by_a_run_s_order_of_queries() -> None:
    assert made().mask(["q2", "q1", "q3"], Subset.V).tolist() == [True, False, False]


# Which benchmark the verdicts are about.


def test_verdicts_on_another_benchmark_are_refused(toy: Benchmark) -> None:
    with pytest.raises(MismatchError, match="were asked about the benchmark 'toy'"):
        made(benchmark="other").select(toy, Subset.FULL)


def test_verdicts_for_another_protocol_are_refused(toy: Benchmark) -> None:
    with pytest.raises(MismatchError, match="hold for the protocol toy/val, not for toy/test"):
        made(origin=Origin(protocols=("toy/val",))).select(toy, Subset.FULL)


def test_verdicts_with_the_other_reference_policy_are_refused(toy: Benchmark) -> None:
    with pytest.raises(MismatchError, match="hold with the reference removed, not kept"):
        made(origin=Origin(reference=ReferencePolicy.REMOVED)).select(toy, Subset.FULL)


def test_verdicts_on_another_version_of_the_benchmark_are_refused(toy: Benchmark) -> None:
    origin = Origin(fingerprint=toy.fingerprint)
    assert len(made(origin=origin).select(toy, Subset.FULL)) == 3
    first = dataclasses.replace(toy.queries[0], text="something else")
    other = dataclasses.replace(toy, queries=(first, *toy.queries[1:]))
    with pytest.raises(MismatchError, match="another version of 'toy'"):
        made(origin=origin).select(other, Subset.FULL)


def test_positions_count_the_queries_of_the_benchmark(toy: Benchmark) -> None:
    origin = Origin(keys=Keys.POSITION, n_queries=3)
    verdicts = made(origin=origin, verdicts={"1": Verdict("1", CR, audited=True, valid=True, stratum=CR)})
    assert ids(verdicts.select(toy, Subset.V)) == ["q2"]
    assert verdicts.joined(toy)["q2"].query == "q2"


def test_positions_are_refused_in_a_list_of_another_length(toy: Benchmark) -> None:
    origin = Origin(keys=Keys.POSITION, n_queries=4)
    with pytest.raises(MismatchError, match="positions in a list of 4 queries, the benchmark has 3"):
        made(origin=origin, verdicts={"1": Verdict("1", CR)}).select(toy, Subset.FULL)


# One verdict.


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"label": CR, "detail": Shortcut.BOTH}, "has the shortcut"),
        ({"best_rank": {Condition.MULTIMODAL: 0}}, "ranks below 1"),
        ({"support_unimodal": -1}, "negative support"),
        ({"valid": True}, "no human audit"),
        ({"audited": True, "valid": True, "reasons": (Reason.INVALID_TEXT,)}, "valid, but rejected for"),
        ({"stratum": SC}, "shortcuts are not drawn"),
        ({"label": CR, "stratum": UN}, "but drawn as unresolved"),
    ],
)
def test_a_verdict_that_contradicts_itself_is_refused(parts: dict[str, Any], what: str) -> None:
    with pytest.raises(FormatError, match=f"query 'q': .*{what}"):
        Verdict("q", **parts)


# Merging.


def test_merging_adds_human_verdicts_to_labels() -> None:
    labels = {key: Verdict(key, verdict.label, verdict.detail) for key, verdict in made().verdicts.items()}
    human = {
        key: dataclasses.replace(verdict, label=None) for key, verdict in made().verdicts.items() if verdict.audited
    }
    merged = made(verdicts=labels).merged(made(benchmark="", verdicts=human))
    assert merged == made()


def test_merging_refuses_verdicts_that_disagree() -> None:
    with pytest.raises(MismatchError, match="disagree on 1 queries, such as: query 'q1': label is"):
        made().merged(made(verdicts={"q1": Verdict("q1", UN)}))


def test_merging_refuses_another_benchmark() -> None:
    with pytest.raises(MismatchError, match=r"about 'toy' .* and 'other'"):
        made().merged(made(benchmark="other"))


# Labels of an audit.


def test_an_audit_s_labels_come_with_their_evidence(tmp_path: Path) -> None:
    # One model, K = 10: hits by text; by neither; only multimodal, where its image-only target is never retrieved.
    run = make_run([1, 60, 3], [4, 50, 11], [90, 40, None])
    audit_runs([run]).save_labels(tmp_path / "labels.parquet")
    verdicts = Verdicts.of_labels(tmp_path / "labels.parquet")
    assert verdicts.benchmark == "made"
    assert (verdicts.origin.k, verdicts.origin.pool, verdicts.origin.protocols) == (10, ("tests/a",), ("made/test",))
    assert verdicts.origin.fingerprint == run.manifest.fingerprint
    assert verdicts.verdicts["q0"] == Verdict(
        "q0",
        SC,
        Shortcut.TEXT_ONLY,
        best_rank=dict(zip(Condition, (1, 4, 90), strict=True)),
        support=dict(zip(Condition, (1, 1, 0), strict=True)),
        support_unimodal=1,
    )
    assert [verdict.label for verdict in verdicts.verdicts.values()] == [SC, UN, CR]
    assert verdicts.verdicts["q2"].best_rank[Condition.IMAGE_ONLY] is None


def test_a_label_table_refuses_v_without_the_valid_queries(tmp_path: Path) -> None:
    run = make_run([1, 60, 3], [4, 50, 11], [90, 40, 30])
    audit_runs([run]).save_labels(tmp_path / "labels.parquet")
    table = LabelTable.load(tmp_path / "labels.parquet")
    with pytest.raises(CircusError, match="'v' needs human verdicts"):
        table.mask_of(run, Subset.V)
    assert table.mask_of(run, Subset.V, valid={"q2"}).tolist() == [False, False, True]


def test_a_label_table_refuses_valid_queries_that_are_shortcuts(tmp_path: Path) -> None:
    run = make_run([1, 60, 3], [4, 50, 11], [90, 40, 30])
    audit_runs([run]).save_labels(tmp_path / "labels.parquet")
    with pytest.raises(MismatchError, match=r"not among the shortcut-free ones of these labels \(1: 'q0'\)"):
        LabelTable.load(tmp_path / "labels.parquet").mask_of(run, Subset.V, valid={"q0", "q2"})


# What is published (facts/circus-paper.md, sections 5 and 10).


@pytest.mark.parametrize(("name", "counts"), [("cirr", (3485, 271, 414)), ("circo", (164, 53, 3))])
def test_the_published_labels_have_the_published_totals(name: str, counts: tuple[int, int, int]) -> None:
    found = Counter(verdict.label for verdict in published(name).verdicts.values())
    assert tuple(found[label] for label in (SC, CR, UN)) == counts


@pytest.mark.parametrize(
    ("name", "counts"), [("cirr", (147, 156)), ("fashioniq", (368, 218)), ("circo", (39, 3)), ("lasco", (452, 306))]
)
def test_the_validated_queries_have_the_published_totals_by_stratum(name: str, counts: tuple[int, int]) -> None:
    found = Counter(verdict.stratum for verdict in published(name).verdicts.values() if verdict.valid)
    assert (found[CR], found[UN]) == counts


def test_the_validated_queries_are_1689_in_all() -> None:
    assert sum(bool(v.valid) for name in PUBLISHED for v in published(name).verdicts.values()) == 1689


def test_every_shortcut_free_query_of_cirr_and_circo_was_audited() -> None:
    for name in ("cirr", "circo"):
        for verdict in published(name).verdicts.values():
            assert verdict.audited == (verdict.label is not SC) == (verdict.valid is not None)


def test_the_shortcuts_of_circo_are_of_the_published_kinds() -> None:
    found = Counter(verdict.detail for verdict in published("circo").verdicts.values() if verdict.label is SC)
    assert found == {Shortcut.TEXT_ONLY: 54, Shortcut.IMAGE_ONLY: 63, Shortcut.BOTH: 47}


def test_the_kind_of_cirr_s_shortcuts_is_not_made_up() -> None:
    verdicts = published("cirr").verdicts.values()
    assert {verdict.detail for verdict in verdicts} == {""}
    assert {(v.label is SC) == (v.best_rank[Condition.TEXT_ONLY] is None) for v in verdicts} == {True}


def shortcuts_at(name: str, k: int) -> int:
    """Queries labelled a shortcut, and those whose best unimodal rank is at most k."""

    def within(verdict: Verdict) -> bool:
        text, image = (verdict.best_rank[c] for c in (Condition.TEXT_ONLY, Condition.IMAGE_ONLY))
        return text is not None and image is not None and min(text, image) <= k

    verdicts = published(name).verdicts.values()
    return sum((verdict.label is SC and k >= 10) or within(verdict) for verdict in verdicts)


def test_the_shipped_ranks_give_cirr_s_sensitivity_to_k() -> None:
    # 255 of the 685 shortcut-free queries have a best unimodal rank of 11 to 20: 3,485 + 255 = 3,740 at K = 20.
    assert [shortcuts_at("cirr", k) for k in (10, 20)] == [3485, 3740]


def test_the_shipped_ranks_give_circo_s_sensitivity_to_k() -> None:
    assert [shortcuts_at("circo", k) for k in (5, 10, 20)] == [137, 164, 189]


def test_the_shipped_supports_reach_twelve_models_for_22_circo_queries() -> None:
    supports = Counter(verdict.support[Condition.MULTIMODAL] for verdict in published("circo").verdicts.values())
    assert supports[12] == 22


def test_the_shipped_supports_of_cirr_say_which_shortcut_free_queries_some_model_solves() -> None:
    for verdict in published("cirr").verdicts.values():
        support = verdict.support[Condition.MULTIMODAL]
        assert (verdict.label is SC) == (support is None)
        assert verdict.label is SC or (verdict.label is CR) == bool(support)


def test_each_published_list_names_source_paper_and_licence() -> None:
    licences = {name: published(name).origin.licence for name in PUBLISHED}
    assert licences == {"cirr": "MIT", "fashioniq": "not stated", "circo": "CC-BY-NC-4.0", "lasco": "MIT"}
    assert {(published(n).origin.source, published(n).origin.paper) for n in PUBLISHED} == {
        ("matteoattimonelli/CIRCUS", "arXiv:2605.14787")
    }


def test_there_is_nothing_published_about_other_benchmarks() -> None:
    with pytest.raises(CircusError, match="no verdicts are published for 'rmir'"):
        published("rmir")


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
    rows = (Verdict("0", CR), Verdict("1", SC, best_rank={**dict.fromkeys(Condition), Condition.TEXT_ONLY: 3}))
    verdicts = Verdicts("x", Origin(n_queries=2), {row.query: row for row in rows})
    with pytest.raises(CircusError, match="the packed format cannot hold these verdicts"):
        packing.pack(verdicts)


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
    verdicts = published(name)
    assert list(verdicts.joined(benchmark)) == [query.id for query in benchmark.queries]
    assert tuple(len(verdicts.select(benchmark, subset)) for subset in Subset) == sizes


@pytest.mark.parametrize("protocol", ["fashioniq/circus", "fashioniq/mbeir"])
def test_fashioniq_has_a_validated_subset_but_no_shortcut_free_one(shared: Path, protocol: str) -> None:
    benchmark = load_source(protocol, shared / "data" / "fashioniq")
    verdicts = published("fashioniq")
    assert len(verdicts.select(benchmark, Subset.V)) == 586
    with pytest.raises(MismatchError, match=r"queries without a label \(5,417"):  # 6,003 - 586
        verdicts.select(benchmark, Subset.SF)


def test_lasco_s_positions_join_a_complete_list(toy_benchmark: Callable[..., Benchmark]) -> None:
    protocol = Protocol("lasco/val", ReferencePolicy.KEPT)
    queries = [Query(str(1000 + number), "a", "x", ("b",)) for number in range(30_031)]
    benchmark = toy_benchmark(name="lasco", protocol=protocol, queries=queries, with_images=False)
    selected = published("lasco").select(benchmark, Subset.V)
    assert len(selected) == 758
    first = min(int(query) for query in published("lasco").verdicts)
    assert selected[0].id == str(1000 + first)


def test_lasco_s_positions_are_refused_in_the_subset_of_1300(shared: Path) -> None:
    benchmark = load_source("lasco/val+cl-lasco", shared / "data" / "lasco")
    with pytest.raises(MismatchError, match="hold for the protocol lasco/val, not for"):
        published("lasco").select(benchmark, Subset.V)


@pytest.mark.parametrize("protocol", ["cirr/mbeir", "fashioniq/mbeir", "circo/val"])
def test_the_joined_queries_are_those_that_were_validated(shared: Path, protocol: str) -> None:
    # The released lists name reference and positives; indices alone could be off by one and still join.
    name = protocol.partition("/")[0]
    benchmark = load_source(protocol, shared / "data" / name)
    lines = (shared / "data" / "circus" / "validated_queries_resolved.jsonl").read_text(encoding="utf-8").splitlines()
    rows = {str(row["query_idx"]): row for row in map(json.loads, lines) if row["dataset"] == name}
    selected = published(name).select(benchmark, Subset.V)
    assert {query.id for query in selected} == set(rows)
    for query in selected:
        row = rows[query.id]
        assert (query.reference, list(query.targets)) == (str(row["reference"]), list(map(str, row["positives"])))
