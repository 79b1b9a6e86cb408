"""The list of pool models, its agreement with the loaders, and what a model needs."""

from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys

import pytest

from circus_bench.errors import CircusError
from circus_bench.models import register, registry
from circus_bench.models.registry import PoolModel, PoolName, needs, pool, pool_model

GIB = 2**30


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 8 GiB free."""
    monkeypatch.setattr(registry, "_memory", lambda: ("free in RAM", 8 * GIB))


def with_parameters(parameters: int) -> PoolModel:
    return dataclasses.replace(pool("circus")[0], parameters=parameters)


def test_the_pool_of_circus_has_the_eleven_models_of_its_paper() -> None:
    # The internal ids of the release, in the order of the fact sheet of the paper, section 2.
    assert {model.circus_id for model in pool("circus")} == {
        "e5_omni",
        "gme_qwen2vl_retriever_2",
        "lamra",
        "lamra_qwen25vl",
        "mmembed",
        "qwen3vl2b_vllm",
        "qwen3vl8b_vllm",
        "rzen_embed",
        "vlm2vec_v2",
        "gemini_embedding_2",
        "voyage_multimodal_35",
    }


def test_the_pool_of_rmir_has_the_seven_known_rows_of_its_table() -> None:
    assert {model.title for model in pool("rmir")} == {
        "Qwen2.5-VL-3B",
        "Qwen2.5-VL-7B",
        "Phi-4-Multimodal-5.6B",
        "VLM2Vec-Qwen2-VL-7B",
        "VLM2Vec-V2",
        "UME-R1-2B",
        "UME-R1-7B",
    }


def test_without_a_name_the_pool_is_every_model_once() -> None:
    names = [model.name for model in pool()]
    assert len(names) == len(set(names)) == 11 + 7 - 1  # VLM2Vec-V2 is in both


def test_an_unknown_pool_is_refused() -> None:
    with pytest.raises(CircusError, match="no pool 'clip'; there are: circus, rmir"):
        pool("clip")


@pytest.mark.parametrize("name", ["nvidia/MM-Embed", "MM-Embed", "mmembed"])
def test_a_model_is_found_by_each_of_its_names(name: str) -> None:
    assert pool_model(name).name == "nvidia/MM-Embed"


def test_an_unknown_model_is_refused_with_close_names() -> None:
    with pytest.raises(CircusError, match=r"no model 'nvidia/MM-Embd'.*nvidia/MM-Embed"):
        pool_model("nvidia/MM-Embd")


def test_only_models_of_circus_have_an_id_of_its_release() -> None:
    assert [model.name for model in pool() if bool(model.circus_id) != (PoolName.CIRCUS in model.pools)] == []


def test_a_model_has_either_weights_or_a_key() -> None:
    assert [model.name for model in pool() if bool(model.parameters) == bool(model.keys)] == []


def test_every_model_names_its_source() -> None:
    assert [model.name for model in pool() if not model.source] == []


@pytest.mark.parametrize("model", pool(), ids=lambda model: model.name)
def test_the_loader_knows_the_model_by_the_same_facts(model: PoolModel) -> None:
    metas = {meta.name: meta for meta in importlib.import_module(model.module).metas()}
    meta = metas[model.name]
    assert (meta.revision or "", meta.n_parameters or 0) == (model.revision, model.parameters)
    assert {"text", "image"} <= set(meta.modalities)


@pytest.mark.parametrize("model", pool(), ids=lambda model: model.name)
def test_the_registered_loader_is_ours_and_asks_for_none_of_mtebs_extras(model: PoolModel) -> None:
    import mteb

    register()
    meta = mteb.get_model_meta(model.name)
    assert meta.loader is not None
    assert meta.loader.__module__.startswith("circus_bench.")
    assert meta._resolve_extras_groups() == []


def test_registering_twice_changes_nothing() -> None:
    from mteb.models.model_implementations import MODEL_REGISTRY

    register()
    names = list(MODEL_REGISTRY)
    register()
    assert list(MODEL_REGISTRY) == names


def test_registering_loads_no_networks() -> None:
    # torch comes with mteb; the modules that define networks and processors are what would take long. With the hook on,
    # mteb's import would have registered already.
    code = (
        "import sys\n"
        "import mteb\n"
        "before = {*sys.modules}\n"
        "from circus_bench.models import register\n"
        "register()\n"
        "new = {*sys.modules} - before\n"
        "networks = [name for name in new if name.startswith('transformers.models.')]\n"
        "print('circus_bench.models.families.gme' in new, networks)"
    )
    environment = {**os.environ, "CIRCUS_BENCH_NO_MTEB_HOOK": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "True []"


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(("parameters", "met"), [(4 * GIB, True), (4 * GIB + 1, False)])
def test_weights_need_two_bytes_a_parameter(parameters: int, met: bool) -> None:
    (memory,) = needs(with_parameters(parameters))
    assert (memory.what, memory.wanted, memory.found, memory.met) == ("memory", "8.0 GiB", "8.0 GiB free in RAM", met)


def test_the_memory_of_this_machine_is_found() -> None:
    where, free = registry._memory()
    assert where.startswith("free ")
    assert free > 2**20


@pytest.mark.parametrize(("variable", "met"), [("GEMINI_API_KEY", True), ("GOOGLE_API_KEY", True), ("OTHER", False)])
def test_one_key_in_the_environment_is_enough_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str, met: bool
) -> None:
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "sesame")
    (key,) = needs(pool_model("gemini_embedding_2"))
    assert (key.what, key.met) == ("key", met)
    assert "sesame" not in repr(key)


def test_an_extra_whose_packages_are_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    required = ['numpy>=2; extra == "here"', 'no-such-package>=3; extra == "there"', 'numpy>=900; extra == "newer"']
    monkeypatch.setattr(registry.importlib.metadata, "requires", lambda _: required)
    model = dataclasses.replace(with_parameters(0), extras=("here", "there", "newer"))
    found = [(need.what, need.found, need.met) for need in needs(model)]
    assert found == [
        ("extra here", "installed", True),
        ("extra there", "missing: no-such-package>=3", False),
        ("extra newer", "missing: numpy>=900", False),
    ]
