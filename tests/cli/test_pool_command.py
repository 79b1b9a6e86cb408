"""`circus-bench pool` and `circus-bench mteb`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from circus_bench import __version__, cli
from circus_bench.errors import CircusError
from circus_bench.models import registry

GIB = 2**30


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 8 GiB and without keys."""
    monkeypatch.setattr(registry, "_memory", lambda: ("free in RAM", 8 * GIB))
    for model in registry.pool():
        for key in model.keys:
            monkeypatch.delenv(key, raising=False)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, ["pool", *arguments])


def test_list_shows_every_model_with_its_needs() -> None:
    done = invoke("list")
    assert done.exit_code == 0
    for model in registry.pool():
        assert model.name in done.stdout


def test_list_says_what_is_missing_here() -> None:
    listed = {line.split()[0]: line for line in invoke("list").stdout.splitlines() if "/" in line}
    assert listed["Qwen/Qwen3-VL-Embedding-2B"].split()[-1] == "yes"
    assert listed["Qwen/Qwen3-VL-Embedding-8B"].endswith("no: memory ")
    assert "VOYAGE_API_KEY" in listed["voyageai/voyage-multimodal-3.5"]
    assert "no: key" in listed["voyageai/voyage-multimodal-3.5"]


def test_list_of_one_pool_in_strict_json() -> None:
    found = json.loads(invoke("list", "--pool", "rmir", "--json").stdout)["models"]
    assert len(found) == 7
    entry = next(model for model in found if model["name"] == "zhibinlan/UME-R1-7B")
    assert entry["memory_bytes"] == 2 * 8_291_375_616
    assert entry["runs_here"] is False
    assert [need["what"] for need in entry["needs"]] == ["memory"]


def test_list_of_an_unknown_pool_is_an_error() -> None:
    assert isinstance(invoke("list", "--pool", "clip").exception, CircusError)


def test_check_of_a_model_that_runs_here_exits_with_0() -> None:
    done = invoke("check", "Qwen3-VL-2B")
    assert done.exit_code == 0
    assert "4.0 GiB" in done.stdout  # 2 bytes x 2,127,532,032 parameters


def test_check_of_a_model_that_is_too_large_exits_with_3() -> None:
    done = invoke("check", "Qwen/Qwen3-VL-Embedding-8B", "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["needs"] == [
        {"what": "memory", "wanted": "15.2 GiB", "found": "8.0 GiB free in RAM", "met": False}
    ]


def test_check_tells_whether_a_key_is_set_but_not_which(monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke("check", "voyage_multimodal_35").exit_code == 3
    monkeypatch.setenv("VOYAGE_API_KEY", "sesame")
    done = invoke("check", "voyage_multimodal_35")
    assert done.exit_code == 0
    assert "sesame" not in done.stdout


def test_the_mteb_command_passes_its_arguments_on(monkeypatch: pytest.MonkeyPatch) -> None:
    import mteb.cli

    from circus_bench import registration

    seen: list[Any] = []
    monkeypatch.setattr(sys, "argv", ["before"])  # the command replaces it
    monkeypatch.setattr(registration, "register", lambda: seen.append("registered"))
    monkeypatch.setattr(mteb.cli, "main", lambda: seen.append(sys.argv[1:]))
    done = CliRunner().invoke(cli.app, ["mteb", "run", "-m", "a/b", "--device", "cpu", "--help"])
    assert done.exit_code == 0
    assert seen == ["registered", ["run", "-m", "a/b", "--device", "cpu", "--help"]]


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "circus_bench", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == __version__
