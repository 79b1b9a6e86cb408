"""`circus-bench doctor`: what it takes, its output and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from circus_bench.benchmark import Benchmark, Query
from circus_bench.cli import app
from circus_bench.errors import CircusError
from circus_bench.hub.writer import save_benchmark

Make = Callable[..., Benchmark]
DONE, ATTENTION = 0, 3


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


def strict(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no strict JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def annotations(tmp_path: Path, toy_benchmark: Make) -> Path:
    """A saved benchmark of annotations; its images are called a, b, c, d and outside."""
    save_benchmark(toy_benchmark(with_images=False), tmp_path / "toy")
    return tmp_path / "toy"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """The images of `annotations`, each of its own color, in two folders."""
    for name, color in {"x/a": "red", "x/b": "blue", "c": "green", "d": "white", "outside": "grey"}.items():
        path = tmp_path / "pictures" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), color).save(path)
    return tmp_path / "pictures"


@pytest.fixture
def circo(tmp_path: Path) -> Path:
    """Invented files in CIRCO's layout: two queries over four images, the second with eleven positives."""
    folder = tmp_path / "data" / "circo" / "annotations"
    folder.mkdir(parents=True)
    rows = [
        {
            "id": number,
            "reference_img_id": 1,
            "target_img_id": 2,
            "relative_caption": f"shows {number} more",
            "shared_concept": "a thing",
            "gt_img_ids": positives,
            "semantic_aspects": [],
        }
        for number, positives in enumerate([[2], list(range(2, 13))])
    ]
    (folder / "val.json").write_text(json.dumps(rows), encoding="utf-8")
    (folder.parent / "coco_unlabeled2017_ids.txt").write_text("\n".join(map(str, range(1, 21))), encoding="utf-8")
    return tmp_path / "data"


def test_images_are_joined_by_file_name(annotations: Path, pictures: Path) -> None:
    done = invoke(annotations, "--images", pictures, "--json")
    assert (done.exit_code, strict(done.stdout)["n_images"]) == (DONE, 5)


def test_a_missing_and_a_broken_image_are_named_and_end_in_3(annotations: Path, pictures: Path) -> None:
    (pictures / "x" / "a.png").write_bytes(b"")
    (pictures / "c.png").unlink()
    done = invoke(annotations, "--images", pictures)
    assert done.exit_code == ATTENTION
    for expected in ("empty", "'a'", "missing", "'c'", "coverage"):
        assert expected in done.stdout


def test_the_json_has_counts_results_positives_and_coverage(annotations: Path, pictures: Path) -> None:
    found = strict(invoke(annotations, "--images", pictures, "--json").stdout)
    assert found["counts"][0] == {
        "what": "queries",
        "found": 3,
        "published": None,
        "agreement": "unknown",
        "source": "",
    }
    assert found["positives"] == {"1": 2, "2": 1}
    assert found["coverage"][0] == {"what": "gallery", "have": 4, "total": 4, "share": 1.0}
    by_check = {result["check"]: result for result in found["results"]}
    assert by_check["reference_outside_gallery"]["ids"] == ["outside"]
    assert {result["severity"] for result in found["results"]} == {"note"}


def test_published_hashes_need_no_images(annotations: Path, tmp_path: Path) -> None:
    (tmp_path / "h.json").write_text(json.dumps({"a.png": "0" * 16, "b.png": "0" * 16, "c.png": "0" * 15 + "1"}))
    found = strict(invoke(annotations, "--hashes", tmp_path / "h.json", "--json").stdout)
    # a = b; c is one bit from both.
    assert found["near_duplicates"] == {"published": {"images": 3, "pairs_same": 1, "pairs_within_1": 3}}


def test_the_page_is_written_and_named(annotations: Path, tmp_path: Path) -> None:
    done = invoke(annotations, "--html", tmp_path / "out" / "r.html")
    assert "out/r.html" in done.stdout.replace("\n", "")
    assert "toy/test" in (tmp_path / "out" / "r.html").read_text(encoding="utf-8")


def test_the_json_stays_clean_beside_a_page(annotations: Path, tmp_path: Path) -> None:
    strict(invoke(annotations, "--json", "--html", tmp_path / "r.html").stdout)
    assert (tmp_path / "r.html").exists()


def test_a_protocol_is_read_from_its_folder_in_the_data_folder(circo: Path) -> None:
    done = invoke("circo/val", "--data", circo, "--json")
    found = strict(done.stdout)
    assert (found["protocol"], found["n_queries"], found["n_gallery"]) == ("circo/val", 2, 20)
    assert [result["ids"] for result in found["results"] if result["check"] == "many_positives"] == [["1"]]


def test_counts_other_than_the_published_ones_end_in_3(circo: Path) -> None:
    done = invoke("circo/val", "--data", circo)
    assert done.exit_code == ATTENTION
    assert "differ" in done.stdout
    assert "the counts are not the published ones" in done.stdout


def test_a_reference_among_its_positives_is_found_rather_than_refused(circo: Path) -> None:
    path = circo / "circo" / "annotations" / "val.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    rows[0]["gt_img_ids"].append(1)
    path.write_text(json.dumps(rows), encoding="utf-8")
    found = strict(invoke("circo/val", "--data", circo, "--json").stdout)
    assert found["findings"] == {"reference_is_target": ["0"]}


def test_a_protocol_without_a_data_folder_asks_for_it() -> None:
    done = invoke("circo/val")
    assert isinstance(done.exception, CircusError)
    assert "--data" in str(done.exception)


def test_an_unknown_source_lists_the_protocols(tmp_path: Path) -> None:
    done = invoke(tmp_path / "nothing")
    assert isinstance(done.exception, CircusError)
    assert "circo/val" in str(done.exception)


def test_a_data_folder_without_the_files_is_an_error_that_names_them(tmp_path: Path) -> None:
    done = invoke("circo/val", "--data", tmp_path)
    assert isinstance(done.exception, CircusError)
    assert "circo" in str(done.exception)


def test_a_benchmark_folder_called_like_a_protocol_comes_first(
    tmp_path: Path, toy_benchmark: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_benchmark(toy_benchmark(queries=(Query("q", "a", "make it red", ("b",)),)), tmp_path / "circo" / "val")
    monkeypatch.chdir(tmp_path)
    assert strict(invoke("circo/val", "--json").stdout)["benchmark"] == "toy"
