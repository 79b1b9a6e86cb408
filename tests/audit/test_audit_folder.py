"""An audit survives the disk, is drawn, tabulated, and shown in a notebook."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from support.makers import make_run

from circus_bench.audit.audit import Audit, audit_best_ranks, audit_runs
from circus_bench.audit.report import write_report
from circus_bench.benchmark import Condition
from circus_bench.errors import CircusError, FormatError
from circus_bench.metrics.shortcut import Label

LIMIT = 200_000  # bytes of what a notebook shows


@cache
def made_audit(*, n: int = 40, models: int = 3) -> Audit:
    """An audit with nulls and a validated subset; of models whose names do not sort as they are ordered."""
    rng = np.random.default_rng(0)

    def ranks() -> list[int]:
        return rng.integers(1, 200, n).tolist()

    nulls = {condition: rng.integers(1, 1000, n).tolist() for condition in Condition}
    runs = [make_run(ranks(), ranks(), ranks(), model=f"tests/{models - i}", nulls=nulls) for i in range(models)]
    audit = audit_runs(runs, k=5, min_unimodal=2)
    valid = np.array(audit.pool.queries)[audit.shortcut_labels.shortcut_free][:3].tolist()
    return audit.with_validated(valid, how="made up")


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_audit_survives_the_disk(tmp_path: Path) -> None:
    audit = made_audit()
    audit.save(tmp_path / "audit")
    loaded = Audit.load(str(tmp_path / "audit"))
    for name in ("about", "summary", "chance", "k_sweep", "support_sweep", "leave_one_out", "scores", "comp_gap"):
        assert getattr(loaded, name) == getattr(audit, name), name
    assert loaded.labels == audit.labels
    assert loaded.to_dict() == audit.to_dict()
    assert [run.manifest for run in loaded.runs] == [run.manifest for run in audit.runs]


def test_the_report_of_a_loaded_audit_is_the_same(tmp_path: Path) -> None:
    audit = made_audit()
    audit.save(tmp_path / "audit")
    write_report(audit, str(tmp_path / "a.html"))
    write_report(Audit.load(tmp_path / "audit"), tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_the_same_audit_gives_the_same_bytes(tmp_path: Path) -> None:
    audit = made_audit()
    audit.save(tmp_path / "one")
    Audit.load(tmp_path / "one").save(tmp_path / "two")
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_undefined_numbers_survive_the_disk(tmp_path: Path) -> None:
    audit = audit_runs([make_run([None], [None], [None])])  # nothing is ever retrieved: there is no CompGap
    audit.save(tmp_path)
    assert Audit.load(tmp_path).to_dict() == audit.to_dict()


def test_an_audit_of_published_minima_survives_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "minima.csv"
    path.write_text("query_idx,best_rank_multimodal,best_rank_text_only,best_rank_image_only\na,1,3,90\nb,8,20,30\n")
    audit = audit_best_ranks(str(path))
    audit.save(tmp_path / "audit")
    loaded = Audit.load(tmp_path / "audit")
    assert loaded.to_dict() == audit.to_dict()
    assert {c: ranks.tolist() for c, ranks in loaded.pool.best.items()} == {
        c: ranks.tolist() for c, ranks in audit.pool.best.items()
    }


def test_a_folder_of_another_schema_version_is_refused(tmp_path: Path) -> None:
    made_audit(models=2).save(tmp_path)
    content = json.loads((tmp_path / "audit.json").read_text())
    (tmp_path / "audit.json").write_text(json.dumps({**content, "schema_version": 2}))
    with pytest.raises(FormatError, match=r"audit\.json: schema version 2, expected 1"):
        Audit.load(tmp_path)


def test_a_folder_that_lacks_what_it_should_hold_is_refused(tmp_path: Path) -> None:
    made_audit(models=2).save(tmp_path)
    content = json.loads((tmp_path / "audit.json").read_text())
    del content["scores"]
    (tmp_path / "audit.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=r"audit\.json: KeyError\('scores'\)"):
        Audit.load(tmp_path)


def test_labels_of_another_audit_are_refused(tmp_path: Path) -> None:
    made_audit(models=2).save(tmp_path)
    audit_runs([make_run([1, 2], [3, 4], [5, 6])]).labels.save(tmp_path / "labels.parquet")
    with pytest.raises(FormatError, match="does not hold the labels of this audit"):
        Audit.load(tmp_path)


def test_the_figures_of_the_report_can_be_drawn() -> None:
    from matplotlib.figure import Figure

    audit = made_audit()
    figures = audit.plot()
    assert list(figures) == ["k_sweep", "hit_rate_full", "hit_rate_sf", "hit_rate_v"]
    assert all(isinstance(figure, Figure) for figure in figures.values())
    (axes,) = audit.plot("hit_rate_full").axes
    assert {"tests/1", "tests/3"} <= {text.get_text() for text in axes.texts}


def test_an_unknown_figure_is_refused_with_the_names_of_those_that_there_are() -> None:
    audit = dataclasses.replace(made_audit(models=2), scores=[])
    with pytest.raises(CircusError, match="no figure 'hit_rate_sf'; it has k_sweep"):
        audit.plot("hit_rate_sf")


def test_an_audit_becomes_a_table_with_one_row_per_query() -> None:
    audit = audit_runs([make_run([1, 60, 3], [4, 50, 11], [90, 40, None])])
    table = audit.to_pandas().set_index("query")
    assert table["label"].tolist() == ["shortcut", "unresolved", "composition_required"]
    assert table.loc["q0", "detail"] == "text_only"
    assert table["best_rank_image_only"].isna().tolist() == [False, False, True]
    assert table["support_multimodal"].tolist() == [1, 0, 1]
    assert table.loc["q0", "models_text_only"] == ("tests/a",)
    assert "human_valid" not in table


def test_an_audit_and_its_parts_print_in_a_line_each() -> None:
    audit = made_audit(n=1200, models=2)
    assert repr(audit).startswith("Audit('made' under made/test, 1,200 queries, 2 models, K = 5: shortcut ")
    for part in (audit, audit.pool, audit.labels, audit.shortcut_labels, audit.scores[0]):
        assert len(repr(part)) < 400


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)


@pytest.mark.parametrize("what", ["audit", "labels"])
def test_a_notebook_shows_counts_and_the_label_bar(what: str) -> None:
    audit = made_audit(n=1200, models=2)
    shown = audit._repr_html_() if what == "audit" else audit.labels._repr_html_()
    assert len(shown.encode()) < LIMIT
    assert f"{audit.summary.counts[Label.SHORTCUT]:,}" in shown
    tags = _Tags()
    tags.feed(shown)
    assert {"table", "svg", "rect"} <= tags.seen


def test_names_are_escaped_in_a_notebook() -> None:
    audit = audit_runs([make_run([1], [2], [3], model="<b>&", benchmark="<i>x")])
    for shown in (audit._repr_html_(), audit.labels._repr_html_()):
        assert "<b>" not in shown
        assert "<i>" not in shown
        assert "&lt;i&gt;x" in shown
