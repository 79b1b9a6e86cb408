"""The tasks and benchmarks in mteb's registries, whatever was imported before."""

from __future__ import annotations

import importlib
from types import ModuleType, SimpleNamespace

import mteb

from circus_bench.registration import register
from circus_bench.tasks.registry import register_benchmarks, register_tasks, task_classes

NAMES = ["CIRCUS-CIRR", "CIRCUS-FashionIQ", "CIRCUS-LaSCo", "CIRCUS-CIRCO", "CIRCUS-Scenes", "RMIR"]


def test_mteb_knows_every_task_by_name():
    register()
    assert [mteb.get_task(name).metadata.name for name in NAMES] == NAMES


def test_mteb_lists_the_tasks():
    register()
    listed = {task.metadata.name for task in mteb.get_tasks(task_types=["Any2AnyRetrieval"], categories=["it2i"])}
    assert listed.issuperset(NAMES)


def test_mteb_knows_the_benchmarks():
    register()
    assert [task.metadata.name for task in mteb.get_benchmark("CIRCUS").tasks] == NAMES[:4]
    assert [task.metadata.name for task in mteb.get_benchmark("RMIR").tasks] == ["RMIR"]


def test_benchmarks_that_were_looked_up_before_are_found_all_the_same(monkeypatch):
    benchmarks = importlib.import_module("mteb.benchmarks.benchmarks")
    registry = importlib.import_module("mteb.benchmarks.get_benchmark")
    monkeypatch.delattr(benchmarks, "CIRCUS", raising=False)
    registry._build_registry.cache_clear()
    assert "CIRCUS" not in registry._build_registry()
    register_benchmarks(benchmarks)
    assert "CIRCUS" in registry._build_registry()


def test_registering_twice_changes_nothing():
    register()
    module = importlib.import_module("mteb.get_tasks")
    before = module.TASK_LIST, dict(module._TASKS_REGISTRY)
    register()
    assert before == (module.TASK_LIST, module._TASKS_REGISTRY)


def test_a_task_of_the_same_name_that_mteb_has_itself_stays():
    theirs = SimpleNamespace(metadata=SimpleNamespace(name="RMIR"))
    module = ModuleType("get_tasks")
    module._TASKS_REGISTRY, module.TASK_LIST = {"RMIR": theirs}, (theirs,)
    register_tasks(module)
    assert module._TASKS_REGISTRY["RMIR"] is theirs
    assert len(module.TASK_LIST) == len(task_classes())
