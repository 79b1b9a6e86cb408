"""Render the pages. A rater's pages are made from the query and the candidate panel alone, never from a stratum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from circus_bench.benchmark import Benchmark, Query
from circus_bench.errors import MismatchError, format_ids
from circus_bench.validation.annotation_log import Access, AnnotationLog, Person
from circus_bench.validation.annotations import Annotation
from circus_bench.validation.app.images import StudyImages
from circus_bench.validation.app.worklist import Worklist, Worklists
from circus_bench.validation.log_database import AnnotationLogError
from circus_bench.validation.panel import shuffle_panel
from circus_bench.validation.rubric import Rubric
from circus_bench.validation.study import Item, Study

APP_KEYS = {
    "v": "the query is sound",
    "y": "yes to the next open question",
    "n": "no to the next open question",
    "u": "back to the item judged before",
    "l": "come back later",
    "p": "to the candidates, then with the arrow keys",
    "z": "enlarge the images",
    "m": "write a note",
    "g": "go on while the network is away",
    "?": "these keys",
}
"""Keys of the app itself; a rubric has others."""

_REASON_KEYS = "abcdefhijkoqrstwx"


class Pages:
    """Renderer of pages and parts of pages.

    Args:
        study: the study.
        benchmarks: by the names that the items use.
        log: its annotations.

    Raises:
        MismatchError: the items name benchmarks, queries or images that are not there.
        AnnotationLogError: a key of the rubric is one that the app itself uses.
    """

    def __init__(self, study: Study, benchmarks: Mapping[str, Benchmark], log: AnnotationLog) -> None:
        from jinja2 import Environment, PackageLoader, StrictUndefined

        self._study = study
        self._log = log
        self._queries = _queries(study, benchmarks)
        self.worklists = Worklists(study, log)
        self.images = StudyImages(study, benchmarks)
        self._environment = Environment(
            loader=PackageLoader("circus_bench.validation.app"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals |= {
            "study": study.name,
            "rubric": study.rubric,
            "reason_keys": _reason_keys(study.rubric),
            "app_keys": APP_KEYS,
        }
        self._environment.filters["duration"] = duration

    def render(self, template: str, **context: Any) -> str:
        """Render a template."""
        return self._environment.get_template(f"{template}.html.j2").render(**context)

    def item(self, person: Person, item: str) -> dict[str, Any]:
        """Render an item for a person: its name, its HTML, and the addresses of the images in it."""
        shown, worklist = self._study.item_by_id[item], self.worklists.of(person)
        query = self._queries[item]
        voices = self.worklists.voices(item) if person.access is Access.ADJUDICATOR else []
        name_of = {image: self.images.name(shown.benchmark, image) for image in _images(query, shown)}
        numbered = list(enumerate(voices, start=1))
        candidates = [
            {"name": name_of[image], "voices": [number for number, voice in numbered if image in voice.alternatives]}
            for image in shuffle_panel(self._study, shown, person.id)
        ]
        former = self._log.latest(item, person)
        html = self.render(
            "item",
            item=self.worklists.name(item),
            text=query.text,
            reference=name_of[query.reference],
            targets=[name_of[target] for target in query.targets],
            candidates=candidates,
            former=former,
            chosen={name_of[image] for image in former.alternatives} if former else set(),
            training=item in worklist.training,
            put_off=item in worklist.later,
            adjudicating=person.access is Access.ADJUDICATOR,
            voices=numbered,
        )
        large = [f"/images/{name_of[image]}" for image in (query.reference, *query.targets[:1])]
        return {
            "item": self.worklists.name(item),
            "html": html,
            "images": [*large, *(f"/thumbnails/{c['name']}" for c in candidates)],
        }

    def text(self, item: str) -> str:
        """Return an item's modification text."""
        return self._queries[item].text

    def alternatives(self, item: str, names: list[str]) -> tuple[str, ...]:
        """List the gallery ids of clicked candidates, in the panel's order, without the targets.

        Raises:
            AnnotationLogError: a name is not of this item's panel.
        """
        shown, query = self._study.item_by_id[item], self._queries[item]
        of_name = {self.images.name(shown.benchmark, image): image for image in shown.panel}
        strange = [name for name in names if name not in of_name]
        if strange:
            raise AnnotationLogError(f"not candidates of this item ({format_ids(strange)})")
        clicked = {of_name[name] for name in names} - {*query.targets}
        return tuple(image for image in shown.panel if image in clicked)

    def progress(self, worklist: Worklist, person: Person) -> str:
        """Render a person's progress for the head of the page."""
        return self.render("progress", work=worklist, person=person)

    def feedback(self, annotation: Annotation) -> str | None:
        """Render the gold label of a training item; None for any other, whose label stays hidden."""
        item = self._study.item_by_id[annotation.item]
        if not (item.training and item.known):
            return None
        return self.render("feedback", annotation=annotation, known=item.known, right=annotation.label == item.known)

    def verdict(self, annotation: Annotation) -> str:
        """Render an annotation in words."""
        return self.render("verdict", annotation=annotation)


def duration(seconds: float | None) -> str:
    """Format a time in words.

    Example:
        >>> duration(1.5), duration(42.4), duration(150), duration(None)
        ('1.5 s', '42 s', '2.5 min', 'none yet')
    """
    if seconds is None:
        return "none yet"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min"


def _queries(study: Study, benchmarks: Mapping[str, Benchmark]) -> dict[str, Query]:
    absent = sorted({item.benchmark for item in study.items} - {*benchmarks})
    if absent:
        raise MismatchError(f"study {study.name!r} needs benchmarks that were not given ({format_ids(absent)})")
    known = {name: {query.id: query for query in benchmark.queries} for name, benchmark in benchmarks.items()}
    missing = [item.id for item in study.items if item.query not in known[item.benchmark]]
    if missing:
        raise MismatchError(f"study {study.name!r} has items that its benchmarks lack ({format_ids(missing)})")
    return {item.id: known[item.benchmark][item.query] for item in study.items}


def _images(query: Query, item: Item) -> tuple[str, ...]:
    return (query.reference, *query.targets, *item.panel)


def _reason_keys(rubric: Rubric) -> dict[str, str]:
    """Assign a key to each `<step>.<reason>`, where there are enough keys for all of them.

    Raises:
        AnnotationLogError: a key of the rubric is one that the app itself uses.
    """
    keys = {step.key for step in rubric.steps} | {entry.key for entry in rubric.follow_ups}
    clash = sorted(keys & {*APP_KEYS})
    if clash:
        raise AnnotationLogError(
            f"rubric {rubric.id!r} uses keys that the app needs itself ({format_ids(clash)}); choose others"
        )
    reasons = [f"{step.id}.{reason}" for step in rubric.steps for reason in step.reasons]
    free = [key for key in _REASON_KEYS if key not in keys]
    return dict(zip(reasons, free, strict=False)) if len(free) >= len(reasons) else {}
