"""A run that is killed, however often and whenever, goes on and ends with the very files of one that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.warm_python import WarmPython

from circus_bench.errors import FormatError
from circus_bench.hub.writer import save_benchmark
from circus_bench.runs.manifest import MANIFEST_FILE
from circus_bench.runs.run import Run
from circus_bench.runs.tables import RANKS_FILE, TOP_FILE
from circus_bench.sources.scenes import scenes

pytestmark = pytest.mark.slow

SCRIPT = Path(sys.executable).with_name("circus-bench")
MODEL = "circus-bench/mini-balanced"
# 400 gallery images and three times 40 queries, in shards of at most 50: 8 + 3.
CHECKPOINT_EVERY, SHARDS = 50, 11
PATIENCE = 300  # seconds, for a machine that is busy with other things

COMMAND = "import sys; from circus_bench.cli import main; sys.argv[0] = 'circus-bench'; main()"
# Kills itself just before or just after a file gets its name.
DIES = """
import os, signal, sys
from pathlib import Path

from circus_bench.cli import main

moment, pattern = sys.argv[1:3]
rename = Path.replace


def replace(path, target):
    met = Path(target).match(pattern)
    if met and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    renamed = rename(path, target)
    if met and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return renamed


Path.replace = replace
sys.argv = ["circus-bench", *sys.argv[3:]]
main()
"""


@dataclass(frozen=True)
class Folder:
    """What a run leaves."""

    path: Path

    @property
    def run(self) -> Path:
        return self.path / "circus-bench__mini-balanced"

    def shards(self) -> dict[str, tuple[int, int]]:
        """Name of each finished shard to its inode and time of writing."""
        found = {}
        for shard in (self.path / ".embeddings").rglob("*.safetensors"):
            facts = shard.stat()
            found[shard.name] = (facts.st_ino, facts.st_mtime_ns)
        return found

    def parts(self) -> list[Path]:
        return list(self.path.rglob("*.part"))


@dataclass(frozen=True)
class Story:
    """A run that was killed four times and then let be.

    Attributes:
        folder: its folder, at the end.
        shards: the finished shards after each kill.
        died_on: how each process ended.
        leftovers: names of the unfinished files after each kill.
        refusals: after each kill, the reason why the folder was not taken for a Run.
        last: how the last process ended.
    """

    folder: Folder
    shards: list[Mapping[str, tuple[int, int]]]
    died_on: list[int]
    leftovers: list[list[str]]
    refusals: list[str]
    last: subprocess.CompletedProcess[str]


def arguments(benchmark: Path, out: Path) -> list[str]:
    options = ("--model", MODEL, "--out", out, "--checkpoint-every", CHECKPOINT_EVERY, "--json")
    return ["run", str(benchmark), *map(str, options)]


def environment() -> dict[str, str]:
    # A fixed date, so that manifests can be compared as well.
    return {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}


def killed_at_shard(number: int, python: WarmPython, benchmark: Path, folder: Folder) -> int:
    """Kill the command from outside when so many shards are finished."""

    def kill(process: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(folder.shards()) < number:
            os.kill(process, 0)  # an error where the run ended before it could be killed
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.kill(process, signal.SIGKILL)

    return python.run(COMMAND, *arguments(benchmark, folder.path), env=environment(), meanwhile=kill).returncode


def killed_when(moment: str, pattern: str, python: WarmPython, benchmark: Path, folder: Folder) -> int:
    """Let the process kill itself `before` or `after` a file that matches the pattern gets its name."""
    command = [moment, pattern, *arguments(benchmark, folder.path)]
    return python.run(DIES, *command, env=environment()).returncode


@pytest.fixture(scope="module")
def benchmark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    save_benchmark(scenes(7, 40, gallery=400), folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(benchmark_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = Folder(tmp_path_factory.mktemp("undisturbed"))
    command = [SCRIPT, *arguments(benchmark_folder, folder.path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def story(warm_python: WarmPython, benchmark_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = Folder(tmp_path_factory.mktemp("killed"))
    shards: list[Mapping[str, tuple[int, int]]] = []
    died_on, leftovers, refusals = [], [], []
    kills = (
        lambda: killed_at_shard(2, warm_python, benchmark_folder, folder),
        lambda: killed_when("before", "*.safetensors", warm_python, benchmark_folder, folder),
        lambda: killed_when("after", RANKS_FILE, warm_python, benchmark_folder, folder),
        lambda: killed_when("before", MANIFEST_FILE, warm_python, benchmark_folder, folder),
    )
    for kill in kills:
        died_on.append(kill())
        shards.append(folder.shards())
        leftovers.append(sorted(path.name.rsplit(".", 2)[0] for path in folder.parts()))
        with pytest.raises(FormatError) as refusal:
            Run.load(folder.run)
        refusals.append(str(refusal.value))
    last = warm_python.run(COMMAND, *arguments(benchmark_folder, folder.path), env=environment())
    return Story(folder, shards, died_on, leftovers, refusals, last)


def test_every_kill_took_place(story: Story) -> None:
    assert story.died_on == [-signal.SIGKILL] * 4


def test_the_kills_left_a_shard_a_rank_table_and_a_manifest_unfinished(story: Story) -> None:
    # The premise of the tests below: after the second kill a shard has no name yet, after the third the rank table
    # stands alone, after the last the manifest has no name yet.
    assert [2 <= len(shards) < SHARDS for shards in story.shards[:2]] == [True, True]
    assert any(name.endswith(".safetensors") for name in story.leftovers[1])
    assert f".{MANIFEST_FILE}" in story.leftovers[3]


def test_an_unfinished_run_is_not_taken_for_a_run(story: Story) -> None:
    assert [f"{MANIFEST_FILE}: no such file" in refusal for refusal in story.refusals] == [True] * 4


def test_a_run_that_was_killed_ends_well(story: Story) -> None:
    assert story.last.returncode == 0, story.last.stderr
    assert json.loads(story.last.stdout)[MODEL]["n_gallery"] == 400
    assert Run.load(story.folder.run).manifest.model.name == MODEL


@pytest.mark.parametrize("name", [RANKS_FILE, TOP_FILE, MANIFEST_FILE])
def test_its_files_are_those_of_an_undisturbed_run_byte_by_byte(story: Story, undisturbed: Folder, name: str) -> None:
    assert (story.folder.run / name).read_bytes() == (undisturbed.run / name).read_bytes()


def test_its_shards_are_those_of_an_undisturbed_run(story: Story, undisturbed: Folder) -> None:
    found = story.folder.shards()
    assert found.keys() == undisturbed.shards().keys()
    assert len(found) == SHARDS


def test_no_finished_shard_is_written_twice(story: Story) -> None:
    last = story.folder.shards()
    for after_kill in story.shards:
        assert {name: last[name] for name in after_kill} == after_kill


def test_every_process_but_the_last_two_adds_shards_only_as_far_as_it_came(story: Story) -> None:
    # The second process died while it wrote its first shard; the third encoded all that was missing; the fourth none.
    counts = [len(shards) for shards in story.shards]
    assert counts[0] == counts[1]
    assert counts[2:] == [SHARDS, SHARDS]
