"""The pipeline on a collection whose right answers are known: what comes out, what is kept, what is run again."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.rmir_provider import FILES, IDS, TRUTH, ScriptedProvider, make_config, make_resources

from circus_bench.api.chat.client import CachedClient, Route
from circus_bench.api.chat.messages import Request
from circus_bench.api.runtime import Budget, BudgetError, Price, ResponseCache
from circus_bench.errors import CircusError, FormatError
from circus_bench.rmir.config import CandidateSettings, JudgeSettings, JudgeSpec, RunSettings, SeedSettings
from circus_bench.rmir.executors import LocalExecutor
from circus_bench.rmir.pipeline import Pipeline, Stage
from circus_bench.rmir.records import (
    Candidate,
    CandidateConsensus,
    Caption,
    Check,
    Draft,
    ExcludedImage,
    FailedRequest,
    FailureReason,
    JudgeDecision,
    PoolImage,
    Seed,
    Vote,
)
from circus_bench.rmir.stages.consensus import positives_by_query

QUERIES = {f"{image}-{category}": sorted(answers) for (image, category), answers in TRUTH.items()}


def make_pipeline(
    root: Path, provider: ScriptedProvider | None = None, *, config: Any = None, **resources: Any
) -> Pipeline:
    return Pipeline(config or make_config(), root, LocalExecutor(make_resources(provider=provider, **resources)))


def contents(root: Path) -> dict[str, bytes]:
    """Every file of the stages, by its path; embeddings and replies are no outcome."""
    outcomes = (path for stage in Stage for path in (root / stage).rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(outcomes)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pipeline, ScriptedProvider]:
    provider = ScriptedProvider()
    pipeline = make_pipeline(tmp_path_factory.mktemp("finished"), provider)
    pipeline.run()
    return pipeline, provider


def test_with_perfect_judges_the_positives_are_the_ground_truth(finished: tuple[Pipeline, ScriptedProvider]) -> None:
    positives = positives_by_query(finished[0].rows(Stage.KEEP, CandidateConsensus))
    assert {query: sorted(images) for query, images in positives.items()} == QUERIES


def test_with_perfect_judges_nothing_is_excluded(finished: tuple[Pipeline, ScriptedProvider]) -> None:
    assert finished[0].rows(Stage.KEEP, ExcludedImage) == []


def test_the_pool_is_the_union_of_the_candidates(finished: tuple[Pipeline, ScriptedProvider]) -> None:
    candidates = {row.image for row in finished[0].rows(Stage.CANDIDATES, Candidate)}
    assert [row.image for row in finished[0].rows(Stage.POOL, PoolImage)] == sorted(candidates)


def test_every_request_is_sent_exactly_once(finished: tuple[Pipeline, ScriptedProvider]) -> None:
    pipeline, provider = finished
    assert set(provider.asked.values()) == {1}
    judged = len(pipeline.rows(Stage.JUDGE, CandidateConsensus))
    # 24 images in three categories, 24 captions, 16 queries with three constraints, three judges a candidate.
    assert provider.asked.total() == 24 * 3 + 24 + 16 * 3 + judged * 3


def test_images_without_a_query_are_listed(finished: tuple[Pipeline, ScriptedProvider]) -> None:
    failed = finished[0].rows(Stage.GENERATE, FailedRequest)
    assert len(failed) == 24 * 3 - 16
    assert {row.why for row in failed} == {FailureReason.IMPOSSIBLE}


def test_a_finished_run_requests_nothing_again(finished: tuple[Pipeline, ScriptedProvider]) -> None:
    pipeline, _ = finished
    provider = ScriptedProvider()
    make_pipeline(pipeline.root, provider).run()
    assert not provider.asked


def test_the_size_of_the_batches_does_not_show(finished: tuple[Pipeline, ScriptedProvider], tmp_path: Path) -> None:
    make_pipeline(tmp_path, config=make_config(run=RunSettings(batch_size=7))).run()
    assert contents(tmp_path) == contents(finished[0].root)


def test_the_order_of_the_collection_does_not_show(finished: tuple[Pipeline, ScriptedProvider], tmp_path: Path) -> None:
    make_pipeline(tmp_path, images=dict(reversed(FILES.items()))).run()
    assert contents(tmp_path) == contents(finished[0].root)


def keys(pipeline: Pipeline) -> dict[Stage, str]:
    return {stage: pipeline.folder(stage).key for stage in Stage}


@pytest.mark.parametrize(
    ("change", "unchanged"),
    [
        ({"judge": JudgeSettings(panel=(JudgeSpec("strong"),))}, set(Stage) - {"judge", "keep", "pool", "split"}),
        ({"seed": SeedSettings(clusters=2)}, {"look"}),
        ({"run": RunSettings(batch_size=1)}, set(Stage)),
        ({"name": "other"}, set(Stage)),
        (
            {"candidates": CandidateSettings(visual="naming", text="naming", visual_k=4, text_k=5)},
            {"look", "seed", "generate", "filter", "caption"},
        ),
    ],
)
def test_a_changed_setting_changes_what_depends_on_it_and_nothing_else(
    finished: tuple[Pipeline, ScriptedProvider], tmp_path: Path, change: dict[str, Any], unchanged: set[str]
) -> None:
    before, after = keys(finished[0]), keys(make_pipeline(tmp_path, config=make_config(**change)))
    assert {stage for stage in Stage if before[stage] == after[stage]} == unchanged


def test_a_changed_prompt_changes_what_depends_on_it_and_nothing_else(
    finished: tuple[Pipeline, ScriptedProvider], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from circus_bench.rmir import templates as module

    load = module.load_template

    def changed(name: str) -> Any:
        template = load(name)
        return dataclasses.replace(template, text=template.text + "!") if name == "check_steps" else template

    monkeypatch.setattr(module, "load_template", changed)
    before, after = keys(finished[0]), keys(make_pipeline(tmp_path))
    same = {stage for stage in Stage if before[stage] == after[stage]}
    assert same == {"look", "seed", "generate", "caption"}


def test_a_changed_panel_calls_only_the_new_judges(tmp_path: Path) -> None:
    first, second = ScriptedProvider(), ScriptedProvider()
    with_replies = {"replies": ResponseCache(tmp_path / "replies.sqlite")}
    for provider, panel in ((first, ("strong",)), (second, ("strong", "other"))):
        config = make_config(judge=JudgeSettings(panel=tuple(map(JudgeSpec, panel))))
        client = CachedClient.free(provider, with_replies["replies"])
        make_pipeline(tmp_path / "root", config=config, client=client).run()
    assert set(second.kinds) == {"judge"}
    assert second.kinds["judge"] == first.kinds["judge"]


def test_an_unknown_prompt_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="prompts jugde = judge@1"):
        make_pipeline(tmp_path, config=make_config(prompts={"jugde": "judge@1"}))


def test_captions_that_the_collection_brings_are_not_requested(tmp_path: Path) -> None:
    provider = ScriptedProvider()
    captions = {image: f"picture of {image}" for image in IDS[:20]}
    pipeline = make_pipeline(tmp_path, provider, captions=captions)
    pipeline.run(Stage.CANDIDATES)
    assert provider.kinds["caption"] == 4
    assert [row.image for row in pipeline.rows(Stage.CAPTION, Caption)] == list(IDS[20:])


def test_without_a_text_index_nothing_is_captioned(tmp_path: Path) -> None:
    provider = ScriptedProvider()
    config = make_config(candidates=CandidateSettings(visual="naming", visual_k=5, text_k=0))
    pipeline = make_pipeline(tmp_path, provider, config=config)
    pipeline.run()
    assert provider.kinds["caption"] == 0
    assert {row.index for row in pipeline.rows(Stage.CANDIDATES, Candidate)} == {"visual"}


def test_seeds_are_sampled_from_clusters(tmp_path: Path) -> None:
    config = make_config(seed=SeedSettings(embedder="naming", clusters=4, per_cluster=2))
    pipeline = make_pipeline(tmp_path, config=config)
    pipeline.run(Stage.SEED)
    seeds = pipeline.rows(Stage.SEED, Seed)
    sizes = [sum(row.cluster == cluster for row in seeds) for cluster in range(4)]
    assert all(1 <= size <= 2 for size in sizes)


def test_a_collection_without_a_readable_image_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CircusError, match="none of the 2 images"):
        make_pipeline(tmp_path, images={"a": b"", "b": b"no image"}).run()


def test_a_collection_without_a_question_ends_with_an_empty_benchmark(tmp_path: Path) -> None:
    nothing = json.dumps({"possible": False, "text": "", "answer": ""})
    provider = ScriptedProvider(change=lambda kind, *_: nothing if kind.startswith("generate") else None)
    pipeline = make_pipeline(tmp_path, provider)
    pipeline.run()
    assert pipeline.rows(Stage.FILTER, Draft) == []
    assert pipeline.rows(Stage.POOL, PoolImage) == []


def test_an_unreadable_verdict_is_an_abstention_that_keeps_its_text(tmp_path: Path) -> None:
    def mumble(kind: str, request: Request, ids: Sequence[str]) -> str | None:
        return "well, score: 0.8" if kind == "judge" and request.model == "strong" and ids[0] == "i00" else None

    pipeline = make_pipeline(tmp_path, ScriptedProvider(change=mumble))
    pipeline.run()
    votes = [row for row in pipeline.rows(Stage.JUDGE, Vote) if row.query.startswith("i00") and "strong" in row.judge]
    assert {(row.decision, row.raw) for row in votes} == {(JudgeDecision.ABSTAIN, "well, score: 0.8")}
    assert not any(
        query.startswith("i00") for query in positives_by_query(pipeline.rows(Stage.KEEP, CandidateConsensus))
    )


def test_a_check_that_cannot_be_read_drops_the_draft(tmp_path: Path) -> None:
    def mumble(kind: str, _: Request, ids: Sequence[str]) -> str | None:
        return "{" if kind == "check_steps" and ids[0] == "i03" else None

    pipeline = make_pipeline(tmp_path, ScriptedProvider(change=mumble))
    pipeline.run(Stage.FILTER)
    assert {row.query for row in pipeline.rows(Stage.FILTER, Check) if row.passed is None and row.raw == "{"} == {
        "i03-functional",
        "i03-causal",
    }
    assert {row.image for row in pipeline.rows(Stage.FILTER, Draft)} == set(IDS[:8]) - {"i03"}


def test_progress_says_what_is_done_and_what_is_under_way(tmp_path: Path) -> None:
    def stop(request: Request) -> None:
        if request.template.startswith("judge") and len(provider.asked) >= 300:  # 144 before stage 4, 60 a batch
            raise CircusError("enough")

    provider = ScriptedProvider(delay=stop)
    pipeline = make_pipeline(tmp_path, provider)
    with pytest.raises(CircusError, match="enough"):
        pipeline.run()
    found = {row.stage: row for row in pipeline.progress()}
    assert found[Stage.CANDIDATES].done
    assert found[Stage.CANDIDATES].rows == {"candidate": 160}  # 16 queries, two indexes, five each
    done, total = found[Stage.JUDGE].batches or (0, 0)
    assert 0 < done < total == 4  # 16 queries, four a batch
    assert (found[Stage.KEEP].done, found[Stage.KEEP].batches) == (False, None)


def test_a_spent_budget_stops_the_run_and_a_larger_one_goes_on(
    finished: tuple[Pipeline, ScriptedProvider], tmp_path: Path
) -> None:
    provider = ScriptedProvider()
    replies = ResponseCache(tmp_path / "replies.sqlite")
    for budget in (100, 150, 1000):
        total = Budget(Price({"calls": 1}, "made up", "2026-01-01"), budget, setting="--budget")
        pipeline = make_pipeline(tmp_path / "root", client=CachedClient(Route(provider), replies, budget=total))
        if budget < 1000:
            with pytest.raises(BudgetError, match="--budget"):
                pipeline.run()
            assert total.spent["calls"] == budget
        else:
            pipeline.run()
    assert set(provider.asked.values()) == {1}
    assert contents(tmp_path / "root") == contents(finished[0].root)


def test_a_stage_stopped_before_its_last_file_is_finished_without_requests(
    finished: tuple[Pipeline, ScriptedProvider], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from circus_bench.rmir import stage_cache

    def stop(path: Path, _: object) -> None:
        raise KeyboardInterrupt(path)

    provider = ScriptedProvider()
    pipeline = make_pipeline(tmp_path, provider)
    pipeline.run(Stage.CANDIDATES)
    with monkeypatch.context() as patch:
        patch.setattr(stage_cache, "write_json", stop)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(Stage.JUDGE)
    assert not pipeline.folder(Stage.JUDGE).is_done
    pipeline.run()
    assert set(provider.asked.values()) == {1}
    assert contents(tmp_path) == contents(finished[0].root)


def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    pipeline.run(Stage.SEED)
    head = pipeline.folder(Stage.SEED).path / "stage.json"
    head.write_text(head.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(FormatError, match="not of schema version 1"):
        pipeline.progress()


KILLED = """
import os, signal, sys
from pathlib import Path
from support.rmir_provider import ScriptedProvider, make_config, make_resources
from circus_bench.rmir.executors import LocalExecutor
from circus_bench.rmir.pipeline import Pipeline

folder, calls = Path(sys.argv[1]), int(sys.argv[2])

def note(request):
    if sum(1 for _ in open(folder / "log")) >= calls:
        os.kill(os.getpid(), signal.SIGKILL)

provider = ScriptedProvider(delay=note, log=folder / "log")
Pipeline(make_config(), folder / "root", LocalExecutor(make_resources(folder, provider, threads=1), threads=1)).run()
"""


def test_a_run_killed_again_and_again_requests_nothing_twice(
    finished: tuple[Pipeline, ScriptedProvider], tmp_path: Path
) -> None:
    (tmp_path / "log").touch()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    codes = []
    # In stages 1, 2, 3, 4, and never; one thread, so that no other reply is on its way at that moment.
    for calls in (30, 90, 130, 200, 10_000):
        command = [sys.executable, "-c", KILLED, str(tmp_path), str(calls)]
        codes.append(subprocess.run(command, env=environment, check=False).returncode)
    assert codes == [-signal.SIGKILL] * 4 + [0]
    asked = (tmp_path / "log").read_text().split()
    assert len(asked) == len(set(asked)) == finished[1].asked.total()
    assert contents(tmp_path / "root") == contents(finished[0].root)
