"""`reproduce`, `submit leaderboard` and `submit check-scores`: what they print, where, and with which exit code."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.makers import make_run
from support.submissions import DATASET, MODEL, REVISION, leaderboard_benchmark, make_leaderboard, run_on

from circus_bench.audit.audit import audit_runs
from circus_bench.audit.published_scores import PublishedScores
from circus_bench.benchmark import Protocol, ReferencePolicy
from circus_bench.cli import main
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.sanity_checks import EncoderWarning
from circus_bench.hub.tables import LabeledBenchmark
from circus_bench.hub.writer import write_dataset_folder
from circus_bench.labels.labels import Labels
from circus_bench.models import load_encoder
from circus_bench.runs.run import Run, run_benchmark
from circus_bench.sources.scenes import scenes
from circus_bench.submit.leaderboard import Leaderboard, results_file, run_folder

DONE, ATTENTION, INPUT = 0, 3, 4
QWEN, LAMRA = "Qwen/Qwen3-VL-Embedding-2B", "code-kunkun/LamRA-Ret"


def invoke(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the console script, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["circus-bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
    return int(stop.value.code or 0), out.getvalue(), err.getvalue()


def circo_run(model: str, *, hits: int, **manifest: Any) -> Run:
    """A Run on CIRCO's 220 validation queries: the first `hits` have rank 1, the others 30; no part alone hits."""
    instruction = PublishedScores.load().benchmarks["circo"].instruction
    protocol = dataclasses.asdict(Protocol("circo/val", ReferencePolicy.KEPT, instruction=instruction or ""))
    ranks = [1] * hits + [30] * (220 - hits)
    about: dict[str, Any] = {"benchmark": "circo", "protocol": protocol, "n_gallery": 123403, **manifest}
    made = make_run(ranks, [30] * 220, [30] * 220, model=model, **about)
    return dataclasses.replace(made, queries=tuple(str(place) for place in range(220)))


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """172 hits of 220 are 78.18 %, the published value of Qwen3-VL-2B; LamRA's is 81.36 %."""
    for name, model in (("qwen", QWEN), ("lamra", LAMRA)):
        circo_run(model, hits=172).save(tmp_path / "runs" / name)
    return [tmp_path / "runs" / "qwen", tmp_path / "runs" / "lamra"]


class TestReproduce:
    def test_prints_measured_published_difference_and_outcome(self, runs: list[Path]) -> None:
        _, out, _ = invoke("reproduce", *runs)
        lines = {line.split()[0]: line for line in out.splitlines() if " full " in line and "multimodal" in line}
        assert re.search(r"78\.2 \[72\.3, 83\.1\] +78\.18 +0\.00 +0 +same", lines["Qwen3-VL-2B"])
        # 172 hits are 7 less than 81.36 % of 220.
        assert re.search(r"78\.2 \[72\.3, 83\.1\] +81\.36 +-3\.18 +-7 +within", lines["LamRA"])

    def test_subsets_come_from_the_verdicts_of_the_package(self, runs: list[Path]) -> None:
        # CIRCO has 56 shortcut-free queries, 42 of them valid.
        _, out, _ = invoke("reproduce", *runs, "--json")
        (found,) = json.loads(out)["benchmarks"]
        assert {c["subset"]: c["measured"]["n"] for c in found["comparisons"]} == {"full": 220, "sf": 56, "v": 42}

    def test_explains_the_marks_and_names_sources(self, runs: list[Path]) -> None:
        _, out, _ = invoke("reproduce", *runs)
        assert re.search(r"^\d\. defective-re-evaluator \(may differ\): ", out, re.MULTILINE)
        assert "[github.com/matteoattimonelli/CIRCUS, the final re-evaluation script, read]" in out

    def test_says_what_was_not_compared(self, runs: list[Path]) -> None:
        _, out, _ = invoke("reproduce", *runs)
        assert "not compared: published, but without a Run: E5-Omni, GME-Qwen2VL, LamRA-Qwen2.5VL" in out
        assert "not compared: CompGap and label counts of the pool: they need Runs of all 11 models" in out
        assert "the pool " not in out

    def test_a_published_number_outside_the_interval_calls_for_attention(self, runs: list[Path]) -> None:
        # No part alone hits, but 20.9 and 23.6 % are published.
        assert invoke("reproduce", *runs)[0] == ATTENTION

    def test_a_whole_pool_is_compared_as_one(self, tmp_path: Path) -> None:
        published = PublishedScores.load()
        for place, model in enumerate(published.benchmarks["circo"].models):
            circo_run(published.ids[model][0], hits=100).save(tmp_path / str(place))
        _, out, _ = invoke("reproduce", *sorted(tmp_path.iterdir()))
        # Nobody hits with one part, and all hit the same 100 of 220 with both.
        assert re.search(
            r"the pool +full +composition_required +45\.5 \[.*\] +24\.09 +21\.36 +47 +outside", _plain(out)
        )
        assert re.search(r"^\d\. twelfth-run \(cannot match\): ", out, re.MULTILINE)
        assert "not compared" not in out

    def test_other_circumstances_are_warned_of(self, tmp_path: Path) -> None:
        circo_run(QWEN, hits=172, n_gallery=5000).save(tmp_path / "run")
        code, _, err = invoke("reproduce", tmp_path / "run")
        assert code == ATTENTION
        assert "warning: the Runs rank 5,000 images, the published ones 123,403" in err

    def test_a_protocol_without_published_scores_is_an_error(self, tmp_path: Path) -> None:
        make_run([1], [1], [1]).save(tmp_path / "run")
        code, _, err = invoke("reproduce", tmp_path / "run")
        assert code == INPUT
        assert "no scores are published under the protocol made/test" in err

    def test_a_dataset_folder_of_another_version_is_an_error(self, runs: list[Path], tmp_path: Path) -> None:
        benchmark = leaderboard_benchmark(name="circo")
        write_dataset_folder([LabeledBenchmark(benchmark)], tmp_path / "circus")
        code, _, err = invoke("reproduce", *runs, "--benchmark", tmp_path / "circus")
        assert code == INPUT
        assert "fingerprints differ" in err

    def test_labels_of_an_audit_give_sf(self, runs: list[Path], tmp_path: Path) -> None:
        # In an audit of these two every query is free of shortcuts.
        audit_runs([Run.load(folder) for folder in runs]).labels.save(tmp_path / "labels.parquet")
        _, out, _ = invoke("reproduce", *runs, "--labels", tmp_path / "labels.parquet", "--json")
        (found,) = json.loads(out)["benchmarks"]
        assert {c["measured"]["n"] for c in found["comparisons"] if c["subset"] == "sf"} == {220}
        assert "sf has 220 queries here and 56 in the publication" in found["warnings"][0]

    def test_labels_of_another_benchmark_are_an_error(self, runs: list[Path], tmp_path: Path) -> None:
        audit_runs([make_run([1], [20], [20])]).labels.save(tmp_path / "labels.parquet")
        code, _, err = invoke("reproduce", *runs, "--labels", tmp_path / "labels.parquet")
        assert code == INPUT
        assert "the labels are about 1 queries of 'made'" in err


def _plain(text: str) -> str:
    return text.replace("+", "")


@pytest.fixture(scope="module")
def leaderboard(tmp_path_factory: pytest.TempPathFactory) -> Leaderboard:
    return make_leaderboard(tmp_path_factory.mktemp("board") / "circus")


def options(leaderboard: Leaderboard, model: str = MODEL) -> list[object]:
    return ["--model", model, "--benchmark", leaderboard.folder, "--dataset", DATASET, "--revision", REVISION]


class TestSubmit:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        run_on(leaderboard_benchmark(), tmp_path / "run")
        return tmp_path / "run"

    def test_writes_what_check_scores_accepts(self, leaderboard: Leaderboard, run: Path, tmp_path: Path) -> None:
        code, out, _ = invoke("submit", "leaderboard", run, *options(leaderboard), "--out", tmp_path / "submission")
        assert code == DONE
        assert results_file("made") in out
        code, out, _ = invoke("submit", "check-scores", tmp_path / "submission", *options(leaderboard))
        assert (code, out) == (DONE, "every value follows from the rank tables\n")

    def test_what_would_be_refused_is_an_error(self, leaderboard: Leaderboard, run: Path, tmp_path: Path) -> None:
        loaded = Run.load(run)
        manifest = dataclasses.replace(loaded.manifest, alarms=(EncoderWarning.TEXT_IGNORED,))
        dataclasses.replace(loaded, manifest=manifest).save(run)
        code, _, err = invoke("submit", "leaderboard", run, *options(leaderboard), "--out", tmp_path / "submission")
        assert code == INPUT
        assert "alarm: the Run has alarms (1: 'text_ignored')" in err

    def test_another_model_s_repository_is_an_error(self, leaderboard: Leaderboard, run: Path, tmp_path: Path) -> None:
        code, _, err = invoke(
            "submit", "leaderboard", run, *options(leaderboard, "group/other"), "--out", tmp_path / "submission"
        )
        assert code == INPUT
        assert "wrong_model" in err

    def test_check_scores_lists_violations_with_reason_and_ids(
        self, leaderboard: Leaderboard, run: Path, tmp_path: Path
    ) -> None:
        invoke("submit", "leaderboard", run, *options(leaderboard), "--out", tmp_path)
        path = tmp_path / results_file("made")
        entries = yaml.safe_load(path.read_text())
        entries[0]["value"] = 100.0
        path.write_text(yaml.safe_dump(entries))
        code, out, _ = invoke("submit", "check-scores", tmp_path, *options(leaderboard))
        assert code == ATTENTION
        assert out.startswith(f"refused: {results_file('made')}: wrong_value: ")
        code, out, _ = invoke("submit", "check-scores", tmp_path, *options(leaderboard), "--json")
        assert code == ATTENTION
        found = json.loads(out)
        assert (found["accepted"], found["refusals"][0]["reason"], found["refusals"][0]["ids"]) == (
            False,
            "wrong_value",
            ["made_full"],
        )


def test_a_mini_model_on_scenes_from_run_to_accepted_submission(tmp_path: Path) -> None:
    name = "circus-bench/mini-balanced"
    benchmark = scenes(seed=7, queries=40, gallery=300)
    run = run_benchmark(load_encoder(name), benchmark, store=EmbeddingStore(tmp_path / "store"))
    run.save(tmp_path / "run")
    audit_runs([run]).labels.save(tmp_path / "labels.parquet")
    write_dataset_folder([LabeledBenchmark(benchmark, Labels.load(tmp_path / "labels.parquet"))], tmp_path / "circus")
    leaderboard = Leaderboard(tmp_path / "circus", DATASET, REVISION)
    code, _, err = invoke(
        "submit", "leaderboard", tmp_path / "run", *options(leaderboard, name), "--out", tmp_path / "submission"
    )
    assert code == DONE, err
    assert invoke("submit", "check-scores", tmp_path / "submission", *options(leaderboard, name))[0] == DONE
    _, out, _ = invoke("score", tmp_path / "submission" / run_folder("scenes"), "--json")
    score = json.loads(out)["scores"][0]["conditions"]["multimodal"]["hit_rate@10"]["value"]
    (entry, *_) = yaml.safe_load((tmp_path / "submission" / results_file("scenes")).read_text())
    assert (entry["dataset"]["task_id"], entry["value"]) == ("scenes_full", round(100 * score, 4))
