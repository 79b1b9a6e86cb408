"""`circus-bench rmir compare-judges`, `check` and `calibrate`: from files to tables."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from support.parts import png
from support.standins import StandIn

from circus_bench.benchmark import Benchmark
from circus_bench.cli import main
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.hub.writer import save_benchmark
from circus_bench.rmir.config import Config
from circus_bench.rmir.pipeline import Stage
from circus_bench.rmir.records import CandidateConsensus, JudgeDecision, Vote
from circus_bench.rmir.resources import open_pipeline
from circus_bench.rmir.stages.consensus import aggregate_votes
from circus_bench.runs.run import run_benchmark
from circus_bench.validation.annotations import Annotation, write_annotations
from circus_bench.validation.export import LOG_FILE
from circus_bench.validation.study import Study

DONE, INPUT = 0, 4
VOTES = {("q1", "x"): "AAA", ("q1", "y"): "AAR", ("q2", "z"): "RRR"}
JUDGES = ("claude-sonnet-4-5@0.85", "claude-haiku-4-5@0.85", "openai/gpt-5@0.85")


def invoke(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["circus-bench", "rmir", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
    return int(stop.value.code or 0), out.getvalue(), err.getvalue()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings of a pipeline, and next to them an image."""
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "one.png").write_bytes(png(1))
    (tmp_path / "rmir.toml").write_text('[collection]\nimages = "pictures"\n')
    return tmp_path / "rmir.toml"


def leave_votes(config: Path, out: Path) -> None:
    """What stage 4 leaves behind."""
    votes = [
        Vote(query, image, judge, JudgeDecision.ACCEPT if letter == "A" else JudgeDecision.REJECT, "")
        for (query, image), letters in VOTES.items()
        for judge, letter in zip(JUDGES, letters, strict=True)
    ]
    with open_pipeline(Config.read(config), out) as pipeline:
        pipeline.folder(Stage.JUDGE).write({Vote: votes, CandidateConsensus: aggregate_votes(votes)})


def test_judges_are_compared_by_the_families_of_their_providers(config: Path, tmp_path: Path) -> None:
    leave_votes(config, tmp_path / "out")
    code, out, err = invoke("compare-judges", config, "--out", tmp_path / "out", "--json")
    assert code == DONE, err
    found = json.loads(out)
    assert found["families"]["judges"] == {"anthropic": 2, "openai": 1}
    # Without the judge of the other family nothing is doubted, and y is kept.
    assert found["leave_one_out"]["openai/gpt-5@0.85"]["gained"] == 1


def test_the_comparison_of_judges_is_printed(config: Path, tmp_path: Path) -> None:
    leave_votes(config, tmp_path / "out")
    code, out, _ = invoke("compare-judges", config, "--out", tmp_path / "out")
    assert code == DONE
    for name in (*JUDGES, "krippendorff_alpha", "anthropic"):
        assert name in out


def test_judges_that_have_not_voted_cannot_be_compared(config: Path, tmp_path: Path) -> None:
    code, _, err = invoke("compare-judges", config, "--out", tmp_path / "out")
    assert code == INPUT
    assert "the stage 'judge' was not run to its end; run it first" in err


@pytest.fixture
def study(toy_benchmark: Callable[..., Benchmark], tmp_path: Path) -> Path:
    """A study of what a stand-in retrieves from a toy benchmark, made by the command."""
    toy = toy_benchmark()
    reliability = {"q1": 0.2, "q2": 0.9, "q3": 0.7}
    queries = tuple(dataclasses.replace(q, details={"tsr": reliability[q.id]}) for q in toy.queries)
    benchmark = dataclasses.replace(toy, queries=queries)
    save_benchmark(benchmark, tmp_path / "benchmark")
    run = run_benchmark(StandIn(), benchmark, store=EmbeddingStore(tmp_path / "store"))  # type: ignore[arg-type]
    run.save(tmp_path / "run")
    options = ("--run", tmp_path / "run", "-k", 4, "-r", "ann", "-r", "bob", "--out", tmp_path / "study")
    code, out, err = invoke("check", tmp_path / "benchmark", *options)
    assert code == DONE, err
    assert "6 images of 3 queries" in out  # four images in the gallery, less reference and targets
    return tmp_path / "study"


def judge(study: Path, positives_by_query: set[str], *, without: str = "") -> None:
    """Let both raters say the same of every pair: whether its query is among those answered."""
    made = Study.load(study)
    labels = [(item, item.query.split("::")[0] in positives_by_query) for item in made.items if item.query != without]
    write_annotations(
        study / LOG_FILE,
        [
            Annotation(item.id, rater, "ANSWERS" if yes else "DOES_NOT_ANSWER", () if yes else ("answer",))
            for item, yes in labels
            for rater in made.assignments
        ],
    )


def test_tsr_is_calibrated_by_what_people_found(study: Path) -> None:
    judge(study, {"q1"})
    code, out, err = invoke("calibrate", study, "--json")
    assert code == DONE, err
    shares = {entry["threshold"]: entry["incomplete"] for entry in json.loads(out)["thresholds"]}
    assert (shares[0.0]["value"], shares[0.0]["n"]) == (pytest.approx(1 / 3), 3)
    assert (shares[0.4]["value"], shares[0.4]["n"]) == (0, 2)  # q2 and q3


def test_the_calibration_is_printed(study: Path) -> None:
    judge(study, {"q1"})
    code, out, _ = invoke("calibrate", study)
    assert code == DONE
    assert "at least 0.8" in out
    assert "undefined" in out  # one incomplete query has no concordance


def test_a_query_that_is_not_decided_is_named_and_left_out(study: Path) -> None:
    judge(study, set(), without="q2::a")
    code, out, err = invoke("calibrate", study, "--json")
    assert code == DONE
    assert json.loads(out)["thresholds"][0]["incomplete"]["n"] == 2
    assert "left out (1: 'q2')" in err


def test_a_benchmark_that_the_pipeline_did_not_make_has_no_tsr(
    toy_benchmark: Callable[..., Benchmark], tmp_path: Path
) -> None:
    benchmark = toy_benchmark()
    save_benchmark(benchmark, tmp_path / "benchmark")
    run = run_benchmark(StandIn(), benchmark, store=EmbeddingStore(tmp_path / "store"))  # type: ignore[arg-type]
    run.save(tmp_path / "run")
    invoke(
        "check", tmp_path / "benchmark", "--run", tmp_path / "run", "-k", 4, "-r", "a", "-r", "b", "-o", tmp_path / "s"
    )
    judge(tmp_path / "s", set())
    code, _, err = invoke("calibrate", tmp_path / "s")
    assert code == INPUT
    assert "'toy-answers' was not made by the pipeline" in err
