"""Read the annotation files that the CIRCUS project released, as a study and its annotations.

One JSON file per rater (`annotations/users/*.json` of matteoattimonelli/CIRCUS, and, for the items that several judged,
`annotations/agreement_users/*.json`): `study_name`, `seed`, `username`, and `assignments` with `assignment_id`
(`<benchmark>::<query index>`), `hidden_category`, `presentation_order`, `annotation` (`validated`, four flags, `other`)
and `annotation_updated_at`. A rejection may raise several flags, or none: it then has the label INVALID_UNSPECIFIED,
which the rubric of these studies has besides the four. Neither reasons within a flag nor times on the screen are known.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from circus_bench._typing import StrPath
from circus_bench.errors import FormatError, MismatchError, duplicates, format_ids
from circus_bench.labels.formats import released_label
from circus_bench.sources.annotations import AnnotationRow, read_json, wrap_rows
from circus_bench.validation.annotations import Annotation
from circus_bench.validation.rubric import Rubric, RubricStep, load_rubric
from circus_bench.validation.study import Item, Study

UNSPECIFIED = RubricStep(
    id="unspecified",
    question="Is the query free of any other fault?",
    label="INVALID_UNSPECIFIED",
    title="Rejected without a reason",
    key="0",
    severity=0,
    reasons={},
)
"""Step that a rejection without any flag fails."""

_ORIGIN = "the folder annotations/ of matteoattimonelli/CIRCUS, or whoever made it"


@dataclass(frozen=True)
class Released:
    """Content of released annotation files.

    Attributes:
        study: the items, and who was to judge them in which order. It has no panels.
        annotations: in the order of their times.
        unjudged: `<rater>: <item id>` of assignments without an annotation.
    """

    study: Study
    annotations: tuple[Annotation, ...]
    unjudged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Assignment:
    item: Item
    rater: str
    place: int
    annotation: Annotation | None


def released_rubric() -> Rubric:
    """Load the rubric of the CIRCUS audit, with a step for rejections without any flag."""
    rubric = load_rubric()
    return dataclasses.replace(rubric, id="circus-released", steps=(*rubric.steps, UNSPECIFIED))


def read_released(files: Sequence[StrPath], *, manifest: StrPath | None = None) -> Released:
    """Read released annotation files, one per rater and study; those of several studies are put together.

    A rater who judged an item twice keeps both annotations, the later one as a new version.

    Args:
        files: the annotation files.
        manifest: the study's `manifest.json`, which tells how many queries each stratum was drawn from; without it
            every stratum counts as complete.

    Raises:
        FormatError: a file is damaged, an assignment occurs twice in it, or an annotation contradicts itself.
        MismatchError: no file is given, or an item has different categories in two of them.
    """
    if not files:
        raise MismatchError("no annotation file is given; there is one per rater")
    rubric = released_rubric()
    heads, found = [], []
    for path in map(Path, files):
        head = AnnotationRow(read_json(path, dict, origin=_ORIGIN), path=path, number=0, origin=_ORIGIN)
        heads.append((head.get("study_name", str), head.get("seed", int)))
        rater = head.get("username", str) if "username" in head else path.stem
        found += _assignments(
            wrap_rows(head.get("assignments", list), path=path, origin=_ORIGIN), rater, rubric, path=path
        )
    items = _items(found, Path(manifest) if manifest else None)
    order: dict[str, list[str]] = {}
    for entry in found:
        order.setdefault(entry.rater, []).append(entry.item.id)
    study = Study(
        name=" + ".join(dict.fromkeys(name for name, _ in heads)),
        rubric=rubric,
        seed=heads[0][1],
        items=items,
        assignments={rater: tuple(dict.fromkeys(ids)) for rater, ids in order.items()},
        benchmarks={},
    )
    unjudged = tuple(f"{entry.rater}: {entry.item.id}" for entry in found if not entry.annotation)
    return Released(study, _annotations(found), unjudged)


def _assignments(rows: Sequence[AnnotationRow], rater: str, rubric: Rubric, *, path: Path) -> list[_Assignment]:
    found = [_assignment(row, rater, rubric) for row in rows]
    if repeated := duplicates(entry.item.id for entry in found):
        raise FormatError(f"{path}: assignments occur more than once ({format_ids(repeated)})")
    return sorted(found, key=lambda entry: entry.place)


def _assignment(row: AnnotationRow, rater: str, rubric: Rubric) -> _Assignment:
    benchmark, separator, query = row.get("assignment_id", str).partition("::")
    if not (benchmark and separator and query):
        row.fail(f"has the assignment_id {row['assignment_id']!r}, expected <benchmark>::<query index>")
    try:
        stratum = released_label(row["hidden_category"])
    except ValueError as error:
        row.fail(f"has the hidden_category {row['hidden_category']!r}, expected {error}")
    item = Item(f"{benchmark}::{query}", benchmark, query, f"{benchmark}/{stratum.value}")
    place, time = row.get("presentation_order", int), str(row["annotation_updated_at"] or "")
    judged = row["annotation"] is not None and time
    return _Assignment(item, rater, place, _annotation(row, item.id, rater, rubric, time=time) if judged else None)


def _annotation(row: AnnotationRow, item: str, rater: str, rubric: Rubric, *, time: str) -> Annotation:
    values = {str(key).lower(): value for key, value in row.get("annotation", dict).items()}
    # The released files write the flags in capitals; the labels of the rubric are their names.
    flag_of = {step.label.lower(): step.id for step in rubric.steps if step != UNSPECIFIED}
    wrong = [name for name in ("validated", *flag_of) if not isinstance(values.get(name), bool)]
    if wrong:
        row.fail(f"has an annotation in which {', '.join(wrong)} are neither true nor false")
    flags = tuple(step for name, step in flag_of.items() if values[name])
    if values["validated"] and flags:
        row.fail(f"is validated and rejected at once ({', '.join(flags)})")
    if not values["validated"] and not flags:
        flags = (UNSPECIFIED.id,)
    return Annotation(item, rater, rubric.label_of(flags), flags, note=str(values.get("other") or ""), time=time)


def _items(found: Iterable[_Assignment], manifest: Path | None) -> tuple[Item, ...]:
    items: dict[str, Item] = {}
    for entry in found:
        first = items.setdefault(entry.item.id, entry.item)
        if first.stratum != entry.item.stratum:
            raise MismatchError(
                f"{first.id} has the category {first.stratum} in one file and {entry.item.stratum} in another"
            )
    drawn = _inclusion(manifest) if manifest else {}
    missing = {item.stratum for item in items.values()} - drawn.keys() if manifest else set()
    if missing:
        raise MismatchError(f"{manifest}: says nothing of the strata {format_ids(sorted(missing))}")
    return tuple(dataclasses.replace(item, inclusion=drawn.get(item.stratum, 1.0)) for item in items.values())


def _inclusion(manifest: Path) -> dict[str, float]:
    """Read the share of each stratum's queries that was drawn."""
    content: Mapping[str, object] = read_json(manifest, dict, origin=_ORIGIN)
    try:
        return {
            f"{name}/{released_label(category).value}": of["selected_size"] / of["population_size"]
            for name, benchmark in content["datasets"].items()  # type: ignore[attr-defined]
            for category, of in benchmark["selection"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise FormatError(
            f"{manifest}: not the manifest of a study ({error!r}); expected "
            "datasets.<benchmark>.selection.<category> with population_size and selected_size"
        ) from error


def _annotations(found: Iterable[_Assignment]) -> tuple[Annotation, ...]:
    """Count up the versions of each rater's annotations of an item by their times."""
    judged = [(entry.annotation, entry.place) for entry in found if entry.annotation]
    versions: Counter[tuple[str, str]] = Counter()
    made = []
    for annotation, _ in sorted(judged, key=lambda entry: (entry[0].time, entry[0].rater, entry[1])):
        versions[annotation.item, annotation.rater] += 1
        version = versions[annotation.item, annotation.rater]
        event = f"{annotation.rater}/{annotation.item}/{version}"
        made.append(dataclasses.replace(annotation, version=version, event=event))
    return tuple(made)
