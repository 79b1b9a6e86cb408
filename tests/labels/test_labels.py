"""Labels join benchmarks strictly, survive the disk, and are refused for what they are not about."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.makers import make_run

from circus_bench.audit.audit import Audit, audit_best_ranks, audit_runs
from circus_bench.benchmark import Benchmark, Condition, Fingerprint, Protocol, Query, ReferencePolicy
from circus_bench.errors import CircusError, FormatError, MismatchError
from circus_bench.labels.labels import Labels, Subset
from circus_bench.labels.provenance import IdScheme, Provenance
from circus_bench.labels.query_label import QueryLabel, RejectionReason
from circus_bench.metrics.shortcut import Label, Shortcut

SC, CR, UN = Label.SHORTCUT, Label.COMPOSITION_REQUIRED, Label.UNRESOLVED


def made(**changes: Any) -> Labels:
    """Labels of the toy benchmark: a shortcut, a valid query and a rejected one."""
    rows = (
        QueryLabel("q1", SC, Shortcut.TEXT_ONLY),
        QueryLabel("q2", CR, audited=True, valid=True, stratum=CR),
        QueryLabel("q3", UN, audited=True, valid=False, stratum=UN, reasons=(RejectionReason.QUERY_TOO_BROAD,)),
    )
    settings = {"benchmark": "toy", "provenance": Provenance(k=10), "by_query": {row.query: row for row in rows}}
    return Labels(**{**settings, **changes})


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


def test_aligned_labels_are_in_the_order_of_the_benchmark(toy: Benchmark) -> None:
    turned = dataclasses.replace(toy, queries=toy.queries[::-1])
    assert [(key, label.label) for key, label in made().align(turned).items()] == [
        ("q3", UN),
        ("q2", CR),
        ("q1", SC),
    ]


@pytest.mark.parametrize("subset", Subset)
def test_a_verdict_that_finds_no_query_is_an_error_in_every_subset(toy: Benchmark, subset: Subset) -> None:
    more = {**made().by_query, "lost": QueryLabel("lost", CR)}
    with pytest.raises(MismatchError, match=r"1 of 4 labels find no query \(1: 'lost'\)"):
        made(by_query=more).select(toy, subset)


def test_sf_is_not_known_while_a_query_has_no_label(toy: Benchmark) -> None:
    fewer = {key: label for key, label in made().by_query.items() if key != "q1"}
    with pytest.raises(MismatchError, match=r"queries without a label \(1: 'q1'\), so 'sf' is not known"):
        made(by_query=fewer).select(toy, Subset.SF)


def test_v_needs_no_labels_of_the_other_queries(toy: Benchmark) -> None:
    fewer = {key: label for key, label in made().by_query.items() if key == "q2"}
    assert ids(made(by_query=fewer).select(toy, Subset.V)) == ["q2"]


def test_v_is_not_known_without_human_verdicts(toy: Benchmark) -> None:
    labels = {key: QueryLabel(key, label.label) for key, label in made().by_query.items()}
    with pytest.raises(CircusError, match="no query has a human verdict, so 'v' is not known"):
        made(by_query=labels).select(toy, Subset.V)


def test_a_mask_goes_by_a_run_s_order_of_queries() -> None:
    assert made().mask(["q2", "q1", "q3"], Subset.V).tolist() == [True, False, False]


# Which benchmark the labels are about.


def test_verdicts_on_another_benchmark_are_refused(toy: Benchmark) -> None:
    with pytest.raises(MismatchError, match="were asked about the benchmark 'toy'"):
        made(benchmark="other").select(toy, Subset.FULL)


def test_verdicts_for_another_protocol_are_refused(toy: Benchmark) -> None:
    with pytest.raises(MismatchError, match="hold for the protocol toy/val, not for toy/test"):
        made(provenance=Provenance(protocols=("toy/val",))).select(toy, Subset.FULL)


def test_verdicts_with_the_other_reference_policy_are_refused(toy: Benchmark) -> None:
    with pytest.raises(MismatchError, match="hold with the reference removed, not kept"):
        made(provenance=Provenance(reference=ReferencePolicy.REMOVED)).select(toy, Subset.FULL)


def test_verdicts_on_another_version_of_the_benchmark_are_refused(toy: Benchmark) -> None:
    provenance = Provenance(fingerprint=toy.fingerprint)
    assert len(made(provenance=provenance).select(toy, Subset.FULL)) == 3
    first = dataclasses.replace(toy.queries[0], text="something else")
    other = dataclasses.replace(toy, queries=(first, *toy.queries[1:]))
    with pytest.raises(MismatchError, match="another version of 'toy'"):
        made(provenance=provenance).select(other, Subset.FULL)


def test_positions_count_the_queries_of_the_benchmark(toy: Benchmark) -> None:
    provenance = Provenance(id_scheme=IdScheme.POSITION, n_queries=3)
    labels = made(provenance=provenance, by_query={"1": QueryLabel("1", CR, audited=True, valid=True, stratum=CR)})
    assert ids(labels.select(toy, Subset.V)) == ["q2"]
    assert labels.align(toy)["q2"].query == "q2"


def test_positions_are_refused_in_a_list_of_another_length(toy: Benchmark) -> None:
    provenance = Provenance(id_scheme=IdScheme.POSITION, n_queries=4)
    with pytest.raises(MismatchError, match="positions in a list of 4 queries, the benchmark has 3"):
        made(provenance=provenance, by_query={"1": QueryLabel("1", CR)}).select(toy, Subset.FULL)


# One label.


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"label": CR, "detail": Shortcut.BOTH}, "has the shortcut"),
        ({"best_rank": {Condition.MULTIMODAL: 0}}, "ranks below 1"),
        ({"support_unimodal": -1}, "negative support"),
        ({"valid": True}, "no human audit"),
        ({"audited": True, "valid": True, "reasons": (RejectionReason.INVALID_TEXT,)}, "valid, but rejected for"),
        ({"stratum": SC}, "shortcuts are not drawn"),
        ({"label": CR, "stratum": UN}, "but drawn as unresolved"),
    ],
)
def test_a_verdict_that_contradicts_itself_is_refused(parts: dict[str, Any], what: str) -> None:
    with pytest.raises(FormatError, match=f"query 'q': .*{what}"):
        QueryLabel("q", **parts)


# Merging.


def test_merging_adds_human_verdicts_to_labels() -> None:
    labels = {key: QueryLabel(key, label.label, label.detail) for key, label in made().by_query.items()}
    human = {key: dataclasses.replace(label, label=None) for key, label in made().by_query.items() if label.audited}
    merged = made(by_query=labels).merge(made(benchmark="", by_query=human))
    assert merged == made()


def test_merging_refuses_labels_that_disagree() -> None:
    with pytest.raises(MismatchError, match="disagree on 1 queries, such as: query 'q1': label is"):
        made().merge(made(by_query={"q1": QueryLabel("q1", UN)}))


def test_merging_refuses_another_benchmark() -> None:
    with pytest.raises(MismatchError, match=r"about 'toy' .* and 'other'"):
        made().merge(made(benchmark="other"))


# Labels of an audit.


def test_an_audit_s_labels_come_with_their_evidence(tmp_path: Path) -> None:
    # One model, K = 10: hits by text; by neither; only multimodal, where its image-only target is never retrieved.
    run = make_run([1, 60, 3], [4, 50, 11], [90, 40, None])
    audit_runs([run]).labels.save(tmp_path / "labels.parquet")
    labels = Labels.load(tmp_path / "labels.parquet")
    assert labels.benchmark == "made"
    assert (labels.provenance.k, labels.provenance.pool, labels.provenance.protocols) == (
        10,
        ("tests/a",),
        ("made/test",),
    )
    assert labels.provenance.fingerprint == run.manifest.fingerprint
    assert labels.by_query["q0"] == QueryLabel(
        "q0",
        SC,
        Shortcut.TEXT_ONLY,
        best_rank=dict(zip(Condition, (1, 4, 90), strict=True)),
        support=dict(zip(Condition, (1, 1, 0), strict=True)),
        support_unimodal=1,
        models=dict(zip(Condition, (("tests/a",), ("tests/a",), ()), strict=True)),
    )
    assert [label.label for label in labels.by_query.values()] == [SC, UN, CR]
    assert labels.by_query["q2"].best_rank[Condition.IMAGE_ONLY] is None


def judged_valid(*queries: str) -> Labels:
    return Labels("made", Provenance(), {query: QueryLabel(query, audited=True, valid=True) for query in queries})


def test_a_label_table_refuses_v_without_the_valid_queries(tmp_path: Path) -> None:
    run = make_run([1, 60, 3], [4, 50, 11], [90, 40, 30])
    audit_runs([run]).labels.save(tmp_path / "labels.parquet")
    table = Labels.load(tmp_path / "labels.parquet")
    with pytest.raises(CircusError, match="no query has a human verdict, so 'v' is not known"):
        table.mask(run, Subset.V)
    assert table.mask(run, Subset.V, validation=judged_valid("q2")).tolist() == [False, False, True]


def test_a_label_table_refuses_valid_queries_that_are_shortcuts(tmp_path: Path) -> None:
    run = make_run([1, 60, 3], [4, 50, 11], [90, 40, 30])
    audit_runs([run]).labels.save(tmp_path / "labels.parquet")
    with pytest.raises(MismatchError, match=r"not among the shortcut-free ones of these labels \(1: 'q0'\)"):
        Labels.load(tmp_path / "labels.parquet").mask(run, Subset.V, validation=judged_valid("q0", "q2"))


# The file of an audit.

# Four queries, one of each kind at K = 10: text (a), image (b) and text (b), neither alone, not even both. The second
# model retrieves nothing at all for the last query, whose target is not in its gallery.
RANKS = {
    "tests/a": ([1, 2, 3, 40], [4, 30, 11, 50], [90, 40, 12, 60]),
    "tests/b": ([5, 6, 70, None], [20, 10, 80, None], [80, 9, 13, None]),
}


def make_audit(**changes: Any) -> Audit:
    return audit_runs([make_run(*ranks, model=model, **changes) for model, ranks in RANKS.items()])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    make_audit().labels.save(tmp_path / "labels.parquet")
    return tmp_path / "labels.parquet"


def column(path: Path, name: str) -> list[Any]:
    return pq.read_table(path)[name].to_pylist()


def test_the_table_gives_each_query_its_label_and_the_kind_of_its_shortcut(saved: Path) -> None:
    assert column(saved, "query") == ["q0", "q1", "q2", "q3"]
    assert column(saved, "label") == ["shortcut", "shortcut", "composition_required", "unresolved"]
    assert column(saved, "detail") == ["text_only", "both", "", ""]


def test_the_table_names_the_models_that_hit(saved: Path) -> None:
    assert column(saved, "models_multimodal") == [["tests/a", "tests/b"], ["tests/a", "tests/b"], ["tests/a"], []]
    assert column(saved, "models_text_only") == [["tests/a"], ["tests/b"], [], []]
    assert column(saved, "models_image_only") == [[], ["tests/b"], [], []]


def test_the_table_counts_the_models_that_hit(saved: Path) -> None:
    assert column(saved, "support_multimodal") == [2, 2, 1, 0]
    assert column(saved, "support_text_only") == [1, 1, 0, 0]
    assert column(saved, "support_image_only") == [0, 1, 0, 0]
    assert column(saved, "support_unimodal") == [1, 1, 0, 0]


def test_the_table_holds_the_best_rank_over_the_pool(saved: Path) -> None:
    assert column(saved, "best_rank_multimodal") == [1, 2, 3, 40]
    assert column(saved, "best_rank_text_only") == [4, 10, 11, 50]
    assert column(saved, "best_rank_image_only") == [80, 9, 12, 60]


def test_a_best_rank_is_null_where_no_model_can_retrieve_a_target(tmp_path: Path) -> None:
    audit_runs([make_run([None, 1], [None, 1], [None, 1])]).labels.save(tmp_path / "labels.parquet")
    assert column(tmp_path / "labels.parquet", "best_rank_multimodal") == [None, 1]


def test_the_table_has_the_documented_columns(saved: Path) -> None:
    words, ranks, lists = pa.string(), pa.int32(), pa.list_(pa.string())
    conditions = ("multimodal", "text_only", "image_only")
    expected = {"query": words, "label": words, "detail": words, "support_unimodal": ranks}
    for condition in conditions:
        expected |= {f"best_rank_{condition}": ranks, f"support_{condition}": ranks, f"models_{condition}": lists}
    schema = pq.read_schema(saved)
    assert dict(zip(schema.names, schema.types, strict=True)) == expected


def test_the_table_says_where_its_labels_come_from(saved: Path) -> None:
    origin = json.loads(pq.read_schema(saved).metadata[b"circus_bench"])
    assert {name: origin[name] for name in ("schema_version", "benchmark", "pool", "k")} == {
        "schema_version": 1,
        "benchmark": "made",
        "pool": ["tests/a", "tests/b"],
        "k": 10,
    }
    assert (origin["min_unimodal"], origin["min_multimodal"]) == (1, 1)
    assert origin["protocol"]["id"] == "made/test"
    assert origin["fingerprint"] == {"annotations": "annotations of made", "images": "images of made"}


def test_the_same_labels_give_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    make_audit().labels.save(tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == saved.read_bytes()


def test_labels_survive_the_disk(saved: Path) -> None:
    table = Labels.load(saved)
    assert tuple(table.by_query) == ("q0", "q1", "q2", "q3")
    assert table.by_query == make_audit().labels.by_query


def test_sf_are_the_queries_that_are_no_shortcut(saved: Path) -> None:
    mask = Labels.load(saved).mask(make_run(*RANKS["tests/a"]), Subset.SF)
    assert mask.tolist() == [False, False, True, True]


def test_full_are_all_queries(saved: Path) -> None:
    assert Labels.load(saved).mask(make_run(*RANKS["tests/a"]), Subset.FULL).tolist() == [True] * 4


def test_labels_apply_to_a_model_outside_the_pool(saved: Path) -> None:
    run = make_run(*RANKS["tests/a"], model="tests/newcomer")
    assert Labels.load(saved).mask(run, Subset.SF).sum() == 2


@pytest.mark.parametrize(
    "change",
    [
        {"benchmark": "other", "fingerprint": Fingerprint("other", "other")},
        {"fingerprint": Fingerprint("annotations of another version", "images of made")},
        {"fingerprint": Fingerprint("annotations of made", "other pixels")},
    ],
)
@pytest.mark.parametrize("subset", list(Subset))
def test_labels_of_another_benchmark_or_version_are_refused(
    saved: Path, change: dict[str, Any], subset: Subset
) -> None:
    run = make_run(*RANKS["tests/a"], **change)
    with pytest.raises(MismatchError, match="the labels are about 4 queries of 'made'"):
        Labels.load(saved).mask(run, subset)


def test_labels_of_other_queries_are_refused(saved: Path) -> None:
    with pytest.raises(MismatchError, match=r"4 queries of 'made'.*tests/a about 1 queries"):
        Labels.load(saved).mask(make_run([1], [1], [1]), Subset.SF)


def test_labels_under_another_reference_policy_are_refused(saved: Path) -> None:
    # The same files ranked with and without the reference: image-only ranks differ by one, and so do the subsets.
    protocol = dataclasses.asdict(Protocol("made/official", ReferencePolicy.REMOVED))
    with pytest.raises(MismatchError, match="made/test"):
        Labels.load(saved).mask(make_run(*RANKS["tests/a"], protocol=protocol), Subset.SF)


def test_labels_of_published_minima_are_refused_for_runs(tmp_path: Path) -> None:
    # Such a file does not say which version of which benchmark it is about.
    minima = tmp_path / "minima.csv"
    minima.write_text("query_idx,best_rank_multimodal,best_rank_text_only,best_rank_image_only\nq0,1,2,3\n")
    audit_best_ranks(minima).labels.save(tmp_path / "labels.parquet")
    with pytest.raises(MismatchError, match="use the labels of an audit of that very benchmark"):
        Labels.load(tmp_path / "labels.parquet").mask(make_run([1], [2], [3]), Subset.SF)


def test_a_missing_label_table_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"labels\.parquet: no such file"):
        Labels.load(tmp_path / "labels.parquet")


def test_a_parquet_file_that_is_no_label_table_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"query": ["q0"]}), tmp_path / "labels.parquet")
    with pytest.raises(FormatError, match=r"lacks the columns \['label', 'detail'\]"):
        Labels.load(tmp_path / "labels.parquet")


def test_a_label_table_without_an_origin_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"query": ["q0"], "label": ["shortcut"], "detail": [""]}), tmp_path / "labels.parquet")
    with pytest.raises(FormatError, match="schema version None, expected 1"):
        Labels.load(tmp_path / "labels.parquet")


def rewritten(path: Path, *, schema_version: int = 1, **columns: list[Any]) -> Path:
    table = pq.read_table(path)
    origin = {**json.loads(table.schema.metadata[b"circus_bench"]), "schema_version": schema_version}
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    pq.write_table(table.replace_schema_metadata({"circus_bench": json.dumps(origin)}), path)
    return path


def test_a_label_table_of_another_schema_version_is_refused(saved: Path) -> None:
    with pytest.raises(FormatError, match="schema version 2, expected 1"):
        Labels.load(rewritten(saved, schema_version=2))


def test_a_label_table_with_an_unknown_label_is_refused_by_it(saved: Path) -> None:
    labels = ["shortcut", "easy", "unresolved", "unresolved"]
    with pytest.raises(FormatError, match=r"unknown labels \['easy'\]"):
        Labels.load(rewritten(saved, label=labels))


def test_a_label_table_with_a_missing_label_is_refused(saved: Path) -> None:
    labels = ["shortcut", None, "unresolved", "unresolved"]
    with pytest.raises(FormatError, match=r"unknown labels"):
        Labels.load(rewritten(saved, label=labels))


def test_a_provenance_keeps_the_keys_of_the_files() -> None:
    # Manifests and validation files were written with these keys.
    known = Provenance(source="a", license="MIT", k=10, pool=("m",), id_scheme=IdScheme.POSITION, min_unimodal=2)
    written = json.loads(json.dumps(known.to_dict()))
    assert set(written) == {
        *("source", "paper", "licence", "citation", "k", "pool", "protocols", "reference", "n_queries", "keys"),
        "fingerprint",
    }
    assert Provenance.from_dict(written) == dataclasses.replace(known, min_unimodal=None)


def test_labels_with_human_verdicts_are_not_written_as_those_of_an_audit(tmp_path: Path) -> None:
    with pytest.raises(CircusError, match="would hold the labels of an audit alone"):
        made().save(tmp_path / "labels.parquet")


def test_labels_are_joined_by_id_whatever_the_order_of_a_run(saved: Path) -> None:
    run = make_run(*RANKS["tests/a"])
    turned = dataclasses.replace(run, queries=run.queries[::-1])
    assert Labels.load(saved).mask(turned, Subset.SF).tolist() == [True, True, False, False]


def test_an_audit_s_labels_in_memory_are_those_of_its_file(saved: Path) -> None:
    loaded, kept = Labels.load(str(saved)), make_audit().labels
    assert loaded.by_query == kept.by_query
    assert dataclasses.replace(loaded.provenance, source="") == dataclasses.replace(kept.provenance, source="")


def test_labels_become_a_table_with_one_row_per_query() -> None:
    table = made().to_pandas().set_index("query")
    assert table["label"].tolist() == [SC, CR, UN]
    assert table["human_valid"].isna().tolist() == [True, False, False]
    assert table.loc["q3", "query_too_broad"]
