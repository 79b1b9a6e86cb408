"""What is written for a leaderboard: the values of `circus-bench score`, for the tasks that eval.yaml declares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries
from support.loopback_hub import TOKEN, Blob, LoopbackHub, Repository
from support.submissions import DATASET, MODEL, REVISION, leaderboard_benchmark, make_leaderboard, run_on

from circus_bench.audit.scores import score_run
from circus_bench.benchmark import Condition
from circus_bench.errors import CircusError, MismatchError
from circus_bench.hub.subsets import subsets_of_folder
from circus_bench.runs.run import Run
from circus_bench.submit.leaderboard import Leaderboard, describe_pull_request, results_file, run_folder, write_results

DONE, INPUT = 0, 4
RUN_FILES = ["ranks.parquet", "topk.parquet", "manifest.json"]
FILES = [*(f"{run_folder('made')}/{name}" for name in RUN_FILES), results_file("made")]


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Leaderboard:
    return make_leaderboard(tmp_path_factory.mktemp("board") / "circus")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_on(leaderboard_benchmark(), folder)
    return folder


def entries_in(folder: Path) -> dict[str, Any]:
    return {e.task_id: e for e in parse_eval_result_entries(yaml.safe_load((folder / FILES[-1]).read_text()))}


class TestEntries:
    def test_there_is_one_for_every_task_that_eval_yaml_declares(
        self, board: Leaderboard, run: Path, tmp_path: Path
    ) -> None:
        write_results([run], tmp_path, model=MODEL, leaderboard=board)
        declared = [task["id"] for task in yaml.safe_load((board.folder / "eval.yaml").read_text())["tasks"]]
        assert list(entries_in(tmp_path)) == declared
        assert len(declared) == 9

    def test_values_are_those_of_the_scores_in_per_cent(self, board: Leaderboard, run: Path, tmp_path: Path) -> None:
        write_results([run], tmp_path, model=MODEL, leaderboard=board)
        loaded = Run.load(run)
        for subset, chosen in subsets_of_folder(loaded.queries, folder=board.folder, name="made").items():
            scores = score_run(loaded, chosen=chosen)
            for condition in Condition:
                part = "" if condition is Condition.MULTIMODAL else f"_{condition}"
                value = entries_in(tmp_path)[f"made_{subset}{part}"].value
                assert value == round(100 * scores.by_condition[condition]["hit_rate@10"].value, 4)

    def test_the_subsets_are_those_of_the_folder(self, board: Leaderboard, run: Path) -> None:
        # tests/submissions.py: q0 to q3 are shortcuts, q4 to q7 are valid.
        masks = subsets_of_folder(Run.load(run).queries, folder=board.folder, name="made")
        assert {subset.value: np.flatnonzero(mask).tolist() for subset, mask in masks.items()} == {
            "full": list(range(12)),
            "sf": list(range(4, 12)),
            "v": [4, 5, 6, 7],
        }

    def test_they_name_what_the_value_cannot_be_read_without(
        self, board: Leaderboard, run: Path, tmp_path: Path
    ) -> None:
        write_results([run], tmp_path, model=MODEL, leaderboard=board)
        entry = entries_in(tmp_path)["made_v"]
        assert (entry.dataset_id, entry.dataset_revision) == (DATASET, REVISION)
        assert entry.date == Run.load(run).manifest.date
        assert entry.source_url == f"https://huggingface.co/{MODEL}/tree/main/{run_folder('made')}"
        for fact in ("hit_rate@10", "4 queries", "CompGap", "protocol made/test, reference removed", "circus-bench 0."):
            assert fact in entry.notes

    def test_the_run_goes_along_as_it_is(self, board: Leaderboard, run: Path, tmp_path: Path) -> None:
        submission = write_results([run], tmp_path, model=MODEL, leaderboard=board)
        assert list(submission.files) == FILES
        for name in RUN_FILES:
            assert (tmp_path / run_folder("made") / name).read_bytes() == (run / name).read_bytes()

    def test_the_same_run_gives_the_same_bytes(self, board: Leaderboard, run: Path, tmp_path: Path) -> None:
        for name in ("a", "b"):
            write_results([run], tmp_path / name, model=MODEL, leaderboard=board)
        assert (tmp_path / "a" / FILES[-1]).read_bytes() == (tmp_path / "b" / FILES[-1]).read_bytes()

    def test_the_pull_request_says_how_to_compute_the_values_again(
        self, board: Leaderboard, run: Path, tmp_path: Path
    ) -> None:
        text = describe_pull_request(write_results([run], tmp_path, model=MODEL, leaderboard=board))
        assert f"check-scores MODEL_REPOSITORY --model {MODEL} --benchmark circus --dataset {DATASET}" in text
        assert text.count("| `made_") == 9

    def test_two_runs_on_one_benchmark_are_refused(self, board: Leaderboard, run: Path, tmp_path: Path) -> None:
        with pytest.raises(MismatchError, match="are both Runs on made"):
            write_results([run, run], tmp_path, model=MODEL, leaderboard=board)

    def test_a_benchmark_that_the_folder_lacks_is_refused(self, board: Leaderboard, tmp_path: Path) -> None:
        run_on(leaderboard_benchmark(name="other"), tmp_path / "run")
        with pytest.raises(CircusError, match="no benchmark 'other'"):
            write_results([tmp_path / "run"], tmp_path / "out", model=MODEL, leaderboard=board)

    def test_a_name_that_is_no_repository_is_refused(self, board: Leaderboard, run: Path, tmp_path: Path) -> None:
        with pytest.raises(CircusError, match=r"'voyage-multimodal-3\.5' is no repository name"):
            write_results([run], tmp_path, model="voyage-multimodal-3.5", leaderboard=board)


@pytest.fixture
def hub(board: Leaderboard) -> Iterator[LoopbackHub]:
    """Holds the dataset folder's manifest and an empty repository of the model."""
    with running_hub(board) as running:
        yield running


@contextmanager
def running_hub(board: Leaderboard) -> Iterator[LoopbackHub]:
    with LoopbackHub().running() as running:
        running.repositories[DATASET] = dataset = Repository(private=False)
        dataset.commit("circus", {"manifest.json": Blob((board.folder / "manifest.json").read_bytes())})
        running.repositories[MODEL] = model = Repository(private=False)
        model.commit("weights", {"README.md": Blob(b"a model")})
        yield running


def submit(
    hub: LoopbackHub, run: Path, board: Leaderboard, work: Path, options: Sequence[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command on a Run, as a client of the Hub."""
    command = [sys.executable, "-c", "from circus_bench.cli import main; main()", "submit", "leaderboard", str(run)]
    command += ["--model", MODEL, "--benchmark", str(board.folder), "--dataset", DATASET, *options]
    env = {**os.environ, **hub.environment(work / "home"), **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, cwd=work, check=False)


@dataclass(frozen=True)
class Sent:
    hub: LoopbackHub
    folder: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def sent(board: Leaderboard, run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sent]:
    """A submission that became a pull request."""
    work = tmp_path_factory.mktemp("client")
    with running_hub(board) as hub:
        done = submit(hub, run, board, work, ["--create-pr", "--json"])
        assert done.returncode == DONE, done.stderr
        yield Sent(hub, work / "submission", done)


class TestPullRequest:
    def test_its_address_is_printed(self, sent: Sent) -> None:
        assert json.loads(sent.done.stdout)["pull_request"] == f"{sent.hub.url}/{MODEL}/discussions/1"

    def test_it_holds_the_entries_and_the_run(self, sent: Sent, run: Path) -> None:
        made = sent.hub.commits(MODEL, "refs/pr/1")[-1]
        assert sorted(made.files) == sorted(["README.md", *FILES])
        for path in FILES:
            assert sent.hub.content(made.files[path]) == (sent.folder / path).read_bytes()
        assert sent.hub.content(made.files[FILES[0]]) == (run / "ranks.parquet").read_bytes()

    def test_it_says_how_to_compute_the_values_again(self, sent: Sent) -> None:
        assert "circus-bench submit check-scores" in sent.hub.commits(MODEL, "refs/pr/1")[-1].description

    def test_the_main_branch_is_left_alone(self, sent: Sent) -> None:
        assert [commit.message for commit in sent.hub.commits(MODEL)] == ["weights"]

    def test_the_newest_revision_of_the_dataset_is_entered(self, sent: Sent) -> None:
        newest = sent.hub.commits(DATASET)[-1].oid
        assert {entry.dataset_revision for entry in entries_in(sent.folder).values()} == {newest}

    def test_the_token_is_never_shown(self, sent: Sent) -> None:
        assert TOKEN not in sent.done.stdout + sent.done.stderr


def test_a_dry_run_sends_and_writes_nothing(hub: LoopbackHub, run: Path, board: Leaderboard, tmp_path: Path) -> None:
    done = submit(hub, run, board, tmp_path, ["--revision", REVISION, "--create-pr", "--dry-run"])
    assert done.returncode == DONE, done.stderr
    assert hub.requests == []
    assert not (tmp_path / "submission").exists()
    assert all(path in done.stdout for path in FILES)


def test_a_revision_that_holds_another_dataset_is_refused(
    hub: LoopbackHub, run: Path, board: Leaderboard, tmp_path: Path
) -> None:
    other = make_leaderboard(tmp_path / "other", leaderboard_benchmark(queries=leaderboard_benchmark().queries[:8]))
    hub.repositories[DATASET].commit("less", {"manifest.json": Blob((other.folder / "manifest.json").read_bytes())})
    done = submit(hub, run, board, tmp_path, ["--create-pr"])
    assert done.returncode == INPUT
    assert "does not hold what" in done.stderr
    assert "refs/pr/1" not in hub.repositories[MODEL].branches


def test_a_wrong_token_is_an_error_that_does_not_show_it(
    hub: LoopbackHub, run: Path, board: Leaderboard, tmp_path: Path
) -> None:
    done = submit(hub, run, board, tmp_path, ["--create-pr", "--revision", REVISION], HF_TOKEN="hf_wrong-token")
    assert done.returncode == INPUT
    assert "hf auth login" in done.stderr
    assert "hf_wrong-token" not in done.stdout + done.stderr
