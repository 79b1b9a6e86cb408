"""The Python face: what a new user tries works, and the last line of a notebook's cell stays small."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any

import pytest

import circus_bench
from circus_bench import (
    Audit,
    EmbeddingStore,
    Label,
    Labels,
    Run,
    Subset,
    audit_runs,
    load_benchmark,
    load_encoder,
    load_labels,
    run_benchmark,
    save_benchmark,
    score_run,
    write_report,
)

LIMIT = 200_000  # bytes that an object may show in a notebook


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder, as a str, with a benchmark, a Run, its embeddings and its audit."""
    made = str(tmp_path_factory.mktemp("made"))
    save_benchmark(load_benchmark("scenes/test", queries=40, gallery=400), f"{made}/benchmark")
    benchmark = load_benchmark(f"{made}/benchmark")
    run = run_benchmark(load_encoder("circus-bench/mini-balanced"), benchmark, store=EmbeddingStore(f"{made}/store"))
    run.save(f"{made}/run")
    audit_runs([run]).save(f"{made}/audit")
    return made


# Eleven guesses of a new user, each as it would be typed.


def test_guess_1_a_benchmark_is_loaded_from_a_folder_named_by_a_str(folder: str) -> None:
    assert len(load_benchmark(f"{folder}/benchmark").queries) == 40


def test_guess_2_a_run_is_loaded_from_a_str(folder: str) -> None:
    assert Run.load(f"{folder}/run").manifest.n_queries == 40


def test_guess_3_a_report_is_written_to_a_str(folder: str, tmp_path: Path) -> None:
    write_report(Audit.load(f"{folder}/audit"), f"{tmp_path}/r.html")
    assert "<html" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_guess_4_an_embedding_store_is_opened_by_a_str(folder: str) -> None:
    assert EmbeddingStore(f"{folder}/store")


def test_guess_5_dir_lists_the_api() -> None:
    assert {"load_benchmark", "run_benchmark", "audit_runs", "Labels", "CircusError"} <= {*dir(circus_bench)}
    assert dir(circus_bench) == sorted(circus_bench.__all__)


def test_guess_6_a_run_becomes_a_data_frame(folder: str) -> None:
    frame = Run.load(f"{folder}/run").to_pandas()
    assert len(frame) == 40  # one target per query
    assert {"query", "target"} <= {*frame.columns}


def test_guess_7_an_audit_becomes_a_data_frame(folder: str) -> None:
    frame = Audit.load(f"{folder}/audit").to_pandas()
    assert sorted(frame["label"].unique()) == sorted({label.value for label in Label} & {*frame["label"]})
    assert len(frame) == 40


def test_guess_8_labels_are_loaded_and_become_a_data_frame(folder: str) -> None:
    labels = load_labels(f"{folder}/audit/labels.parquet")
    assert isinstance(labels, Labels)
    assert len(labels.to_pandas()) == 40


def test_guess_9_a_run_is_scored_on_the_shortcut_free_queries(folder: str) -> None:
    run, labels = Run.load(f"{folder}/run"), load_labels(f"{folder}/audit/labels.parquet")
    chosen = labels.mask(run.queries, Subset.SF)
    scores = score_run(run, subset=Subset.SF, chosen=chosen)
    assert scores.n_queries == chosen.sum() < 40


def test_guess_10_an_audit_draws_its_figures(folder: str) -> None:
    from matplotlib.figure import Figure

    figures = Audit.load(f"{folder}/audit").plot()
    assert figures
    assert all(isinstance(figure, Figure) for figure in (figures.values() if isinstance(figures, dict) else [figures]))


def test_guess_11_an_audit_is_saved_and_loaded(folder: str, tmp_path: Path) -> None:
    audit = audit_runs([Run.load(f"{folder}/run")])
    audit.save(str(tmp_path))
    again = Audit.load(str(tmp_path))
    assert again.summary.counts == audit.summary.counts
    assert again.to_dict() == audit.to_dict()


@pytest.mark.parametrize("name", ["benchmark", "run", "audit", "labels"])
def test_the_repr_of_an_object_fits_on_a_few_lines(folder: str, name: str) -> None:
    shown = {
        "benchmark": lambda: load_benchmark(f"{folder}/benchmark"),
        "run": lambda: Run.load(f"{folder}/run"),
        "audit": lambda: Audit.load(f"{folder}/audit"),
        "labels": lambda: load_labels(f"{folder}/audit/labels.parquet"),
    }[name]()
    assert len(repr(shown)) < 400


NOTEBOOK = """
from circus_bench import Audit, Run, load_benchmark, load_labels, write_report
folder = {folder!r}
---
benchmark = load_benchmark(f"{{folder}}/benchmark")
benchmark
---
run = Run.load(f"{{folder}}/run")
run
---
audit = Audit.load(f"{{folder}}/audit")
audit
---
labels = load_labels(f"{{folder}}/audit/labels.parquet")
labels
"""


def test_the_last_line_of_a_cell_shows_a_small_page_in_a_notebook(folder: str, tmp_path: Path) -> None:
    import nbformat

    cells = [nbformat.v4.new_code_cell(cell.strip()) for cell in NOTEBOOK.format(folder=folder).split("---")]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / "first.ipynb")
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--output", "done", "first.ipynb"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300)
    done = nbformat.read(tmp_path / "done.ipynb", as_version=4)
    shown = [output for cell in done.cells for output in cell.outputs if output.output_type == "execute_result"]
    assert len(shown) == 4
    for output in shown:
        assert 0 < len(output.data["text/html"].encode()) < LIMIT
        assert "<script" not in output.data["text/html"]


def path_parameters(function: Any) -> list[str]:
    """The parameters whose annotation takes a Path and no str."""
    try:
        hints = typing.get_type_hints(function)
    except NameError:  # a name that is imported for type checkers alone
        return []
    return [name for name, hint in hints.items() if name != "return" and takes(hint, Path) and not takes(hint, str)]


def takes(hint: Any, kind: type) -> bool:
    if hint is kind:
        return True
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(takes(part, kind) for part in typing.get_args(hint))
    return False


def test_every_path_of_the_api_may_be_a_str() -> None:
    faults = []
    for name in circus_bench.__all__:
        value = getattr(circus_bench, name)
        members = [value] if inspect.isfunction(value) else []
        if inspect.isclass(value):
            members = [member for _, member in inspect.getmembers(value, callable) if inspect.isroutine(member)]
        for member in members:
            if (getattr(member, "__module__", "") or "").startswith("circus_bench"):
                faults += [f"{name}.{member.__name__}({parameter})" for parameter in path_parameters(member)]
    assert faults == []
