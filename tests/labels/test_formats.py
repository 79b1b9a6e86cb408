"""Verdicts are read from every format they are released in, told apart by their columns; all samples are invented."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.makers import make_run

from circus_bench.audit.audit import audit_runs
from circus_bench.benchmark import Condition
from circus_bench.errors import FormatError, MismatchError
from circus_bench.labels.formats import load_labels
from circus_bench.labels.labels import Labels
from circus_bench.labels.provenance import IdScheme
from circus_bench.labels.query_label import QueryLabel, RejectionReason
from circus_bench.metrics.shortcut import Label, Shortcut

SC, CR, UN = Label.SHORTCUT, Label.COMPOSITION_REQUIRED, Label.UNRESOLVED

# Two queries as each format should give them: a shortcut of the text with ranks 1, 2, 30, and a rejected query.
RANKS = {"4": (1, 2, 30), "7": (50, 60, 70)}
SUPPORTS = {"4": (5, 3, 0, 3), "7": (0, 0, 0, 0)}


def by_condition(values: Sequence[int | None]) -> dict[Condition, int | None]:
    return dict(zip(Condition, values, strict=True))


def expected(query: str, *, supports: bool = True, human: bool = False) -> QueryLabel:
    *support, unimodal = SUPPORTS[query] if supports else (None,) * 4
    verdict = {
        "query": query,
        "best_rank": by_condition(RANKS[query]),
        "support": by_condition(support),
        "support_unimodal": unimodal,
    }
    if query == "4":
        return QueryLabel(label=SC, detail=Shortcut.TEXT_ONLY, **verdict)
    judged = (
        {"audited": True, "valid": False, "stratum": UN, "reasons": (RejectionReason.QUERY_TOO_BROAD,)} if human else {}
    )
    return QueryLabel(label=UN, **verdict, **judged)


def trace_row(query: str) -> dict[str, Any]:
    ranks, supports = RANKS[query], SUPPORTS[query]
    label = "shortcut_solvable" if query == "4" else "unresolved"
    return {
        "query_idx": int(query),
        "query_id": f"8:{query}",
        "selection_field": "aggregate_label",
        "selection_value": label,
        "aggregate_label": label,
        "aggregate_detail_label": "text_only" if query == "4" else label,
        "legacy_category": "x",
        "query_text": "as invented, with a comma",
        "query_img_path": "images/x.png",
        "primary_pos_cand_id": "8:1",
        **{f"rank_{c}": rank for c, rank in zip(Condition, ranks, strict=True)},
        **{f"best_retriever_{c}": "" for c in Condition},
        **{f"support_{name}": support for name, support in zip([*Condition, "either_unimodal"], supports, strict=True)},
    }


def audit_row(query: str) -> dict[str, Any]:
    flat = trace_row(query)
    return {
        "query_idx": int(query),
        "query_text": "as invented",
        "query_image_path": "x.png",
        "target_gallery_index": 3,
        "ranks": {c.value: flat[f"rank_{c}"] for c in Condition},
        "hits_at_k": {c.value: flat[f"rank_{c}"] <= 10 for c in Condition},
        "retrievers": {c.value: [1, 2, 3] for c in Condition},
        "aggregation": {
            "label": flat["aggregate_label"],
            "detail_label": flat["aggregate_detail_label"],
            "best_retriever_by_modality": {c.value: None for c in Condition},
            "retriever_support_at_k": {
                name: flat[f"support_{name}"] for name in (*(c.value for c in Condition), "either_unimodal")
            },
        },
    }


def validated_row(query: str, **changes: Any) -> dict[str, Any]:
    reasons = {"INVALID_TEXT_QUERY": False, "INVALID_IMAGE_QUERY": False, "INVALID_TARGET_IMAGE": False}
    return {
        "dataset": "cirr",
        "hidden_category": "unresolved",
        "validated": False,
        "annotator_kept": "somebody",
        "reasons": {**reasons, "QUERY_TOO_BROAD": True},
        "other": "a remark of the annotator",
        **audit_row(query),
        **changes,
    }


def hub_row(query: str, **changes: Any) -> dict[str, Any]:
    ranks = dict(zip(("multimodal", "text", "image"), RANKS[query], strict=True))
    rejected = query == "7"
    row = {
        "dataset": "CIRR",
        "source_split": "val",
        "query_index": int(query),
        "query_id": f"8:{query}",
        "query_text": "as invented",
        "reference_image_id": "r",
        "reference_image_path": "r.png",
        "canonical_target_id": "t",
        "positive_candidate_ids": ["t"],
        "positive_image_paths": ["t.png"],
        "audit_category": "unresolved" if rejected else "shortcut_solvable",
        "shortcut_type": None if rejected else "text_only",
        "is_shortcut_free": rejected,
        **{f"best_{name}_rank": rank for name, rank in ranks.items()},
        **{f"{name}_hit_at_10": rank <= 10 for name, rank in ranks.items()},
        "audit_k": 10,
        "human_audited": rejected,
        "human_valid": False if rejected else None,
        "validation_stratum": "unresolved" if rejected else None,
        "human_validation_scope": "complete",
        **{
            reason.value: (reason is RejectionReason.QUERY_TOO_BROAD) if rejected else None
            for reason in RejectionReason
        },
    }
    assert len(row) == 28
    return {**row, **changes}


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_json(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
    return path


def read(path: Path, **options: Any) -> dict[str, QueryLabel]:
    return dict(load_labels(path, **options).by_query)


# The formats.


@pytest.mark.parametrize(("write", "suffix"), [(write_csv, "csv"), (write_jsonl, "jsonl")])
def test_a_trace_gives_labels_ranks_and_supports(tmp_path: Path, write: Callable[..., Path], suffix: str) -> None:
    path = write(tmp_path / f"x.trace.{suffix}", [trace_row("4"), trace_row("7")])
    assert read(path) == {"4": expected("4"), "7": expected("7")}


def test_a_trace_is_about_the_benchmark_that_is_named(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", [trace_row("4")])
    assert load_labels(path).benchmark == ""
    named = load_labels(path, benchmark="lasco")
    assert (named.benchmark, named.provenance.id_scheme, named.provenance.license) == (
        "lasco",
        IdScheme.POSITION,
        "MIT",
    )


def test_the_aggregated_audit_gives_labels_ranks_and_supports(tmp_path: Path) -> None:
    rows = [audit_row("4"), audit_row("7")]
    for content in (rows, {"k": 10, "samples": rows}):
        assert read(write_json(tmp_path / "x.json", content)) == {"4": expected("4"), "7": expected("7")}


def test_validated_queries_give_the_human_s_decision_and_reasons(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "all_validated_queries.jsonl", [validated_row("7")])
    assert read(path) == {"7": expected("7", human=True)}


def test_flat_validated_queries_are_read_likewise(tmp_path: Path) -> None:
    human = {"dataset": "cirr", "hidden_category": "unresolved", "validated": "false"}
    reasons = {"invalid_text_query": "false", "invalid_image_query": "false", "invalid_target_image": "false"}
    path = write_csv(
        tmp_path / "x.csv", [{**human, **trace_row("7"), **reasons, "query_too_broad": "true", "note": "x"}]
    )
    assert read(path) == {"7": expected("7", human=True)}


def test_an_index_list_gives_valid_queries_and_their_label(tmp_path: Path) -> None:
    content = {
        "dataset": "cirr",
        "hidden_category": "composition_required",
        "selection_field": "annotation.validated",
        "selection_value": True,
        "query_indices": [3, 12],
    }
    verdicts = load_labels(write_json(tmp_path / "x.json", content))
    assert verdicts.benchmark == "cirr"
    assert verdicts.provenance.n_queries == 4170
    assert list(verdicts.by_query) == ["3", "12"]
    assert verdicts.by_query["3"] == QueryLabel("3", CR, audited=True, valid=True, stratum=CR)


@pytest.mark.parametrize(("write", "suffix"), [(write_parquet, "parquet"), (write_csv, "csv"), (write_jsonl, "jsonl")])
def test_the_hub_s_columns_give_labels_ranks_and_human_verdicts(
    tmp_path: Path, write: Callable[..., Path], suffix: str
) -> None:
    verdicts = load_labels(write(tmp_path / f"x.{suffix}", [hub_row("4"), hub_row("7")]))
    assert (verdicts.benchmark, verdicts.provenance.k) == ("cirr", 10)
    assert dict(verdicts.by_query) == {
        "4": expected("4", supports=False),
        "7": expected("7", supports=False, human=True),
    }


def test_ranks_of_a_column_with_empty_cells_may_be_written_as_decimals(tmp_path: Path) -> None:
    rows = [{**trace_row("4"), "rank_image_only": ""}, {**trace_row("7"), "rank_image_only": "70.0"}]
    found = read(write_csv(tmp_path / "x.csv", rows))
    assert [verdict.best_rank[Condition.IMAGE_ONLY] for verdict in found.values()] == [None, 70]


def test_a_label_csv_may_lack_ranks_and_supports(tmp_path: Path) -> None:
    row = {"query_idx": 0, "label": "shortcut_solvable", **{f"best_rank_{condition}": "" for condition in Condition}}
    assert read(write_csv(tmp_path / "x.csv", [row])) == {"0": QueryLabel("0", SC)}


def test_our_own_labels_are_read_as_such(tmp_path: Path) -> None:
    audit_runs([make_run([1], [2], [30])]).labels.save(tmp_path / "labels.parquet")
    assert load_labels(tmp_path / "labels.parquet") == Labels.load(tmp_path / "labels.parquet")


# Several benchmarks in one file.


def test_of_several_benchmarks_one_must_be_asked_for(tmp_path: Path) -> None:
    rows = [hub_row("4"), hub_row("4", dataset="circo"), hub_row("7", dataset="circo")]
    path = write_parquet(tmp_path / "x.parquet", rows)
    with pytest.raises(FormatError, match=r"several benchmarks \(circo, cirr\)"):
        load_labels(path)
    assert list(read(path, benchmark="circo")) == ["4", "7"]
    with pytest.raises(FormatError, match="no label of 'lasco', only of circo, cirr"):
        load_labels(path, benchmark="lasco")


# Croissant.


def croissant(
    path: Path, columns: Sequence[str], resource: Mapping[str, Any], *, kind: str = "fileObject", name: str = "x"
) -> Path:
    fields = [{"@id": f"records/{c}", "source": {kind: {"@id": "data"}, "extract": {"column": c}}} for c in columns]
    other = {"@id": "splits", "field": [{"@id": "splits/name"}], "data": [{"splits/name": "val"}]}
    content = {
        "@context": {},
        "name": name,
        "distribution": [{"@id": "data", **resource}],
        "recordSet": [other, {"@id": "records", "field": fields}],
    }
    return write_json(path, content)


def test_a_croissant_export_is_read_from_the_file_it_names(tmp_path: Path) -> None:
    rows = [hub_row("4"), hub_row("7")]
    data = write_parquet(tmp_path / "data.parquet", rows)
    resource = {"contentUrl": "data.parquet", "sha256": hashlib.sha256(data.read_bytes()).hexdigest()}
    found = load_labels(croissant(tmp_path / "croissant.json", list(rows[0]), resource))
    assert found.by_query == load_labels(data).by_query
    assert found.provenance.source == "croissant.json"


def test_a_croissant_file_set_is_read_shard_by_shard(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for shard, query in enumerate(RANKS):
        write_parquet(tmp_path / "data" / f"{shard}.parquet", [hub_row(query)])
    resource = {"includes": "data/*.parquet", "containedIn": {"@id": "repository"}}
    path = croissant(tmp_path / "x.json", list(hub_row("4")), resource, kind="fileSet")
    assert list(read(path)) == ["4", "7"]


def test_a_croissant_of_a_web_address_is_read_from_the_copy_beside_it(tmp_path: Path) -> None:
    (tmp_path / "exports").mkdir()
    write_csv(tmp_path / "exports" / "trace.csv", [trace_row("4")])
    resource = {"contentUrl": "https://example.org/r/project/exports/trace.csv"}
    path = croissant(tmp_path / "x.json", list(trace_row("4")), resource, name="CIRCUS-LaSCo")
    verdicts = load_labels(path)
    assert (verdicts.benchmark, list(verdicts.by_query)) == ("lasco", ["4"])


def test_a_croissant_without_its_data_says_what_to_get(tmp_path: Path) -> None:
    resource = {"contentUrl": "https://example.org/trace.csv"}
    path = croissant(tmp_path / "x.json", list(trace_row("4")), resource)
    with pytest.raises(FormatError, match=r"'data' are not beside it; get https://example.org/trace.csv"):
        load_labels(path)


def test_a_croissant_whose_data_were_changed_is_refused(tmp_path: Path) -> None:
    write_csv(tmp_path / "trace.csv", [trace_row("4")])
    path = croissant(tmp_path / "x.json", list(trace_row("4")), {"contentUrl": "trace.csv", "sha256": "0" * 64})
    with pytest.raises(FormatError, match="SHA-256 differs"):
        load_labels(path)


@pytest.mark.parametrize("resource", [{"contentUrl": "../trace.csv"}, {"includes": "../*.csv"}])
def test_a_croissant_cannot_reach_outside_its_folder(tmp_path: Path, resource: dict[str, str]) -> None:
    (tmp_path / "inner").mkdir()
    write_csv(tmp_path / "trace.csv", [trace_row("4")])
    path = croissant(tmp_path / "inner" / "x.json", list(trace_row("4")), resource)
    with pytest.raises(FormatError, match="points outside the folder"):
        load_labels(path)


def test_a_croissant_of_something_else_names_the_columns_found(tmp_path: Path) -> None:
    path = croissant(tmp_path / "x.json", ["question", "answer"], {"contentUrl": "x.csv"})
    with pytest.raises(FormatError, match=r"no record set fits. Found splits: ; records: question, answer. Expected"):
        load_labels(path)


# What does not fit.


def test_an_unknown_format_is_an_error_with_the_columns_found_and_expected(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", [{"question": 1, "answer": 2}])
    with pytest.raises(FormatError, match=r"x\.csv.*'question', 'answer'.*Expected one of: .*query_index.*query_idx"):
        load_labels(path)


def test_a_known_format_that_lacks_a_column_is_not_read_in_part(tmp_path: Path) -> None:
    row = trace_row("4")
    del row["rank_text_only"]
    with pytest.raises(FormatError, match=r"No known format fits.*trace CSV or JSON lines: query_idx.*rank_text_only"):
        load_labels(write_csv(tmp_path / "x.csv", [row]))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"aggregate_label": "solvable"}, "row 2 has 'solvable' under 'aggregate_label', expected one of shortcut_"),
        ({"rank_text_only": "many"}, "row 2 has 'many' under 'rank_text_only', expected a whole number"),
        ({"rank_text_only": "1.5"}, "row 2 has '1.5' under 'rank_text_only', expected a whole number"),
        ({"rank_text_only": "0"}, "row 2 contradicts itself: query '7': ranks below 1"),
        ({"query_idx": "4"}, "row 2 is the second of query '4'"),
    ],
)
def test_a_damaged_row_is_an_error_that_names_it(tmp_path: Path, changes: dict[str, str], what: str) -> None:
    path = write_csv(tmp_path / "x.csv", [trace_row("4"), {**trace_row("7"), **changes}])
    with pytest.raises(FormatError, match=what):
        load_labels(path)


def test_a_decision_that_is_neither_true_nor_false_is_an_error(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "x.jsonl", [validated_row("7", validated="perhaps")])
    with pytest.raises(FormatError, match="'perhaps' under 'validated', expected true or false"):
        load_labels(path)


def test_a_key_that_should_hold_an_object_is_an_error_when_it_does_not(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "x.jsonl", [validated_row("7", ranks=[1, 2, 3])])
    with pytest.raises(FormatError, match="under 'ranks', expected an object with 'multimodal'"):
        load_labels(path)


def test_labels_of_two_cut_offs_are_not_mixed(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", [hub_row("4"), hub_row("7", audit_k=20)])
    with pytest.raises(FormatError, match=r"several cut-offs \(2: 10, 20\)"):
        load_labels(path)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"query_indices": [3, 3]}, "lists 1 queries more than once"),
        ({"selection_value": False}, "expected the valid ones"),
        ({"hidden_category": "shortcut_solvable"}, "expected a shortcut-free label"),
        ({"hidden_category": "other"}, "expected one of"),
        ({"query_indices": [None]}, "expected an id"),
    ],
)
def test_a_damaged_index_list_is_an_error(tmp_path: Path, changes: dict[str, Any], what: str) -> None:
    content = {"dataset": "cirr", "hidden_category": "unresolved", "selection_value": True, "query_indices": [3]}
    with pytest.raises(FormatError, match=what):
        load_labels(write_json(tmp_path / "x.json", {**content, **changes}))


def test_labels_and_validation_of_one_benchmark_are_put_together(tmp_path: Path) -> None:
    labels = load_labels(write_csv(tmp_path / "x.csv", [trace_row("4"), trace_row("7")]), benchmark="cirr")
    human = load_labels(write_jsonl(tmp_path / "x.jsonl", [validated_row("7")]))
    assert labels.merge(human).by_query == {"4": expected("4"), "7": expected("7", human=True)}
    lasco = load_labels(write_jsonl(tmp_path / "y.jsonl", [validated_row("7", dataset="lasco")]))
    with pytest.raises(MismatchError, match="about 'cirr'"):
        labels.merge(lasco)
