"""Labels at other cut-offs, other supports and of smaller pools, counted by hand; and their chance level."""

from __future__ import annotations

import pytest
from support.makers import make_run

from circus_bench.audit.sensitivity import SWEPT_K, LabelShares, chance, k_sweep, leave_one_out, support_sweep
from circus_bench.audit.statistics import proportion
from circus_bench.benchmark import Condition
from circus_bench.io import to_plain
from circus_bench.labels.pool import Pool
from circus_bench.metrics.shortcut import Label, ShortcutLabels

#                 multimodal       text only         image only
A = make_run([1, 2, 60, 4], [3, 40, 90, 12], [50, 16, 90, 70], model="tests/a")
B = make_run([1, 30, 60, 12], [30, 40, 90, 12], [50, 70, 90, 70], model="tests/b")
# At K = 10 with both models: q0 is a shortcut (a, text 3); q1 (2) and q3 (4) need composition; q2 is unresolved.


@pytest.fixture
def pool() -> Pool:
    return Pool.of_runs([A, B])


@pytest.fixture
def own(pool: Pool) -> ShortcutLabels:
    return pool.label(k=10)


def counted(entry: LabelShares) -> tuple[int, ...]:
    """Shortcut, composition_required, unresolved, changed."""
    return (*(entry.counts[label] for label in Label), entry.changed)


# Best unimodal ranks 3, 16, 90, 12; best multimodal ranks 1, 2, 60, 4.
BY_K = {
    1: (0, 1, 3, 3),  # q0 composed (1); q1 and q3 lost
    3: (1, 1, 2, 1),  # q3 lost: 4 > 3
    5: (1, 2, 1, 0),
    10: (1, 2, 1, 0),
    15: (2, 1, 1, 1),  # q3 by text 12
    20: (3, 0, 1, 2),  # q1 by image 16
    50: (3, 0, 1, 2),  # q2 at 60 and 90
}


@pytest.mark.parametrize("k", SWEPT_K)
def test_the_sweep_over_k_labels_the_queries_at_every_cut_off(pool: Pool, own: ShortcutLabels, k: int) -> None:
    assert counted(k_sweep(pool, own=own)[k]) == BY_K[k]


def test_the_sweep_over_k_includes_the_audit_s_own_cut_off_in_its_place(pool: Pool) -> None:
    assert list(k_sweep(pool, own=pool.label(k=7), ks=(10, 5))) == [5, 7, 10]


def test_the_sweep_over_k_keeps_the_support_that_the_audit_asks_for(pool: Pool) -> None:
    # Two models must agree. At K = 50: q0 (text 3 and 30), q1 (text 40 and 40) and q3 (12 and 12); at K = 15 only q3,
    # while q0 is composed by both (1 and 1) and q1 by a alone.
    own = pool.label(k=10, min_unimodal=2, min_multimodal=2)
    found = k_sweep(pool, own=own)
    assert (counted(found[50])[:3], counted(found[15])[:3]) == ((3, 0, 1), (1, 1, 2))


def test_the_sweep_over_the_support_asks_for_one_to_all_models(pool: Pool, own: ShortcutLabels) -> None:
    # m = 2 at K = 10: only a has q0 by text, but both have it composed; q1 and q3 are composed by a alone.
    found = {m: counted(entry) for m, entry in support_sweep(pool, own=own).items()}
    assert found == {1: (1, 2, 1, 0), 2: (0, 1, 3, 3)}


def test_each_model_is_left_out_in_turn(pool: Pool, own: ShortcutLabels) -> None:
    # b alone: q0 composed; q1 (30) and q3 (12) lost. a alone gave all the labels of the pool.
    found = {model: counted(entry) for model, entry in leave_one_out(pool, own=own).items()}
    assert found == {"tests/a": (0, 1, 3, 3), "tests/b": (1, 2, 1, 0)}


def test_a_smaller_pool_is_asked_for_no_more_models_than_it_has(pool: Pool) -> None:
    own = pool.label(k=10, min_unimodal=2, min_multimodal=2)
    # Against the labels for m = 2: CR, UN, UN, UN. Without b, q0 becomes a shortcut and q1 and q3 composed.
    assert [counted(entry) for entry in leave_one_out(pool, own=own).values()] == [(0, 1, 3, 0), (1, 2, 1, 3)]


def test_no_model_can_be_left_out_of_a_pool_of_one() -> None:
    pool = Pool.of_runs([A])
    assert leave_one_out(pool, own=pool.label()) == {}


def test_every_share_comes_with_wilson_s_interval(own: ShortcutLabels) -> None:
    found = LabelShares.of(own, own=own)
    assert found.shares[Label.COMPOSITION_REQUIRED] == proportion(own.labels == "composition_required")
    assert found.shares[Label.COMPOSITION_REQUIRED].value == 0.5


def test_no_label_differs_from_itself(own: ShortcutLabels) -> None:
    assert LabelShares.of(own, own=own).changed == 0


def test_label_shares_are_written_by_label_name(own: ShortcutLabels) -> None:
    written = to_plain(LabelShares.of(own, own=own))
    assert written["counts"] == {"shortcut": 1, "composition_required": 2, "unresolved": 1}
    assert written["shares"]["shortcut"]["value"] == 0.25
    assert written["changed"] == 0


def test_chance_is_the_share_of_shortcuts_among_the_null_ranks() -> None:
    # Text null ranks reach the top 10 for q0, image null ranks for q0 and q2: 2 of 4. The multimodal ones (q3) do not
    # make a shortcut.
    nulls = {
        Condition.MULTIMODAL: [500, 500, 500, 1],
        Condition.TEXT_ONLY: [10, 11, 500, 500],
        Condition.IMAGE_ONLY: [5, 500, 1, 500],
    }
    run = make_run([1] * 4, [1] * 4, [1] * 4, nulls=nulls)
    found = chance(Pool.of_null_ranks([run]), own=Pool.of_runs([run]).label())
    assert found == proportion([True, False, True, False])


def test_chance_grows_with_the_pool() -> None:
    # Each of two models hits another query by chance: the pool has both.
    runs = [
        make_run([1] * 4, [1] * 4, [1] * 4, model=model, nulls=dict.fromkeys(Condition, ranks))
        for model, ranks in (("tests/a", [1, 500, 500, 500]), ("tests/b", [500, 1, 500, 500]))
    ]
    found = chance(Pool.of_null_ranks(runs), own=Pool.of_runs(runs).label())
    assert found is not None
    assert found.value == 0.5


def test_chance_follows_the_audit_s_cut_off_and_support() -> None:
    nulls = {condition: [15, 500] for condition in Condition}
    run = make_run([1, 1], [1, 1], [1, 1], nulls=nulls)
    at_10, at_20 = (chance(Pool.of_null_ranks([run]), own=Pool.of_runs([run]).label(k=k)) for k in (10, 20))
    assert at_10 is not None
    assert at_20 is not None
    assert (at_10.value, at_20.value) == (0, 0.5)


def test_without_null_ranks_there_is_no_chance_level(own: ShortcutLabels) -> None:
    assert chance(None, own=own) is None
