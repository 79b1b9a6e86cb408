"""Annotations that break such tools: rows 14 to 22, 27 and 28 of the table of breaking inputs.

Every kind of defect is an error that names the first five ids and the count; where it is allowed, it is repaired in the
documented way and recorded.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from circus_bench.benchmark import Benchmark, Defect, Finding, Query
from circus_bench.errors import BenchmarkError, CircusError
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.images import Unreadable

Toy = Callable[..., Benchmark]
Encode = Callable[..., bytes]

GALLERY = tuple(f"g{number}" for number in range(10))


def query(
    name: Any,
    *,
    reference: Any = "g9",
    text: str = "make it red",
    targets: tuple[Any, ...] = ("g0",),
    subset: tuple[str, ...] = (),
) -> Query:
    return Query(name, reference, text, targets, subset=subset)


SOUND = query("sound")


@dataclasses.dataclass(frozen=True)
class Case:
    """Seven offenders of one kind.

    Attributes:
        complaint: what the message says of them, with the count and the first five ids, written as they were given.
        ids: the ids that a finding records.
    """

    defect: Defect
    complaint: str
    ids: tuple[str, ...]
    queries: tuple[Query, ...] = (SOUND,)
    gallery: tuple[Any, ...] = GALLERY
    images: Mapping[str, bytes] | None = None

    def build(self, toy_benchmark: Toy, *allow: Defect) -> Benchmark:
        return toy_benchmark(
            queries=self.queries,
            gallery=self.gallery,
            images=self.images,
            with_images=False,
            allow=frozenset(allow),
        )


SEVEN_QUERIES = tuple(f"q{number}" for number in range(7))
FIVE_QUERIES = "'q0', 'q1', 'q2', 'q3', 'q4', ..."
CASES = [
    Case(
        Defect.NON_STRING_ID,
        "gallery ids are not strings (7: 0, 1, 2, 3, 4, ...)",
        tuple("0123456"),
        gallery=(*GALLERY, *range(7)),
    ),
    Case(
        Defect.DUPLICATE_GALLERY_ID,
        "gallery ids occur more than once (7: 'g0', 'g1', 'g2', 'g3', 'g4', ...)",
        GALLERY[:7],
        gallery=(*GALLERY, *GALLERY[:7]),
    ),
    Case(
        Defect.DUPLICATE_QUERY_ID,
        f"query ids occur more than once (7: {FIVE_QUERIES})",
        SEVEN_QUERIES,
        queries=tuple(query(name) for name in SEVEN_QUERIES * 2),
    ),
    Case(
        Defect.DUPLICATE_TARGET,
        f"queries list a target twice (7: {FIVE_QUERIES})",
        SEVEN_QUERIES,
        queries=tuple(query(name, targets=("g0", "g1", "g0")) for name in SEVEN_QUERIES),
    ),
    Case(
        Defect.NO_TARGET,
        f"queries have no target (7: {FIVE_QUERIES})",
        SEVEN_QUERIES,
        queries=(SOUND, *(query(name, targets=()) for name in SEVEN_QUERIES)),
    ),
    Case(
        Defect.DANGLING_TARGET,
        "targets are not in the gallery (7: 'x0', 'x1', 'x2', 'x3', 'x4', ...)",
        tuple(f"x{number}" for number in range(7)),
        queries=tuple(query(f"q{number}", targets=("g0", f"x{number}")) for number in range(7)),
    ),
    Case(
        Defect.DANGLING_SUBSET,
        "images of subsets are not in the gallery (7: 'x0', 'x1', 'x2', 'x3', 'x4', ...)",
        tuple(f"x{number}" for number in range(7)),
        queries=tuple(query(f"q{number}", targets=("g0",), subset=("g0", f"x{number}")) for number in range(7)),
    ),
    Case(
        Defect.REFERENCE_IS_TARGET,
        f"queries have their reference as target (7: {FIVE_QUERIES})",
        SEVEN_QUERIES,
        queries=tuple(query(name, reference="g1", targets=("g0", "g1")) for name in SEVEN_QUERIES),
    ),
    Case(
        Defect.EMPTY_TEXT,
        f"queries have a blank modification text (7: {FIVE_QUERIES})",
        SEVEN_QUERIES,
        queries=tuple(query(name, text=" \t\n" if name == "q0" else "") for name in SEVEN_QUERIES),
    ),
    Case(
        Defect.MISSING_IMAGE,
        "gallery or reference images have no bytes (7: 'g0', 'g1', 'g2', 'g3', 'g4', ...)",
        GALLERY[:7],
        images={"g7": b"", "g8": b"", "g9": b""},
    ),
]
by_defect = pytest.mark.parametrize("case", CASES, ids=lambda case: case.defect.value)


def case_of(defect: Defect) -> Case:
    return next(case for case in CASES if case.defect is defect)


def test_every_kind_of_defect_is_tested() -> None:
    assert {case.defect for case in CASES} == set(Defect)


@by_defect
def test_a_defect_is_an_error_that_names_the_first_five_ids_and_the_count(toy_benchmark: Toy, case: Case) -> None:
    with pytest.raises(BenchmarkError) as raised:
        case.build(toy_benchmark)
    assert case.complaint in str(raised.value)


@by_defect
def test_the_error_names_the_benchmark_and_what_to_allow(toy_benchmark: Toy, case: Case) -> None:
    with pytest.raises(BenchmarkError, match=rf"benchmark 'toy': .* allow '{case.defect.value}'"):
        case.build(toy_benchmark)


@by_defect
def test_allowing_every_other_defect_does_not_allow_this_one(toy_benchmark: Toy, case: Case) -> None:
    with pytest.raises(BenchmarkError, match=f"allow '{case.defect.value}'"):
        case.build(toy_benchmark, *(set(Defect) - {case.defect}))


@by_defect
def test_an_allowed_defect_is_recorded_with_every_id(toy_benchmark: Toy, case: Case) -> None:
    assert case.build(toy_benchmark, case.defect).findings == (Finding(case.defect, case.ids),)


@by_defect
def test_a_sound_benchmark_has_no_findings_whatever_is_allowed(toy_benchmark: Toy, case: Case) -> None:
    assert toy_benchmark(allow=frozenset({case.defect})).findings == ()


# The repairs, one by one


def test_ids_that_are_no_strings_are_written_out_as_text(toy_benchmark: Toy) -> None:
    built = toy_benchmark(
        queries=[query(7, reference=1, targets=(12,))],
        gallery=(1, 12, "0012"),
        with_images=False,
        allow=frozenset({Defect.NON_STRING_ID}),
    )
    assert built.gallery.ids == ("1", "12", "0012")
    assert built.queries == (query("7", reference="1", targets=("12",)),)


def test_ids_that_are_no_strings_are_recorded_from_every_place(toy_benchmark: Toy) -> None:
    built = toy_benchmark(
        queries=[query(7, reference=1, targets=(12,))],
        gallery=(3, 12, 1),
        with_images=False,
        allow=frozenset({Defect.NON_STRING_ID}),
    )
    recorded = {identifier for finding in built.findings for identifier in finding.ids}
    # The gallery's 3, 12 and 1, the query's 7.
    assert recorded == {"3", "12", "1", "7"}


@pytest.mark.parametrize(
    ("offender", "complaint"),
    [
        (query(7), r"query ids are not strings \(1: 7\)"),
        (query("q", reference=7), r"references are not strings \(1: 7\)"),
        (query("q", targets=("g0", 7)), r"targets are not strings \(1: 7\)"),
        (query(None), r"query ids are not strings \(1: None\)"),
    ],
)
def test_an_id_that_is_no_string_is_an_error_wherever_it_stands(
    toy_benchmark: Toy, offender: Query, complaint: str
) -> None:
    with pytest.raises(BenchmarkError, match=complaint):
        toy_benchmark(queries=[SOUND, offender], gallery=GALLERY, with_images=False)


def test_a_number_and_its_text_become_one_id_and_so_a_duplicate(toy_benchmark: Toy) -> None:
    with pytest.raises(BenchmarkError, match=r"gallery ids occur more than once \(1: '12'\)"):
        toy_benchmark(
            queries=[SOUND], gallery=(*GALLERY, 12, "12"), with_images=False, allow=frozenset({Defect.NON_STRING_ID})
        )


def test_a_number_is_never_cast_to_match_a_padded_text(toy_benchmark: Toy) -> None:
    with pytest.raises(BenchmarkError, match=r"targets are not in the gallery \(1: '12'\)"):
        toy_benchmark(
            queries=[query("q", targets=(12,))],
            gallery=("g9", "0012"),
            with_images=False,
            allow=frozenset({Defect.NON_STRING_ID}),
        )


def test_of_gallery_images_with_one_id_the_first_is_kept(toy_benchmark: Toy) -> None:
    built = case_of(Defect.DUPLICATE_GALLERY_ID).build(toy_benchmark, Defect.DUPLICATE_GALLERY_ID)
    assert built.gallery.ids == GALLERY


def test_of_queries_with_one_id_the_first_is_kept(toy_benchmark: Toy) -> None:
    built = toy_benchmark(
        queries=[query("q0", text="first"), query("q0", text="second"), query("q0", text="third")],
        gallery=GALLERY,
        with_images=False,
        allow=frozenset({Defect.DUPLICATE_QUERY_ID}),
    )
    assert built.queries == (query("q0", text="first"),)


def test_a_query_whose_id_returns_later_keeps_its_place(toy_benchmark: Toy) -> None:
    built = toy_benchmark(
        queries=[query("q0"), query("q1"), query("q0", text="again"), query("q2")],
        gallery=GALLERY,
        with_images=False,
        allow=frozenset({Defect.DUPLICATE_QUERY_ID}),
    )
    assert [kept.id for kept in built.queries] == ["q0", "q1", "q2"]


def test_of_a_target_listed_twice_the_first_mention_is_kept(toy_benchmark: Toy) -> None:
    built = case_of(Defect.DUPLICATE_TARGET).build(toy_benchmark, Defect.DUPLICATE_TARGET)
    assert {kept.targets for kept in built.queries} == {("g0", "g1")}


def test_a_query_without_target_is_left_out(toy_benchmark: Toy) -> None:
    built = case_of(Defect.NO_TARGET).build(toy_benchmark, Defect.NO_TARGET)
    assert built.queries == (SOUND,)


def test_a_dangling_target_stays_and_does_not_enter_the_gallery(toy_benchmark: Toy) -> None:
    built = case_of(Defect.DANGLING_TARGET).build(toy_benchmark, Defect.DANGLING_TARGET)
    assert built.queries[3].targets == ("g0", "x3")
    assert built.gallery.ids == GALLERY


def test_a_reference_among_the_targets_stays(toy_benchmark: Toy) -> None:
    built = case_of(Defect.REFERENCE_IS_TARGET).build(toy_benchmark, Defect.REFERENCE_IS_TARGET)
    assert built.queries[0].targets == ("g0", "g1")


def test_a_reference_as_the_only_target_is_an_error(toy_benchmark: Toy) -> None:
    with pytest.raises(BenchmarkError, match=r"queries have their reference as target \(1: 'q'\)"):
        toy_benchmark(queries=[query("q", reference="g0", targets=("g0",))], gallery=GALLERY, with_images=False)


def test_a_blank_text_stays_as_it_is(toy_benchmark: Toy) -> None:
    built = case_of(Defect.EMPTY_TEXT).build(toy_benchmark, Defect.EMPTY_TEXT)
    assert [kept.text for kept in built.queries] == [" \t\n", *[""] * 6]


def test_a_text_that_is_none_is_an_error_of_ours(toy_benchmark: Toy) -> None:
    with pytest.raises(CircusError, match="'q'"):
        toy_benchmark(queries=[query("q", text=None)], gallery=GALLERY, with_images=False)  # type: ignore[arg-type]


def test_an_image_without_bytes_stays_and_is_not_replaced(toy_benchmark: Toy) -> None:
    built = case_of(Defect.MISSING_IMAGE).build(toy_benchmark, Defect.MISSING_IMAGE)
    assert built.gallery.ids == GALLERY
    assert built.gallery.images is not None
    assert "g0" not in built.gallery.images


def test_a_reference_outside_the_gallery_needs_bytes_too(toy_benchmark: Toy, encode_image: Encode) -> None:
    images = {"g0": encode_image(Image.new("RGB", (32, 32)), "PNG")}
    with pytest.raises(BenchmarkError, match=r"images have no bytes \(1: 'elsewhere'\)"):
        toy_benchmark(queries=[query("q", reference="elsewhere")], gallery=("g0",), images=images)


def test_a_missing_image_is_still_missing_after_saving_and_loading(
    toy_benchmark: Toy, encode_image: Encode, tmp_path: Path
) -> None:
    images = {name: encode_image(Image.new("RGB", (32, 32)), "PNG") for name in ("g0", "g9")}
    built = toy_benchmark(
        queries=[SOUND], gallery=("g0", "g1", "g9"), images=images, allow=frozenset({Defect.MISSING_IMAGE})
    )
    save_benchmark(built, tmp_path)
    loaded = load_benchmark(tmp_path)
    assert dict(loaded.gallery.images or {}) == images
    assert loaded.inspect().unreadable == {"g1": Unreadable.MISSING}


def test_several_allowed_defects_are_all_recorded(toy_benchmark: Toy) -> None:
    built = toy_benchmark(
        queries=[SOUND, query("blank", text=""), query("none", targets=())],
        gallery=(*GALLERY, "g0"),
        with_images=False,
        allow=frozenset(Defect),
    )
    assert set(built.findings) == {
        Finding(Defect.DUPLICATE_GALLERY_ID, ("g0",)),
        Finding(Defect.EMPTY_TEXT, ("blank",)),
        Finding(Defect.NO_TARGET, ("none",)),
    }


@by_defect
def test_findings_survive_saving_and_loading(toy_benchmark: Toy, case: Case, tmp_path: Path) -> None:
    built = case.build(toy_benchmark, case.defect)
    save_benchmark(built, tmp_path)
    loaded = load_benchmark(tmp_path)
    assert loaded.findings == built.findings
    assert loaded == built


# What remains when nothing is left


def test_an_empty_gallery_is_an_error(toy_benchmark: Toy) -> None:
    with pytest.raises(BenchmarkError, match="the gallery is empty"):
        toy_benchmark(queries=[SOUND], gallery=(), with_images=False, allow=frozenset(Defect))


def test_no_query_is_an_error(toy_benchmark: Toy) -> None:
    with pytest.raises(BenchmarkError, match="there is no query"):
        toy_benchmark(queries=[], gallery=GALLERY, with_images=False)


def test_no_query_with_a_target_is_an_error_even_where_that_is_allowed(toy_benchmark: Toy) -> None:
    with pytest.raises(BenchmarkError, match="there is no query"):
        toy_benchmark(
            queries=[query("q", targets=())], gallery=GALLERY, with_images=False, allow=frozenset({Defect.NO_TARGET})
        )


# Odd, but data


@pytest.mark.parametrize(
    "text",
    ["two  spaces", " leading and trailing ", "naïve, “quoted”", "e\u0301", "日本語", "x", "…", "\N{DRESS} in red"],
)
def test_a_text_is_kept_raw(toy_benchmark: Toy, tmp_path: Path, text: str) -> None:
    save_benchmark(toy_benchmark(queries=[query("q", text=text)], gallery=GALLERY, with_images=False), tmp_path)
    assert load_benchmark(tmp_path).queries[0].text == text


def test_ids_in_nfc_and_nfd_are_different_ids(toy_benchmark: Toy, tmp_path: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    built = toy_benchmark(
        queries=[query("q", reference=composed, targets=(decomposed,))],
        gallery=(composed, decomposed),
        with_images=False,
    )
    save_benchmark(built, tmp_path)
    # Four code points, or five with the accent apart.
    assert [len(identifier) for identifier in load_benchmark(tmp_path).gallery.ids] == [4, 5]


def test_a_target_in_another_normal_form_dangles(toy_benchmark: Toy) -> None:
    composed, decomposed = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    with pytest.raises(BenchmarkError, match="targets are not in the gallery"):
        toy_benchmark(queries=[query("q", targets=(decomposed,))], gallery=("g9", composed), with_images=False)


def test_one_reference_and_text_may_have_different_targets(toy_benchmark: Toy) -> None:
    queries = (query("q0", targets=("g0",)), query("q1", targets=("g1",)))
    built = toy_benchmark(queries=queries, gallery=GALLERY, with_images=False)
    assert built.queries == queries
    assert built.findings == ()


def test_a_reference_may_lie_outside_the_gallery(toy_benchmark: Toy) -> None:
    built = toy_benchmark(queries=[query("q", reference="elsewhere")], gallery=GALLERY, with_images=False)
    assert built.image_ids == (*GALLERY, "elsewhere")


def test_a_gallery_of_one_image_is_a_gallery(toy_benchmark: Toy) -> None:
    built = toy_benchmark(queries=[query("q", reference="g1")], gallery=("g0",), with_images=False)
    assert built.gallery.ids == ("g0",)


def test_the_same_pixels_under_two_ids_are_data_and_visible_by_digest(toy_benchmark: Toy, encode_image: Encode) -> None:
    red = Image.new("RGB", (32, 32), "red")
    images = {"g0": encode_image(red, "PNG"), "g9": encode_image(red, "BMP")}
    built = toy_benchmark(queries=[SOUND], gallery=("g0", "g9"), images=images)
    assert built.findings == ()
    assert len({info.digest for info in built.inspect().readable.values()}) == 1


def test_a_query_may_have_more_targets_than_any_cutoff(toy_benchmark: Toy) -> None:
    # Row 23: CIRCO has queries of 14 targets.
    gallery = tuple(f"t{number}" for number in range(14))
    built = toy_benchmark(queries=[query("q", targets=gallery)], gallery=gallery, with_images=False)
    assert built.queries[0].targets == gallery
