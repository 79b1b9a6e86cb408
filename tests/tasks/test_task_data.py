"""Where a task's data come from. Clients of the Hub are processes of their own, and it is on the loopback interface."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from support.loopback_hub import Blob, LoopbackHub, Repository
from support.parts import made_part

from circus_bench.errors import CircusError, FormatError
from circus_bench.hub.writer import write_dataset_folder
from circus_bench.tasks.circus_cirr import CircusCIRR
from circus_bench.tasks.data import load_labeled

_LOAD = """
from circus_bench.errors import CircusError
from circus_bench.tasks.circus_cirr import CircusCIRR
task = CircusCIRR()
try:
    task.load_data()
    print(len(task.labeled.benchmark.queries), *task.hf_subsets, len(task.dataset["v"]["test"]["queries"]))
except CircusError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub().running() as running:
        yield running


@pytest.fixture
def load(hub, tmp_path, warm_libraries) -> Callable[[str], str]:
    """`load(CIRCUS_DATA)`: what loading CIRCUS-CIRR says in a process that knows the loopback Hub."""

    def run(where: str) -> str:
        env = {**os.environ, **hub.environment(tmp_path / "home"), "CIRCUS_DATA": where}
        done = warm_libraries.run(_LOAD, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def repository(hub, bare_folder, tmp_path) -> Repository:
    """`group/circus` on the Hub: the small CIRR and another benchmark."""
    write_dataset_folder([made_part()], tmp_path / "other")
    files = {}
    for folder in (tmp_path / "other", bare_folder):
        files |= {p.relative_to(folder).as_posix(): Blob(p.read_bytes()) for p in folder.rglob("*") if p.is_file()}
    hub.repositories["group/circus"] = held = Repository(private=False)
    held.commit("release", files)
    return held


def test_a_repository_is_loaded_at_the_revision_asked_for(load, repository):
    pinned = repository.branches["main"][-1].oid
    repository.commit("moved on", {"manifest.json": Blob(b"{}")})
    assert load(f"group/circus@{pinned}") == "40 full sf v 10"


def test_only_the_benchmarks_own_files_are_downloaded(load, hub, repository):
    load(f"group/circus@{repository.branches['main'][-1].oid}")
    got = [path for _, path in hub.requests if "/resolve/" in path]
    assert any("data/cirr/" in path for path in got)
    assert not any("data/made/" in path for path in got)


@pytest.mark.usefixtures("repository")
def test_a_revision_that_is_not_there_is_named(load):
    said = load("group/circus@0000000")
    assert said.startswith("CircusError the dataset repository group/circus at 0000000 cannot be had")
    assert "circus-bench data make" in said


def test_without_settings_the_repository_of_the_metadata_is_taken():
    # The test process is offline, so that the message names what was looked for.
    dataset = CircusCIRR.metadata.dataset
    with pytest.raises(CircusError, match=f"{dataset['path']} at {dataset['revision']} cannot be had"):
        CircusCIRR().load_data()


def test_a_task_names_the_folder_or_the_revision_that_its_results_come_from(tmp_path, monkeypatch):
    published = CircusCIRR.metadata.dataset
    assert CircusCIRR().metadata.dataset == published
    revisions = []
    for name in ("one", "two"):
        write_dataset_folder([made_part()], tmp_path / name, date=f"2026-01-0{len(revisions) + 1}")
        monkeypatch.setenv("CIRCUS_DATA", str(tmp_path / name))
        revisions.append(CircusCIRR().metadata.revision)
    assert len(set(revisions)) == 2
    assert all(revision.startswith("local-") for revision in revisions)
    monkeypatch.setenv("CIRCUS_DATA", "group/circus@abc")
    assert CircusCIRR().metadata.dataset == {**published, "path": "group/circus", "revision": "abc"}
    assert CircusCIRR.metadata.dataset == published


def test_a_setting_that_is_neither_folder_nor_repository_is_refused(monkeypatch):
    monkeypatch.setenv("CIRCUS_DATA", "no-such-folder")
    with pytest.raises(CircusError, match="CIRCUS_DATA=no-such-folder: neither a folder nor ORG/NAME@REVISION"):
        CircusCIRR().load_data()


def test_a_folder_without_the_benchmark_says_what_it_has(tmp_path, monkeypatch):
    write_dataset_folder([made_part()], tmp_path / "circus")
    monkeypatch.setenv("CIRCUS_DATA", str(tmp_path / "circus"))
    with pytest.raises(CircusError, match=r"no benchmark 'cirr'; it has \['made'\]"):
        CircusCIRR().load_data()


def test_a_folder_that_is_no_dataset_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("CIRCUS_DATA", str(tmp_path))
    with pytest.raises(FormatError, match="no dataset folder"):
        CircusCIRR().load_data()


def test_scenes_needs_no_data():
    labeled, folder = load_labeled("scenes/test", repository="", revision="")
    assert folder is None
    assert len(labeled.benchmark.queries) == 600
