"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.damage import rewrite_column
from support.makers import make_run
from support.standins import Blind, Chance, Constant, StandIn

import circus_bench
from circus_bench.benchmark import Benchmark, Condition, Defect, Fingerprint, Protocol, Query, ReferencePolicy
from circus_bench.cli import main
from circus_bench.encoding.sanity_checks import EncoderWarning
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.io import slug
from circus_bench.labels.formats import load_labels
from circus_bench.labels.labels import Labels
from circus_bench.runs.run import Run
from circus_bench.validation.study import Study

COMMANDS = ("demo", "run", "audit", "score", "doctor")
DONE, USAGE, ATTENTION, INPUT = 0, 2, 3, 4

MakeBenchmark = Callable[..., Benchmark]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is no strict JSON")

        return json.loads(self.out, parse_constant=refuse)


def invoke(*arguments: object) -> Outcome:
    """What the console script does with the arguments. The entry point runs in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["circus-bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
    return Outcome(int(stop.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture
def encoders(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    """Lets `--model` name a stand-in; the list holds those that were loaded."""
    loaded: list[StandIn] = []

    def load(name: str, **_: object) -> StandIn:
        loaded.append({kind.name: kind for kind in (StandIn, Chance, Constant, Blind)}[name]())
        return loaded[-1]

    monkeypatch.setattr("circus_bench.models.check_known", lambda _: None)
    monkeypatch.setattr("circus_bench.models.load_encoder", load)
    return loaded


@pytest.fixture
def toy(tmp_path: Path, toy_benchmark: MakeBenchmark) -> Path:
    save_benchmark(toy_benchmark(), tmp_path / "toy")
    return tmp_path / "toy"


@pytest.fixture
def ill(tmp_path: Path, toy_benchmark: MakeBenchmark, encode_image: Callable[..., bytes]) -> Path:
    """The image `d` is none, `b` and `c` show the same, q1 has its reference as a target, q2 no text."""
    blue, red = (encode_image(Image.new("RGB", (40, 40), color), "PNG") for color in ("blue", "red"))
    queries = (
        Query("q1", "a", "make it red", ("b", "a")),
        Query("q2", "b", " ", ("c",)),
        Query("q3", "a", "third", ("c", "d")),
    )
    save_benchmark(
        toy_benchmark(
            queries=queries,
            images={"a": blue, "b": red, "c": red, "d": b"not an image"},
            allow=frozenset({Defect.REFERENCE_IS_TARGET, Defect.EMPTY_TEXT}),
        ),
        tmp_path / "ill",
    )
    return tmp_path / "ill"


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Runs of two models: q0 a text shortcut, q1 composition_required, q2 unresolved."""
    nulls = {condition: [500, 600, 700] for condition in Condition}
    for name, ranks in {"a": ([1, 2, 50], [3, 50, 50], [50] * 3), "b": ([1, 90, 60], [90] * 3, [90] * 3)}.items():
        make_run(*ranks, model=f"tests/{name}", nulls=nulls).save(tmp_path / name)
    return [tmp_path / "a", tmp_path / "b"]


@pytest.fixture
def minima(tmp_path: Path) -> Path:
    path = tmp_path / "minima.csv"
    path.write_text("query_idx,best_rank_multimodal,best_rank_text_only,best_rank_image_only\na,1,3,90\nb,8,20,30\n")
    return path


def test_the_version_is_that_of_the_package() -> None:
    assert invoke("--version") == Outcome(DONE, f"{circus_bench.__version__}\n", "")


def test_the_console_script_is_installed() -> None:
    script = Path(sys.executable).with_name("circus-bench")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == circus_bench.__version__


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_lists_every_command(command: str) -> None:
    assert f" {command} " in invoke("--help").out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    done = invoke(command, "--help")
    assert done.code == DONE
    assert f"circus-bench {command}" in done.out
    assert "--json" in done.out


def test_help_loads_no_heavy_package() -> None:
    script = """
import sys
from circus_bench.cli import app
for arguments in ([], *([command] for command in sys.argv[1:])):
    try:
        app([*arguments, "--help"])
    except SystemExit:
        pass
heavy = {"datasets", "mteb", "numba", "pandas", "pyarrow", "scipy", "sklearn", "torch", "transformers"}
print("loaded:", sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script, *COMMANDS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_no_command_prints_the_help_and_is_wrong_usage() -> None:
    done = invoke()
    assert done.code == USAGE
    assert "doctor" in done.out + done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",),
        ("audit", "--no-such-option"),
        ("audit", "-k", "0", "folder"),
        ("score",),
        ("score", "no-such-folder"),
        ("doctor",),
        ("demo", "--queries", "10"),
    ],
)
def test_a_wrong_command_line_exits_with_2(arguments: tuple[str, ...]) -> None:
    assert invoke(*arguments).code == USAGE


@pytest.mark.parametrize(
    "arguments", [("doctor", "no-such-folder"), ("run", "no-such-folder", "-m", StandIn.name, "-o", "y")]
)
@pytest.mark.usefixtures("encoders")
def test_a_benchmark_that_is_not_there_exits_with_4(arguments: tuple[str, ...]) -> None:
    done = invoke(*arguments)
    assert done.code == INPUT
    assert "no-such-folder: neither a dataset folder nor a protocol" in done.err


def test_audit_without_an_input_is_wrong_usage() -> None:
    done = invoke("audit")
    assert done.code == USAGE
    assert "--best-ranks" in done.err


def test_audit_with_both_kinds_of_input_is_wrong_usage(runs: list[Path], minima: Path) -> None:
    done = invoke("audit", *runs, "--best-ranks", minima)
    assert done.code == USAGE
    assert "not both" in done.err


def test_audit_of_runs_prints_labels_scores_and_protocol(runs: list[Path]) -> None:
    done = invoke("audit", *runs)
    assert done.code == DONE
    assert "shortcuts: text_only 1, image_only 0, both 0" in done.out
    for expected in ("made/test", "reference kept", "tests/a", "tests/b", "pool CompGap on sf", "by chance"):
        assert expected in done.out


def test_audit_of_runs_prints_strict_json(runs: list[Path]) -> None:
    done = invoke("audit", *runs, "--json")
    assert done.code == DONE
    assert done.json["labels"] == {"shortcut": 1, "composition_required": 1, "unresolved": 1}
    assert done.json["pool"] == ["tests/a", "tests/b"]
    assert done.json["about"]["protocol"]["id"] == "made/test"


def test_undefined_numbers_are_null_in_the_json_of_an_audit(tmp_path: Path) -> None:
    make_run([1], [1], [1]).save(tmp_path / "a")
    gap = invoke("audit", tmp_path / "a", "--json").json["comp_gap"]["sf"]
    assert (gap["value"], gap["status"]) == (None, "undefined")


def test_audit_takes_the_cut_off_and_the_support(runs: list[Path]) -> None:
    # At K = 60 the first model has every query from one part alone (ranks 3 and 50), the second (90) none.
    one, two = (invoke("audit", *runs, "-k", 60, "--min-unimodal", m, "--json").json for m in (1, 2))
    assert (one["labels"]["shortcut"], two["labels"]["shortcut"]) == (3, 0)


def test_audit_asking_for_more_models_than_the_pool_has_exits_with_4(runs: list[Path]) -> None:
    done = invoke("audit", *runs, "--min-unimodal", 3)
    assert done.code == INPUT
    assert "min_unimodal is 3, but the pool has 2 models" in done.err


def test_audit_writes_labels_and_a_report(runs: list[Path], tmp_path: Path) -> None:
    done = invoke("audit", *runs, "--out", tmp_path / "out")
    assert done.code == DONE
    table = Labels.load(tmp_path / "out" / "labels.parquet")
    assert [row.label for row in table.by_query.values()] == ["shortcut", "composition_required", "unresolved"]
    assert "<html" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_audit_without_an_output_folder_writes_nothing(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    invoke("audit", *runs)
    assert list((tmp_path / "here").iterdir()) == []


def test_audit_of_published_minima_prints_labels(minima: Path) -> None:
    done = invoke("audit", "--best-ranks", minima)
    assert done.code == DONE
    assert "minima.csv" in done.out
    assert "shortcuts: text_only 1, image_only 0, both 0" in done.out


def test_audit_of_published_minima_prints_strict_json(minima: Path) -> None:
    done = invoke("audit", "--best-ranks", minima, "-k", 20, "--json")
    assert done.code == DONE
    assert done.json["labels"] == {"shortcut": 2, "composition_required": 0, "unresolved": 0}
    assert (done.json["scores"], done.json["chance"], done.json["comp_gap"]) == ([], None, {})


def test_audit_of_published_minima_writes_labels_and_a_report(minima: Path, tmp_path: Path) -> None:
    assert invoke("audit", "--best-ranks", minima, "-o", tmp_path / "out").code == DONE
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["labels.parquet", "report.html"]


def test_the_json_of_the_published_circo_audit_has_the_published_counts(shared: Path) -> None:
    # arXiv 2605.14787, table 1.
    done = invoke("audit", "--best-ranks", shared / "data" / "circus" / "circo_audit_full.csv", "--json")
    assert done.json["labels"] == {"shortcut": 164, "composition_required": 53, "unresolved": 3}


def test_the_support_cannot_be_asked_of_published_minima(minima: Path) -> None:
    # Such a file counts as one model; a threshold of two would silently have no effect.
    assert invoke("audit", "--best-ranks", minima, "--min-unimodal", 2).code in {USAGE, INPUT}


def test_unusable_published_minima_exit_with_4_and_one_line(tmp_path: Path) -> None:
    (tmp_path / "minima.csv").write_text("query_idx,rank\na,1\n")
    done = invoke("audit", "--best-ranks", tmp_path / "minima.csv")
    assert (done.code, done.out) == (INPUT, "")
    assert done.err.startswith(f"error: {tmp_path / 'minima.csv'}: lacks the columns")
    assert done.err.count("\n") == 1


def test_a_folder_that_is_no_run_exits_with_4(tmp_path: Path) -> None:
    done = invoke("audit", tmp_path)
    assert done.code == INPUT
    assert "manifest.json: no such file" in done.err


def test_audit_of_runs_that_do_not_belong_together_exits_with_4(runs: list[Path], tmp_path: Path) -> None:
    make_run([1], [1], [1], model="tests/other", benchmark="other").save(tmp_path / "other")
    done = invoke("audit", *runs, tmp_path / "other")
    assert done.code == INPUT
    assert "different benchmark: made and other" in done.err


def test_audit_with_another_benchmark_exits_with_4(runs: list[Path], toy: Path) -> None:
    done = invoke("audit", *runs, "--benchmark", toy)
    assert done.code == INPUT
    assert "not made on this version of 'toy'" in done.err


def test_audit_of_a_run_with_alarms_exits_with_3_and_names_its_model(tmp_path: Path) -> None:
    make_run([1], [1], [1], alarms=(EncoderWarning.TEXT_IGNORED,)).save(tmp_path / "a")
    done = invoke("audit", tmp_path / "a")
    assert done.code == ATTENTION
    assert "warning: Runs with alarms are in the pool: tests/a" in done.err


def test_score_without_labels_scores_full(runs: list[Path]) -> None:
    written = invoke("score", *runs, "--json").json
    assert [(entry["model"], entry["subset"]) for entry in written["scores"]] == [
        ("tests/a", "full"),
        ("tests/b", "full"),
    ]
    assert written["protocol"]["id"] == "made/test"


def test_score_with_labels_scores_sf_too(runs: list[Path], tmp_path: Path) -> None:
    invoke("audit", *runs, "-o", tmp_path / "out")
    written = invoke("score", runs[0], "--labels", tmp_path / "out" / "labels.parquet", "--json").json
    assert [(entry["subset"], entry["n_queries"]) for entry in written["scores"]] == [("full", 3), ("sf", 2)]
    assert written["scores"][1]["conditions"]["multimodal"]["hit_rate@10"]["value"] == 0.5  # q1 of q1 and q2


def test_score_prints_a_table_with_its_protocol(runs: list[Path]) -> None:
    done = invoke("score", *runs, "-k", 5)
    assert done.code == DONE
    for expected in ("hit rate@5 in %, made/test, reference kept", "tests/a", "tests/b", "CompGap"):
        assert expected in done.out


def test_score_with_labels_of_another_benchmark_exits_with_4(runs: list[Path], tmp_path: Path) -> None:
    invoke("audit", *runs, "-o", tmp_path / "out")
    make_run([1] * 3, [1] * 3, [1] * 3, fingerprint=Fingerprint("other", None)).save(tmp_path / "other")
    done = invoke("score", tmp_path / "other", "--labels", tmp_path / "out" / "labels.parquet")
    assert done.code == INPUT
    assert "use the labels of an audit of that very benchmark" in done.err


def test_scores_under_two_protocols_do_not_stand_under_the_name_of_one(tmp_path: Path) -> None:
    make_run([1], [1], [1]).save(tmp_path / "a")
    official = dataclasses.asdict(Protocol("made/official", ReferencePolicy.REMOVED))
    make_run([1], [1], [1], model="tests/b", protocol=official).save(tmp_path / "b")
    done = invoke("score", tmp_path / "a", tmp_path / "b")
    assert done.code == INPUT or ("made/test" in done.out and "made/official" in done.out)


def test_score_of_a_folder_that_is_no_run_exits_with_4(tmp_path: Path) -> None:
    assert invoke("score", tmp_path).code == INPUT


def test_doctor_finds_nothing_wrong_with_a_healthy_benchmark(toy: Path) -> None:
    done = invoke("doctor", toy)
    assert done.code == DONE
    assert "toy/test: 3 queries, 4 targets, 4 gallery images, 5 images decoded" in done.out
    assert "nothing is wrong" in done.out


def test_doctor_accepts_annotations_alone(tmp_path: Path, toy_benchmark: MakeBenchmark) -> None:
    save_benchmark(toy_benchmark(with_images=False), tmp_path / "toy")
    done = invoke("doctor", tmp_path / "toy")
    assert done.code == DONE
    assert "no images" in done.out


def test_doctor_on_an_ill_benchmark_exits_with_3_and_names_what_is_wrong(ill: Path) -> None:
    done = invoke("doctor", ill)
    assert done.code == ATTENTION
    for expected in ("reference_is_target", "'q1'", "empty_text", "'q2'", "not_an_image", "'d'", "same pixels", "'c'"):
        assert expected in done.out


def test_doctor_names_every_id_in_strict_json(ill: Path) -> None:
    done = invoke("doctor", ill, "--json")
    assert done.code == ATTENTION
    expected = {
        "benchmark": "toy",
        "protocol": "toy/test",
        "healthy": False,
        "n_queries": 3,
        "n_targets": 5,
        "n_gallery": 4,
        "n_images": 3,
        "findings": {"reference_is_target": ["q1"], "empty_text": ["q2"]},
        "unreadable": {"d": "not_an_image"},
        "altered": [],
        "duplicates": [["b", "c"]],
        "flagged": {},
        "irreducible": [],
    }
    assert {name: done.json[name] for name in expected} == expected


def test_doctor_does_not_cut_the_ids_in_json(tmp_path: Path, toy_benchmark: MakeBenchmark) -> None:
    queries = [Query(f"q{i}", "a", "", ("b",)) for i in range(12)]
    save_benchmark(toy_benchmark(queries=queries, allow=frozenset({Defect.EMPTY_TEXT})), tmp_path / "toy")
    found = invoke("doctor", tmp_path / "toy", "--json").json
    assert found["findings"] == {"empty_text": [query.id for query in queries]}


def test_doctor_notes_queries_that_are_the_same_but_for_their_targets(
    tmp_path: Path, toy_benchmark: MakeBenchmark
) -> None:
    # q2 repeats q1 with another target: no model can tell them apart. q4 repeats q3, target and all: another matter.
    queries = (
        Query("q1", "a", "make it red", ("b",)),
        Query("q2", "a", "make it red", ("c",)),
        Query("q3", "b", "make it red", ("c",)),
        Query("q4", "b", "make it red", ("c",)),
    )
    save_benchmark(toy_benchmark(queries=queries, with_images=False), tmp_path / "toy")
    done = invoke("doctor", tmp_path / "toy", "--json")
    assert (done.code, done.json["irreducible"]) == (DONE, [["q1", "q2"]])


def test_duplicate_pixels_alone_are_no_illness(
    tmp_path: Path, toy_benchmark: MakeBenchmark, encode_image: Callable[..., bytes]
) -> None:
    grey = encode_image(Image.new("RGB", (40, 40), "grey"), "PNG")
    save_benchmark(toy_benchmark(images=dict.fromkeys(("a", "b", "c", "d", "outside"), grey)), tmp_path / "toy")
    done = invoke("doctor", tmp_path / "toy", "--json")
    assert (done.code, done.json["healthy"]) == (DONE, True)
    assert done.json["duplicates"] == [["a", "b", "c", "d", "outside"]]


def test_doctor_names_an_image_whose_pixels_were_exchanged(toy: Path, encode_image: Callable[..., bytes]) -> None:
    green = {"bytes": encode_image(Image.new("RGB", (32, 32), "green"), "PNG"), "path": None}
    rewrite_column(toy / "data/toy/corpus/00000.parquet", "image", lambda images: [images[0], green, *images[2:]])
    done = invoke("doctor", toy, "--json")
    assert (done.code, done.json["altered"]) == (ATTENTION, ["b"])


def test_doctor_on_a_folder_that_is_no_benchmark_exits_with_4(tmp_path: Path) -> None:
    done = invoke("doctor", tmp_path)
    assert done.code == INPUT
    assert "no dataset folder (manifest.json is missing)" in done.err


@pytest.mark.usefixtures("encoders")
def test_run_writes_a_run_per_model(toy: Path, tmp_path: Path) -> None:
    done = invoke("run", toy, "-m", StandIn.name, "-m", Chance.name, "-o", tmp_path / "runs")
    assert done.code == DONE
    found = [Run.load(tmp_path / "runs" / name).manifest.model.name for name in ("tests__stand-in", "tests__chance")]
    assert found == ["tests/stand-in", "tests/chance"]


@pytest.mark.usefixtures("encoders")
def test_run_does_not_replace_a_run_on_another_benchmark(
    toy: Path, toy_benchmark: MakeBenchmark, tmp_path: Path
) -> None:
    save_benchmark(toy_benchmark(name="other"), tmp_path / "other")
    assert invoke("run", toy, "-m", StandIn.name, "-o", tmp_path / "runs").code == DONE
    refused = invoke("run", tmp_path / "other", "-m", StandIn.name, "-o", tmp_path / "runs")
    assert refused.code == INPUT
    assert "holds a Run on toy" in refused.err
    again = invoke("run", toy, "-m", StandIn.name, "-o", tmp_path / "runs")
    assert again.code == DONE
    (held,) = (Run.load(folder) for folder in (tmp_path / "runs").glob("*") if not folder.name.startswith("."))
    assert held.manifest.benchmark == "toy"


@pytest.mark.usefixtures("encoders")
def test_run_prints_strict_json_on_standard_output_alone(toy: Path, tmp_path: Path) -> None:
    done = invoke("run", toy, "-m", StandIn.name, "-o", tmp_path / "runs", "--json")
    summary = done.json["tests/stand-in"]
    assert (summary["protocol"], summary["n_queries"], summary["n_gallery"], summary["dim"]) == ("toy/test", 3, 4, 16)
    assert summary["alarms"] == []


def test_run_encodes_nothing_twice(encoders: list[StandIn], toy: Path, tmp_path: Path) -> None:
    for _ in range(2):
        invoke("run", toy, "-m", StandIn.name, "-o", tmp_path / "runs")
    # The second time the probe alone encodes; it shows no image without text but the references.
    first, second = encoders
    assert len(second.seen) < len(first.seen)
    probed = {image for image, text in second.seen if text is None}
    assert len(probed) <= 3


@pytest.mark.usefixtures("encoders")
def test_run_keeps_embeddings_where_it_is_told(toy: Path, tmp_path: Path) -> None:
    invoke("run", toy, "-m", StandIn.name, "-o", tmp_path / "runs", "--store", tmp_path / "vectors")
    assert list((tmp_path / "vectors").rglob("*.safetensors"))
    assert not (tmp_path / "runs" / ".embeddings").exists()


@pytest.mark.usefixtures("encoders")
def test_what_a_shell_finds_in_the_output_folder_is_runs_alone(toy: Path, tmp_path: Path) -> None:
    # The README audits runs/*, a pattern that passes over names with a dot.
    invoke("run", toy, "-m", StandIn.name, "-o", tmp_path / "runs")
    assert all((path / "manifest.json").exists() for path in (tmp_path / "runs").iterdir() if path.name[0] != ".")


@pytest.mark.usefixtures("encoders")
def test_an_output_folder_that_cannot_be_written_exits_with_4_and_one_line(toy: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outcome = invoke("run", toy, "-m", StandIn.name, "-o", tmp_path / "file")
    assert outcome.code == INPUT
    assert "embeddings cannot be written there" in outcome.err
    outcome = invoke("run", toy, "-m", StandIn.name, "-o", tmp_path / "file", "--store", tmp_path / "vectors")
    assert outcome.code == INPUT
    assert f"Not a directory: '{tmp_path / 'file' / slug(StandIn.name)}'" in outcome.err


def test_mteb_without_a_command_prints_its_help() -> None:
    outcome = invoke("mteb")
    assert outcome.code == DONE
    assert "available-tasks" in outcome.out


def test_run_with_an_unknown_model_exits_with_4_and_suggests_close_names(toy: Path, tmp_path: Path) -> None:
    done = invoke("run", toy, "-m", "circus-bench/mini-balance", "-o", tmp_path / "runs")
    assert done.code == INPUT
    assert "no model 'circus-bench/mini-balance'" in done.err
    assert "circus-bench/mini-balanced" in done.err


@pytest.mark.usefixtures("encoders")
def test_run_with_an_unknown_back_end_is_wrong_usage(toy: Path, tmp_path: Path) -> None:
    done = invoke("run", toy, "-m", StandIn.name, "-o", tmp_path / "runs", "--backend", "abacus")
    assert done.code == USAGE
    assert "abacus" in done.err


@pytest.mark.usefixtures("encoders")
def test_run_with_an_unreadable_image_exits_with_4_and_names_it(ill: Path, tmp_path: Path) -> None:
    done = invoke("run", ill, "-m", StandIn.name, "-o", tmp_path / "runs")
    assert done.code == INPUT
    assert "'d (not_an_image)'" in done.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("encoders")
def test_run_leaves_out_unreadable_images_when_allowed_and_warns(ill: Path, tmp_path: Path) -> None:
    # q3 keeps its target c. What was allowed does not change the exit code.
    done = invoke("run", ill, "-m", StandIn.name, "-o", tmp_path / "runs", "--leave-out-unreadable")
    assert done.code == DONE
    assert "warning: images were left out (1: 'd'); 3 queries remain" in done.err


@pytest.mark.usefixtures("encoders")
def test_a_run_without_unreadable_images_records_which(ill: Path, tmp_path: Path) -> None:
    invoke("run", ill, "-m", StandIn.name, "-o", tmp_path / "runs", "--leave-out-unreadable")
    run = Run.load(tmp_path / "runs" / "tests__stand-in")
    assert run.manifest.source["left_out_images"] == ["d"]
    assert (run.manifest.n_gallery, run.targets) == (3, (("b", "a"), ("c",), ("c",)))


@pytest.mark.usefixtures("encoders")
def test_alarms_exit_with_3_and_are_named(toy: Path, tmp_path: Path) -> None:
    done = invoke("run", toy, "-m", StandIn.name, "-m", Blind.name, "-o", tmp_path / "runs")
    assert done.code == ATTENTION
    assert "warning: tests/blind: reference_ignored, collapsed; do not trust this Run" in done.err
    assert "tests/stand-in: reference_ignored" not in done.err


@pytest.mark.usefixtures("encoders")
def test_a_run_with_alarms_is_written(toy: Path, tmp_path: Path) -> None:
    invoke("run", toy, "-m", Constant.name, "-o", tmp_path / "runs")
    assert EncoderWarning.COLLAPSED in Run.load(tmp_path / "runs" / "tests__constant").manifest.alarms


@pytest.mark.usefixtures("encoders")
def test_allowed_alarms_exit_with_0_and_are_still_named(toy: Path, tmp_path: Path) -> None:
    done = invoke("run", toy, "-m", Constant.name, "-o", tmp_path / "runs", "--allow-alarms")
    assert done.code == DONE
    assert "tests/constant: " in done.err


@pytest.mark.usefixtures("encoders")
def test_runs_from_the_command_line_can_be_audited_with_their_benchmark(toy: Path, tmp_path: Path) -> None:
    invoke("run", toy, "-m", StandIn.name, "-o", tmp_path / "runs")
    done = invoke("audit", tmp_path / "runs" / "tests__stand-in", "--benchmark", toy, "-o", tmp_path / "out", "-k", 1)
    assert done.code == DONE
    assert "data:image/" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


DEMO = ("demo", "--queries", 40, "--gallery", 400)


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demos write: the second one finds the embeddings of the first."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(demo_folder: Path) -> Outcome:
    return invoke(*DEMO, "-o", demo_folder)


@pytest.mark.slow
def test_the_demo_writes_benchmark_runs_labels_and_report(demo: Outcome, demo_folder: Path) -> None:
    assert demo.code == DONE
    assert len(load_benchmark(demo_folder / "benchmark").queries) == 40
    models = {Run.load(folder).manifest.model.name for folder in (demo_folder / "runs").iterdir()}
    assert models == {f"circus-bench/mini-{name}" for name in ("balanced", "visual", "textual")}
    assert len(Labels.load(demo_folder / "labels.parquet").by_query) == 40
    assert "data:image/" in (demo_folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_demo_leaves_a_validated_study_and_reports_on_v(demo: Outcome, demo_folder: Path) -> None:
    assert demo.code == DONE
    study = Study.load(demo_folder / "validation")
    verdicts = load_labels(demo_folder / "validation" / "scenes.v.parquet").by_query
    assert set(verdicts) == {item.query for item in study.items}
    page = (demo_folder / "report.html").read_text(encoding="utf-8")
    for expected in ("validated queries", "3 raters, each wrong with chance 0.1"):
        assert expected in page


@pytest.mark.slow
@pytest.mark.parametrize(
    "expected",
    [
        "planted kind against label at K = 10",
        "text_shortcut",
        "agreement with the planted truth",
        "image caught",
        "scenes/test",
        "pool CompGap on v",
        "V against the ground truth, 3 simulated raters per item",
        "report.html",
    ],
)
def test_the_demo_prints_the_confusion_the_agreement_the_audit_and_v(demo: Outcome, expected: str) -> None:
    assert expected in demo.out


@pytest.mark.slow
def test_the_demo_prints_strict_json(demo_folder: Path) -> None:
    written = invoke(*DEMO, "-o", demo_folder, "-k", 7, "--json").json
    assert [check["k"] for check in written["planted"]["checks"]] == [5, 7, 20]
    confusion = written["planted"]["confusion"]
    assert sum(sum(row.values()) for row in confusion.values()) == written["n_queries"] == 40


def test_a_demo_whose_gallery_is_too_small_exits_with_4(tmp_path: Path) -> None:
    assert invoke("demo", "--queries", 600, "--gallery", 400, "-o", tmp_path / "demo").code == INPUT
