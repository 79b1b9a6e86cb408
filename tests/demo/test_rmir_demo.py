"""The demo: perfect judges give back the ground truth; of others the report tells what they did."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from circus_bench.cli import main
from circus_bench.demo.rmir_demo import MINI, READER, DemoReport, run_demo
from circus_bench.demo.rmir_ground_truth import quality_by_panel, quality_by_stage
from circus_bench.demo.rmir_setup import (
    DemoSettings,
    all_judges,
    compared_panels,
    paper_panel,
    run_pipeline,
    synthetic_provider,
)
from circus_bench.demo.world.collection import World, make_world
from circus_bench.demo.world.relations import meaning_of
from circus_bench.demo.world.synthetic_judges import PERFECT, ErrorRates, SyntheticClient
from circus_bench.demo.world.truth import ground_truth_pairs, ground_truth_queries
from circus_bench.errors import CircusError
from circus_bench.hub.loading import load_benchmark
from circus_bench.rmir.export import benchmark_of
from circus_bench.rmir.pipeline import Pipeline, Stage
from circus_bench.rmir.records import CandidateConsensus, Category, Draft, PoolImage, Vote
from circus_bench.rmir.stages.consensus import positives_by_query

FLAWLESS = DemoSettings(
    views=5,
    fewest=2,
    strong=PERFECT,
    checker=PERFECT,
    light=PERFECT,
    rival=PERFECT,
    noise=0.0,
    mistaken=0.0,
    unknown=0.0,
    test_share=1.0,
)
SMALL = DemoSettings(views=3, fewest=2)


def run(
    settings: DemoSettings, root: Path, *, objects: tuple[str, ...] | None = None, whole: bool = False
) -> tuple[World, Pipeline]:
    world = make_world(settings.seed, settings.views, fewest=settings.fewest, objects=objects)
    client = SyntheticClient(synthetic_provider(world, settings))
    panel, last = (all_judges(), Stage.JUDGE) if whole else (paper_panel(), Stage.SPLIT)
    return world, run_pipeline(world, settings, root, client=client, panel=panel, last=last)


@pytest.fixture(scope="module")
def flawless(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Pipeline]:
    """The pipeline run by perfect judges."""
    return run(FLAWLESS, tmp_path_factory.mktemp("flawless"))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[DemoReport, Path]:
    """A small demo with erring judges, and its folder."""
    out = tmp_path_factory.mktemp("demo")
    return run_demo(out, settings=SMALL), out


def test_perfect_judges_give_back_exactly_the_ground_truth(flawless: tuple[World, Pipeline]) -> None:
    world, pipeline = flawless
    made = {
        query.id: (query.reference, query.text, query.group, frozenset(query.targets))
        for query in benchmark_of(pipeline).queries
    }
    assert made == {
        entry.query: (entry.image, entry.meaning.text, entry.category, entry.answers)
        for entry in ground_truth_queries(world).values()
    }


def test_perfect_judges_leave_no_false_negative_in_the_pool(flawless: tuple[World, Pipeline]) -> None:
    world, pipeline = flawless
    truth = ground_truth_pairs(world, pipeline.rows(Stage.FILTER, Draft))
    for quality in quality_by_stage(world, pipeline, truth).values():
        assert (quality.queries, quality.precision.value, quality.missed) == (len(ground_truth_queries(world)), 1, 0)


def test_perfect_judges_fill_the_pool_with_all_answers_and_candidates(flawless: tuple[World, Pipeline]) -> None:
    world, pipeline = flawless
    images = {row.image for row in pipeline.rows(Stage.POOL, PoolImage)}
    assert images == {row.image for row in pipeline.rows(Stage.JUDGE, CandidateConsensus)}
    assert images >= {image for entry in ground_truth_queries(world).values() for image in entry.answers}


def test_there_are_queries_of_every_category(flawless: tuple[World, Pipeline]) -> None:
    assert {query.group for query in benchmark_of(flawless[1]).queries} == set(Category)


def test_the_same_settings_give_the_same_bytes(tmp_path: Path) -> None:
    objects = ("padlock", "key", "bottle", "corkscrew", "egg", "chick", "rain cloud", "puddle")
    pipelines = [run(SMALL, tmp_path / name, objects=objects)[1] for name in ("one", "two")]
    files = [
        {path.relative_to(made.root): path.read_bytes() for path in sorted(made.root.rglob("*.parquet"))}
        for made in pipelines
    ]
    assert files[0] == files[1]
    assert len(files[0]) > len(Stage)


def test_other_errors_never_reuse_the_output_of_earlier_ones(tmp_path: Path) -> None:
    # The error rates are no settings of the pipeline, yet its outcome depends on them.
    objects = ("padlock", "key", "bottle", "corkscrew")
    run(SMALL, tmp_path, objects=objects)
    blind = dataclasses.replace(SMALL, strong=ErrorRates(misses=1), light=ErrorRates(misses=1))
    _, pipeline = run(blind, tmp_path, objects=objects)
    assert not positives_by_query(pipeline.rows(Stage.JUDGE, CandidateConsensus))


def test_judges_that_reject_everything_leave_no_benchmark(tmp_path: Path) -> None:
    blind = DemoSettings(
        views=1, fewest=1, strong=ErrorRates(misses=1), light=ErrorRates(misses=1), rival=ErrorRates(misses=1)
    )
    with pytest.raises(CircusError, match="left no query"):
        run_demo(tmp_path, settings=blind, pools=())


def test_a_family_s_blind_spots_are_seen_by_another_only(tmp_path: Path) -> None:
    # No error but the families' own: more judges of one family change nothing, a second family finds all of them.
    shared = ErrorRates(unseen=0.1, tempted=0.1)
    settings = dataclasses.replace(FLAWLESS, views=3, strong=shared, light=shared, rival=shared)
    world, pipeline = run(settings, tmp_path, whole=True)
    truth = ground_truth_pairs(world, pipeline.rows(Stage.FILTER, Draft))
    panels = quality_by_panel(truth, pipeline.rows(Stage.JUDGE, Vote))
    alone = [panels[f"{n} of one family"].labels for n in (1, 3, 5, 7)]
    mixed = panels["3 and 2 of another"].labels
    assert all(quality == alone[0] for quality in alone)
    assert alone[0].precision.value < 1
    assert alone[0].rejected > 0
    assert mixed.precision.value > alone[0].precision.value
    assert mixed.rejected < alone[0].rejected


def test_the_report_tells_what_stages_1_and_2_did(demo: tuple[DemoReport, Path]) -> None:
    report, out = demo
    (drafts,) = out.glob("pipeline/generate/*/draft.parquet")
    assert report.drafted.drafts > report.drafted.passed > 0
    assert report.drafted.flawed.n == report.drafted.drafts
    assert report.drafted.flawed_passed.value < report.drafted.flawed.value
    assert drafts.exists()


def test_stage_3_finds_more_with_two_indexes(demo: tuple[DemoReport, Path]) -> None:
    found = {index: share.value for index, share in demo[0].found.items()}
    assert found["both"] >= max(found["visual"], found["text"])
    assert set(found) == {"visual", "text", "both"}


def test_the_stages_are_told_in_their_order(demo: tuple[DemoReport, Path]) -> None:
    report, _ = demo
    assert [name[0] for name in report.stages] == ["4", "5", "6", "7"]
    images = [quality.images for quality in report.stages.values()]
    assert images == sorted(images, reverse=True)
    assert report.images == images[0]


def test_the_last_stages_label_quality_is_that_of_the_test_split(demo: tuple[DemoReport, Path]) -> None:
    report, _ = demo
    last = list(report.stages.values())[-1]
    assert last.queries == len(report.benchmark.queries)
    assert last.positives == sum(len(query.targets) for query in report.benchmark.queries)
    assert last.images == len(report.benchmark.gallery.ids)


def test_the_paper_s_panel_is_the_pipeline_s(demo: tuple[DemoReport, Path]) -> None:
    # The panels are counted on other judges' votes too, of which stage 6 of the pipeline knows nothing.
    report, _ = demo
    assert list(report.panels) == list(compared_panels())
    assert report.panels["5 of one family"].labels == report.stages["6 pool: surviving candidates"]


def test_more_judges_exclude_more_images(demo: tuple[DemoReport, Path]) -> None:
    deleted = [demo[0].panels[f"{n} of one family"].deleted for n in (1, 3, 5, 7)]
    assert deleted == sorted(deleted)


def test_tsr_is_checked_on_the_queries_of_both_splits(demo: tuple[DemoReport, Path]) -> None:
    report, _ = demo
    check = report.tsr["surviving, padded"]
    assert check.missed.thresholds[0.0].n == report.stages["6 pool: surviving candidates"].queries
    assert check.unproposed.thresholds[0.0].value <= check.missed.thresholds[0.0].value


def test_the_audit_is_told_by_category_with_both_averages(demo: tuple[DemoReport, Path]) -> None:
    report, _ = demo
    for name in (MINI, READER):
        table = report.audits[name].by_category
        assert set(table.labels["shortcut"].groups) == {query.group for query in report.benchmark.queries}
    assert len(report.audits[MINI].audit.runs) == 3


def test_the_reader_solves_from_the_text_what_names_its_object(demo: tuple[DemoReport, Path]) -> None:
    report, _ = demo
    named = [query.id for query in report.benchmark.queries if meaning_of(query.text).named]
    assert all(report.audits[READER].audit.label_of(query) == "shortcut" for query in named)


def test_the_demo_leaves_a_benchmark_and_its_report(demo: tuple[DemoReport, Path]) -> None:
    report, out = demo
    assert load_benchmark(f"{out / 'dataset'}#rmir").fingerprint == report.benchmark.fingerprint
    assert json.loads((out / "demo.json").read_text()) == json.loads(json.dumps(report.to_dict()))
    assert (out / "audit-reader" / "report.html").exists()


def test_a_repeated_demo_requests_nothing_and_says_the_same(demo: tuple[DemoReport, Path]) -> None:
    report, out = demo
    again = run_demo(out, settings=SMALL, pools=())
    assert not again.replies
    assert report.replies
    assert {**again.to_dict(), "audits": None} == {**report.to_dict(), "audits": None}


def invoke(*arguments: object) -> tuple[int, str]:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(io.StringIO()):
        patch.setattr(sys, "argv", ["circus-bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
    return int(stop.value.code or 0), out.getvalue()


def test_the_audit_command_prints_categories_and_names_the_averages(demo: tuple[DemoReport, Path]) -> None:
    _, out = demo
    runs = sorted((out / "audit-mini-encoders" / "runs").iterdir())
    code, printed = invoke("audit", *runs, "--benchmark", f"{out / 'dataset'}#rmir")
    assert code == 0
    assert "micro: mean over queries, macro: plain mean of the groups" in printed
    assert all(category in printed for category in Category)


def test_the_audit_command_has_the_categories_in_json(demo: tuple[DemoReport, Path]) -> None:
    report, out = demo
    runs = sorted((out / "audit-mini-encoders" / "runs").iterdir())
    code, printed = invoke("audit", *runs, "--benchmark", f"{out / 'dataset'}#rmir", "--json")
    assert code == 0
    assert json.loads(printed)["by_group"] == json.loads(json.dumps(report.audits[MINI].by_category.to_dict()))


@pytest.fixture
def command(demo: tuple[DemoReport, Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """`circus-bench rmir demo`, without doing again what the demo did."""
    report, out = demo
    monkeypatch.setattr("circus_bench.demo.rmir_demo.run_demo", lambda *_, **__: report)
    return lambda *options: invoke("rmir", "demo", "--out", out, *options)


def test_the_demo_command_prints_what_the_report_holds(
    demo: tuple[DemoReport, Path], command: Callable[..., tuple[int, str]]
) -> None:
    report, _ = demo
    code, printed = command()
    assert code == 0
    for name in (*report.stages, *report.panels, *report.tsr, *report.judges.rates):
        assert name in printed
    assert "macro: plain mean of the groups" in printed


def test_the_demo_command_prints_json(demo: tuple[DemoReport, Path], command: Callable[..., tuple[int, str]]) -> None:
    code, printed = command("--json")
    assert code == 0
    assert json.loads(printed) == json.loads(json.dumps(demo[0].to_dict()))
