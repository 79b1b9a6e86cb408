"""Publishing to a Hub on the loopback interface, and loading from it. Clients are processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.loopback_hub import TOKEN, Blob, LoopbackHub
from support.parts import made_benchmark, made_part
from support.warm_python import WarmPython

from circus_bench.benchmark import Protocol, ReferencePolicy
from circus_bench.errors import FormatError
from circus_bench.hub.publish import PublishError, check_publishable
from circus_bench.hub.tables import LabeledBenchmark
from circus_bench.hub.writer import file_facts, write_dataset_folder
from circus_bench.io import read_json, write_json

REPO = "group/circus"
DONE, USAGE, INPUT = 0, 2, 4

# The client waits between its attempts; the tests have no time for that.
_PUBLISH = "import time; time.sleep = lambda _: None; from circus_bench.dataset_scripts.publish import main; main()"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub().running() as running:
        yield running


@pytest.fixture
def circus(tmp_path: Path) -> Path:
    write_dataset_folder([made_part()], tmp_path / "circus", with_images=True)
    return tmp_path / "circus"


@pytest.fixture
def client(hub: LoopbackHub, warm_libraries: WarmPython, tmp_path: Path) -> Run:
    """`client(code, *arguments, **environment)`: run Python code as a client of the Hub."""

    def run(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **hub.environment(tmp_path / "home"), **environment}
        return warm_libraries.run(code, *arguments, env=env, cwd=tmp_path)

    return run


@pytest.fixture
def publish(client: Run) -> Run:
    """`publish(folder, *options)`: what the publish command does, without asking."""

    def run(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return client(_PUBLISH, folder, "--repo", REPO, "--yes", *options, **environment)

    return run


def published(hub: LoopbackHub, branch: str = "main") -> dict[str, bytes]:
    """The files at the head of a branch, without those that the Hub itself makes."""
    files = hub.commits(REPO, branch)[-1].files
    return {path: hub.content(blob) for path, blob in files.items() if path != ".gitattributes"}


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def messages(hub: LoopbackHub) -> list[str]:
    return [commit.message for commit in hub.commits(REPO)]


class TestCommits:
    def test_a_folder_becomes_one_commit_of_a_new_repository(
        self, hub: LoopbackHub, publish: Run, circus: Path
    ) -> None:
        done = publish(circus)
        assert done.returncode == DONE, done.stderr
        assert published(hub) == tree(circus)
        assert len(hub.commits(REPO)) == 2  # the Hub's own first commit, and ours
        assert hub.commits(REPO)[-1].oid in done.stdout

    def test_publishing_twice_makes_no_second_commit(self, hub: LoopbackHub, publish: Run, circus: Path) -> None:
        publish(circus)
        sent, before = len(hub.puts()), messages(hub)
        done = publish(circus)
        assert done.returncode == DONE, done.stderr
        assert "already published" in done.stdout
        assert (len(hub.puts()), messages(hub)) == (sent, before)

    def test_a_changed_folder_sends_what_changed_and_removes_what_is_gone(
        self, hub: LoopbackHub, publish: Run, circus: Path
    ) -> None:
        publish(circus)
        sent = len(hub.puts())
        write_dataset_folder([LabeledBenchmark(made_benchmark())], circus)  # no labels: sf and v are gone
        done = publish(circus)
        assert done.returncode == DONE, done.stderr
        assert published(hub) == tree(circus)
        assert len(hub.commits(REPO)) == 3
        assert len(hub.puts()) == sent + 1  # the rows of full have lost their labels; nothing else is new

    def test_files_of_others_stay(self, hub: LoopbackHub, publish: Run, circus: Path) -> None:
        publish(circus)
        repo = hub.repositories[REPO]
        repo.commit("theirs", {**hub.commits(REPO)[-1].files, "paper.pdf": Blob(b"theirs")})
        write_dataset_folder([made_part()], circus, with_images=False)
        assert publish(circus).returncode == DONE
        assert published(hub) == {**tree(circus), "paper.pdf": b"theirs"}

    def test_a_pull_request_leaves_the_main_branch_alone(self, hub: LoopbackHub, publish: Run, circus: Path) -> None:
        done = publish(circus, "--create-pr")
        assert done.returncode == DONE, done.stderr
        assert published(hub) == {}
        assert published(hub, "refs/pr/1") == tree(circus)
        assert "/discussions/1" in done.stdout

    def test_a_new_repository_is_private_when_asked(self, hub: LoopbackHub, publish: Run, circus: Path) -> None:
        assert publish(circus, "--private").returncode == DONE
        assert hub.repositories[REPO].private


class TestPlan:
    def test_a_dry_run_changes_nothing(self, hub: LoopbackHub, publish: Run, circus: Path) -> None:
        done = publish(circus, "--dry-run", "--json")
        assert done.returncode == DONE, done.stderr
        planned = json.loads(done.stdout)
        assert planned["published"] is None
        assert {file["path"]: file["bytes"] for file in planned["plan"]["files"]} == {
            path: len(data) for path, data in tree(circus).items()
        }
        assert {file["change"] for file in planned["plan"]["files"]} == {"new"}
        assert hub.repositories == {}
        assert not [request for request in hub.requests if request[0] != "GET"]

    def test_without_a_terminal_nothing_is_published_unasked(self, hub: LoopbackHub, client: Run, circus: Path) -> None:
        done = client(_PUBLISH, circus, "--repo", REPO)
        assert done.returncode == USAGE
        assert "--yes" in done.stderr
        assert hub.repositories == {}

    def test_the_plan_is_shown_before_the_question(self, client: Run, circus: Path) -> None:
        assert "data/made/v/00000.parquet" in client(_PUBLISH, circus, "--repo", REPO).stdout


class TestInterruptions:
    def test_a_dropped_connection_leaves_no_commit_and_the_rerun_finishes(
        self, hub: LoopbackHub, publish: Run, circus: Path
    ) -> None:
        hub.allowed_puts, hub.dropped_puts = 3, 1000
        broken = publish(circus)
        assert broken.returncode == INPUT
        assert "run publish again" in broken.stderr
        assert "Traceback" not in broken.stderr
        assert len(hub.commits(REPO)) == 1
        arrived, hub.dropped_puts = set(hub.storage), 0
        hub.requests.clear()
        done = publish(circus)
        assert done.returncode == DONE, done.stderr
        assert published(hub) == tree(circus)
        assert len(hub.commits(REPO)) == 2
        assert len(arrived) == 3
        assert arrived.isdisjoint(hub.puts())  # what had arrived was not sent again

    def test_a_short_interruption_is_overcome(self, hub: LoopbackHub, publish: Run, circus: Path) -> None:
        hub.allowed_puts, hub.dropped_puts = 2, 1
        done = publish(circus)
        assert done.returncode == DONE, done.stderr
        assert published(hub) == tree(circus)

    def test_a_stale_parent_is_an_error_and_the_rerun_keeps_both(
        self, hub: LoopbackHub, publish: Run, circus: Path
    ) -> None:
        def somebody_commits() -> None:
            hub.before_commit = lambda: None
            hub.repositories[REPO].commit("theirs", {"paper.pdf": Blob(b"theirs")})

        hub.before_commit = somebody_commits
        refused = publish(circus)
        assert refused.returncode == INPUT
        assert "changed after the plan was made" in refused.stderr
        assert messages(hub) == ["initial commit", "theirs"]
        assert publish(circus).returncode == DONE
        assert published(hub) == {**tree(circus), "paper.pdf": b"theirs"}

    def test_a_commit_whose_answer_was_lost_is_not_made_twice(
        self, hub: LoopbackHub, publish: Run, circus: Path
    ) -> None:
        hub.lost_answers = 1
        broken = publish(circus)
        assert broken.returncode == INPUT
        assert "Traceback" not in broken.stderr
        done = publish(circus)
        assert (done.returncode, len(hub.commits(REPO))) == (DONE, 2)
        assert "already published" in done.stdout


class TestRefusals:
    def test_benchmarks_of_the_repository_are_not_lost_unasked(
        self, hub: LoopbackHub, publish: Run, circus: Path, tmp_path: Path
    ) -> None:
        publish(circus)
        write_dataset_folder([made_part(name="other")], tmp_path / "smaller")
        refused = publish(tmp_path / "smaller")
        assert refused.returncode == INPUT
        assert "'made'" in refused.stderr
        assert published(hub) == tree(circus)
        assert publish(tmp_path / "smaller", "--remove").returncode == DONE
        assert published(hub) == tree(tmp_path / "smaller")

    def test_a_public_repository_is_not_taken_for_a_private_one(
        self, hub: LoopbackHub, publish: Run, circus: Path
    ) -> None:
        publish(circus)
        refused = publish(circus, "--private")
        assert refused.returncode == INPUT
        assert "is public" in refused.stderr

    def test_a_wrong_token_is_explained_and_no_token_is_ever_shown(
        self, hub: LoopbackHub, publish: Run, circus: Path
    ) -> None:
        secret = "hf_wrong-and-secret"
        refused = publish(circus, HF_TOKEN=secret)
        good = publish(circus)
        assert refused.returncode == INPUT
        assert "hf auth login" in refused.stderr
        for shown in (refused.stdout, refused.stderr, good.stdout, good.stderr):
            assert secret not in shown
            assert TOKEN not in shown

    def test_without_a_token_the_login_is_named(self, publish: Run, circus: Path, hub: LoopbackHub) -> None:
        refused = publish(circus, HF_TOKEN="")
        assert refused.returncode == INPUT
        assert "hf auth login" in refused.stderr
        assert hub.repositories == {}

    def test_offline_mode_is_named(self, publish: Run, circus: Path) -> None:
        refused = publish(circus, HF_HUB_OFFLINE="1")
        assert refused.returncode == INPUT
        assert "HF_HUB_OFFLINE" in refused.stderr

    def test_a_repository_without_an_owner_is_refused(self, client: Run, circus: Path) -> None:
        refused = client(_PUBLISH, circus, "--repo", "circus", "--yes")
        assert refused.returncode == INPUT
        assert "ORG/NAME" in refused.stderr

    def test_restricted_pixels_are_refused(self, tmp_path: Path) -> None:
        part = LabeledBenchmark(made_benchmark(name="cirr"))
        write_dataset_folder([part], tmp_path / "circus")
        with pytest.raises(PublishError, match=r"must not be redistributed \(1: 'cirr'\)"):
            check_publishable(tmp_path / "circus")

    def test_restricted_pixels_are_refused_whatever_the_manifest_says(self, tmp_path: Path) -> None:
        part = LabeledBenchmark(made_benchmark(name="cirr"))
        write_dataset_folder([part], tmp_path / "circus")
        path = tmp_path / "circus/manifest.json"
        manifest: dict[str, Any] = read_json(path)
        manifest["publishable"] = True
        manifest["benchmarks"]["cirr"]["pixels"] = False
        manifest["benchmarks"]["cirr"]["terms"]["redistributable"] = True
        write_json(path, manifest)
        with pytest.raises(PublishError, match="'cirr'"):
            check_publishable(tmp_path / "circus")

    def test_restricted_ids_without_pixels_pass(self, tmp_path: Path) -> None:
        part = LabeledBenchmark(made_benchmark(name="cirr"))
        write_dataset_folder([part], tmp_path / "circus", with_images=False)
        check_publishable(tmp_path / "circus")

    @pytest.mark.parametrize(
        ("name", "changes"),
        [
            *((name, {}) for name in ("cirr", "fashioniq", "lasco", "circo", "rmir")),
            ("mine", {"protocol": Protocol("cirr/mbeir", ReferencePolicy.KEPT)}),
            ("mine", {"source": {"license": "CC0-1.0"}}),
        ],
    )
    def test_pixels_need_the_permission_of_their_source(
        self, name: str, changes: dict[str, Any], tmp_path: Path
    ) -> None:
        write_dataset_folder([LabeledBenchmark(made_benchmark(name=name, **changes))], tmp_path / "circus")
        with pytest.raises(PublishError, match="must not be redistributed"):
            check_publishable(tmp_path / "circus")

    def test_an_image_that_cannot_be_decoded_is_refused(self, tmp_path: Path) -> None:
        images = {**(made_benchmark().gallery.images or {}), "g4": b"<html>404</html>"}
        write_dataset_folder([LabeledBenchmark(made_benchmark().with_images(images))], tmp_path / "circus")
        with pytest.raises(
            PublishError, match=r"local use \(made: images that cannot be decoded\).*circus-bench doctor"
        ):
            check_publishable(tmp_path / "circus")

    def test_a_folder_that_says_that_it_is_for_local_use_is_refused(self, circus: Path) -> None:
        write_json(circus / "manifest.json", {**read_json(circus / "manifest.json"), "publishable": False})
        with pytest.raises(PublishError, match="the manifest says so"):
            check_publishable(circus)

    def test_a_folder_with_a_changed_file_is_refused(self, circus: Path) -> None:
        (circus / "README.md").write_text("mine")
        with pytest.raises(FormatError, match=r"README.md"):
            check_publishable(circus)

    def test_a_checksum_is_compared_even_where_the_size_is_right(self, circus: Path) -> None:
        path = circus / "eval.yaml"
        size = file_facts(path)["bytes"]
        path.write_bytes(b"#" * size)
        with pytest.raises(FormatError, match=r"eval.yaml"):
            check_publishable(circus)


_LOAD = """
import hashlib, json, sys
import datasets
from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader

def plain(rows):
    return [{**r, "image": hashlib.sha256(r["image"].tobytes()).hexdigest()} for r in rows]

where, revision = sys.argv[1:]
load = lambda **o: datasets.load_dataset(where, "made_v", split="test", revision=revision or None, **o)
data = RetrievalDatasetLoader(where, revision=revision, split="test", config="made_v").load()
qrels = {query: sorted(of) for query, of in sorted(data["relevant_docs"].items())}
triple = [list(data["queries"]["id"]), list(data["corpus"]["id"]), qrels]
print(json.dumps({"rows": plain(load()), "streamed": plain(load(streaming=True)), "triple": triple}))
"""


@pytest.mark.slow
def test_the_hub_gives_the_rows_of_the_folder_pinned_to_the_commit(
    hub: LoopbackHub, publish: Run, client: Run, circus: Path, tmp_path: Path
) -> None:
    assert publish(circus).returncode == DONE
    commit = hub.commits(REPO)[-1].oid
    # What is published later does not reach who pinned the commit.
    hub.repositories[REPO].commit("later", {"README.md": Blob(b"nothing here")})
    remote = client(_LOAD, REPO, commit)
    local = client(_LOAD, circus, "", HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=str(tmp_path / "local"))
    assert remote.returncode == local.returncode == DONE, remote.stderr + local.stderr
    assert json.loads(remote.stdout) == json.loads(local.stdout)
    loaded = json.loads(remote.stdout)
    assert loaded["streamed"] == loaded["rows"]
    assert [row["query_id"] for row in loaded["rows"]] == loaded["triple"][0] == ["q1", "q3"]
