"""The input of an audit: Runs that belong together, or a file of published minima that is complete."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pytest
from support.makers import make_run

from circus_bench.benchmark import Condition, Fingerprint, Protocol, ReferencePolicy
from circus_bench.errors import CircusError, FormatError, MismatchError
from circus_bench.labels.pool import PUBLISHED_POOL, Pool
from circus_bench.metrics.shortcut import Label, Shortcut
from circus_bench.ranking.ranker import ReferencePosition

HEADER = "query_idx,best_rank_multimodal,best_rank_text_only,best_rank_image_only"


def write(path: Path, *lines: str, encoding: str = "utf-8") -> Path:
    path.write_text("\n".join((HEADER, *lines)) + "\n", encoding=encoding)
    return path


def test_a_pool_holds_the_best_rank_of_every_query_for_each_model_and_condition() -> None:
    first = make_run([[4, 2], 9], [[7, 30], 8], [[12, 11], 6], model="tests/a")
    second = make_run([[1, 3], 5], [[40, 50], 2], [[90, 20], 3], model="tests/b")
    pool = Pool.of_runs([first, second])
    assert (pool.models, pool.queries) == (("tests/a", "tests/b"), ("q0", "q1"))
    assert pool.best[Condition.MULTIMODAL].tolist() == [[2, 9], [1, 5]]
    assert pool.best[Condition.TEXT_ONLY].tolist() == [[7, 8], [40, 2]]
    assert pool.best[Condition.IMAGE_ONLY].tolist() == [[11, 6], [20, 3]]


def test_a_query_whose_targets_are_outside_the_gallery_has_an_infinite_rank() -> None:
    assert Pool.of_runs([make_run([None], [None], [None])]).best[Condition.MULTIMODAL].tolist() == [[np.inf]]


@pytest.mark.parametrize(("policy", "rank"), [(ReferencePolicy.KEPT, 11), (ReferencePolicy.REMOVED, 10)])
def test_a_pool_follows_the_reference_policy_of_the_protocol(policy: ReferencePolicy, rank: int) -> None:
    # The reference scores above the target in image-only: its rank 11 is 10 without the reference.
    places = {Condition.IMAGE_ONLY: [ReferencePosition.ABOVE]}
    pool = Pool.of_runs([make_run([1], [30], [11], policy=policy, places=places)])
    assert pool.best[Condition.IMAGE_ONLY].tolist() == [[rank]]


def test_a_pool_takes_another_reference_policy_when_asked() -> None:
    run = make_run([1], [30], [11], places={Condition.IMAGE_ONLY: [ReferencePosition.ABOVE]})
    assert Pool.of_runs([run], reference=ReferencePolicy.REMOVED).best[Condition.IMAGE_ONLY].tolist() == [[10]]


def test_a_pool_of_no_runs_is_refused() -> None:
    with pytest.raises(CircusError, match="at least one Run"):
        Pool.of_runs([])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"benchmark": "other"}, "tests/a and tests/b have different benchmark: made and other"),
        ({"protocol": dataclasses.asdict(Protocol("made/official", ReferencePolicy.KEPT))}, "different protocol"),
        ({"fingerprint": Fingerprint("another text", "images of made")}, "different versions of 'made'"),
        ({"fingerprint": Fingerprint("annotations of made", "other pixels")}, "different versions of 'made'"),
    ],
)
def test_runs_that_do_not_belong_together_are_refused(change: dict[str, object], message: str) -> None:
    runs = [make_run([1], [1], [1]), make_run([1], [1], [1], model="tests/b", **change)]
    with pytest.raises(MismatchError, match=message):
        Pool.of_runs(runs)


def test_runs_over_other_queries_are_refused() -> None:
    with pytest.raises(MismatchError, match="different queries"):
        Pool.of_runs([make_run([1], [1], [1]), make_run([1, 2], [1, 2], [1, 2], model="tests/b")])


def test_runs_of_a_benchmark_with_and_without_known_pixels_belong_together() -> None:
    other = make_run([1], [1], [1], model="tests/b", fingerprint=Fingerprint("annotations of made", None))
    assert Pool.of_runs([make_run([1], [1], [1]), other]).models == ("tests/a", "tests/b")


def test_one_model_twice_is_refused() -> None:
    with pytest.raises(MismatchError, match="tests/a occurs twice"):
        Pool.of_runs([make_run([1], [1], [1]), make_run([2], [2], [2])])


def test_two_revisions_of_one_model_are_refused() -> None:
    # What reads a pool goes by names: the smaller pools of `leave_one_out`, the evidence in the label table.
    other = make_run([2], [2], [2], revision="2")
    with pytest.raises(MismatchError, match="tests/a occurs twice"):
        Pool.of_runs([make_run([1], [1], [1]), other])


def test_a_smaller_pool_keeps_the_ranks_of_its_models() -> None:
    runs = [make_run([rank], [rank], [rank], model=f"tests/{rank}") for rank in (1, 2, 3)]
    pool = Pool.of_runs(runs).only(["tests/3", "tests/1"])
    assert (pool.models, pool.best[Condition.TEXT_ONLY].tolist()) == (("tests/3", "tests/1"), [[3], [1]])


def test_the_null_pool_holds_the_null_ranks() -> None:
    nulls = {condition: [5, 600] for condition in Condition}
    pool = Pool.of_null_ranks([make_run([1, 1], [1, 1], [1, 1], nulls=nulls)])
    assert pool is not None
    assert pool.best[Condition.IMAGE_ONLY].tolist() == [[5, 600]]


def test_there_is_no_null_pool_where_a_run_has_no_null_ranks() -> None:
    nulls = {condition: [5] for condition in Condition}
    runs = [make_run([1], [1], [1], nulls=nulls), make_run([1], [1], [1], model="tests/b")]
    assert Pool.of_null_ranks(runs) is None


def test_published_minima_are_a_pool_of_one(tmp_path: Path) -> None:
    pool = Pool.of_best_ranks(write(tmp_path / "minima.csv", "a,1,20,30", "b,400,5,6"))
    assert (pool.models, pool.queries) == ((PUBLISHED_POOL,), ("a", "b"))
    assert pool.best[Condition.MULTIMODAL].tolist() == [[1, 400]]
    assert pool.best[Condition.TEXT_ONLY].tolist() == [[20, 5]]
    assert pool.best[Condition.IMAGE_ONLY].tolist() == [[30, 6]]


def test_published_minima_may_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert Pool.of_best_ranks(write(tmp_path / "minima.csv", "a,1,2,3", encoding="utf-8-sig")).queries == ("a",)


def test_published_minima_may_have_windows_line_ends_and_further_columns(tmp_path: Path) -> None:
    path = tmp_path / "minima.csv"
    path.write_bytes(f'note,{HEADER}\r\n"x, y",a,1,2,3\r\n'.encode())
    assert Pool.of_best_ranks(path).best[Condition.IMAGE_ONLY].tolist() == [[3]]


def test_published_minima_without_a_column_are_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "minima.csv"
    path.write_text("query_idx,best_rank_multimodal,best_rank_image_only\na,1,2\n")
    with pytest.raises(FormatError, match=r"minima\.csv: lacks the columns \['best_rank_text_only'\]"):
        Pool.of_best_ranks(path)


def test_published_minima_without_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no rows"):
        Pool.of_best_ranks(write(tmp_path / "minima.csv"))


def test_an_empty_file_of_published_minima_is_refused(tmp_path: Path) -> None:
    (tmp_path / "minima.csv").touch()
    with pytest.raises(FormatError, match="lacks the columns"):
        Pool.of_best_ranks(tmp_path / "minima.csv")


def test_a_missing_file_of_published_minima_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"nowhere\.csv"):
        Pool.of_best_ranks(tmp_path / "nowhere.csv")


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "minima.csv").write_bytes(b"PAR1\xff\xfe\x00")
    with pytest.raises(FormatError, match=r"minima\.csv: 'utf-8'"):
        Pool.of_best_ranks(tmp_path / "minima.csv")


def test_a_text_file_that_is_no_csv_is_refused(tmp_path: Path) -> None:
    # One line of 200,000 characters, as a JSON file may be; the csv module reads fields of up to 131,072.
    (tmp_path / "minima.csv").write_text("x" * 200_000)
    with pytest.raises(FormatError, match=r"minima\.csv"):
        Pool.of_best_ranks(tmp_path / "minima.csv")


@pytest.mark.parametrize("rank", ["", " ", "0", "-3", "2.0", "1e2", "inf", "nan", "first", "²"])
def test_a_rank_that_is_no_whole_number_of_at_least_1_is_refused_by_its_query(tmp_path: Path, rank: str) -> None:
    path = write(tmp_path / "minima.csv", "a,1,2,3", f"b,1,{rank},3")
    with pytest.raises(FormatError, match=r"best_rank_text_only holds no whole number.*1: 'b'"):
        Pool.of_best_ranks(path)


def test_a_row_that_ends_early_is_refused_by_its_query(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"best_rank_image_only holds no whole number.*1: 'b'"):
        Pool.of_best_ranks(write(tmp_path / "minima.csv", "a,1,2,3", "b,1,2"))


def test_a_repeated_query_is_refused_by_its_id(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"query_idx repeats \(1: 'a'\)"):
        Pool.of_best_ranks(write(tmp_path / "minima.csv", "a,1,2,3", "b,1,2,3", "a,1,2,3"))


@pytest.fixture(scope="module")
def circo(shared: Path) -> Path:
    return shared / "data" / "circus" / "circo_audit_full.csv"


@pytest.mark.parametrize(
    ("k", "counts"),
    [
        (5, {Label.SHORTCUT: 137}),  # derived from the released ranks: 62.3 % of 220
        (10, {Label.SHORTCUT: 164, Label.COMPOSITION_REQUIRED: 53, Label.UNRESOLVED: 3}),  # arXiv 2605.14787, table 1
        (20, {Label.SHORTCUT: 189}),  # derived from the released ranks: 85.9 % of 220
    ],
)
def test_the_published_minima_of_circo_give_the_published_counts(circo: Path, k: int, counts: dict[Label, int]) -> None:
    assert Pool.of_best_ranks(circo).label(k=k).counts().items() >= counts.items()


def test_the_published_minima_of_circo_give_the_published_modalities(circo: Path) -> None:
    # arXiv 2605.14787: of the 164 shortcuts 54 by text alone, 63 by image alone, 47 by both.
    found = Pool.of_best_ranks(circo).label().detail_counts()
    assert found == {Shortcut.TEXT_ONLY: 54, Shortcut.IMAGE_ONLY: 63, Shortcut.BOTH: 47}


def test_our_labels_of_circo_are_the_released_labels_query_by_query(circo: Path) -> None:
    names = {"shortcut_solvable": Label.SHORTCUT.value}
    with circo.open(newline="", encoding="utf-8-sig") as file:
        released = {row["query_idx"]: names.get(row["label"], row["label"]) for row in csv.DictReader(file)}
    pool = Pool.of_best_ranks(circo)
    assert dict(zip(pool.queries, pool.label().labels.tolist(), strict=True)) == released


def test_the_missing_ranks_of_the_cirr_file_are_an_error_that_names_queries(shared: Path) -> None:
    # The file holds ranks for the 685 shortcut-free queries only; the first two shortcuts are 0 and 1.
    with pytest.raises(FormatError, match=r"best_rank_multimodal holds no whole number.*3,485: '0', '1', "):
        Pool.of_best_ranks(shared / "data" / "circus" / "cirr_shortcut_labels.csv")
