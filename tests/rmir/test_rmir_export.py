"""The benchmark and the dataset folder that the pipeline ends in, and the dry run that it begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mteb
import pytest
from mteb.cache import ResultCache
from support.rmir_provider import TRUTH, ScriptedProvider, make_config, make_resources

from circus_bench.api.chat.providers import ProviderSettings
from circus_bench.errors import CircusError, FormatError
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import read_manifest
from circus_bench.models import load_encoder
from circus_bench.rmir.config import CandidateSettings, Config, JudgeSettings, JudgeSpec, SplitSettings
from circus_bench.rmir.cost_estimate import Assumptions, estimate_pipeline_cost
from circus_bench.rmir.executors import LocalExecutor
from circus_bench.rmir.export import benchmark_of, write_release
from circus_bench.rmir.pipeline import Pipeline, Stage
from circus_bench.rmir.records import Split, SplitAssignment
from circus_bench.tasks.rmir import RMIR


def made(root: Path, provider: ScriptedProvider | None = None, **resources: Any) -> Pipeline:
    pipeline = Pipeline(make_config(), root, LocalExecutor(make_resources(provider=provider, **resources)))
    pipeline.run()
    return pipeline


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return made(tmp_path_factory.mktemp("pipeline"))


def test_with_perfect_judges_the_benchmark_is_the_ground_truth(pipeline: Pipeline) -> None:
    queries = [query for split in Split for query in benchmark_of(pipeline, split).queries]
    assert {(query.reference, query.group): sorted(query.targets) for query in queries} == {
        key: sorted(answers) for key, answers in TRUTH.items()
    }


def test_each_split_has_its_protocol_and_the_whole_pool(pipeline: Pipeline) -> None:
    test, train = (benchmark_of(pipeline, split) for split in Split)
    assert (test.name, test.protocol.id, len(test.queries)) == ("rmir", "rmir/test", 6)  # test_size of the settings
    assert (train.name, train.protocol.id, len(train.queries)) == ("rmir-train", "rmir/train", 10)
    assert test.gallery.ids == train.gallery.ids


def test_a_query_tells_how_reliable_it_is(pipeline: Pipeline) -> None:
    of = {row.query: row for row in pipeline.rows(Stage.SPLIT, SplitAssignment)}
    for query in benchmark_of(pipeline).queries:
        assert query.details["tsr"] == of[query.id].tsr
        assert query.details["answer"].startswith("picture of ")


def test_the_source_names_no_path_and_no_address(tmp_path: Path) -> None:
    config = make_config(providers={"compatible": ProviderSettings(base_url="http://127.0.0.1:1/secret")})
    pipeline = Pipeline(config, tmp_path, LocalExecutor(make_resources()))
    pipeline.run()
    source = str(benchmark_of(pipeline).source)
    assert "127.0.0.1" not in source
    assert str(tmp_path) not in source


def test_a_stage_that_was_not_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="was not run to its end"):
        benchmark_of(Pipeline(make_config(), tmp_path, LocalExecutor(make_resources())))


def test_judges_that_accept_nothing_leave_no_benchmark(tmp_path: Path) -> None:
    reject = '{"reason": "no", "decision": "reject"}'
    pipeline = made(tmp_path / "root", ScriptedProvider(change=lambda kind, *_: reject if kind == "judge" else None))
    with pytest.raises(CircusError, match="no query is left after stage 5"):
        write_release(pipeline, tmp_path / "dataset")


def test_both_splits_lie_in_one_dataset_folder(pipeline: Pipeline, tmp_path: Path) -> None:
    write_release(pipeline, tmp_path / "dataset")
    for name, split in (("rmir", Split.TEST), ("rmir-train", Split.TRAIN)):
        expected = benchmark_of(pipeline, split)
        read = load_benchmark(f"{tmp_path / 'dataset'}#{name}")
        assert read.fingerprint == expected.fingerprint
        assert read.queries == expected.queries


def test_nothing_stays_of_a_split_that_an_earlier_outcome_had(pipeline: Pipeline, tmp_path: Path) -> None:
    write_release(pipeline, tmp_path / "dataset")
    config = make_config(split=SplitSettings(test_share=1.0))
    whole = Pipeline(config, pipeline.root, LocalExecutor(make_resources()))
    whole.run()
    write_release(whole, tmp_path / "dataset")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset"]
    assert set(read_manifest(tmp_path / "dataset")["benchmarks"]) == {"rmir"}


def test_without_a_query_an_earlier_outcome_is_left_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    write_release(pipeline, tmp_path / "dataset")
    reject = '{"reason": "no", "decision": "reject"}'
    empty = made(tmp_path / "root", ScriptedProvider(change=lambda kind, *_: reject if kind == "judge" else None))
    with pytest.raises(CircusError, match="no query is left after stage 5"):
        write_release(empty, tmp_path / "dataset")
    assert set(read_manifest(tmp_path / "dataset")["benchmarks"]) == {"rmir", "rmir-train"}


def test_mteb_scores_a_mini_model_on_the_test_split(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_release(pipeline, tmp_path / "dataset")
    monkeypatch.setenv("CIRCUS_DATA", str(tmp_path / "dataset"))
    model = load_encoder("circus-bench/mini-balanced", device="cpu")
    cache = ResultCache(tmp_path / "out")
    result = mteb.evaluate(model, RMIR(), cache=cache, co2_tracker=False, show_progress_bar=False)
    (scores,) = result.task_results[0].scores["test"]
    assert 0 <= scores["main_score"] <= 1
    assert scores["hf_subset"] == "full"


CONFIG = Config(
    candidates=CandidateSettings(visual_k=2, text_k=2),
    judge=JudgeSettings(panel=(JudgeSpec("claude-sonnet-4-5"), JudgeSpec("claude-haiku-4-5", samples=4))),
    providers={"anthropic": ProviderSettings(requests_per_minute=100)},
)


def test_a_dry_run_counts_the_calls_of_every_stage() -> None:
    found = estimate_pipeline_cost(CONFIG, seeds=100)
    calls = {(line.stage.value, line.model): line.calls for line in found.lines}
    assert calls == {
        ("generate", "claude-sonnet-4-5"): 300,  # three categories
        ("filter", "claude-sonnet-4-5"): 900,  # three constraints
        ("caption", "claude-haiku-4-5"): 100,
        ("judge", "claude-sonnet-4-5"): 720,  # 60 % of 300 queries, four candidates
        ("judge", "claude-haiku-4-5"): 2880,
    }


def test_a_dry_run_takes_what_it_is_told() -> None:
    told = Assumptions(drafts=0.5, pass_filter=0.5, overlap=0.5, captioned=0.9)
    calls = {
        (line.stage.value, line.model[:9]): line.calls
        for line in estimate_pipeline_cost(CONFIG, seeds=100, assumptions=told).lines
    }
    assert calls[("filter", "claude-so")] == 450
    assert calls[("caption", "claude-ha")] == 10
    assert calls[("judge", "claude-so")] == 150  # 75 queries, two candidates


def test_money_follows_from_the_price_list() -> None:
    for line in estimate_pipeline_cost(CONFIG, seeds=100).lines:
        into, out = (3, 15) if line.model == "claude-sonnet-4-5" else (1, 5)  # dollars a million, as Anthropic charges
        assert line.output_tokens == 150 * line.calls
        assert line.usd == pytest.approx((into * line.input_tokens + out * line.output_tokens) / 1e6)


def test_batches_cost_half() -> None:
    full, half = (
        estimate_pipeline_cost(CONFIG, seeds=100).usd,
        estimate_pipeline_cost(CONFIG, seeds=100, batch=True).usd,
    )
    assert full is not None
    assert half == pytest.approx(full / 2)


def test_hours_follow_from_the_pace_and_models_of_a_stage_work_at_the_same_time() -> None:
    # 300 + 900 + 100 calls, then the slower of 720 and 2,880, at 100 a minute.
    assert estimate_pipeline_cost(CONFIG, seeds=100).hours == pytest.approx((300 + 900 + 100 + 2880) / 100 / 60)


def test_an_unknown_price_makes_the_sum_unknown() -> None:
    config = make_config(
        generate=CONFIG.generate,
        filter=CONFIG.filter,
        caption=CONFIG.caption,
        judge=JudgeSettings(panel=(JudgeSpec("compatible/any"),)),
    )
    assert estimate_pipeline_cost(config, seeds=10).usd is None


def test_the_papers_scale_is_the_default() -> None:
    found = estimate_pipeline_cost(Config())
    assert found.seeds == 500_000
    judged = sum(line.calls for line in found.lines if line.stage is Stage.JUDGE)
    assert judged == 500_000 * 3 * 0.6 * 20 * 5
