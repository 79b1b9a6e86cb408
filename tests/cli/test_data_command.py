"""`circus-bench data make`: from sources, folders, labels and images to a dataset folder."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.old_form import save_old_form
from support.parts import made_benchmark, made_part, without_images
from typer.testing import CliRunner

from circus_bench.benchmark import Benchmark, Condition, Defect
from circus_bench.cli import app
from circus_bench.errors import BenchmarkError, CircusError, MismatchError
from circus_bench.hub.loading import load_benchmark, load_labeled_benchmark, load_labeled_benchmarks
from circus_bench.hub.reader import read_labels
from circus_bench.hub.writer import read_manifest, save_benchmark, verify, write_dataset_folder
from circus_bench.labels.labels import Labels
from circus_bench.labels.pool import Pool
from circus_bench.sources import load_source
from circus_bench.sources.scenes import scenes

Make = Callable[..., Benchmark]
DONE, USAGE, ATTENTION = 0, 2, 3


def make(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["data", "make", *map(str, arguments)])


def refused(*arguments: object) -> str:
    """What is said of input that cannot be used."""
    error = make(*arguments).exception
    assert isinstance(error, CircusError), error
    return str(error)


def configs(manifest: dict[str, Any], name: str) -> dict[str, int]:
    entry = manifest["benchmarks"][name]
    return {of["subset"]: of["rows"] for of in entry["configs"].values() if of["table"] == "rows"}


@pytest.fixture
def annotations(tmp_path: Path, toy_benchmark: Make) -> Path:
    """A dataset folder of annotations; its images are called a, b, c, d and outside."""
    save_benchmark(toy_benchmark(with_images=False), tmp_path / "toy")
    return tmp_path / "toy"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Files of these images."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for shade, name in enumerate(("a", "b", "c", "d", "outside")):
        Image.new("L", (9, 9), 40 * shade).save(folder / f"{name}.png")
    return folder


class TestSources:
    def test_a_generated_benchmark_takes_options(self, tmp_path: Path) -> None:
        options = ("--set", "seed=3", "--set", "queries=30", "--set", "gallery=200")
        done = make("scenes/test", *options, "--out", tmp_path / "scenes", "--json")
        assert done.exit_code == DONE
        assert json.loads(done.stdout) == verify(tmp_path / "scenes")
        expected = scenes(seed=3, queries=30, gallery=200)
        loaded = load_benchmark(tmp_path / "scenes")
        assert loaded.fingerprint == expected.fingerprint
        assert len(loaded.gallery.images or {}) == 200

    def test_any_dataset_of_triplets_becomes_a_benchmark(self, pictures: Path, tmp_path: Path) -> None:
        with (tmp_path / "triplets.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("ref", "caption", "goal"), ("a", "brighter", "b"), ("c", "darker", "a")])
        columns = json.dumps({"reference": "ref", "text": "caption", "targets": "goal"})
        done = make(
            "dataset",
            *("--data", tmp_path / "triplets.csv", "--images", pictures, "--out", tmp_path / "mine"),
            *("--set", "name=mine", "--set", f"columns={columns}"),
        )
        assert done.exit_code == DONE, done.output
        mine = load_benchmark(tmp_path / "mine")
        assert (mine.name, mine.gallery.ids) == ("mine", ("a", "b", "c"))
        assert [(query.reference, query.text, query.targets) for query in mine.queries] == [
            ("a", "brighter", ("b",)),
            ("c", "darker", ("a",)),
        ]

    def test_a_protocol_in_categories_gives_a_benchmark_each(self, shared: Path, tmp_path: Path) -> None:
        done = make("fashioniq/original", "--data", shared / "data", "--out", tmp_path / "fashioniq")
        assert done.exit_code == DONE, done.output
        names = [part.benchmark.name for part in load_labeled_benchmarks(tmp_path / "fashioniq")]
        assert names == [f"fashioniq-{category}" for category in ("dress", "shirt", "toptee")]
        command = ("fashioniq/original", "--data", shared / "data", "--out", tmp_path / "one")
        assert make(*command, "--set", "category=shirt").exit_code == DONE
        assert load_benchmark(tmp_path / "one").name == "fashioniq-shirt"

    def test_several_benchmarks_go_into_one_folder(self, tmp_path: Path, toy_benchmark: Make) -> None:
        save_benchmark(toy_benchmark(), tmp_path / "toy")
        save_benchmark(made_benchmark(), tmp_path / "made")
        assert make(tmp_path / "toy", tmp_path / "made", "--out", tmp_path / "both").exit_code == DONE
        assert read_manifest(tmp_path / "both")["benchmarks"].keys() == {"toy", "made"}

    def test_benchmarks_that_the_folder_holds_stay(self, tmp_path: Path, toy_benchmark: Make) -> None:
        save_benchmark(toy_benchmark(), tmp_path / "toy")
        save_benchmark(made_benchmark(), tmp_path / "out")
        assert make(tmp_path / "toy", "--out", tmp_path / "out").exit_code == DONE
        assert load_benchmark(f"{tmp_path / 'out'}#made") == made_benchmark()
        assert load_benchmark(f"{tmp_path / 'out'}#toy") == toy_benchmark()

    @pytest.mark.filterwarnings("ignore:.*has the form of version 0.1:FutureWarning")
    def test_a_folder_of_the_old_form_is_written_anew(self, tmp_path: Path, toy_benchmark: Make) -> None:
        save_old_form(toy_benchmark(), tmp_path / "old")
        assert make(tmp_path / "old", "--out", tmp_path / "new").exit_code == DONE
        assert load_benchmark(tmp_path / "new").fingerprint == toy_benchmark().fingerprint

    def test_a_subset_becomes_a_benchmark_of_its_own_with_its_labels(self, tmp_path: Path) -> None:
        write_dataset_folder([made_part()], tmp_path / "circus")
        assert make(f"{tmp_path / 'circus'}#made_v", "--out", tmp_path / "v").exit_code == DONE
        assert configs(verify(tmp_path / "v"), "made") == {"full": 2, "sf": 2, "v": 2}
        assert load_benchmark(tmp_path / "v").fingerprint == load_benchmark(f"{tmp_path / 'circus'}#made_v").fingerprint

    def test_the_date_of_the_release_is_kept(self, tmp_path: Path) -> None:
        save_benchmark(made_benchmark(), tmp_path / "benchmark")
        make(tmp_path / "benchmark", "--out", tmp_path / "circus", "--date", "2026-12-01")
        make(tmp_path / "benchmark", "--out", tmp_path / "circus")
        assert read_manifest(tmp_path / "circus")["date"] == "2026-12-01"


class TestImages:
    def test_images_are_joined_to_a_folder_of_annotations(
        self, annotations: Path, pictures: Path, tmp_path: Path
    ) -> None:
        done = make(annotations, "--images", pictures, "--out", tmp_path / "whole")
        assert done.exit_code == DONE
        whole = load_benchmark(tmp_path / "whole")
        assert whole.gallery.images is not None
        assert whole.gallery.images["c"] == (pictures / "c.png").read_bytes()
        assert whole.fingerprint.annotations == load_benchmark(annotations).fingerprint.annotations

    def test_the_images_may_lie_in_a_folder_named_after_the_benchmark(self, tmp_path: Path) -> None:
        save_benchmark(without_images(made_benchmark()), tmp_path / "benchmark")
        (tmp_path / "images/made").mkdir(parents=True)
        for image_id, data in (made_benchmark().gallery.images or {}).items():
            (tmp_path / "images/made" / f"{image_id}.png").write_bytes(data)
        (tmp_path / "images/other").mkdir()
        (tmp_path / "images/other/g0.png").write_bytes(b"of another benchmark")
        done = make(tmp_path / "benchmark", "--images", tmp_path / "images", "--out", tmp_path / "circus")
        assert done.exit_code == DONE, done.output
        assert load_benchmark(tmp_path / "circus").fingerprint == made_benchmark().fingerprint

    def test_images_stay_out_if_asked(self, tmp_path: Path) -> None:
        save_benchmark(made_benchmark(), tmp_path / "made")
        done = make(tmp_path / "made", "--without-images", "--out", tmp_path / "bare")
        assert done.exit_code == DONE
        assert load_benchmark(tmp_path / "bare").gallery.images is None

    def test_a_folder_for_local_use_says_so(self, tmp_path: Path) -> None:
        save_benchmark(made_benchmark(name="cirr"), tmp_path / "cirr")
        assert "for local use" in make(tmp_path / "cirr", "--out", tmp_path / "whole").stdout
        assert "for local use" not in make(tmp_path / "cirr", "--without-images", "--out", tmp_path / "bare").stdout

    def test_a_broken_image_is_kept_and_named_and_ends_in_3(
        self, annotations: Path, pictures: Path, tmp_path: Path
    ) -> None:
        (pictures / "b.png").write_bytes(b"no image")
        done = make(annotations, "--images", pictures, "--out", tmp_path / "whole")
        assert done.exit_code == ATTENTION
        assert "1: 'b'" in done.stderr
        assert "1 unreadable" in done.stdout
        assert set(load_benchmark(tmp_path / "whole").inspect().unreadable) == {"b"}

    def test_a_missing_image_is_an_error_unless_it_is_allowed(
        self, annotations: Path, pictures: Path, tmp_path: Path
    ) -> None:
        (pictures / "b.png").unlink()
        command = (annotations, "--images", pictures, "--out", tmp_path / "whole")
        assert isinstance(make(*command).exception, BenchmarkError)
        assert not (tmp_path / "whole").exists()
        done = make(*command, "--allow", "missing_image")
        assert done.exit_code == ATTENTION
        assert "1 missing_image" in done.stdout
        assert [finding.defect for finding in load_benchmark(tmp_path / "whole").findings] == [Defect.MISSING_IMAGE]

    def test_unreadable_images_are_left_out_if_asked(self, annotations: Path, pictures: Path, tmp_path: Path) -> None:
        (pictures / "b.png").write_bytes(b"no image")
        done = make(annotations, "--images", pictures, "--leave-out-unreadable", "--out", tmp_path / "out")
        assert done.exit_code == ATTENTION
        assert "left out" in done.stderr
        kept = load_benchmark(tmp_path / "out")
        assert kept.gallery.ids == ("a", "c", "d")
        assert [query.id for query in kept.queries] == ["q3"]  # q1 asks for b, q2 starts from it
        assert not kept.inspect().unreadable

    def test_labels_of_queries_that_are_left_out_go_with_them(self, tmp_path: Path) -> None:
        broken = {**(made_benchmark().gallery.images or {}), "g1": b"no image"}
        part = made_part()
        write_dataset_folder([dataclasses.replace(part, benchmark=part.benchmark.with_images(broken))], tmp_path / "a")
        done = make(tmp_path / "a", "--leave-out-unreadable", "--out", tmp_path / "b")
        assert done.exit_code == ATTENTION, done.exception
        # q0 asks for g1, q1 starts from it; q2 is shortcut-free and invalid, q3 valid.
        assert configs(verify(tmp_path / "b"), "made") == {"full": 2, "sf": 2, "v": 1}


def write_labels(benchmark: Benchmark, path: Path) -> None:
    """Every second query a text shortcut, by a pool of one model."""
    queries = tuple(query.id for query in benchmark.queries)
    far = np.full((1, len(queries)), 99.0)
    text = far.copy()
    text[:, ::2] = 1
    best = {Condition.MULTIMODAL: far, Condition.TEXT_ONLY: text, Condition.IMAGE_ONLY: far}
    pool = Pool(("tests/a",), queries, best)
    about = {
        "benchmark": benchmark.name,
        "protocol": dataclasses.asdict(benchmark.protocol),
        "fingerprint": dataclasses.asdict(benchmark.fingerprint),
    }
    Labels.of_pool(pool, pool.label(k=10), about).save(path)


class TestLabels:
    def test_a_benchmark_is_made_from_its_folder_with_labels_and_images(self, tmp_path: Path) -> None:
        benchmark = scenes(queries=40, gallery=400)
        save_benchmark(benchmark, tmp_path / "benchmark")
        write_labels(benchmark, tmp_path / "labels.parquet")
        out = tmp_path / "circus"
        done = make(tmp_path / "benchmark", "--labels", tmp_path / "labels.parquet", "--out", out)
        assert done.exit_code == DONE, done.output
        manifest = verify(out)
        assert configs(manifest, "scenes") == {"full": 40, "sf": 20}
        assert manifest["publishable"] is True
        assert load_benchmark(out).fingerprint == benchmark.fingerprint

    def test_labels_that_came_with_the_folder_are_kept(self, tmp_path: Path) -> None:
        write_dataset_folder([made_part()], tmp_path / "circus")
        assert make(tmp_path / "circus", "--out", tmp_path / "again").exit_code == DONE
        assert load_labeled_benchmark(tmp_path / "again") == made_part()

    def test_published_labels_are_taken_by_default(self, shared: Path, tmp_path: Path) -> None:
        done = make("circo/val", "--data", shared / "data", "--out", tmp_path / "circus", "--json")
        assert done.exit_code == DONE, done.output
        # 53 + 3 shortcut-free queries, of which people found 39 + 3 valid.
        assert configs(json.loads(done.stdout), "circo") == {"full": 220, "sf": 56, "v": 42}

    def test_own_labels_replace_the_published_ones(self, shared: Path, tmp_path: Path) -> None:
        write_labels(load_source("circo/val", shared / "data" / "circo"), tmp_path / "labels.parquet")
        options = ("--data", shared / "data", "--labels", tmp_path / "labels.parquet", "--out", tmp_path / "circus")
        assert make("circo/val", *options).exit_code == DONE
        assert configs(read_manifest(tmp_path / "circus"), "circo") == {"full": 220, "sf": 110}
        labels = read_labels(tmp_path / "circus", "circo")
        assert labels is not None
        assert labels.provenance.pool == ("tests/a",)

    def test_labels_of_a_benchmark_that_is_not_made_are_refused(self, tmp_path: Path) -> None:
        save_benchmark(made_benchmark(), tmp_path / "benchmark")
        write_labels(made_benchmark(name="other"), tmp_path / "labels.parquet")
        with pytest.raises(MismatchError, match="'other'"):
            raise make(tmp_path / "benchmark", "--labels", tmp_path / "labels.parquet", "-o", tmp_path / "x").exception

    def test_labels_of_another_version_are_refused(self, tmp_path: Path) -> None:
        save_benchmark(made_benchmark(), tmp_path / "benchmark")
        write_labels(made_benchmark(queries=made_benchmark().queries[:3]), tmp_path / "labels.parquet")
        with pytest.raises(MismatchError, match="another version"):
            raise make(tmp_path / "benchmark", "--labels", tmp_path / "labels.parquet", "-o", tmp_path / "x").exception
        assert not (tmp_path / "x").exists()


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("scenes/test", "--allow", "untidy"), "empty_text"),  # among the defects that there are
            (("scenes/test", "--set", "seed"), "is not NAME=VALUE"),
        ],
    )
    def test_a_wrong_option_is_a_wrong_usage(self, arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
        done = make(*arguments, "--out", tmp_path / "out")
        assert done.exit_code == USAGE
        assert said in done.stderr

    @pytest.mark.parametrize(
        ("source", "option", "said"),
        [
            ("scenes/test", "seed=abc", "seed is 'abc', expected int"),
            ("scenes/test", "color=red", "what can be set: seed"),
            ("dataset", "columns={'reference': 'ref'}", "columns is"),
            ("dataset", "columns=3", "not a JSON object"),
            ("dataset", "reference=foo", "'foo' is not a valid ReferencePolicy"),
            ("dataset", "allow=empty_text", "takes no text for 'allow'"),
            ("dataset", "about=me", "takes no text for 'about'"),
            ("dataset", "folder=x", "takes no text for 'folder'"),
        ],
    )
    def test_options_are_checked(self, source: str, option: str, said: str, tmp_path: Path) -> None:
        done = make(source, "--set", option, "--out", tmp_path / "out")
        assert isinstance(done.exception, BenchmarkError)
        assert said in str(done.exception)

    def test_text_options_stay_text(self, tmp_path: Path) -> None:
        (tmp_path / "triplets.csv").write_text("ref,caption,goal\n01,5,1\n")
        columns = json.dumps({"reference": "ref", "text": "caption", "targets": "goal"})
        options = ("--set", "name=123", "--set", "instruction=5", "--set", f"columns={columns}")
        done = make("dataset", "--data", tmp_path / "triplets.csv", *options, "--out", tmp_path / "out")
        assert done.exit_code == DONE, done.output
        made = load_benchmark(tmp_path / "out")
        assert (made.name, made.protocol.instruction, made.gallery.ids) == ("123", "5", ("01", "1"))

    def test_a_generated_benchmark_takes_no_images(self, pictures: Path, tmp_path: Path) -> None:
        assert "is generated" in refused("scenes/test", "--images", pictures, "--out", tmp_path / "out")

    def test_a_benchmark_takes_no_options(self, annotations: Path, tmp_path: Path) -> None:
        assert "takes no options" in refused(annotations, "--set", "foo=1", "--out", tmp_path / "out")

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("nowhere", "neither a dataset folder nor a protocol"),
            ("cirr/nonsense", "cirr/circus"),
            ("cirr/circus", "--data"),
            ("dataset", "--data"),
        ],
    )
    def test_a_name_that_stands_for_nothing_is_an_error(self, name: str, said: str, tmp_path: Path) -> None:
        assert said in refused(name, "--out", tmp_path / "out")

    def test_a_date_that_is_none_is_refused(self, annotations: Path, tmp_path: Path) -> None:
        assert "YYYY-MM-DD" in refused(annotations, "--out", tmp_path / "circus", "--date", "tomorrow")

    def test_a_folder_of_something_else_is_not_touched(self, annotations: Path, tmp_path: Path) -> None:
        (tmp_path / "thesis").mkdir()
        (tmp_path / "thesis" / "thesis.tex").write_text("years of work")
        for more in ((), ("--overwrite",)):
            assert "is no dataset folder" in refused(annotations, "--out", tmp_path / "thesis", *more)
        assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["thesis.tex"]

    def test_what_the_benchmark_is_made_from_is_not_written_over(
        self, annotations: Path, pictures: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "triplets.csv").write_text("ref,caption,goal\na,brighter,b\n")
        columns = json.dumps({"reference": "ref", "text": "caption", "targets": "goal"})
        from_file = ("dataset", "--data", tmp_path / "data" / "triplets.csv", "--set", "name=x")
        for command in (
            (annotations, "--images", pictures, "--out", annotations),
            (f"{annotations}#toy", "--images", pictures, "--out", annotations),
            (annotations, "--images", pictures, "--out", pictures),
            (*from_file, "--set", f"columns={columns}", "--out", tmp_path / "data"),
        ):
            before = sorted(Path(command[-1]).iterdir())
            done = make(*command, "--overwrite")
            assert done.exit_code == USAGE
            assert "is made from" in done.stderr.replace("\n", " ")
            assert sorted(Path(command[-1]).iterdir()) == before

    def test_another_benchmark_of_the_name_is_replaced_only_if_asked(
        self, annotations: Path, tmp_path: Path, toy_benchmark: Make
    ) -> None:
        save_benchmark(toy_benchmark(queries=toy_benchmark().queries[:2]), tmp_path / "out")
        refusal = make(annotations, "--out", tmp_path / "out")
        assert refusal.exit_code == USAGE
        assert "--overwrite replaces them" in refusal.stderr.replace("\n", " ").replace("│ ", "")
        assert len(load_benchmark(tmp_path / "out").queries) == 2
        assert make(annotations, "--out", tmp_path / "out", "--overwrite").exit_code == DONE
        assert len(load_benchmark(tmp_path / "out").queries) == 3

    def test_images_that_a_folder_holds_are_dropped_only_if_asked(
        self, annotations: Path, pictures: Path, tmp_path: Path
    ) -> None:
        command = (annotations, "--out", tmp_path / "out")
        assert make(*command, "--images", pictures).exit_code == DONE
        assert make(*command).exit_code == USAGE
        assert load_benchmark(tmp_path / "out").gallery.images is not None
        assert make(*command, "--overwrite").exit_code == DONE
        assert load_benchmark(tmp_path / "out").gallery.images is None
