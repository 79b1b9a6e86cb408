"""The API models as members of a pool: by name, with settings from the environment alone."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.misbehaving_server import GEMINI, KEY, VOYAGE, MisbehavingServer

from circus_bench.api.embeddings import gemini, voyage
from circus_bench.api.embeddings.encoder import ApiEncoder
from circus_bench.benchmark import Condition
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.errors import CircusError
from circus_bench.models import load_encoder
from circus_bench.runs.run import run_benchmark

POOL = {
    gemini.PREVIEW: (GEMINI, 3072, "CIRCUS_GEMINI_URL", "GOOGLE_API_KEY"),
    voyage.NAME: (VOYAGE, 1024, "CIRCUS_VOYAGE_URL", "VOYAGE_API_KEY"),
}


@pytest.fixture(params=POOL)
def name(request):
    return request.param


@pytest.fixture
def server(name, monkeypatch, tmp_path):
    dialect, dim, url_variable, key_variable = POOL[name]
    with MisbehavingServer(dialect, dim).running() as server:
        monkeypatch.delenv("GEMINI_API_KEY", raising=False)
        settings = {key_variable: KEY, url_variable: server.url, "CIRCUS_API_REPLIES": str(tmp_path / "replies")}
        for variable, value in settings.items():
            monkeypatch.setenv(variable, value)
        yield server


@pytest.fixture
def budget(monkeypatch):
    monkeypatch.setenv("CIRCUS_API_BUDGET_USD", "1")


@pytest.mark.usefixtures("budget")
def test_a_pool_member_runs_a_benchmark_by_its_name(name, server, toy_benchmark, tmp_path):
    run = run_benchmark(load_encoder(name), toy_benchmark(), store=EmbeddingStore(tmp_path / "store"))
    assert run.manifest.model.name == name
    assert run.manifest.dim == server.dim
    # Four gallery images and three queries: the first two queries have one target, the third has two.
    assert len(run.ranks(Condition.MULTIMODAL).values) == 4
    assert run.manifest.alarms == ()


@pytest.mark.usefixtures("budget")
def test_a_second_run_without_its_store_pays_nothing(name, server, toy_benchmark, tmp_path):
    run_benchmark(load_encoder(name), toy_benchmark(), store=EmbeddingStore(tmp_path / "first"))
    paid = len(server.paid)
    run_benchmark(load_encoder(name), toy_benchmark(), store=EmbeddingStore(tmp_path / "second"))
    assert len(server.paid) == paid
    assert len(set(server.paid)) == paid


def test_without_a_budget_a_run_ends_before_the_first_call(name, server, toy_benchmark, tmp_path):
    with pytest.raises(CircusError, match="CIRCUS_API_BUDGET_USD"):
        run_benchmark(load_encoder(name), toy_benchmark(), store=EmbeddingStore(tmp_path))
    assert server.requests == []


@pytest.mark.usefixtures("server")
def test_the_loader_of_circus_bench_takes_the_place_of_that_of_mteb(name):
    assert isinstance(load_encoder(name), ApiEncoder)


def test_modules_of_the_pool_import_no_torch():
    heavy = "{'torch', 'mteb', 'requests'}"
    code = f"import sys; from circus_bench.api.embeddings import gemini, voyage; print({heavy} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"
