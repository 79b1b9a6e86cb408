"""Reading the annotation files that the CIRCUS project released, as a study and its judgements.

One JSON file a rater (`annotations/users/*.json` of matteoattimonelli/CIRCUS, and `annotations/agreement_users/*.json`
for the items that several judged): `study_name`, `seed`, `username`, and `assignments` with `assignment_id`
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

from circus_bench.errors import FormatError, MismatchError, some
from circus_bench.labels.formats import released_label
from circus_bench.sources.annotations import Row, read_json, rows_of
from circus_bench.validation.annotations import Judgement
from circus_bench.validation.rubric import Rubric, Step, load_rubric
from circus_bench.validation.study import Item, Study

UNSPECIFIED = Step(
    id="unspecified",
    question="Is the query free of any other fault?",
    label="INVALID_UNSPECIFIED",
    title="Rejected without a reason",
    key="0",
    severity=0,
    reasons={},
)
"""What a rejection without any flag fails."""

_ORIGIN = "the folder annotations/ of matteoattimonelli/CIRCUS, or whoever made it"


@dataclass(frozen=True)
class Released:
    """What annotation files hold.

    Attributes:
        study: the items, and who was to judge them in which order. It has no panels.
        judgements: in the order of their times.
        unjudged: `<rater>: <item id>` of assignments without a judgement.
    """

    study: Study
    judgements: tuple[Judgement, ...]
    unjudged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Assignment:
    item: Item
    rater: str
    place: int
    flags: tuple[str, ...]
    judged: bool
    note: str
    time: str


def released_rubric() -> Rubric:
    """The rubric of the CIRCUS audit, with a step for rejections without any flag."""
    rubric = load_rubric()
    return dataclasses.replace(rubric, id="circus-released", steps=(*rubric.steps, UNSPECIFIED))


def read_annotations(files: Sequence[Path], *, manifest: Path | None = None) -> Released:
    """Read released annotation files, one a rater and study; those of several studies are put together.

    A rater who judged an item twice keeps both judgements, the later one as a new version.

    Args:
        files: the annotation files.
        manifest: the study's `manifest.json`, which tells how many queries each stratum was drawn from; without it
            every stratum counts as complete.

    Raises:
        FormatError: a file is damaged, an assignment occurs twice in it, or an annotation contradicts itself.
        MismatchError: no file is given, or an item has different categories in two of them.
    """
    if not files:
        raise MismatchError("no annotation file is given; there is one a rater")
    rubric = released_rubric()
    heads, found = [], []
    for path in files:
        head = Row(read_json(path, dict, origin=_ORIGIN), path=path, number=0, origin=_ORIGIN)
        heads.append((head.get("study_name", str), head.get("seed", int)))
        rater = head.get("username", str) if "username" in head else path.stem
        found += _assignments(rows_of(head.get("assignments", list), path=path, origin=_ORIGIN), rater, path=path)
    items = _items(found, manifest)
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
    unjudged = tuple(f"{entry.rater}: {entry.item.id}" for entry in found if not entry.judged)
    return Released(study, _judgements(found, rubric), unjudged)


def _assignments(rows: Sequence[Row], rater: str, *, path: Path) -> list[_Assignment]:
    found = [_assignment(row, rater) for row in rows]
    repeated = [item for item, count in Counter(entry.item.id for entry in found).items() if count > 1]
    if repeated:
        raise FormatError(f"{path}: assignments occur more than once ({some(repeated)})")
    return sorted(found, key=lambda entry: entry.place)


def _assignment(row: Row, rater: str) -> _Assignment:
    benchmark, separator, query = row.get("assignment_id", str).partition("::")
    if not (benchmark and separator and query):
        row.fail(f"has the assignment_id {row['assignment_id']!r}, expected <benchmark>::<query index>")
    try:
        stratum = released_label(row["hidden_category"])
    except ValueError as error:
        row.fail(f"has the hidden_category {row['hidden_category']!r}, expected {error}")
    item = Item(f"{benchmark}::{query}", benchmark, query, f"{benchmark}/{stratum.value}")
    place, time = row.get("presentation_order", int), row["annotation_updated_at"] or ""
    annotation = row["annotation"]
    if annotation is None or not time:
        return _Assignment(item, rater, place, (), judged=False, note="", time=str(time))
    return _judged(row, item, rater, place=place, time=str(time))


def _judged(row: Row, item: Item, rater: str, *, place: int, time: str) -> _Assignment:
    annotation = row.get("annotation", dict)
    values = {str(key).lower(): value for key, value in annotation.items()}
    # The released files write the flags in capitals; the labels of the rubric are their names.
    flag_of = {step.label.lower(): step.id for step in load_rubric().steps}
    wrong = [name for name in ("validated", *flag_of) if not isinstance(values.get(name), bool)]
    if wrong:
        row.fail(f"has an annotation in which {', '.join(wrong)} are neither true nor false")
    flags = tuple(step for name, step in flag_of.items() if values[name])
    if values["validated"] and flags:
        row.fail(f"is validated and rejected at once ({', '.join(flags)})")
    if not values["validated"] and not flags:
        flags = (UNSPECIFIED.id,)
    return _Assignment(item, rater, place, flags, judged=True, note=str(values.get("other") or ""), time=time)


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
        raise MismatchError(f"{manifest}: says nothing of the strata {some(sorted(missing))}")
    return tuple(dataclasses.replace(item, inclusion=drawn.get(item.stratum, 1.0)) for item in items.values())


def _inclusion(manifest: Path) -> dict[str, float]:
    """Stratum to the share of its queries that was drawn."""
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


def _judgements(found: Iterable[_Assignment], rubric: Rubric) -> tuple[Judgement, ...]:
    versions: Counter[tuple[str, str]] = Counter()
    made = []
    for entry in sorted((entry for entry in found if entry.judged), key=lambda e: (e.time, e.rater, e.place)):
        versions[entry.item.id, entry.rater] += 1
        version = versions[entry.item.id, entry.rater]
        made.append(
            Judgement(
                item=entry.item.id,
                rater=entry.rater,
                label=rubric.label_of(entry.flags),
                flags=entry.flags,
                note=entry.note,
                version=version,
                event=f"{entry.rater}/{entry.item.id}/{version}",
                time=entry.time,
            )
        )
    return tuple(made)
