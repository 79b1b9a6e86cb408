"""The page: complete, self-contained, safe against what the annotations hold, and the same every time."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from circus_bench.benchmark import Benchmark, Defect, Protocol, Query, ReferencePolicy
from circus_bench.doctor import check_all, write_report
from circus_bench.doctor.report import SHOWN

Make = Callable[..., Benchmark]
VOID = {"meta", "link", "br"}
EVIL = "<script>alert('x')</script>"


class Page(HTMLParser):
    """The text of a page and its elements; fails where a tag is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.pieces: list[str] = []
        self.feed(html)
        assert self.open == []
        self.text = " ".join("".join(self.pieces).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.pieces.append(" " if tag in {"td", "th"} else "")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.pieces.append(data)


@pytest.fixture
def page(tmp_path: Path) -> Callable[..., Page]:
    def make(*parts: Benchmark, **changes: object) -> Page:
        write_report(check_all(parts), tmp_path / "r.html", subject=str(changes.get("subject", "toy/test")))
        return Page((tmp_path / "r.html").read_text(encoding="utf-8"))

    return make


def queries(n: int, *, reference: str = "a", prefix: str = "q") -> tuple[Query, ...]:
    return tuple(Query(f"{prefix}{number:03d}", reference, f"  {number}  ok", ("b",)) for number in range(n))


def test_the_page_names_every_finding_with_its_meaning_and_ids(page: Callable[..., Page], toy_benchmark: Make) -> None:
    ill = toy_benchmark(
        queries=(Query("first", "a", "x", ("a", "b")), Query("second", "b", "ça va", ("c",))),
        images=dict.fromkeys("abcd", b""),
        allow=frozenset(Defect),
    )
    checkup = check_all([ill])
    text = page(ill).text
    for result in checkup.diagnoses[0].results:
        assert result.check.replace("_", " ") in text
        assert result.meaning[1:] in text
        assert all(identifier in text for identifier in result.ids)
    assert "2 defects and 2 notes" in text  # reference_is_target, empty; short_caption, non_ascii
    assert "0.0 %" in text  # the coverage


def test_a_sound_benchmark_is_said_to_be_sound(page: Callable[..., Page], toy_benchmark: Make) -> None:
    text = page(toy_benchmark(queries=(Query("q", "a", "make it red", ("b",)),), with_images=False)).text
    assert "No defect and 0 notes" in text
    assert "annotations only" in text


def test_a_count_that_differs_is_a_defect_of_the_page(page: Callable[..., Page], toy_benchmark: Make) -> None:
    made = toy_benchmark(queries=queries(1), with_images=False, protocol=Protocol("cirr/test1", ReferencePolicy.KEPT))
    text = page(made).text
    assert "2 defects" in text  # queries and gallery
    assert "4,148 differ" in text


def test_long_lists_are_cut_and_say_so(page: Callable[..., Page], toy_benchmark: Make) -> None:
    found = page(toy_benchmark(queries=queries(SHOWN + 1), with_images=False))
    assert f"q{SHOWN - 1:03d}" in found.text
    assert f"q{SHOWN:03d}" not in found.text
    assert f"The first {SHOWN} ids" in found.text
    assert f"Lists are cut after {SHOWN} entries" in found.text


def test_short_lists_are_shown_without_a_click(page: Callable[..., Page], toy_benchmark: Make) -> None:
    few = page(toy_benchmark(queries=queries(8), with_images=False))
    many = page(toy_benchmark(queries=queries(9), with_images=False))
    assert ["details" in dict(found.elements) for found in (few, many)] == [False, True]


def test_parts_are_linked_and_shared_images_listed(page: Callable[..., Page], toy_benchmark: Make) -> None:
    parts = [
        toy_benchmark(queries=queries(1), gallery=gallery, with_images=False, source={"category": name})
        for name, gallery in {"dress": ("a", "b"), "shirt": ("b", "c")}.items()
    ]
    found = page(*parts)
    anchors = {attrs["id"] for _, attrs in found.elements if "id" in attrs}
    links = {attrs["href"] for tag, attrs in found.elements if tag == "a"}
    assert links == {"#part-1", "#part-2", "#shared"}
    assert {f"#{anchor}" for anchor in anchors} == links
    assert "shared by dress and shirt" in found.text


def test_nothing_in_the_page_is_a_script_or_fetched(page: Callable[..., Page], toy_benchmark: Make) -> None:
    evil = queries(9, prefix=EVIL)
    found = page(toy_benchmark(queries=evil, with_images=False, name=EVIL), subject=EVIL)
    assert "script" not in {tag for tag, _ in found.elements}
    assert EVIL in found.text
    outside = [value for _, attrs in found.elements for value in attrs.values() if value and "//" in value]
    assert outside == []
    assert not any(name.startswith("on") for _, attrs in found.elements for name in attrs)


def test_the_page_can_be_used_without_eyes_on_it(page: Callable[..., Page], toy_benchmark: Make) -> None:
    found = page(toy_benchmark())
    tags = [tag for tag, _ in found.elements]
    assert dict(found.elements)["html"]["lang"] == "en"
    assert tags.count("h1") == 1
    assert tags.count("table") == tags.count("caption")
    assert all(attrs.get("scope") for tag, attrs in found.elements if tag == "th")


def test_the_same_report_gives_the_same_bytes(tmp_path: Path, toy_benchmark: Make) -> None:
    for name in ("one", "two"):
        write_report(check_all([toy_benchmark()]), tmp_path / name, subject="toy/test")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
