"""The audit as a whole: its parts agree with each other, and it is written as strict JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.makers import make_run

from circus_bench.audit.audit import Audit, audit_best_ranks, audit_runs, check_audit_matches
from circus_bench.benchmark import Benchmark, Condition, Protocol, Query, ReferencePolicy
from circus_bench.errors import CircusError, MismatchError
from circus_bench.io import to_json
from circus_bench.labels.labels import Labels, Subset
from circus_bench.metrics.shortcut import Label
from circus_bench.ranking.ranker import ReferencePosition
from circus_bench.runs.run import Run


def random_pool(*, n: int = 80, models: int = 3, highest: int = 60, seed: int = 0) -> list[Run]:
    rng = np.random.default_rng(seed)

    def ranks() -> list[int]:
        return rng.integers(1, highest, n).tolist()

    nulls = {condition: rng.integers(1, 1000, n).tolist() for condition in Condition}
    return [make_run(ranks(), ranks(), ranks(), model=f"tests/{i}", nulls=nulls) for i in range(models)]


def test_an_audit_labels_every_query() -> None:
    # Text 3; neither 11 nor 12, but both together 10; nothing up to 10.
    audit = audit_runs([make_run([1, 10, 11], [3, 11, 30], [90, 12, 40])])
    assert [audit.label_of(query) for query in ("q0", "q1", "q2")] == [
        Label.SHORTCUT,
        Label.COMPOSITION_REQUIRED,
        Label.UNRESOLVED,
    ]


def test_an_audit_follows_the_reference_policy_of_the_protocol() -> None:
    places = {Condition.IMAGE_ONLY: [ReferencePosition.ABOVE]}
    labels = [
        audit_runs([make_run([1], [99], [11], policy=policy, places=places)]).label_of("q0")
        for policy in (ReferencePolicy.KEPT, ReferencePolicy.REMOVED)
    ]
    assert labels == [Label.COMPOSITION_REQUIRED, Label.SHORTCUT]


@pytest.mark.parametrize("k", [3, 10])
def test_no_model_of_the_pool_solves_a_shortcut_free_query_from_one_part(k: int) -> None:
    audit = audit_runs(random_pool(), k=k)
    on_sf = [scores for scores in audit.scores if scores.subset == Subset.SF]
    assert [scores.model for scores in on_sf] == ["tests/0", "tests/1", "tests/2"]
    assert 0 < on_sf[0].n_queries < 80
    for scores in on_sf:
        assert scores.either_unimodal.value == 0
        assert scores.by_condition[Condition.TEXT_ONLY][f"hit_rate@{k}"].value == 0
        assert scores.by_condition[Condition.IMAGE_ONLY][f"hit_rate@{k}"].value == 0


def test_every_model_is_scored_on_full_and_on_sf() -> None:
    audit = audit_runs(random_pool(models=2))
    assert [(scores.model, scores.subset) for scores in audit.scores] == [
        ("tests/0", "full"),
        ("tests/1", "full"),
        ("tests/0", "sf"),
        ("tests/1", "sf"),
    ]


def test_the_sf_subset_is_what_the_labels_leave() -> None:
    audit = audit_runs(random_pool())
    counts = audit.shortcut_labels.counts()
    left = counts[Label.COMPOSITION_REQUIRED] + counts[Label.UNRESOLVED]
    assert {scores.n_queries for scores in audit.scores if scores.subset == Subset.SF} == {left}


def test_the_sweeps_pass_through_the_audit_s_own_labels() -> None:
    audit = audit_runs(random_pool(), k=10)
    own = audit.shortcut_labels.counts()
    assert audit.k_sweep[10].counts == own
    assert audit.support_sweep[1].counts == own
    assert audit.summary.counts == own


def test_a_smaller_pool_never_has_more_shortcuts() -> None:
    audit = audit_runs(random_pool())
    most = audit.summary.counts[Label.SHORTCUT]
    assert all(entry.counts[Label.SHORTCUT] <= most for entry in audit.leave_one_out.values())


def test_shortcuts_by_chance_come_from_the_null_ranks() -> None:
    nulls = {condition: [1, 1000, 1000, 1000] for condition in Condition}
    audit = audit_runs([make_run([1] * 4, [99] * 4, [99] * 4, nulls=nulls)])
    assert audit.chance is not None
    assert audit.chance.value == 0.25


def test_more_models_can_be_asked_for() -> None:
    runs = [make_run([1], [1], [99], model="tests/a"), make_run([1], [99], [99], model="tests/b")]
    assert audit_runs(runs, min_unimodal=2).label_of("q0") is Label.COMPOSITION_REQUIRED


def test_more_models_than_there_are_cannot_be_asked_for() -> None:
    with pytest.raises(CircusError, match="min_unimodal is 2, but the pool has 1"):
        audit_runs([make_run([1], [1], [1])], min_unimodal=2)


def test_an_audit_of_no_runs_is_refused() -> None:
    with pytest.raises(CircusError, match="at least one Run"):
        audit_runs([])


def test_an_audit_without_shortcut_free_queries_has_undefined_scores_there() -> None:
    audit = audit_runs([make_run([1, 1], [1, 1], [1, 1])])
    written = json.loads(to_json(audit.to_dict()))
    assert written["comp_gap"]["sf"] == {"value": None, "low": None, "high": None, "n": 0, "status": "undefined"}


def test_an_undefined_composition_gap_is_null_with_a_status_in_strict_json() -> None:
    written = json.loads(to_json(audit_runs([make_run([None], [None], [None])]).to_dict()))
    assert written["comp_gap"]["full"] == {"value": None, "low": None, "high": None, "n": 1, "status": "undefined"}


def test_an_audit_says_what_it_is_about() -> None:
    written = json.loads(to_json(audit_runs(random_pool(models=2), k=5).to_dict()))
    assert written["about"] == {
        "benchmark": "made",
        "protocol": dataclasses.asdict(Protocol("made/test", ReferencePolicy.KEPT)),
        "fingerprint": {"annotations": "annotations of made", "images": "images of made"},
        "n_gallery": 1000,
    }
    assert (written["pool"], written["k"], written["n_queries"]) == (["tests/0", "tests/1"], 5, 80)


def test_the_same_runs_give_the_same_audit() -> None:
    assert to_json(audit_runs(random_pool()).to_dict()) == to_json(audit_runs(random_pool()).to_dict())


def test_labels_do_not_depend_on_the_order_of_the_pool() -> None:
    runs = random_pool()
    forward, backward = audit_runs(runs), audit_runs(runs[::-1])
    assert forward.shortcut_labels.labels.tolist() == backward.shortcut_labels.labels.tolist()
    assert forward.shortcut_labels.details.tolist() == backward.shortcut_labels.details.tolist()


def test_the_labels_of_an_audit_are_those_of_its_file(tmp_path: Path) -> None:
    audit = audit_runs(random_pool())
    audit.labels.save(tmp_path / "labels.parquet")
    found = [label.label for label in Labels.load(tmp_path / "labels.parquet").by_query.values()]
    assert found == audit.shortcut_labels.labels.tolist()


def test_an_audit_of_a_run_from_disk_is_that_of_the_run_in_memory(tmp_path: Path) -> None:
    runs = random_pool(models=2)
    for number, run in enumerate(runs):
        run.save(tmp_path / str(number))
    loaded = [Run.load(tmp_path / str(number)) for number in range(2)]
    assert to_json(audit_runs(loaded).to_dict()) == to_json(audit_runs(runs).to_dict())


def grouped(toy_benchmark: Callable[..., Benchmark], order: tuple[int, ...] = (0, 1, 2)) -> tuple[Benchmark, Audit]:
    """Three queries in two groups, and an audit of them: q0 a text shortcut, q1 composed, q2 unresolved."""
    queries = [Query(f"q{i}", "a", f"text {i}", ("b",), group=group) for i, group in enumerate(("x", "x", "y"))]
    benchmark = toy_benchmark(queries=queries, with_images=False)
    run = make_run([1, 2, 50], [3, 50, 50], [50, 50, 50], fingerprint=benchmark.fingerprint)
    reordered = toy_benchmark(queries=[queries[i] for i in order], with_images=False)
    return reordered, audit_runs([run])


def test_labels_are_counted_by_group(toy_benchmark: Callable[..., Benchmark]) -> None:
    benchmark, audit = grouped(toy_benchmark)
    assert audit.by_group(benchmark) == {
        "x": {"shortcut: text_only": 1, "composition_required": 1},
        "y": {"unresolved": 1},
    }


def test_counts_by_group_do_not_depend_on_the_order_of_the_benchmark(toy_benchmark: Callable[..., Benchmark]) -> None:
    # A benchmark's fingerprint does not depend on the order of its queries, so neither may what goes by it.
    benchmark, audit = grouped(toy_benchmark, (2, 0, 1))
    assert audit.by_group(benchmark) == grouped(toy_benchmark)[1].by_group(grouped(toy_benchmark)[0])


def test_labels_are_not_counted_by_the_groups_of_another_benchmark(toy_benchmark: Callable[..., Benchmark]) -> None:
    _, audit = grouped(toy_benchmark)
    other = toy_benchmark(queries=[Query("another", "a", "text", ("b",))], with_images=False)
    with pytest.raises(MismatchError):
        audit.by_group(other)


def test_the_audited_benchmark_is_accepted_and_another_refused(toy_benchmark: Callable[..., Benchmark]) -> None:
    benchmark, audit = grouped(toy_benchmark)
    check_audit_matches(audit, benchmark)
    with pytest.raises(MismatchError, match="tests/a on 'made' was not made on this version of 'toy'"):
        check_audit_matches(audit, toy_benchmark(with_images=False))


def test_validated_queries_are_scored_as_a_subset_of_their_own() -> None:
    # Text 3 is a shortcut; q1 (rank 10) and q2 (rank 11) are shortcut-free, and q2 was found valid.
    audit = audit_runs([make_run([1, 10, 11], [3, 11, 30], [90, 12, 40])])
    validated = audit.with_validated(["q2"], how="made up")
    on_v = [scores for scores in validated.scores if scores.subset == Subset.V]
    assert [(scores.n_queries, scores.by_condition[Condition.MULTIMODAL]["hit_rate@10"].value) for scores in on_v] == [
        (1, 0.0)
    ]
    assert set(validated.comp_gap) == {Subset.FULL, Subset.SF, Subset.V}
    assert validated.to_dict()["about"]["validation"] == "made up"
    assert [scores for scores in validated.scores if scores.subset != Subset.V] == audit.scores


def test_a_validated_query_that_is_a_shortcut_is_refused() -> None:
    audit = audit_runs([make_run([1, 10], [3, 11], [90, 12])])
    with pytest.raises(MismatchError, match=r"not among the shortcut-free ones.*'q0'"):
        audit.with_validated(["q0"], how="made up")


@pytest.fixture
def minima(tmp_path: Path) -> Path:
    path = tmp_path / "minima.csv"
    path.write_text("query_idx,best_rank_multimodal,best_rank_text_only,best_rank_image_only\na,1,3,90\nb,8,20,30\n")
    return path


def test_published_minima_are_labeled_and_swept(minima: Path) -> None:
    audit = audit_best_ranks(minima)
    assert [audit.label_of(query) for query in "ab"] == [Label.SHORTCUT, Label.COMPOSITION_REQUIRED]
    assert audit.k_sweep[20].counts[Label.SHORTCUT] == 2


def test_published_minima_have_neither_scores_nor_chance_nor_smaller_pools(minima: Path) -> None:
    audit = audit_best_ranks(minima)
    assert (audit.scores, audit.comp_gap, audit.chance, audit.leave_one_out, audit.runs) == ([], {}, None, {}, ())


def test_published_minima_cannot_be_scored_on_validated_queries(minima: Path) -> None:
    with pytest.raises(CircusError, match="audit Runs"):
        audit_best_ranks(minima).with_validated(["b"], how="made up")


def test_an_audit_of_published_minima_names_their_file(minima: Path) -> None:
    assert json.loads(to_json(audit_best_ranks(minima).to_dict()))["about"] == {"best_ranks": "minima.csv"}


def test_an_audit_of_published_minima_is_written_as_strict_json(minima: Path) -> None:
    written = json.loads(to_json(audit_best_ranks(minima, k=5).to_dict()))
    assert written["labels"] == {"shortcut": 1, "composition_required": 0, "unresolved": 1}
    assert written["chance"] is None


def test_the_published_audit_of_circo_has_the_published_shares(shared: Path) -> None:
    # arXiv 2605.14787, table 1: 74.5 %, 24.1 % and 1.4 % of 220 queries.
    audit = audit_best_ranks(shared / "data" / "circus" / "circo_audit_full.csv")
    shares = {label: round(100 * share.value, 1) for label, share in audit.summary.shares.items()}
    assert shares == {Label.SHORTCUT: 74.5, Label.COMPOSITION_REQUIRED: 24.1, Label.UNRESOLVED: 1.4}
