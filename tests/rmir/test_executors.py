"""The executor does not show in the output, and a worker that dies loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.rmir_provider import make_config, make_resources, make_worker_resources

from circus_bench.api.chat.messages import Request
from circus_bench.api.chat.providers import ProviderSettings
from circus_bench.api.runtime import BudgetError, RemoteError, StoppedError
from circus_bench.errors import CircusError
from circus_bench.rmir import resources
from circus_bench.rmir.config import CollectionSettings, Config
from circus_bench.rmir.executors import LocalExecutor, Resources, cause_of
from circus_bench.rmir.pipeline import Pipeline, Stage
from circus_bench.rmir.ray_executor import RayExecutor, WorkerQuota


def contents(root: Path) -> dict[str, bytes]:
    outcomes = (path for stage in Stage for path in (root / stage).rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(outcomes)}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("local")
    Pipeline(make_config(), root, LocalExecutor(make_resources())).run()
    return contents(root)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray cluster of this machine, for all tests here: it takes seconds to start."""
    import ray

    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # the workers import rmir_provider
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()
    patch.undo()


def test_items_are_processed_once_and_yielded() -> None:
    done: list[int] = []
    executor = LocalExecutor(make_resources(), threads=3)
    assert sorted(executor.map(lambda _, item: done.append(item), range(20))) == list(range(20))
    assert sorted(done) == list(range(20))


def test_after_a_failure_no_further_item_is_begun() -> None:
    begun = []

    def task(_: Resources, item: int) -> None:
        begun.append(item)
        if item == 3:
            raise CircusError("broken")

    with pytest.raises(CircusError, match="broken"):
        list(LocalExecutor(make_resources(), threads=1).map(task, range(20)))
    assert begun == [0, 1, 2, 3]


def test_the_failure_to_report_is_the_one_that_stopped_the_others() -> None:
    stopped, reason = StoppedError("stopped"), RemoteError("no such model")
    assert cause_of([stopped, reason]) is reason
    assert cause_of([stopped]) is stopped


def test_a_process_that_is_alone_uses_its_own_budget() -> None:
    own: Any = object()
    assert WorkerQuota().budget(own) is own


def test_several_processes_divide_the_rates_among_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def make(*_: Any, settings: dict[str, ProviderSettings], **__: Any) -> Any:
        seen.update(settings)
        return SimpleNamespace(complete=iter)

    monkeypatch.setattr(resources, "make_client", make)
    config = Config(
        collection=CollectionSettings(images=str(tmp_path)),
        providers={"openai": ProviderSettings(requests_per_minute=60, tokens_per_minute=9000)},
    )
    made = resources.make_resources(WorkerQuota(workers=3), config=config, root=tmp_path)
    assert seen == {}  # no provider is touched before something is asked
    list(made.client.complete([Request("m", "t@1", "now")]))
    assert (seen["openai"].requests_per_minute, seen["openai"].tokens_per_minute) == (20, 3000)
    assert seen["anthropic"].requests_per_minute == ProviderSettings().requests_per_minute / 3


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_ray_gives_the_same_bytes_and_a_worker_killed_in_the_middle_of_a_stage_loses_nothing(
    local: dict[str, bytes], tmp_path: Path
) -> None:
    make = partial(make_worker_resources, folder=tmp_path, kill_at=200)
    with RayExecutor(make, workers=2) as executor:
        Pipeline(make_config(), tmp_path / "root", executor).run()
    assert (tmp_path / "killed").exists()
    assert contents(tmp_path / "root") == local
    asked = (tmp_path / "log").read_text().split()
    assert len(asked) == len(set(asked)) == 24 * 3 + 24 + 16 * 3 + 80 * 3  # as in test_pipeline: 80 candidates
    assert executor.resources.budget is not None
    assert executor.resources.budget.usd == len(asked)  # a dollar a call


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_the_workers_share_one_budget(tmp_path: Path) -> None:
    make = partial(make_worker_resources, folder=tmp_path, budget=50)
    with RayExecutor(make, workers=2) as executor, pytest.raises(BudgetError, match="the budget of \\$50 is too small"):
        Pipeline(make_config(), tmp_path / "root", executor).run()
    assert len((tmp_path / "log").read_text().split()) == 50
