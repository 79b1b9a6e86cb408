"""`circus-bench rmir`: stages one by one and all at once, status, cost estimate, with a scripted provider."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.rmir_provider import FILES, NamingEmbedder, ScriptedProvider

from circus_bench.api.chat.client import CachedClient, Route
from circus_bench.api.chat.messages import Request
from circus_bench.api.runtime import Budget, ResponseCache
from circus_bench.cli import main
from circus_bench.hub.loading import load_benchmark
from circus_bench.rmir import resources
from circus_bench.rmir.embedders import MtebEmbedder

DONE, USAGE, ATTENTION, INPUT = 0, 2, 3, 4

CONFIG = """
[collection]
images = "pictures"
[seed]
clusters = 0
near = "off"
[generate]
reading = "off"
[candidates]
visual = "naming"
text = "naming"
visual_k = 5
text_k = 5
[judge]
panel = [{model = "claude-sonnet-4-5"}, {model = "claude-haiku-4-5", samples = 2}]
[split]
test_size = 6
[run]
batch_size = 8
"""


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str


def invoke(*arguments: object) -> CommandResult:
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["circus-bench", "rmir", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
    return CommandResult(int(stop.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    for image, data in FILES.items():
        (tmp_path / "pictures" / f"{image}.png").write_bytes(data)
    (tmp_path / "rmir.toml").write_text(CONFIG)
    return tmp_path / "rmir.toml"


@pytest.fixture
def vendors(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedProvider]:
    """`vendors(**settings)`: lets a scripted provider answer for all models; a request takes a million tokens."""

    def replace(**settings: Any) -> ScriptedProvider:
        provider = ScriptedProvider(usage=lambda request: {f"{request.model} input": 1e6}, **settings)

        def make(models: Sequence[str], replies: Path, **_: Any) -> CachedClient:
            assert set(models) == {"claude-sonnet-4-5", "claude-haiku-4-5"}
            return CachedClient(Route(provider), ResponseCache(replies), budget=Budget(None, None))

        monkeypatch.setattr(resources, "make_client", make)
        return provider

    monkeypatch.setattr(MtebEmbedder, "load", lambda *_, **__: NamingEmbedder())
    return replace


def state(outcome: CommandResult) -> dict[str, Any]:
    return {row["stage"]: row for row in json.loads(outcome.out)["stages"]}


def test_a_run_writes_the_benchmark_and_the_dataset_folder(
    config: Path, tmp_path: Path, vendors: Callable[..., ScriptedProvider]
) -> None:
    provider = vendors()
    done = invoke("run", config, "--out", tmp_path / "out", "--budget", "inf", "--json")
    assert done.code == DONE, done.err
    found = json.loads(done.out)
    assert found["outcome"]["queries with a positive"] == 16
    assert found["outcome"]["queries for test"] == 6
    # Three dollars a million tokens of Sonnet, which writes, checks and is one of three judges; one of Haiku.
    sonnet = 24 * 3 + 16 * 3 + 80
    assert found["usd"] == pytest.approx(3 * sonnet + (provider.asked.total() - sonnet))
    assert len(load_benchmark(f"{tmp_path / 'out' / 'dataset'}#rmir").queries) == 6
    assert (tmp_path / "out" / "dataset" / "manifest.json").exists()


def test_the_stages_can_be_run_one_by_one(
    config: Path, tmp_path: Path, vendors: Callable[..., ScriptedProvider]
) -> None:
    provider = vendors()
    where = ("--out", tmp_path / "out", "--budget", "inf", "--json")
    asked = []
    for stage in ("seed", "generate", "filter", "candidates", "judge", "keep", "pool", "split"):
        outcome = invoke(stage, config, *where)
        assert outcome.code == DONE, outcome.err
        assert state(outcome)[stage]["done"]
        asked.append(provider.asked.total())
    # Captions are asked for with the candidates; keep, pool and split ask nothing.
    assert asked == [0, 72, 72 + 48, 120 + 24, 144 + 240, 384, 384, 384]
    assert set(provider.asked.values()) == {1}


def test_a_stage_runs_what_it_depends_on(
    config: Path, tmp_path: Path, vendors: Callable[..., ScriptedProvider]
) -> None:
    vendors()
    found = state(invoke("filter", config, "--out", tmp_path / "out", "--budget", "inf", "--json"))
    assert [stage for stage, row in found.items() if row["done"]] == ["look", "seed", "generate", "filter"]


def test_without_a_budget_nothing_is_asked(
    config: Path, tmp_path: Path, vendors: Callable[..., ScriptedProvider]
) -> None:
    provider = vendors()
    stopped = invoke("generate", config, "--out", tmp_path / "out")
    assert stopped.code == INPUT
    assert "--budget" in stopped.err
    assert not provider.asked


def test_a_spent_budget_stops_the_run_and_status_tells_where(
    config: Path, tmp_path: Path, vendors: Callable[..., ScriptedProvider]
) -> None:
    provider = vendors()
    stopped = invoke("run", config, "--out", tmp_path / "out", "--budget", 150)
    assert stopped.code == INPUT
    assert "the budget of $150 is too small" in stopped.err
    assert provider.asked.total() == 50  # at three dollars a question
    seen = invoke("status", config, "--out", tmp_path / "out", "--json")
    assert seen.code == DONE
    assert json.loads(seen.out)["usd"] == pytest.approx(150)
    assert state(seen)["seed"]["done"]
    assert not state(seen)["generate"]["done"]
    assert provider.asked.total() == 50


def test_status_is_a_table_for_people(config: Path, tmp_path: Path, vendors: Callable[..., ScriptedProvider]) -> None:
    vendors()
    invoke("seed", config, "--out", tmp_path / "out")
    shown = invoke("status", config, "--out", tmp_path / "out")
    assert shown.code == DONE
    assert "0 of 3 batches" in shown.out  # 24 seeds, eight a batch
    assert "spent so far, by the replies on disk: $0.00" in shown.out


def test_questions_without_an_answer_call_for_attention(
    config: Path, tmp_path: Path, vendors: Callable[..., ScriptedProvider]
) -> None:
    def mumble(kind: str, _: Request, ids: Sequence[str]) -> str | None:
        return "no JSON" if kind == "caption" and ids[0] == "i23" else None

    vendors(change=mumble)
    where = ("--out", tmp_path / "out", "--budget", "inf")
    shown = invoke("candidates", config, *where)
    assert shown.code == ATTENTION
    assert "1 requests were refused or got an unreadable reply" in shown.err
    assert "caption: malformed" in shown.out
    assert invoke("candidates", config, *where, "--allow-unanswered").code == DONE


def test_a_dry_run_calls_nothing(config: Path, tmp_path: Path) -> None:
    shown = invoke("run", config, "--out", tmp_path / "out", "--dry-run", "--seeds", "1000", "--json")
    found = json.loads(shown.out)
    assert (shown.code, found["dry_run"], found["seeds"]) == (DONE, True, 1000)
    assert found["calls"] == 3000 + 9000 + 1000 + 1800 * 10 * 3
    assert found["usd"] > 0
    assert not (tmp_path / "out").exists()


def test_a_dry_run_is_a_table_for_people(config: Path) -> None:
    shown = invoke("run", config, "--dry-run")
    assert "dry run of 500,000 seed images, full prices" in shown.out
    assert "claude-haiku-4-5" in shown.out


def test_batches_and_ray_do_not_go_together(config: Path, tmp_path: Path) -> None:
    refused = invoke("run", config, "--out", tmp_path / "out", "--batch", "--engine", "ray")
    assert refused.code == INPUT
    assert "leave --batch or --engine ray out" in refused.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('images = "pictures"', 'images = "none"'), "no such folder or file"),
        (('images = "pictures"', ""), r"collection.images is missing"),
        (("claude-haiku-4-5", "some-model"), "no provider is known by that name"),
        (("clusters = 0", "cluster = 0"), "unknown settings seed.cluster"),
    ],
)
def test_wrong_settings_are_named(config: Path, tmp_path: Path, change: tuple[str, str], message: str) -> None:
    config.write_text(CONFIG.replace(*change))
    refused = invoke("seed", config, "--out", tmp_path / "out")
    assert refused.code == INPUT
    assert message in refused.err


def test_captions_are_read_from_a_file(config: Path, tmp_path: Path, vendors: Callable[..., ScriptedProvider]) -> None:
    provider = vendors()
    rows = [{"id": image, "text": f"picture of {image}"} for image in FILES]
    (tmp_path / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config.write_text(CONFIG.replace('images = "pictures"', 'images = "pictures"\ncaptions = "captions.jsonl"'))
    assert invoke("candidates", config, "--out", tmp_path / "out", "--budget", "inf").code == DONE
    assert provider.kinds["caption"] == 0


def test_two_captions_of_an_image_are_an_error(config: Path, tmp_path: Path) -> None:
    (tmp_path / "captions.jsonl").write_text('{"id": "i00", "text": "a"}\n{"id": "i00", "text": "b"}\n')
    config.write_text(CONFIG.replace('images = "pictures"', 'images = "pictures"\ncaptions = "captions.jsonl"'))
    refused = invoke("seed", config, "--out", tmp_path / "out")
    assert refused.code == INPUT
    assert "more than one caption (1: 'i00')" in refused.err


def test_the_images_of_a_saved_benchmark_can_be_the_collection(
    config: Path, tmp_path: Path, vendors: Callable[..., ScriptedProvider]
) -> None:
    vendors()
    invoke("run", config, "--out", tmp_path / "out", "--budget", "inf")
    config.write_text(CONFIG.replace('images = "pictures"', 'images = "out/dataset#rmir"'))
    found = json.loads(invoke("seed", config, "--out", tmp_path / "again", "--json").out)
    held = load_benchmark(f"{tmp_path / 'out' / 'dataset'}#rmir").image_ids
    assert {row["stage"]: row["rows"] for row in found["stages"]}["seed"]["seed"] == len(held)


def test_the_demo_prints_what_it_found_against_the_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from circus_bench.demo import rmir_demo

    run_demo = rmir_demo.run_demo

    def small(out: Path, *, settings: Any, **options: Any) -> Any:
        return run_demo(out, settings=dataclasses.replace(settings, views=3, fewest=2), **options)

    monkeypatch.setattr(rmir_demo, "run_demo", small)
    shown = invoke("demo", "--out", tmp_path / "demo")
    assert shown.code == DONE, shown.err
    assert "labels against the ground truth" in shown.out
    assert json.loads((tmp_path / "demo" / "demo.json").read_text())
