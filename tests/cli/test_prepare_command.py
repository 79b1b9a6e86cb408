"""`circus-bench prepare`: sources become folders that the other commands read."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from circus_bench.benchmark import Benchmark, Defect
from circus_bench.cli import app
from circus_bench.errors import BenchmarkError, CircusError
from circus_bench.sources.scenes import scenes

Make = Callable[..., Benchmark]
DONE, USAGE, ATTENTION = 0, 2, 3


def prepare(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["prepare", *map(str, arguments)])


@pytest.fixture
def annotations(tmp_path: Path, toy_benchmark: Make) -> Path:
    """A saved benchmark of annotations; its images are called a, b, c, d and outside."""
    toy_benchmark(with_images=False).save(tmp_path / "toy")
    return tmp_path / "toy"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Files of these images."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for shade, name in enumerate(("a", "b", "c", "d", "outside")):
        Image.new("L", (9, 9), 40 * shade).save(folder / f"{name}.png")
    return folder


def test_a_generated_benchmark_takes_options(tmp_path: Path) -> None:
    options = ("--set", "seed=3", "--set", "queries=30", "--set", "gallery=200")
    done = prepare("scenes/test", *options, "--out", tmp_path / "scenes", "--json")
    assert done.exit_code == DONE
    assert json.loads(done.stdout)[str(tmp_path / "scenes")]["images"] == 200
    expected = scenes(seed=3, queries=30, gallery=200)
    assert Benchmark.load(tmp_path / "scenes").fingerprint == expected.fingerprint


def test_images_are_joined_to_a_folder_of_annotations(annotations: Path, pictures: Path, tmp_path: Path) -> None:
    done = prepare(annotations, "--images", pictures, "--out", tmp_path / "whole")
    assert done.exit_code == DONE
    whole = Benchmark.load(tmp_path / "whole")
    assert whole.gallery.images is not None
    assert whole.gallery.images["c"] == (pictures / "c.png").read_bytes()
    assert whole.fingerprint.annotations == Benchmark.load(annotations).fingerprint.annotations


def test_a_broken_image_is_kept_and_named_and_ends_in_3(annotations: Path, pictures: Path, tmp_path: Path) -> None:
    (pictures / "b.png").write_bytes(b"no image")
    done = prepare(annotations, "--images", pictures, "--out", tmp_path / "whole")
    assert done.exit_code == ATTENTION
    assert "1: 'b'" in done.stderr
    assert set(Benchmark.load(tmp_path / "whole").inspect().unreadable) == {"b"}


def test_a_missing_image_is_an_error_unless_it_is_allowed(annotations: Path, pictures: Path, tmp_path: Path) -> None:
    (pictures / "b.png").unlink()
    command = (annotations, "--images", pictures, "--out", tmp_path / "whole")
    refused = prepare(*command)
    assert isinstance(refused.exception, BenchmarkError)
    assert not (tmp_path / "whole").exists()
    done = prepare(*command, "--allow", "missing_image")
    assert done.exit_code == ATTENTION
    assert "1 missing_image" in done.stdout
    assert [finding.defect for finding in Benchmark.load(tmp_path / "whole").findings] == [Defect.MISSING_IMAGE]


def test_any_dataset_of_triplets_becomes_a_benchmark(pictures: Path, tmp_path: Path) -> None:
    with (tmp_path / "triplets.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("ref", "caption", "goal"), ("a", "brighter", "b"), ("c", "darker", "a")])
    columns = json.dumps({"reference": "ref", "text": "caption", "targets": "goal"})
    done = prepare(
        "dataset",
        *("--data", tmp_path / "triplets.csv", "--images", pictures, "--out", tmp_path / "mine"),
        *("--set", "name=mine", "--set", f"columns={columns}"),
    )
    assert done.exit_code == DONE, done.output
    mine = Benchmark.load(tmp_path / "mine")
    assert (mine.name, mine.gallery.ids) == ("mine", ("a", "b", "c"))
    assert [(query.reference, query.text, query.targets) for query in mine.queries] == [
        ("a", "brighter", ("b",)),
        ("c", "darker", ("a",)),
    ]


def test_a_protocol_in_categories_gives_a_folder_each(shared: Path, tmp_path: Path) -> None:
    done = prepare("fashioniq/original", "--data", shared / "data", "--out", tmp_path / "fashioniq")
    assert done.exit_code == DONE
    names = {folder.name: Benchmark.load(folder).name for folder in (tmp_path / "fashioniq").iterdir()}
    assert names == {category: f"fashioniq-{category}" for category in ("dress", "shirt", "toptee")}
    one = prepare("fashioniq/original", "--data", shared / "data", "--out", tmp_path / "one", "--set", "category=shirt")
    assert one.exit_code == DONE
    assert Benchmark.load(tmp_path / "one").name == "fashioniq-shirt"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("scenes/test", "--allow", "untidy"), "empty_text"),  # among the defects that there are
        (("scenes/test", "--set", "seed"), "is not NAME=VALUE"),
    ],
)
def test_a_wrong_option_is_a_wrong_usage(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = prepare(*arguments, "--out", tmp_path / "out")
    assert done.exit_code == USAGE
    assert said in done.stderr


@pytest.mark.parametrize(
    ("source", "option", "said"),
    [
        ("scenes/test", "seed=abc", "seed is 'abc', expected int"),
        ("scenes/test", "colour=red", "what can be set: seed"),
        ("dataset", "columns={'reference': 'ref'}", "columns is"),
        ("dataset", "columns=3", "not a JSON object"),
        ("dataset", "reference=foo", "'foo' is not a valid ReferencePolicy"),
        ("dataset", "allow=empty_text", "takes no text for 'allow'"),
        ("dataset", "about=me", "takes no text for 'about'"),
        ("dataset", "folder=x", "takes no text for 'folder'"),
    ],
)
def test_options_are_checked(source: str, option: str, said: str, tmp_path: Path) -> None:
    done = prepare(source, "--set", option, "--out", tmp_path / "out")
    assert isinstance(done.exception, BenchmarkError)
    assert said in str(done.exception)


def test_text_options_stay_text(tmp_path: Path) -> None:
    (tmp_path / "triplets.csv").write_text("ref,caption,goal\n01,5,1\n")
    columns = json.dumps({"reference": "ref", "text": "caption", "targets": "goal"})
    options = ("--set", "name=123", "--set", "instruction=5", "--set", f"columns={columns}")
    done = prepare("dataset", "--data", tmp_path / "triplets.csv", *options, "--out", tmp_path / "out")
    assert done.exit_code == DONE, done.output
    made = Benchmark.load(tmp_path / "out")
    assert (made.name, made.protocol.instruction, made.gallery.ids) == ("123", "5", ("01", "1"))


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("more", [("--images", "pictures"), ("--data", "data")])
def test_what_a_generated_benchmark_does_not_take_is_refused(more: tuple[str, str], tmp_path: Path) -> None:
    done = prepare("scenes/test", more[0], tmp_path / more[1], "--out", tmp_path / "out")
    assert isinstance(done.exception, BenchmarkError)
    assert "is generated" in str(done.exception)


def test_a_benchmark_takes_no_options(annotations: Path, tmp_path: Path) -> None:
    done = prepare(annotations, "--set", "foo=1", "--out", tmp_path / "out")
    assert isinstance(done.exception, CircusError)
    assert "takes no options" in str(done.exception)


def test_unreadable_images_are_left_out_if_asked(annotations: Path, pictures: Path, tmp_path: Path) -> None:
    (pictures / "b.png").write_bytes(b"no image")
    done = prepare(annotations, "--images", pictures, "--leave-out-unreadable", "--out", tmp_path / "out")
    assert done.exit_code == ATTENTION
    assert "left out" in done.stderr
    kept = Benchmark.load(tmp_path / "out")
    assert kept.gallery.ids == ("a", "c", "d")
    assert [query.id for query in kept.queries] == ["q3"]  # q1 asks for b, q2 starts from it
    assert not kept.inspect().unreadable


@pytest.mark.parametrize("source", ["nowhere", "cirr/circus", "dataset"])
def test_a_source_that_cannot_be_read_is_an_error(source: str, tmp_path: Path) -> None:
    assert isinstance(prepare(source, "--out", tmp_path / "out").exception, CircusError)


def test_what_the_benchmark_is_made_from_is_not_written_over(annotations: Path, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "queries.parquet").write_bytes((annotations / "queries.parquet").read_bytes())
    columns = json.dumps({"reference": "reference", "text": "text", "targets": "targets"})
    from_file = ("dataset", "--data", tmp_path / "data" / "queries.parquet", "--set", "name=x")
    for command in (
        (annotations, "--images", pictures, "--out", annotations),
        (annotations, "--images", pictures, "--out", pictures),
        (*from_file, "--set", f"columns={columns}", "--out", tmp_path / "data"),
    ):
        before = sorted(command[-1].iterdir())
        done = prepare(*command, "--overwrite")
        assert done.exit_code == USAGE
        assert "is made from" in done.stderr.replace("\n", " ")
        assert sorted(command[-1].iterdir()) == before


def test_a_benchmark_is_replaced_only_if_asked(annotations: Path, pictures: Path, tmp_path: Path) -> None:
    command = (annotations, "--out", tmp_path / "out")
    assert prepare(*command, "--images", pictures).exit_code == DONE
    assert prepare(*command).exit_code == USAGE
    assert Benchmark.load(tmp_path / "out").gallery.images is not None
    assert prepare(*command, "--overwrite").exit_code == DONE
    assert Benchmark.load(tmp_path / "out").gallery.images is None
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert prepare(*command, "--overwrite").exit_code == USAGE
