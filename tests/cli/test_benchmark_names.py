"""Every command that takes a benchmark takes a folder of `data make`, a protocol id with --data, and a Hub id.

All of them run in one process that knows a Hub on the loopback interface.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.loopback_hub import Blob, LoopbackHub, Repository
from support.parts import png
from typer.testing import CliRunner

from circus_bench.cli import app
from circus_bench.hub.loading import load_benchmark
from circus_bench.labels.labels import Labels
from circus_bench.runs.run import Run
from circus_bench.validation.study import Study
from circus_bench.validation.study_benchmarks import load_benchmarks

KINDS = ("folder", "protocol", "hub")
MODEL = "circus-bench/mini-balanced"
TEXTS = ["the black square is at the right now", "remove the triangle", "the same picture again", "a blue circle"]
IMAGES = [str(number) for number in range(1, 61)]

_CLIENT = """
import json, sys
from typer.testing import CliRunner
from circus_bench.cli import app
said = {}
for name, arguments in json.load(sys.stdin).items():
    done = CliRunner().invoke(app, arguments)
    said[name] = [done.exit_code, done.stdout, f"{done.stderr}{done.exception!r}"]
print(json.dumps(said))
"""


@dataclass(frozen=True)
class Story:
    """What was said.

    Attributes:
        folder: where the commands wrote.
        said: exit code, output and errors, by command and kind of name.
    """

    folder: Path
    said: Mapping[str, tuple[int, str, str]]

    def out(self, command: str, kind: str) -> str:
        """Return the output of a command that ended well."""
        code, out, err = self.said[f"{command} {kind}"]
        assert code == 0, err
        return out


def write_data(folder: Path) -> None:
    """Write a small RMIR and a small CIRCO test set, and images for both."""
    (folder / "data" / "rmir").mkdir(parents=True)
    rows = [
        {"id": f"r{n}", "image": str(n), "text": text, "positives": [str(n + 1)], "category": "causal"}
        for n, text in enumerate(TEXTS, start=1)
    ]
    (folder / "data" / "rmir" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "data" / "rmir" / "pool.txt").write_text("\n".join(IMAGES[:12]) + "\n")
    annotations = folder / "data" / "circo" / "annotations"
    annotations.mkdir(parents=True)
    hidden = [
        {"id": n, "reference_img_id": n % 60 + 1, "relative_caption": TEXTS[n % 4], "shared_concept": "a thing"}
        for n in range(800)  # as many as the server asks for
    ]
    (annotations / "test.json").write_text(json.dumps(hidden))
    (annotations.parent / "coco_unlabeled2017_ids.txt").write_text("\n".join(IMAGES))
    for source, name in (("rmir", "{}.png"), ("circo", "{:0>12}.jpg")):
        (folder / "images" / source).mkdir(parents=True)
        for seed, image in enumerate(IMAGES):
            (folder / "images" / source / name.format(image)).write_bytes(png(seed))


def commands(folder: Path, kind: str, names: Mapping[str, str]) -> Iterator[tuple[str, list[object]]]:
    """Each command on the benchmarks under their names; protocols have their files besides."""
    here, rmir, circo = folder / kind, names["rmir"], names["circo"]
    files = ["--data", folder / "data"] if kind == "protocol" else []
    whole = [*files, "--images", folder / "images"] if kind == "protocol" else []
    raters, store = ["-r", "ann", "-r", "ben"], ["--store", folder / "embeddings"]
    yield "run", ["run", rmir, *whole, "-m", MODEL, "--out", here / "runs", *store, "--json"]
    run = here / "runs" / "circus-bench__mini-balanced"
    yield "dry run", ["run", rmir, *whole, "-m", MODEL, "--dry-run", "--limit", "2", "--json"]
    yield "audit", ["audit", run, "--benchmark", rmir, *whole, "--out", here / "audit", "-k", "1", "--json"]
    yield "doctor", ["doctor", rmir, *whole, "--json"]
    yield "data make", ["data", "make", rmir, *whole, "--out", here / "made", "--json"]
    known = ["--labels", here / "audit" / "labels.parquet", "--run", run, *raters, "--per-item", "2"]
    yield "validate new", ["validate", "new", rmir, *whole, *known, "--out", here / "study"]
    yield "rmir check", ["rmir", "check", rmir, *whole, "--run", run, *raters, "-k", "4", "--out", here / "check"]
    yield "run circo", ["run", circo, *whole, "-m", MODEL, "--out", here / "circo", *store, "--json"]
    hidden = here / "circo" / "circus-bench__mini-balanced"
    yield "submit server", ["submit", "server", hidden, "--benchmark", circo, *files, "--out", here / "server"]
    file = here / "server" / "circo_test.json"
    yield "submit check-server", ["submit", "check-server", file, "--benchmark", circo, *files]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("names")
    write_data(folder)
    files = ("--data", folder / "data", "--images", folder / "images")
    made = CliRunner().invoke(
        app, list(map(str, ("data", "make", "rmir/test", "circo/test", *files, "--out", folder / "circus")))
    )
    assert made.exit_code == 0, made.output
    with LoopbackHub().running() as hub:
        hub.repositories["group/circus"] = held = Repository(private=False)
        paths = [path for path in (folder / "circus").rglob("*") if path.is_file()]
        sent = {path.relative_to(folder / "circus").as_posix(): Blob(path.read_bytes()) for path in paths}
        revision = held.commit("release", sent).oid
        names = {
            "folder": {name: f"{folder / 'circus'}#{name}" for name in ("rmir", "circo")},
            "protocol": {"rmir": "rmir/test", "circo": "circo/test"},
            "hub": {"rmir": f"group/circus@{revision}#rmir", "circo": "group/circus#circo"},
        }
        asked = {f"{what} {kind}": argv for kind in KINDS for what, argv in commands(folder, kind, names[kind])}
        done = subprocess.run(
            [sys.executable, "-c", _CLIENT],
            input=json.dumps({name: list(map(str, argv)) for name, argv in asked.items()}),
            env={**os.environ, **hub.environment(folder / "home")},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return Story(folder, json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_run_encodes_the_same_benchmark(story: Story, kind: str) -> None:
    summary = json.loads(story.out("run", kind))[MODEL]
    assert (summary["protocol"], summary["n_queries"], summary["n_gallery"]) == ("rmir/test", 4, 12)
    run = Run.load(story.folder / kind / "runs" / "circus-bench__mini-balanced")
    assert run.manifest.fingerprint == load_benchmark(f"{story.folder / 'circus'}#rmir").fingerprint


def test_a_dry_run_takes_it(story: Story, kind: str) -> None:
    parts = json.loads(story.out("dry run", kind))[MODEL]["parts"]
    assert {part["name"]: part["inputs"] for part in parts}["gallery"] == 12


def test_audit_shows_its_images(story: Story, kind: str) -> None:
    assert json.loads(story.out("audit", kind))["about"]["protocol"]["id"] == "rmir/test"
    assert len(Labels.load(story.folder / kind / "audit" / "labels.parquet").by_query) == 4
    assert "data:image/" in (story.folder / kind / "audit" / "report.html").read_text(encoding="utf-8")


def test_doctor_decodes_its_images(story: Story, kind: str) -> None:
    code, out, err = story.said[f"doctor {kind}"]
    # The number of queries is not the published one.
    assert code in {0, 3}, err
    found = json.loads(out)
    assert (found["protocol"], found["n_queries"], found["n_images"]) == ("rmir/test", 4, 12)


def test_data_make_writes_it_anew(story: Story, kind: str) -> None:
    assert json.loads(story.out("data make", kind))["benchmarks"].keys() == {"rmir"}
    expected = load_benchmark(f"{story.folder / 'circus'}#rmir")
    assert load_benchmark(story.folder / kind / "made").fingerprint == expected.fingerprint


def test_a_study_finds_it_again_with_its_images(story: Story, kind: str) -> None:
    story.out("validate new", kind)
    study = Study.load(story.folder / kind / "study")
    assert study.items
    (place,) = study.benchmarks.values()
    assert place.startswith({"folder": "../../circus#", "protocol": "benchmarks#", "hub": "group/circus@"}[kind])
    if kind != "hub":
        (found,) = load_benchmarks(study, story.folder / kind / "study").values()
        assert found.fingerprint == load_benchmark(f"{story.folder / 'circus'}#rmir").fingerprint


def test_rmir_check_draws_pairs_of_it(story: Story, kind: str) -> None:
    assert "images of 4 queries are to be judged" in story.out("rmir check", kind)
    assert Study.load(story.folder / kind / "check").items


def test_submit_server_and_check_server_know_its_queries(story: Story, kind: str) -> None:
    story.out("run circo", kind)
    story.out("submit server", kind)
    found: dict[str, Any] = json.loads((story.folder / kind / "server" / "circo_test.json").read_text())
    assert found.keys() == {str(n) for n in range(800)}
    assert "the server's rules are kept" in story.out("submit check-server", kind)


@pytest.mark.parametrize("command", ["run", "audit", "doctor", "data make"])
def test_the_outcome_does_not_depend_on_the_name(story: Story, command: str) -> None:
    outcomes = [json.loads(story.said[f"{command} {kind}"][1]) for kind in KINDS]
    for outcome in outcomes:
        outcome.pop("coverage", None)
    assert outcomes[0] == outcomes[1] == outcomes[2]
