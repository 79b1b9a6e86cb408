"""Bring your own dataset: columns, galleries and images of Hugging Face datasets, all generated."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

import datasets
import pytest
from PIL import Image

from circus_bench.benchmark import Benchmark, Defect, ReferencePolicy
from circus_bench.errors import BenchmarkError, FormatError
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.sources import join_images, load_source

COLUMNS = {"id": "qid", "reference": "ref", "text": "caption", "targets": "answers", "group": "kind"}
ROWS: dict[str, list[Any]] = {
    "qid": ["q1", "q2"],
    "ref": ["a", "b"],
    "caption": ["is red", "is blue"],
    "answers": [["b", "c"], ["a"]],
    "kind": ["colour", "shape"],
}
Encode = Callable[..., bytes]


def table(**changes: Any) -> datasets.Dataset:
    return datasets.Dataset.from_dict({**ROWS, **changes})


def load(data: Any, columns: dict[str, str] | None = None, **options: Any) -> Benchmark:
    return load_source("dataset", data=data, columns=columns or COLUMNS, name="mine", **options)


@pytest.fixture(scope="session")
def files(encode_image: Encode, noise: Callable[..., Image.Image]) -> dict[str, bytes]:
    """Four JPEG files: re-encoding them would change their bytes."""
    return {name: encode_image(noise((40, 32), seed), "JPEG") for seed, name in enumerate("abcd")}


def images(files: dict[str, bytes], names: str) -> list[dict[str, Any]]:
    return [{"bytes": files[name], "path": f"{name}.jpg"} for name in names]


def digest(data: bytes) -> str:
    return f"sha256-{hashlib.sha256(data).hexdigest()[:24]}"


def test_a_loaded_dataset_of_ids_becomes_annotations_over_the_union():
    benchmark = load(table())
    first = benchmark.queries[0]
    assert (first.id, first.reference, first.text, first.targets, first.group) == (
        "q1",
        "a",
        "is red",
        ("b", "c"),
        "colour",
    )
    assert benchmark.gallery.ids == ("a", "b", "c")
    assert benchmark.gallery.images is None


def test_the_protocol_says_where_everything_comes_from():
    protocol = load(table(), reference=ReferencePolicy.REMOVED, instruction="Find it.").protocol
    assert (protocol.id, protocol.reference, protocol.instruction) == (
        "dataset/mine",
        ReferencePolicy.REMOVED,
        "Find it.",
    )
    assert "union" in protocol.gallery
    assert "'caption'" in protocol.captions


def test_without_id_and_group_rows_are_numbered():
    columns = {key: COLUMNS[key] for key in ("reference", "text", "targets")}
    assert [(query.id, query.group) for query in load(table(), columns).queries] == [("0", ""), ("1", "")]


def test_a_single_target_need_not_be_a_list():
    assert [query.targets for query in load(table(answers=["b", "c"])).queries] == [("b",), ("c",)]


def test_whole_numbers_become_strings():
    benchmark = load(table(ref=[1, 2], answers=[[2], [3]]))
    assert benchmark.gallery.ids == ("1", "2", "3")


def test_ids_of_two_kinds_are_refused():
    with pytest.raises(FormatError, match=r"dataset mine: the ids under 'ref', 'answers' are whole numbers in rows"):
        load(table(ref=[1, 2]))


def test_a_gallery_dataset_gives_ids_and_images_unchanged(files):
    gallery = datasets.Dataset.from_dict(
        {"id": list("abcd"), "image": images(files, "abcd")},
        features=datasets.Features({"id": datasets.Value("string"), "image": datasets.Image()}),
    )
    benchmark = load(table(), gallery=gallery)
    assert benchmark.gallery.ids == tuple("abcd")
    assert dict(benchmark.gallery.images) == files


def test_a_reference_outside_the_gallery_brings_its_image(files):
    gallery = datasets.Dataset.from_dict({"id": list("bca"), "image": images(files, "bca")}).cast_column(
        "image", datasets.Image()
    )
    queries = table(ref=["d", "b"], picture=images(files, "db")).cast_column("picture", datasets.Image())
    benchmark = load(queries, {**COLUMNS, "reference_image": "picture"}, gallery=gallery)
    assert benchmark.gallery.images["d"] == files["d"]


def test_images_without_ids_are_named_by_their_content(files):
    features = datasets.Features(
        {"image": datasets.Image(), "caption": datasets.Value("string"), "found": datasets.List(datasets.Image())}
    )
    queries = datasets.Dataset.from_dict(
        {"image": images(files, "ab"), "caption": ["x", "y"], "found": [images(files, "bc"), images(files, "c")]},
        features=features,
    )
    benchmark = load(queries, {"reference": "image", "text": "caption", "targets": "found"})
    names = {name: digest(data) for name, data in files.items()}
    assert [(q.reference, q.targets) for q in benchmark.queries] == [
        (names["a"], (names["b"], names["c"])),
        (names["b"], (names["c"],)),
    ]
    assert {key: benchmark.gallery.images[key] for key in benchmark.gallery.ids} == {
        names[name]: files[name] for name in "abc"
    }


def test_a_gallery_of_images_alone_is_matched_by_content(files):
    queries = datasets.Dataset.from_dict(
        {"image": images(files, "a"), "caption": ["x"], "found": images(files, "b")}
    ).cast_column("image", datasets.Image())
    queries = queries.cast_column("found", datasets.Image())
    gallery = datasets.Dataset.from_dict({"image": images(files, "abcd")}).cast_column("image", datasets.Image())
    benchmark = load(queries, {"reference": "image", "text": "caption", "targets": "found"}, gallery=gallery)
    assert benchmark.gallery.ids == tuple(digest(files[name]) for name in "abcd")
    assert benchmark.findings == ()


def test_images_may_come_from_a_folder_instead(files, tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.jpg").write_bytes(files[name])
    assert load(table(), images=tmp_path).gallery.images["c"] == files["c"]
    assert join_images(load(table()), tmp_path).gallery.images["c"] == files["c"]


def test_a_row_without_image_is_named(files):
    queries = table(picture=[*images(files, "a"), None]).cast_column("picture", datasets.Image())
    with pytest.raises(FormatError, match="row 2 has no image under 'picture'"):
        load(queries, {**COLUMNS, "targets": "picture"})


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json", "jsonl"])
def test_local_files_are_read(tmp_path, suffix):
    data = table(answers=["b", "c"])
    path = tmp_path / f"queries.{suffix}"
    {"parquet": data.to_parquet, "csv": data.to_csv, "json": data.to_json, "jsonl": data.to_json}[suffix](str(path))
    benchmark = load_source("dataset", path, columns=COLUMNS, name="mine")
    assert [query.targets for query in benchmark.queries] == [("b",), ("c",)]
    assert set(benchmark.source["files"]) == {path.name}


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl"])
def test_no_type_is_guessed(tmp_path, suffix):
    texts, ids = ["5", "NA", "2020-01-01", "1.10"], ["01", "1", "000000000003", "2020-01-01"]
    rows = [{"ref": ids[n], "caption": texts[n], "goal": ids[n - 1]} for n in range(4)]
    path = tmp_path / f"triplets.{suffix}"
    if suffix == "csv":
        path.write_text("".join(f"{','.join(row)}\n" for row in (rows[0], *map(dict.values, rows))))
    else:
        path.write_text(json.dumps(rows) if suffix == "json" else "\n".join(map(json.dumps, rows)))
    columns = {"reference": "ref", "text": "caption", "targets": "goal"}
    benchmark = load_source("dataset", path, columns=columns, name="mine")
    assert [(query.reference, query.text, query.targets) for query in benchmark.queries] == [
        (ids[n], texts[n], (ids[n - 1],)) for n in range(4)
    ]


def test_a_comma_too_many_is_named(tmp_path):
    path = tmp_path / "triplets.csv"
    path.write_text("ref,caption,goal\na,make it red, please,b\n")
    with pytest.raises(FormatError, match="rows have not the fields of the header"):
        load_source("dataset", path, columns={"reference": "ref", "text": "caption", "targets": "goal"}, name="mine")


def test_a_dataset_without_a_name_is_refused():
    with pytest.raises(BenchmarkError, match="needs a name"):
        load_source("dataset", data=table(), columns=COLUMNS, name="")


def test_a_folder_with_configs_and_images_is_read(tmp_path, files):
    gallery = datasets.Dataset.from_dict({"id": list("abcd"), "image": images(files, "abcd")})
    for name, data in (("queries", table()), ("gallery", gallery.cast_column("image", datasets.Image()))):
        (tmp_path / name).mkdir()
        data.to_parquet(str(tmp_path / name / "test.parquet"))
    benchmark = load_source("dataset", tmp_path / "queries", columns=COLUMNS, name="mine", gallery=tmp_path / "gallery")
    assert dict(benchmark.gallery.images) == files
    assert benchmark.source["split"] == "test"


def test_a_dataset_saved_to_disk_is_read(tmp_path):
    table().save_to_disk(str(tmp_path / "saved"))
    assert len(load_source("dataset", tmp_path / "saved", columns=COLUMNS, name="mine").queries) == 2


def test_several_splits_need_a_choice():
    splits = datasets.DatasetDict({"train": table(), "test": table(qid=["t1", "t2"])})
    assert [query.id for query in load(splits, split="test").queries] == ["t1", "t2"]
    with pytest.raises(FormatError, match=r"has the splits \['train', 'test'\]; say which one"):
        load(splits)
    with pytest.raises(FormatError, match=r"has no split 'val', only \['train', 'test'\]"):
        load(splits, split="val")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"reference": "ref", "text": "caption"}, r"lacks the fields \['targets'\]"),
        ({**COLUMNS, "image": "ref"}, r"names unknown fields \['image'\]"),
    ],
)
def test_a_mapping_of_other_fields_is_refused(columns, said):
    with pytest.raises(BenchmarkError, match=said):
        load(table(), columns)


def test_a_missing_column_is_named_with_those_there_are():
    with pytest.raises(FormatError, match=r"lacks the columns \['title'\]; it has \['qid', 'ref'"):
        load(table(), {**COLUMNS, "text": "title"})


def test_a_text_that_is_missing_is_named_by_its_row():
    with pytest.raises(FormatError, match="row 2 has null under 'caption', expected a string"):
        load(table(caption=["is red", None]))


def test_what_is_no_dataset_is_named(tmp_path):
    with pytest.raises(FormatError, match=r"expected a datasets\.Dataset, found dict"):
        load({"qid": []})
    with pytest.raises(FormatError, match=r"gone: no such folder or file"):
        load_source("dataset", tmp_path / "gone", columns=COLUMNS, name="mine")
    (tmp_path / "bad.json").write_text('{"qid": 1,}')
    with pytest.raises(FormatError, match=r"bad\.json: not JSON at line 1, column 11"):
        load_source("dataset", tmp_path / "bad.json", columns=COLUMNS, name="mine")


def test_a_folder_and_a_loaded_dataset_at_once_are_refused(tmp_path):
    with pytest.raises(BenchmarkError, match="give either a folder"):
        load_source("dataset", tmp_path, data=table(), columns=COLUMNS, name="mine")


def test_a_gallery_without_known_columns_is_named():
    with pytest.raises(FormatError, match=r"has no column 'id' or 'image'; it has \['name'\]"):
        load(table(), gallery=datasets.Dataset.from_dict({"name": ["a"]}))


def test_a_target_outside_the_gallery_is_an_error_unless_allowed():
    gallery = datasets.Dataset.from_dict({"id": ["a", "b"]})
    with pytest.raises(BenchmarkError, match=r"targets are not in the gallery \(1: 'c'\)"):
        load(table(), gallery=gallery)
    assert load(table(), gallery=gallery, allow={Defect.DANGLING_TARGET}).findings


def test_a_benchmark_with_images_survives_saving_and_loading(files, tmp_path):
    gallery = datasets.Dataset.from_dict({"id": list("abcd"), "image": images(files, "abcd")})
    benchmark = load(table(), gallery=gallery.cast_column("image", datasets.Image()))
    save_benchmark(benchmark, tmp_path)
    loaded = load_benchmark(tmp_path)
    assert loaded.fingerprint == benchmark.fingerprint
    assert loaded.gallery.images["a"] == files["a"]
    assert Image.open(io.BytesIO(loaded.gallery.images["a"])).format == "JPEG"
    assert loaded.source["images_redistributable"] is False
