"""Annotation files in the form that CIRCUS released; all samples are invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from circus_bench.errors import FormatError, MismatchError
from circus_bench.validation.annotations import latest
from circus_bench.validation.decisions import decide
from circus_bench.validation.released import Released, read_released, released_rubric
from circus_bench.validation.study import Study

FLAGS = ("INVALID_TEXT_QUERY", "INVALID_IMAGE_QUERY", "INVALID_TARGET_IMAGE", "QUERY_TOO_BROAD")


def row(query: int, *flags: str, validated: bool | None = None, minute: int = 0, **changes: Any) -> dict[str, Any]:
    """An assignment of the benchmark `cirr`, validated unless flags say otherwise."""
    return {
        "assignment_id": f"cirr::{query}",
        "dataset": "cirr",
        "query_idx": query,
        "hidden_category": "unresolved",
        "selection_mode": "all",
        "presentation_order": query,
        "annotation": {
            "validated": not flags if validated is None else validated,
            **{flag: flag in flags for flag in FLAGS},
            "other": "",
        },
        "annotation_updated_at": f"2026-04-08T14:{minute:02d}:00+00:00",
        **changes,
    }


def write(folder: Path, rater: str, *rows: dict[str, Any], **changes: Any) -> Path:
    path = folder / f"{rater}.json"
    head = {"study_name": "invented", "seed": 20260407, "username": rater}
    path.write_text(json.dumps({**head, "assignments": rows, **changes}))
    return path


def released(folder: Path, *rows: dict[str, Any]) -> Released:
    return read_released([write(folder, "annotator_01", *rows)])


def test_items_carry_benchmark_query_and_stratum(tmp_path: Path) -> None:
    study = released(tmp_path, row(3), row(5, hidden_category="composition_required")).study
    assert [(item.id, item.benchmark, item.query, item.stratum) for item in study.items] == [
        ("cirr::3", "cirr", "3", "cirr/unresolved"),
        ("cirr::5", "cirr", "5", "cirr/composition_required"),
    ]
    assert (study.name, study.seed) == ("invented", 20260407)


@pytest.mark.parametrize(
    ("name", "stratum"), [("solved", "cirr/composition_required"), ("unsolved", "cirr/unresolved")]
)
def test_older_names_of_the_categories_are_known(name: str, stratum: str, tmp_path: Path) -> None:
    assert released(tmp_path, row(1, hidden_category=name)).study.items[0].stratum == stratum


def test_all_flags_are_kept_and_the_most_severe_gives_the_label(tmp_path: Path) -> None:
    annotation = released(
        tmp_path, row(1, "QUERY_TOO_BROAD", "INVALID_TARGET_IMAGE", "INVALID_TEXT_QUERY")
    ).annotations[0]
    assert annotation.flags == ("text", "target", "breadth")
    # The paper's order: target, image, text, broad.
    assert annotation.label == "INVALID_TARGET_IMAGE"
    assert annotation.reasons == ()


def test_a_validated_query_has_no_flag(tmp_path: Path) -> None:
    annotation = released(tmp_path, row(1)).annotations[0]
    assert (annotation.label, annotation.flags, annotation.rater, annotation.version) == (
        "VALIDATED",
        (),
        "annotator_01",
        1,
    )


def test_a_rejection_without_a_flag_is_unspecified(tmp_path: Path) -> None:
    made = released(tmp_path, row(1, validated=False))
    assert (made.annotations[0].label, made.annotations[0].flags) == ("INVALID_UNSPECIFIED", ("unspecified",))
    assert made.study.rubric == released_rubric()


def test_an_unspecified_fault_gives_the_label_only_where_nothing_else_does() -> None:
    assert released_rubric().label_of({"unspecified", "breadth"}) == "QUERY_TOO_BROAD"


def test_notes_and_times_are_kept(tmp_path: Path) -> None:
    annotated = row(1, minute=7)
    annotated["annotation"]["other"] = "an invented remark"
    annotation = released(tmp_path, annotated).annotations[0]
    assert (annotation.note, annotation.time) == ("an invented remark", "2026-04-08T14:07:00+00:00")


def test_items_are_shown_in_the_order_of_presentation(tmp_path: Path) -> None:
    study = released(tmp_path, row(3, presentation_order=2), row(5, presentation_order=1)).study
    assert study.assignments == {"annotator_01": ("cirr::5", "cirr::3")}


@pytest.mark.parametrize("changes", [{"annotation": None}, {"annotation_updated_at": None}])
def test_assignments_without_an_annotation_are_listed(changes: dict[str, Any], tmp_path: Path) -> None:
    made = released(tmp_path, row(1), row(2, **changes))
    assert made.unjudged == ("annotator_01: cirr::2",)
    assert [annotation.item for annotation in made.annotations] == ["cirr::1"]
    assert len(made.study.items) == 2


def test_the_raters_of_an_item_are_put_together(tmp_path: Path) -> None:
    files = [write(tmp_path, "annotator_01", row(1), row(2)), write(tmp_path, "annotator_02", row(2, FLAGS[3]), row(3))]
    made = read_released(files)
    assert [item.id for item in made.study.items] == ["cirr::1", "cirr::2", "cirr::3"]
    decided = {decision.query: decision for decision in decide(made.study, made.annotations)}
    assert {query: decision.raters for query, decision in decided.items()} == {"1": 1, "2": 2, "3": 1}


def test_a_rater_without_a_name_goes_by_the_file(tmp_path: Path) -> None:
    path = tmp_path / "nobody.json"
    path.write_text(json.dumps({"study_name": "x", "seed": 1, "assignments": [row(1)]}))
    assert read_released([path]).annotations[0].rater == "nobody"


def test_the_later_annotation_of_a_rater_is_a_new_version(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    later = write(tmp_path, "annotator_01", row(1, FLAGS[0], minute=9), study_name="again")
    earlier = write(tmp_path / "b", "annotator_01", row(1, minute=5))
    made = read_released([later, earlier])
    assert [(annotation.version, annotation.label) for annotation in made.annotations] == [
        (1, "VALIDATED"),
        (2, "INVALID_TEXT_QUERY"),
    ]
    assert [annotation.version for annotation in latest(made.annotations)] == [2]
    assert made.study.name == "again + invented"
    assert made.study.assignments == {"annotator_01": ("cirr::1",)}


def test_a_manifest_gives_the_inclusion_probabilities(tmp_path: Path) -> None:
    # As published for FashionIQ: 1,000 of 2,607.
    selection = {"unresolved": {"population_size": 2607, "selected_size": 1000}}
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"datasets": {"cirr": {"selection": selection}}}))
    study = read_released([write(tmp_path, "a", row(1))], manifest=manifest).study
    assert study.items[0].inclusion == pytest.approx(1000 / 2607)


def test_a_manifest_that_lacks_a_stratum_is_refused(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"datasets": {}}))
    with pytest.raises(MismatchError, match="cirr/unresolved"):
        read_released([write(tmp_path, "a", row(1))], manifest=manifest)


def test_another_file_as_manifest_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a", row(1))
    with pytest.raises(FormatError, match="not the manifest"):
        read_released([path], manifest=path)


def test_the_study_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    study = released(tmp_path, row(1)).study
    study.save(tmp_path / "study")
    assert Study.load(tmp_path / "study") == study


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"assignment_id": "cirr-1"}, "expected <benchmark>::<query index>"),
            ({"hidden_category": "x"}, "hidden_category 'x'"),
            ({"annotation": {}}, "validated, .* are neither true nor false"),
            ({"presentation_order": "1"}, "expected a whole number"),
            ({"annotation": {"validated": "yes", **dict.fromkeys(FLAGS, False)}}, "validated are neither"),
            ({"annotation": {"validated": True, **dict.fromkeys(FLAGS, True)}}, "validated and rejected at once"),
        ],
    )
    def test_a_damaged_row_is_named(self, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match=rf"annotator_01\.json: row 2 .*{message}"):
            released(tmp_path, row(1), row(2, **changes))

    def test_an_assignment_that_occurs_twice_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match="'cirr::1'"):
            released(tmp_path, row(1), row(1))

    def test_a_query_of_two_categories_is_refused(self, tmp_path: Path) -> None:
        other = row(1, hidden_category="composition_required")
        with pytest.raises(MismatchError, match="cirr::1 has the category"):
            read_released([write(tmp_path, "a", row(1)), write(tmp_path, "b", other)])

    @pytest.mark.parametrize(("rows", "message"), [([], "holds no rows"), (None, "expected a list")])
    def test_a_file_without_assignments_is_refused(self, rows: Any, message: str, tmp_path: Path) -> None:
        path = write(tmp_path, "a", assignments=rows)
        with pytest.raises(FormatError, match=message):
            read_released([path])

    def test_no_file_at_all_is_refused(self) -> None:
        with pytest.raises(MismatchError, match="no annotation file"):
            read_released([])
