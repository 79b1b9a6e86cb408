"""The figure of raters: what is written into its cells."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from circus_bench.validation.agreement import rater_matrix
from circus_bench.validation.figures import plot_rater_matrix, write_rater_matrix
from circus_bench.validation.ratings import Ratings


def texts(svg: str) -> list[str]:
    return [text.strip() for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def made(*rows: tuple[str | None, ...]) -> str:
    return plot_rater_matrix(rater_matrix(Ratings.from_rows(rows)))


def test_shares_stand_above_the_diagonal_and_kappas_below() -> None:
    # Equal on 3 of 4 items: 75 %; chance (3 * 2 + 1 * 2) / 16 = 0.5, kappa (0.75 - 0.5) / 0.5 = 0.5.
    found = texts(made(("a", "a"), ("a", "a"), ("a", "b"), ("b", "b")))
    assert {"75", "0.50", "rater0  1", "rater1  2"} <= set(found)
    assert found.index("75") < found.index("0.50")


def test_a_pair_that_shares_no_item_is_marked() -> None:
    assert texts(made(("a", None), (None, "b"))).count("-") == 2


def test_the_same_table_gives_the_same_bytes() -> None:
    rows = [("a", "a", "b"), ("b", "b", "b"), ("a", "b", "a")]
    assert made(*rows) == made(*rows)


def test_a_file_of_its_own_is_an_image_that_viewers_know(tmp_path: Path) -> None:
    write_rater_matrix(tmp_path / "raters.svg", rater_matrix(Ratings.from_rows([("a", "a"), ("a", "b")])))
    root = ET.parse(tmp_path / "raters.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_long_names_are_cut() -> None:
    ratings = Ratings.from_rows([("a", "b")])
    named = Ratings(ratings.items, ("a rater with a very long name", "b"), ratings.categories, ratings.codes)
    assert "a rater with a …  1" in texts(plot_rater_matrix(rater_matrix(named)))


def test_a_study_without_annotations_has_an_empty_figure() -> None:
    assert plot_rater_matrix(rater_matrix(Ratings.from_rows([]))).startswith("<svg")
