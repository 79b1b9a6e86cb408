"""`circus-bench validate`, and what `build`, `score` and `demo` make of a validation."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support import judged
from support.studies import bare_benchmark, run_with_tops
from typer.testing import CliRunner, Result

from circus_bench import cli
from circus_bench.audit.audit import audit_runs
from circus_bench.errors import CircusError, MismatchError
from circus_bench.hub.writer import read_manifest, save_benchmark
from circus_bench.labels.formats import load_labels
from circus_bench.sources.scenes import scenes
from circus_bench.validation.annotations import Annotation, read_annotations, write_annotations
from circus_bench.validation.study import Study

DONE, USAGE = 0, 2
VALID, BROAD = "VALIDATED", "QUERY_TOO_BROAD"

# q0 is a shortcut of the text, q1 composition_required, q2 and q3 unresolved.
RANKS = [[1, 2, 5, 6], [1, 5, 5, 5], [5] * 4]
K = 2
VOTES = {"q1": (VALID, VALID, BROAD), "q2": (BROAD, BROAD, VALID), "q3": (VALID, BROAD, VALID)}


def invoke(*arguments: object) -> Result:
    """What the command line does; errors that circus-bench raises on purpose are passed on."""
    done = CliRunner().invoke(cli.app, list(map(str, arguments)))
    if isinstance(done.exception, CircusError):
        raise done.exception
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Holds a benchmark without images, a Run on it and the labels of its audit."""
    benchmark = bare_benchmark(4)
    save_benchmark(benchmark, tmp_path / "made")
    run = run_with_tops(benchmark, [["t0", "t1", "t2", "t3", "r3"]] * 4, ranks=RANKS)
    run.save(tmp_path / "run")
    audit_runs([run], k=K).labels.save(tmp_path / "labels.parquet")
    return tmp_path


@pytest.fixture
def study(folder: Path) -> Path:
    """A study of the three shortcut-free queries, which ann, ben and cat have judged."""
    new(folder)
    raters = ("ann", "ben", "cat")
    log = [
        Annotation(f"made::{query}", rater, vote, () if vote == VALID else ("breadth",), event=f"{rater}/{query}")
        for query, votes in VOTES.items()
        for rater, vote in zip(raters, votes, strict=True)
    ]
    write_annotations(folder / "study" / "judgements.jsonl", log)
    return folder / "study"


def new(folder: Path, *more: object) -> Result:
    raters = [part for name in ("ann", "ben", "cat") for part in ("-r", name)]
    known = ("--labels", folder / "labels.parquet", "--run", folder / "run", "--panel-k", 3)
    return invoke("validate", "new", folder / "made", *known, *raters, "-o", folder / "study", *more)


class TestNew:
    def test_a_study_of_the_shortcut_free_queries_is_written(self, folder: Path) -> None:
        done = new(folder)
        assert done.exit_code == DONE, done.output
        made = Study.load(folder / "study")
        assert {item.query: item.stratum for item in made.items} == {
            "q1": "made/composition_required",
            "q2": "made/unresolved",
            "q3": "made/unresolved",
        }
        assert {item.query: item.panel for item in made.items}["q3"] == ("t0", "t1", "t2", "t3")
        assert made.benchmarks == {"made": "../made"}
        assert "made/unresolved" in done.output

    def test_sizes_and_known_answers_are_taken(self, folder: Path) -> None:
        (folder / "checks.json").write_text(json.dumps({"made::q0": VALID}))
        done = new(folder, "--size", "made/unresolved=1", "--checks", folder / "checks.json", "--json")
        assert json.loads(done.stdout) == {
            "study": "validation",
            "strata": {
                "made/check": {"items": 1, "inclusion": 1.0},
                "made/composition_required": {"items": 1, "inclusion": 1.0},
                "made/unresolved": {"items": 1, "inclusion": 0.5},
            },
            "assignments": {"ann": 3, "ben": 3, "cat": 3},
        }

    def test_another_threshold_of_breadth_is_asked_for(self, folder: Path) -> None:
        new(folder, "--breadth", 5)
        assert Study.load(folder / "study").rubric.breadth == 5

    def test_without_runs_it_warns_that_there_are_no_panels(self, folder: Path) -> None:
        arguments = (folder / "made", "--labels", folder / "labels.parquet", "-o", folder / "study")
        done = invoke("validate", "new", *arguments, "-r", "ann", "-r", "ben", "--per-item", 2)
        assert done.exit_code == DONE
        assert "warning: there are no candidate panels" in done.stderr

    @pytest.mark.parametrize(
        "more", [("--size", "made/unresolved"), ("--size", "made/unresolved=1", "--per-stratum", 2)]
    )
    def test_sizes_that_contradict_each_other_or_are_none_are_wrong_usage(
        self, folder: Path, more: tuple[object, ...]
    ) -> None:
        assert new(folder, *more).exit_code == USAGE

    def test_labels_for_each_benchmark_are_needed(self, folder: Path) -> None:
        assert new(folder, "--labels", folder / "labels.parquet").exit_code == USAGE

    def test_labels_of_another_benchmark_are_refused(self, folder: Path) -> None:
        save_benchmark(bare_benchmark(5), folder / "made")
        with pytest.raises(MismatchError, match="another version"):
            new(folder)


class TestExport:
    def test_the_verdicts_are_written_and_summed_up(self, study: Path) -> None:
        done = invoke("validate", "export", study, "-o", study / "v.parquet", "--json")
        assert done.exit_code == DONE, done.output
        verdicts = load_labels(study / "v.parquet").by_query
        assert {query: verdict.valid for query, verdict in verdicts.items()} == {"q1": True, "q2": False, "q3": True}
        summary = json.loads(done.stdout)
        assert summary["strata"]["made/unresolved"]["value"] == 0.5
        # One of one and one of two valid, as they are three in all: 2 of 3.
        assert summary["overall"]["value"] == pytest.approx(2 / 3)

    def test_the_rule_is_taken(self, study: Path) -> None:
        done = invoke("validate", "export", study, "-o", study / "v.json", "--rule", "unanimous")
        assert {v.valid for v in load_labels(study / "v.json").by_query.values()} == {None}
        assert "undecided" in done.stdout

    def test_the_app_s_database_is_taken(self, study: Path) -> None:
        from circus_bench.validation.app import open_log

        log = open_log(study, database=study / "other.sqlite")
        log.import_log(study / "judgements.jsonl")
        log.close()
        invoke("validate", "export", study, "-o", study / "v.json", "--database", study / "other.sqlite")
        assert load_labels(study / "v.json").by_query["q1"].valid is True

    def test_score_takes_the_verdicts_for_v(self, folder: Path, study: Path) -> None:
        invoke("validate", "export", study, "-o", folder / "v.parquet")
        verdicts = ("--labels", folder / "labels.parquet", "--valid", folder / "v.parquet")
        done = invoke("score", folder / "run", *verdicts, "-k", K, "--json")
        scores = {entry["subset"]: entry for entry in json.loads(done.stdout)["scores"]}
        assert {name: entry["n_queries"] for name, entry in scores.items()} == {"full": 4, "sf": 3, "v": 2}
        # Of q1 (rank 2) and q3 (rank 6) one is found.
        assert scores["v"]["conditions"]["multimodal"]["hit_rate@2"]["value"] == 0.5

    def test_score_weights_what_was_drawn_with_unequal_chances(self, folder: Path, study: Path) -> None:
        invoke("validate", "export", study, "-o", folder / "v.json")
        content = json.loads((folder / "v.json").read_text())
        weights = {"q1": 1.0, "q2": 3.0, "q3": 3.0}  # a third of the unresolved ones was drawn
        for row in content["queries"]:
            row["weight"] = weights[row["query"]]
        (folder / "v.json").write_text(json.dumps(content))
        verdicts = ("--labels", folder / "labels.parquet", "--valid", folder / "v.json")
        done = invoke("score", folder / "run", *verdicts, "-k", K, "--json")
        scores = {entry["subset"]: entry for entry in json.loads(done.stdout)["scores"]}
        assert {name: entry["weighted"] for name, entry in scores.items()} == {"full": False, "sf": False, "v": True}
        # q1 is found, and q3, which stands for three, is not.
        assert scores["v"]["conditions"]["multimodal"]["hit_rate@2"]["value"] == 0.25
        shown = invoke("score", folder / "run", *verdicts, "-k", K).stdout
        assert "v is weighted" in shown

    def test_score_needs_the_labels_too(self, folder: Path, study: Path) -> None:
        invoke("validate", "export", study, "-o", folder / "v.parquet")
        assert invoke("score", folder / "run", "--valid", folder / "v.parquet").exit_code == USAGE

    def test_data_make_takes_the_verdicts_for_v(self, folder: Path, study: Path) -> None:
        invoke("validate", "export", study, "-o", folder / "v.json")
        labels = ("--labels", folder / "labels.parquet", "--valid", folder / "v.json")
        done = invoke("data", "make", folder / "made", *labels, "-o", folder / "circus")
        assert done.exit_code == DONE, done.output
        configs = read_manifest(folder / "circus")["benchmarks"]["made"]["configs"].values()
        rows = {of["subset"]: of["rows"] for of in configs if of["table"] == "rows"}
        assert rows == {"full": 4, "sf": 3, "v": 2}

    def test_data_make_refuses_two_validations_of_one_benchmark(self, folder: Path, study: Path) -> None:
        invoke("validate", "export", study, "-o", folder / "v.json")
        with pytest.raises(MismatchError, match="is the second for its benchmark"):
            invoke("data", "make", folder / "made", *2 * ("--valid", folder / "v.json"), "-o", folder / "circus")


class TestAgreement:
    def test_coefficients_are_printed_with_intervals(self, study: Path) -> None:
        done = invoke("validate", "agreement", study)
        assert done.exit_code == DONE, done.output
        assert "VALIDATED or not" in done.stdout
        # 1 of 3 pairs agrees on each of the three items.
        assert "0.333 [" in done.stdout
        # Of the five votes for "valid" four are with the majority.
        assert "also the majority's, % [95 %]: 80.0 [" in done.stdout

    def test_what_is_undefined_is_called_so(self, study: Path) -> None:
        log = read_annotations(study / "judgements.jsonl")
        write_annotations(study / "one.jsonl", [annotation for annotation in log if annotation.rater == "ann"])
        done = invoke("validate", "agreement", study, "--judgements", study / "one.jsonl")
        assert "undefined: one_rater" in done.stdout

    def test_patterns_to_look_at_are_warned_of_and_the_raters_are_drawn(self, tmp_path: Path) -> None:
        judged.study(200).save(tmp_path)
        answers = {"ann": random.Random(0).choices([VALID, BROAD], k=200), "bob": [VALID] * 200}
        write_annotations(tmp_path / "judgements.jsonl", judged.judge_all(answers))
        done = invoke("validate", "agreement", tmp_path, "--figure", tmp_path / "raters.svg", "--json")
        assert "warning: constant: bob gave the same answer to 200 of 200 items" in done.stderr
        assert [entry["raters"] for entry in json.loads(done.stdout)["suspicions"]] == [["bob"]]
        assert (tmp_path / "raters.svg").read_text().startswith("<svg xmlns=")

    def test_everything_is_given_as_json(self, study: Path) -> None:
        written = json.loads(invoke("validate", "agreement", study, "--json").stdout)
        assert written["agreement"]["VALIDATED"]["raw_agreement"]["value"] == pytest.approx(1 / 3)
        assert written["survival"]["value"] == pytest.approx(0.8)


class TestImport:
    def test_released_annotations_become_a_study_and_a_log(self, tmp_path: Path) -> None:
        flags = dict.fromkeys(("INVALID_TEXT_QUERY", "INVALID_IMAGE_QUERY", "INVALID_TARGET_IMAGE"), False)
        row: dict[str, Any] = {
            "assignment_id": "circo::7",
            "hidden_category": "unresolved",
            "presentation_order": 1,
            "annotation": {"validated": False, **flags, BROAD: True, "other": ""},
            "annotation_updated_at": "2026-04-08T14:00:00+00:00",
        }
        files = []
        for rater in ("a", "b"):
            files.append(tmp_path / f"{rater}.json")
            missing = {**row, "assignment_id": "circo::8", "annotation": None}
            files[-1].write_text(
                json.dumps({"study_name": "x", "seed": 1, "username": rater, "assignments": [row, missing]})
            )
        done = invoke("validate", "import", *files, "-o", tmp_path / "study")
        assert done.exit_code == DONE, done.output
        assert "warning: assignments without an annotation (2: 'a: circo::8', 'b: circo::8')" in done.stderr
        assert len(read_annotations(tmp_path / "study" / "judgements.jsonl")) == 2
        invoke("validate", "export", tmp_path / "study", "-o", tmp_path / "v.json")
        assert load_labels(tmp_path / "v.json").by_query["7"].valid is False


class TestSimulate:
    def test_both_error_levels_are_held_against_the_ground_truth(self, tmp_path: Path) -> None:
        save_benchmark(scenes(3, 60, gallery=600), tmp_path / "benchmark")
        done = invoke("validate", "simulate", "-o", tmp_path / "out", "--benchmark", tmp_path / "benchmark", "--json")
        assert done.exit_code == DONE, done.output
        made = json.loads(done.stdout)["rehearsals"]
        assert [simulated["error"] for simulated in made] == [0.1, 0.25]
        assert made[0]["recovery"]["precision"]["value"] > made[1]["recovery"]["precision"]["value"]
        assert Study.load(tmp_path / "out").benchmarks == {"scenes": "../benchmark"}
        for level in ("error-0.1", "error-0.25"):
            assert load_labels(tmp_path / "out" / level / "scenes.v.parquet").benchmark == "scenes"
            assert read_annotations(tmp_path / "out" / level / "judgements.jsonl")

    def test_the_table_names_precision_and_recall(self, tmp_path: Path) -> None:
        save_benchmark(scenes(3, 60, gallery=600), tmp_path / "benchmark")
        done = invoke(
            "validate", "simulate", "-o", tmp_path / "out", "--benchmark", tmp_path / "benchmark", "--error", 0
        )
        assert "precision" in done.stdout
        assert "100.0 [" in done.stdout


class TestServing:
    def test_serve_hands_over_to_the_app(self, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        called: list[Any] = []
        monkeypatch.setattr(
            "circus_bench.validation.app.serve", lambda *args, **options: called.append((args, options))
        )
        assert invoke("validate", "serve", study, "--port", 0, "--hub-repo", "lab/log").exit_code == DONE
        options = {"database": None, "host": "127.0.0.1", "port": 0, "backup_every": 50, "hub_repo": "lab/log"}
        assert called == [((study,), options)]

    def test_invite_prints_a_link_that_signs_the_rater_in(self, study: Path) -> None:
        from circus_bench.validation.app import open_log

        done = invoke("validate", "invite", study, "ann", "--url", "https://example.org")
        address, _, token = done.stdout.strip().partition("#")
        assert address == "https://example.org/sign-in"
        log = open_log(study)
        person = log.person_for_token(token)
        log.close()
        assert person is not None
        assert person.id == "ann"

    def test_a_stranger_is_not_invited_as_a_rater(self, study: Path) -> None:
        with pytest.raises(CircusError, match="has no items assigned"):
            invoke("validate", "invite", study, "zoe")
