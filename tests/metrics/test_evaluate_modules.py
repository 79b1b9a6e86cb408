"""The modules for the `evaluate` library: loading, computing, and what their cards promise."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from circus_bench.errors import CircusError, FormatError
from circus_bench.metrics import load_metric
from circus_bench.metrics.loading import _CLASSES

NAMES = sorted(_CLASSES)
every_metric = pytest.mark.parametrize("name", NAMES)

INPUTS: dict[str, dict[str, list[Any]]] = {
    "recall_at_k": {"predictions": [[3], [12, 1], [None]]},
    "comp_gap": {"multimodal": [[1], [3]], "text_only": [[3], [15]], "image_only": [[None], [None]]},
    "min_rank_shortcut": {
        "best_multimodal": [[1, 2], [4, 30], [90, 80]],
        "best_text_only": [[7, 9], [55, 70], [60, 70]],
        "best_image_only": [[99, 3], [41, 40], [50, None]],
    },
    "tsr": {"predictions": [[["negative"], ["positive"]], [["negative"], ["negative"]]]},
}


@pytest.fixture(autouse=True)
def _offline(evaluate_offline: ModuleType) -> None:
    """No test of this file reaches the network, or a cache of the user's."""


def test_every_module_folder_is_known_by_name(modules_folder: Path) -> None:
    assert sorted(path.parent.name for path in modules_folder.glob("*/README.md")) == NAMES


@every_metric
def test_evaluate_loads_the_folder_and_agrees(name: str, evaluate_offline: ModuleType, modules_folder: Path) -> None:
    loaded = evaluate_offline.load(str(modules_folder / name))
    assert loaded.name == name
    assert loaded.compute(**INPUTS[name]) == load_metric(name).compute(**INPUTS[name])


@every_metric
def test_the_module_describes_itself(name: str) -> None:
    metric = load_metric(name)
    assert metric.name == name
    for text in (metric.description, metric.citation, metric.inputs_description):
        assert text.strip()
    assert set(metric.features) == set(INPUTS[name])


@every_metric
def test_the_example_of_the_inputs_description_runs(name: str) -> None:
    example = doctest.DocTestParser().get_doctest(load_metric(name).inputs_description, {}, name, None, None)
    assert example.examples
    report = io.StringIO()
    assert doctest.DocTestRunner().run(example, out=report.write).failed == 0, report.getvalue()


@every_metric
def test_the_card_shows_what_its_code_prints(name: str, modules_folder: Path) -> None:
    card = (modules_folder / name / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", card, re.DOTALL)
    assert len(blocks) == card.count("```python")
    assert blocks
    namespace: dict[str, Any] = {}
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        assert printed.getvalue() == expected


@every_metric
def test_the_card_has_the_front_matter_of_the_hub_and_the_citation_of_the_module(
    name: str, modules_folder: Path
) -> None:
    card = (modules_folder / name / "README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(card.split("---\n")[1])
    assert {"title", "sdk", "tags", "description", "emoji"} <= set(head)
    assert {"evaluate", "metric"} <= set(head["tags"])
    assert load_metric(name).citation.strip() in card


@every_metric
def test_batches_give_the_same_as_one_call(name: str) -> None:
    metric = load_metric(name)
    for row in range(len(next(iter(INPUTS[name].values())))):
        metric.add_batch(**{column: values[row : row + 1] for column, values in INPUTS[name].items()})
    assert metric.compute() == load_metric(name).compute(**INPUTS[name])


@every_metric
def test_two_processes_give_the_same_as_one(name: str, tmp_path: Path) -> None:
    expected = load_metric(name).compute(**INPUTS[name])

    def share(process: int) -> Any:
        metric = load_metric(name, num_process=2, process_id=process, experiment_id="two", cache_dir=str(tmp_path))
        return metric.compute(**{column: values[process::2] for column, values in INPUTS[name].items()})

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(share, range(2))
    assert first == expected
    assert second is None


def test_combined_metrics_share_one_call_of_add_batch(evaluate_offline: ModuleType) -> None:
    together = evaluate_offline.combine([load_metric(name) for name in ("recall_at_k", "comp_gap")])
    together.add_batch(**INPUTS["recall_at_k"], **INPUTS["comp_gap"])
    result = together.compute()
    assert result["hit_rate_at_1"] == pytest.approx(1 / 3)
    assert result["comp_gap"] == pytest.approx(0.5)


def test_recall_at_k_takes_one_cutoff_or_several() -> None:
    metric = load_metric("recall_at_k")
    assert set(metric.compute(predictions=[[1]])) >= {f"recall_at_{k}" for k in (1, 5, 10, 50)}
    # Recall at 10 of the three queries: 1, 1/2 (ranks 12 and 1), 0 (unreachable). Hit rate: 1, 1, 0.
    assert metric.compute(**INPUTS["recall_at_k"], k=10) == {
        "recall_at_10": pytest.approx((1 + 1 / 2) / 3),
        "hit_rate_at_10": pytest.approx(2 / 3),
        "n_queries": 3,
        "n_relevant": 4,
        "status": "ok",
    }


def test_recall_of_no_queries_is_undefined() -> None:
    assert load_metric("recall_at_k").compute(predictions=[], k=1) == {
        "recall_at_1": None,
        "hit_rate_at_1": None,
        "n_queries": 0,
        "n_relevant": 0,
        "status": "undefined: no queries",
    }


def test_comp_gap_reports_an_undefined_value_as_none() -> None:
    metric = load_metric("comp_gap")
    nothing = metric.compute(multimodal=[[None]], text_only=[[1]], image_only=[[1]])
    assert (nothing["comp_gap"], nothing["status"]) == (None, "undefined: multimodal nDCG is 0")
    empty = metric.compute(multimodal=[], text_only=[], image_only=[])
    assert (empty["comp_gap"], empty["status"]) == (None, "undefined: no queries")


def test_comp_gap_can_be_negative() -> None:
    # nDCG 1/2 with both parts, 1 with the text alone: 1 - 1 / 0.5.
    found = load_metric("comp_gap").compute(multimodal=[[3]], text_only=[[1]], image_only=[[7]])
    assert (found["comp_gap"], found["status"]) == (-1, "ok")


def test_comp_gap_refuses_conditions_with_different_targets() -> None:
    with pytest.raises(FormatError, match="as many targets"):
        load_metric("comp_gap").compute(multimodal=[[1, 2]], text_only=[[1]], image_only=[[1]])


def test_min_rank_shortcut_counts_and_shares() -> None:
    found = load_metric("min_rank_shortcut").compute(**INPUTS["min_rank_shortcut"], return_labels=True)
    assert found["labels"] == ["shortcut", "composition_required", "unresolved"]
    assert found["details"] == ["both", "", ""]
    assert (found["shortcut"], found["shortcut_both"], found["shortcut_text_only"]) == (1, 1, 0)
    assert (found["shortcut_free"], found["shortcut_free_share"]) == (2, pytest.approx(2 / 3))
    assert (found["n_queries"], found["n_models"], found["k"]) == (3, 2, 10)


def test_min_rank_shortcut_passes_its_options_on() -> None:
    metric = load_metric("min_rank_shortcut")
    assert metric.compute(**INPUTS["min_rank_shortcut"], k=2)["shortcut"] == 0
    with pytest.raises(CircusError, match="pool has 2 models"):
        metric.compute(**INPUTS["min_rank_shortcut"], min_unimodal=3)


@pytest.mark.parametrize("rows", [[], [[1, 2], [1]]])
def test_min_rank_shortcut_refuses_no_query_and_rows_of_different_pools(rows: list[list[int]]) -> None:
    with pytest.raises(FormatError, match="multimodal: "):
        load_metric("min_rank_shortcut").compute(best_multimodal=rows, best_text_only=rows, best_image_only=rows)


def test_tsr_of_a_test_set_is_the_mean_of_its_lists() -> None:
    # N P: suffix means 1/2 and 0, so 1/4. N N: 1.
    found = load_metric("tsr").compute(**INPUTS["tsr"], return_values=True)
    assert found["values"] == [0.25, 1.0]
    assert found["tsr"] == 0.625
    assert (found["n_lists"], found["k_min"], found["k_max"]) == (2, 2, 2)
    assert (found["n_verdicts"], found["n_abstain"]) == (4, 0)


def test_tsr_of_no_lists_is_undefined() -> None:
    found = load_metric("tsr").compute(predictions=[])
    assert (found["tsr"], found["status"]) == (None, "undefined: no lists")


@pytest.mark.parametrize("bad", [0, -2])
def test_a_rank_below_one_is_refused_not_read_as_unreachable(bad: int) -> None:
    with pytest.raises(FormatError, match="ranks below 1"):
        load_metric("recall_at_k").compute(predictions=[[1], [bad]])


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(CircusError, match="no metric 'ndcg'; known: comp_gap, min_rank_shortcut, recall_at_k, tsr"):
        load_metric("ndcg")
