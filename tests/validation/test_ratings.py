"""Tables of ratings: what is taken from a log, what is left out, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from support.judged import BROAD, TARGET, TEXT, VALID, item, judge, judge_all, study

from circus_bench.errors import CircusError, MismatchError
from circus_bench.validation.annotations import AnnotatorRole
from circus_bench.validation.ratings import MISSING, Ratings, flag_ratings, label_ratings


def test_a_label_table_has_a_row_for_each_item_and_a_column_for_each_rater_who_judged() -> None:
    table = label_ratings(study(3), judge_all({"cy": [VALID, TEXT], "ann": [BROAD, None, VALID]}))
    assert table.items == ("made::0", "made::1", "made::2")
    assert table.raters == ("ann", "cy")  # the study's order, not the log's; bob has judged nothing
    assert table.codes.tolist() == [[4, 0], [MISSING, 1], [0, MISSING]]


def test_a_missing_annotation_is_no_category() -> None:
    table = label_ratings(study(2), judge_all({"ann": [VALID, None], "bob": [VALID, VALID]}))
    assert table.counts.tolist() == [[2, 0, 0, 0, 0], [1, 0, 0, 0, 0]]


def test_the_last_version_of_an_annotation_counts() -> None:
    log = [judge("ann", 0, VALID), judge("ann", 0, TARGET, version=2)]
    assert label_ratings(study(1), log).codes.tolist() == [[3]]


def test_adjudicators_training_and_check_items_are_left_out() -> None:
    items = [item(0), item(1, training=True, known=VALID), item(2, known=TEXT)]
    log = [judge("ann", n) for n in range(3)] + [judge("zoe", 0, TEXT, role=AnnotatorRole.ADJUDICATOR)]
    table = label_ratings(study(items), log)
    assert (table.items, table.raters, table.codes.tolist()) == (("made::0",), ("ann",), [[0]])


def test_a_flag_table_tells_who_flagged_a_step_whatever_the_label() -> None:
    log = [judge("ann", 0, TARGET, flags=("target", "breadth")), judge("bob", 0, BROAD), judge("cy", 0)]
    assert flag_ratings(study(1), log, "breadth").codes.tolist() == [[0, 0, 1]]


def test_one_category_against_the_rest_keeps_missing_ratings_missing() -> None:
    table = Ratings.from_rows([["a", "b", None], ["c", "b", "b"]]).one_vs_rest("b")
    assert table.codes.tolist() == [[1, 0, MISSING], [1, 0, 0]]


def test_annotations_of_another_study_are_refused_by_name() -> None:
    with pytest.raises(MismatchError, match=r"unknown items \(1: 'made::7'\)"):
        label_ratings(study(1), [judge("ann", 7)])


def test_labels_and_flags_of_another_rubric_are_refused_by_name() -> None:
    with pytest.raises(MismatchError, match=r"unknown labels \(1: 'FINE'\)"):
        label_ratings(study(1), [judge("ann", 0, "FINE")])
    with pytest.raises(MismatchError, match=r"unknown flags \(1: 'color'\)"):
        label_ratings(study(1), [judge("ann", 0, TEXT, flags=("text", "color"))])


@pytest.mark.parametrize(
    ("rows", "message"),
    [([["a"], ["a", "b"]], "rows of"), ([["a", "d"]], "unknown categories")],
)
def test_rows_that_make_no_table_are_refused(rows: list[list[str | None]], message: str) -> None:
    with pytest.raises(CircusError, match=message):
        Ratings.from_rows(rows, categories="abc")


@pytest.mark.parametrize(
    ("raters", "codes", "message"),
    [(("a", "b"), [[0]], "shape"), (("a", "a"), [[0, 0]], "repeated"), (("a", "b"), [[0, 2]], "codes go from 0 to 2")],
)
def test_a_table_whose_parts_do_not_fit_is_refused(
    raters: tuple[str, ...], codes: list[list[int]], message: str
) -> None:
    with pytest.raises(CircusError, match=message):
        Ratings(("i",), raters, ("x", "y"), np.array(codes, np.int16))


def test_there_is_no_rest_of_an_unknown_category() -> None:
    with pytest.raises(CircusError, match="no category 'z'"):
        Ratings.from_rows([["a", "b"]]).one_vs_rest("z")


def test_alternatives_that_no_panel_shows_are_refused_by_name() -> None:
    assert label_ratings(study(1), [judge("ann", 0, alternatives=("a",))]).codes.tolist() == [[0]]
    with pytest.raises(MismatchError, match=r"unknown alternatives \(1: '\.\./x'\)"):
        label_ratings(study(1), [judge("ann", 0, alternatives=("a", "../x"))])


def test_a_label_that_contradicts_the_flags_is_refused() -> None:
    with pytest.raises(MismatchError, match=r"not what their flags come to \(1: 'made::0 by ann'\)"):
        label_ratings(study(1), [judge("ann", 0, VALID, flags=("text",))])
