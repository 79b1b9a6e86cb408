"""The label table: what it holds, that it survives the disk, and which Runs it may be applied to."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.makers import make_run

from circus_bench.audit.audit import Audit, audit_best_ranks, audit_runs
from circus_bench.benchmark import Fingerprint, Protocol, ReferencePolicy
from circus_bench.errors import FormatError, MismatchError
from circus_bench.labels.label_table import LabelTable, Subset

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
    make_audit().save_labels(tmp_path / "labels.parquet")
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
    audit_runs([make_run([None, 1], [None, 1], [None, 1])]).save_labels(tmp_path / "labels.parquet")
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
    origin = LabelTable.load(saved).origin
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
    make_audit().save_labels(tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == saved.read_bytes()


def test_labels_survive_the_disk(saved: Path) -> None:
    table = LabelTable.load(saved)
    assert table.queries == ("q0", "q1", "q2", "q3")
    assert table.labels.tolist() == make_audit().labels.labels.tolist()


def test_sf_are_the_queries_that_are_no_shortcut(saved: Path) -> None:
    mask = LabelTable.load(saved).mask_of(make_run(*RANKS["tests/a"]), Subset.SF)
    assert mask.tolist() == [False, False, True, True]


def test_full_are_all_queries(saved: Path) -> None:
    assert LabelTable.load(saved).mask_of(make_run(*RANKS["tests/a"]), Subset.FULL).tolist() == [True] * 4


def test_labels_apply_to_a_model_outside_the_pool(saved: Path) -> None:
    run = make_run(*RANKS["tests/a"], model="tests/newcomer")
    assert LabelTable.load(saved).mask_of(run, Subset.SF).sum() == 2


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
        LabelTable.load(saved).mask_of(run, subset)


def test_labels_of_other_queries_are_refused(saved: Path) -> None:
    with pytest.raises(MismatchError, match=r"4 queries of 'made'.*tests/a about 1 queries"):
        LabelTable.load(saved).mask_of(make_run([1], [1], [1]), Subset.SF)


def test_labels_under_another_reference_policy_are_refused(saved: Path) -> None:
    # The same files ranked with and without the reference: image-only ranks differ by one, and so do the subsets.
    protocol = dataclasses.asdict(Protocol("made/official", ReferencePolicy.REMOVED))
    with pytest.raises(MismatchError, match="made/test"):
        LabelTable.load(saved).mask_of(make_run(*RANKS["tests/a"], protocol=protocol), Subset.SF)


def test_labels_of_published_minima_are_refused_for_runs(tmp_path: Path) -> None:
    # Such a file does not say which version of which benchmark it is about.
    minima = tmp_path / "minima.csv"
    minima.write_text("query_idx,best_rank_multimodal,best_rank_text_only,best_rank_image_only\nq0,1,2,3\n")
    audit_best_ranks(minima).save_labels(tmp_path / "labels.parquet")
    with pytest.raises(MismatchError, match="use the labels of an audit of that very benchmark"):
        LabelTable.load(tmp_path / "labels.parquet").mask_of(make_run([1], [2], [3]), Subset.SF)


def test_a_missing_label_table_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"labels\.parquet: no such file"):
        LabelTable.load(tmp_path / "labels.parquet")


def test_a_parquet_file_that_is_no_label_table_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"query": ["q0"]}), tmp_path / "labels.parquet")
    with pytest.raises(FormatError, match=r"lacks the columns \['label', 'detail'\]"):
        LabelTable.load(tmp_path / "labels.parquet")


def test_a_label_table_without_an_origin_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"query": ["q0"], "label": ["shortcut"], "detail": [""]}), tmp_path / "labels.parquet")
    with pytest.raises(FormatError, match="schema version None, expected 1"):
        LabelTable.load(tmp_path / "labels.parquet")


def rewritten(path: Path, *, schema_version: int = 1, **columns: list[Any]) -> Path:
    table = pq.read_table(path)
    origin = {**json.loads(table.schema.metadata[b"circus_bench"]), "schema_version": schema_version}
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    pq.write_table(table.replace_schema_metadata({"circus_bench": json.dumps(origin)}), path)
    return path


def test_a_label_table_of_another_schema_version_is_refused(saved: Path) -> None:
    with pytest.raises(FormatError, match="schema version 2, expected 1"):
        LabelTable.load(rewritten(saved, schema_version=2))


def test_a_label_table_with_an_unknown_label_is_refused_by_it(saved: Path) -> None:
    labels = ["shortcut", "easy", "unresolved", "unresolved"]
    with pytest.raises(FormatError, match=r"unknown labels \['easy'\]"):
        LabelTable.load(rewritten(saved, label=labels))


def test_a_label_table_with_a_missing_label_is_refused(saved: Path) -> None:
    labels = ["shortcut", None, "unresolved", "unresolved"]
    with pytest.raises(FormatError, match=r"unknown labels"):
        LabelTable.load(rewritten(saved, label=labels))
