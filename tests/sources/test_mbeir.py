"""M-BEIR's own files, on a generated task."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from circus_bench.benchmark import Benchmark, Defect, Finding, ReferencePolicy
from circus_bench.errors import BenchmarkError, FormatError
from circus_bench.sources import join_images, load_source
from circus_bench.sources.mbeir import image_id, mbeir_text

IMAGES = [f"mbeir_images/toy_images/{name}.png" for name in "abcd"]
CANDIDATES = [{"did": f"8:{n}", "img_path": path, "modality": "image", "txt": None} for n, path in enumerate(IMAGES)]
QUERY = {
    "qid": "8:100",
    "query_txt": "Is red.",
    "query_img_path": IMAGES[0],
    "query_modality": "image,text",
    "pos_cand_list": ["8:1"],
    "neg_cand_list": ["8:3"],
}
Rows = list[dict[str, Any]]


@pytest.fixture
def task(tmp_path: Path) -> Callable[..., Path]:
    """`task(queries, candidates)`: an M-BEIR folder with the task `toy_task7`."""

    def make(queries: Rows | None = None, candidates: Rows | None = None) -> Path:
        files = {
            "query/test/mbeir_toy_task7_test.jsonl": queries
            or [QUERY, {**QUERY, "qid": "8:200", "pos_cand_list": ["8:2"]}],
            "cand_pool/local/mbeir_toy_task7_cand_pool.jsonl": candidates or CANDIDATES,
        }
        for name, rows in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path

    return make


def load(folder: Path, **options: Any) -> Benchmark:
    return load_source("mbeir", folder, name="toy_task7", **options)


def test_queries_are_numbered_and_images_go_by_their_paths(task):
    first, second = load(task()).queries
    assert (first.id, first.reference, first.text, first.targets) == ("0", IMAGES[0], "Is red.", (IMAGES[1],))
    assert (second.id, second.targets) == ("1", (IMAGES[2],))
    assert first.details == {"qid": "8:100", "positives": ["8:1"], "negatives": ["8:3"]}


def test_the_gallery_is_the_pool_in_file_order(task):
    assert load(task()).gallery.ids == tuple(IMAGES)


def test_the_protocol_names_the_task_and_keeps_the_reference(task):
    protocol = load(task(), instruction="Find it.").protocol
    assert (protocol.id, protocol.reference, protocol.instruction) == (
        "mbeir/toy_task7",
        ReferencePolicy.KEPT,
        "Find it.",
    )


def test_documented_aliases_are_accepted(task):
    query = {
        "query_id": "8:100",
        "query_text": "Is red.",
        "query_image_path": IMAGES[0],
        "query_modality": "image,text",
        "positives": ["8:1"],
    }
    candidates = [{"cand_id": f"8:{n}", "image_path": path, "cand_modality": "image"} for n, path in enumerate(IMAGES)]
    (found,) = load(task([query], candidates)).queries
    assert (found.reference, found.targets) == (IMAGES[0], (IMAGES[1],))


def test_qrels_replace_the_positives(task):
    folder = task()
    (folder / "qrels.txt").write_text("8:100 0 8:2 1 7\n8:100 0 8:3 1 7\n8:200 0 8:1 1 7\n8:200 0 8:2 0 7\n")
    assert [query.targets for query in load(folder, qrels="qrels.txt").queries] == [
        (IMAGES[2], IMAGES[3]),
        (IMAGES[1],),
    ]


def test_a_query_without_qrels_is_an_error(task):
    folder = task()
    (folder / "qrels.txt").write_text("8:100 0 8:2 1\n")
    with pytest.raises(BenchmarkError, match=r"queries have no target \(1: '1'\)"):
        load(folder, qrels="qrels.txt")


def test_qrels_of_unknown_queries_are_an_error(task):
    folder = task()
    (folder / "qrels.txt").write_text("9:1 0 8:2 1\n")
    with pytest.raises(FormatError, match=r"judges queries that .*test\.jsonl does not hold \(1: '9:1'\)"):
        load(folder, qrels="qrels.txt")


def test_a_malformed_line_of_qrels_is_named(task):
    folder = task()
    (folder / "qrels.txt").write_text("8:100 0 8:2 1\n8:200 8:1\n")
    with pytest.raises(FormatError, match=r"qrels\.txt: line 2 is '8:200 8:1', expected `qid 0 did relevance"):
        load(folder, qrels="qrels.txt")


@pytest.mark.parametrize("modality", ["text", "image", "image,text,audio"])
def test_a_query_that_is_not_composed_is_named(task, modality):
    with pytest.raises(FormatError, match=rf"row 1 is a query of modality '{modality}', expected 'image,text'"):
        load(task([{**QUERY, "query_modality": modality}]))


def test_a_candidate_that_is_no_image_is_named(task):
    with pytest.raises(FormatError, match=r"row 5 is a candidate of modality 'image,text', expected 'image'"):
        load(task(candidates=[*CANDIDATES, {**CANDIDATES[0], "did": "8:9", "modality": "image,text"}]))


def test_a_repeated_candidate_id_is_named(task):
    with pytest.raises(FormatError, match="row 5 repeats the candidate id '8:0'"):
        load(task(candidates=[*CANDIDATES, CANDIDATES[0]]))


def test_a_positive_outside_the_pool_is_an_error_unless_allowed(task):
    folder = task([{**QUERY, "pos_cand_list": ["8:1", "8:77"]}])
    with pytest.raises(BenchmarkError, match=r"targets are not in the gallery \(1: '8:77'\)"):
        load(folder)
    assert load(folder, allow={Defect.DANGLING_TARGET}).source["counts"]["dangling_positives"] == 1


def test_a_positive_that_is_the_reference_is_a_finding(task):
    benchmark = load(task([{**QUERY, "pos_cand_list": ["8:0", "8:1"]}]))
    assert benchmark.findings == (Finding(Defect.REFERENCE_IS_TARGET, ("0",)),)


def test_images_are_joined_by_their_path_within_mbeir(task, tmp_path):
    benchmark = load(task())
    for path in IMAGES:
        (tmp_path / "elsewhere" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "elsewhere" / path).write_bytes(path.encode())
    joined = join_images(benchmark, tmp_path / "elsewhere")
    assert {name: joined.gallery.images[name] for name in IMAGES} == {path: path.encode() for path in IMAGES}


def test_the_rule_for_image_files_passes_over_other_folders():
    assert image_id(Path("data/mbeir_images/toy/a.png")) == "mbeir_images/toy/a.png"
    assert image_id(Path("data/toy/a.png")) is None


@pytest.mark.parametrize(
    ("raw", "formatted"),
    [
        ("is red", "Is red."),
        (" is\r red\n", "Is red."),
        ('"is red"', "Is red."),
        ("is red?", "Is red?"),
        ("is red!", "Is red!"),
        ("Is red.", "Is red."),
        ('""', ""),
        ("7 dogs", "7 dogs."),
    ],
)
def test_the_text_format_is_that_of_mbeir(raw, formatted):
    # protocols.md, section 4.1, step 7.
    assert mbeir_text(raw) == formatted
