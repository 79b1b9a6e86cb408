"""RMIR, on a generated sample in the documented schema: its own files could not be had."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from circus_bench.benchmark import Benchmark
from circus_bench.errors import BenchmarkError, FormatError
from circus_bench.sources import load_source
from circus_bench.sources.rmir import image_id

ROWS: list[dict[str, Any]] = [
    {"id": "r1", "image": "i1", "text": "What opens this?", "positives": ["p1", "p2"], "category": "functional"},
    {"id": "r2", "image": "i2", "text": "What came before?", "positives": ["p3"], "category": "temporal"},
    {"id": "r3", "image": "i3", "text": "Why is it wet?", "positives": ["p1"], "category": "causal", "tsr": 0.97},
]
POOL = ["p1", "p2", "p3", "i1"]


def made(folder: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows or ROWS))
    (folder / "pool.txt").write_text("\n".join(POOL) + "\n")
    return folder


def content(benchmark: Benchmark) -> list[tuple[Any, ...]]:
    return [(q.id, q.reference, q.text, q.targets, q.group) for q in benchmark.queries]


EXPECTED = [(row["id"], row["image"], row["text"], tuple(row["positives"]), row["category"]) for row in ROWS]


def test_json_lines_and_a_text_pool_are_read(tmp_path):
    benchmark = load_source("rmir/test", made(tmp_path))
    assert content(benchmark) == EXPECTED
    assert benchmark.gallery.ids == tuple(POOL)
    assert (benchmark.name, benchmark.protocol.id) == ("rmir", "rmir/test")


def test_parquet_is_read(tmp_path):
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "test.parquet")
    pq.write_table(pa.table({"id": POOL}), tmp_path / "pool.parquet")
    assert content(load_source("rmir/test", tmp_path)) == EXPECTED


@pytest.mark.parametrize("write", [json.dumps, " ".join])
def test_csv_is_read_with_positives_as_json_or_separated_by_spaces(tmp_path, write):
    with (made(tmp_path) / "queries.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "image", "text", "positives", "category"])
        writer.writerows([[*list(row.values())[:3], write(row["positives"]), row["category"]] for row in ROWS])
    assert content(load_source("rmir/test", tmp_path, queries="queries.csv")) == EXPECTED


def test_a_column_mapping_renames_fields(tmp_path):
    renamed = {"id": "query_id", "image": "input", "text": "question", "positives": "answers", "category": "type"}
    rows = [{renamed.get(key, key): value for key, value in row.items()} for row in ROWS]
    benchmark = load_source("rmir/test", made(tmp_path, rows), columns=renamed)
    assert content(benchmark) == EXPECTED
    assert benchmark.source["columns"]["text"] == "question"


def test_another_column_name_without_a_mapping_is_named(tmp_path):
    rows = [{**row, "question": row["text"]} for row in ROWS]
    for row in rows:
        del row["text"]
    with pytest.raises(FormatError, match=r"test\.jsonl: row 1 lacks the key 'text' \(it has 'id', .*'question'\)"):
        load_source("rmir/test", made(tmp_path, rows))


def test_an_unknown_field_of_the_mapping_is_named(tmp_path):
    with pytest.raises(BenchmarkError, match=r"unknown fields \['question'\]; known: id, image, text"):
        load_source("rmir/test", made(tmp_path), columns={"question": "q"})


def test_an_unknown_category_is_named(tmp_path):
    with pytest.raises(FormatError, match=r"row 2 has the category 'Temporal', expected one of functional, temporal"):
        load_source("rmir/test", made(tmp_path, [ROWS[0], {**ROWS[1], "category": "Temporal"}]))


def test_a_positive_outside_the_pool_is_an_error(tmp_path):
    with pytest.raises(BenchmarkError, match=r"targets are not in the gallery \(1: 'p9'\)"):
        load_source("rmir/test", made(tmp_path, [{**ROWS[0], "positives": ["p9"]}]))


def test_further_columns_are_kept_in_the_details(tmp_path):
    assert load_source("rmir/test", made(tmp_path)).queries[2].details == {"row": 2, "tsr": 0.97}


def test_both_averages_are_named_and_categories_counted(tmp_path):
    source = load_source("rmir/test", made(tmp_path)).source
    assert set(source["averages"]) == {"micro", "macro"}
    assert source["counts"] == {"rows": 3, "queries": 3, "targets": 4, "functional": 1, "temporal": 1, "causal": 1}


def test_the_rule_for_image_files_is_the_name():
    assert image_id(Path("pool/p1.jpg")) == "p1"


def test_both_splits_search_one_pool_and_make_configurations_of_their_own(tmp_path):
    from circus_bench.hub.tables import LabeledBenchmark
    from circus_bench.hub.writer import write_dataset_folder

    folder = made(tmp_path)
    (folder / "train.jsonl").write_text("".join(json.dumps({**row, "id": f"t{row['id']}"}) + "\n" for row in ROWS))
    splits = [load_source(f"rmir/{split}", folder) for split in ("test", "train")]
    assert splits[0].gallery.ids == splits[1].gallery.ids
    manifest = write_dataset_folder([LabeledBenchmark(split) for split in splits], tmp_path / "circus")
    configurations = {name for entry in manifest["benchmarks"].values() for name in entry["configs"]}
    assert {"rmir_full", "rmir_full-corpus", "rmir-train_full", "rmir-train_full-corpus"} <= configurations
