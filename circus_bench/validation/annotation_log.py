"""Log annotations append-only, in SQLite or PostgreSQL.

An annotation is acknowledged only once its transaction is on disk, and is read back for that. A delivery that is
repeated, because its acknowledgement was lost, is recognized by its event id and stored once. An annotation names the
version that it replaces; where another tab was faster, the stored one is answered and nothing is overwritten. All state
(what is judged, what was put off) is derived from the log.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, func, insert, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from circus_bench._typing import StrPath
from circus_bench.errors import MismatchError, duplicates, format_ids
from circus_bench.io import to_json
from circus_bench.validation.annotations import (
    DATABASE_FILE,
    Annotation,
    AnnotatorRole,
    find_misfits,
    latest,
    parse_annotation,
    read_annotations,
    to_line,
)
from circus_bench.validation.log_database import (
    WRITES,
    AnnotationLogError,
    events,
    metadata,
    open_engine,
    people,
    study_table,
)
from circus_bench.validation.study import Study

_TOKEN_BYTES = 32
_T = TypeVar("_T")


class Access(StrEnum):
    """Access right of a person."""

    RATER = "rater"
    """Judge the items assigned to them."""
    ADJUDICATOR = "adjudicator"
    """Decide on items that raters disagree on."""
    OWNER = "owner"
    """See the dashboard and export the log."""


class EventKind(StrEnum):
    """Kind of an event in the log; an annotation is a judgement there."""

    ANNOTATION = "judgement"
    LATER = "later"
    """The person put the item off."""


class DeliveryOutcome(StrEnum):
    """Outcome of a delivered annotation."""

    STORED = "stored"
    REPEATED = "repeated"
    """The same delivery had been stored before."""
    CONFLICT = "conflict"
    """Not stored: another annotation has the version that it would have had."""


class RejectedAnnotationError(AnnotationLogError):
    """An annotation does not fit the study or the log.

    Attributes:
        why: the message without the ids of item and person, for raters, who do not see ids of items.
    """

    def __init__(self, why: str, *, item: str, person: str) -> None:
        super().__init__(f"item {item!r}, person {person!r}: {why}")
        self.why = why


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with a sign-in token.

    Attributes:
        id: their id; for raters one of the study's assignments.
        access: what they may do.
    """

    id: str
    access: Access

    @property
    def role(self) -> AnnotatorRole:
        """Role of their annotations."""
        return AnnotatorRole.ADJUDICATOR if self.access is Access.ADJUDICATOR else AnnotatorRole.RATER


@dataclass(frozen=True, slots=True)
class Receipt:
    """Acknowledgement of a delivered annotation.

    Attributes:
        outcome: what became of it.
        annotation: as the log has it: the delivered one, or in a conflict the latest one.
    """

    outcome: DeliveryOutcome
    annotation: Annotation


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Event of a person's trail.

    Attributes:
        kind: annotated, or put off.
        item: id of the item.
        seconds: that it was on the screen.
        time: UTC, ISO 8601.
    """

    kind: EventKind
    item: str
    seconds: float
    time: str


class AnnotationLog:
    """Append-only log of the annotations of a study.

    Args:
        study: the study; the database remembers which one it belongs to.
        database: a file for SQLite, or a database URL such as `postgresql+psycopg://user@host/name`.

    Raises:
        AnnotationLogError: the database cannot be opened.
        MismatchError: it holds the annotations of another study.
    """

    def __init__(self, study: Study, database: StrPath) -> None:
        self.study = study
        self._engine = open_engine(database)
        try:
            metadata.create_all(self._engine)
            self._write(self._claim)
        except DBAPIError as error:
            raise AnnotationLogError(f"{self._engine.url!r}: the database cannot be used ({error.orig})") from error

    @property
    def sqlite_file(self) -> Path | None:
        """Path of the database, where it is a file."""
        url = self._engine.url
        return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def invite(self, person: str, access: str = Access.RATER) -> str:
        """Make a person's sign-in token. It is shown this once; the database keeps its hash.

        A former token of the person stops working.

        Args:
            person: their id; for a rater one of those that the study assigns items to.
            access: `rater`, `adjudicator` or `owner`.

        Raises:
            AnnotationLogError: there is no such role, a rater has no assignments or is to be something else too, or the
                id is blank.
        """
        if access not in {*Access}:
            raise AnnotationLogError(f"{access!r} is no role; expected one of {', '.join(Access)}")
        assigned = person in self.study.assignments
        if not person.strip() or assigned != (access == Access.RATER):
            why = "is a rater, and raters stay blind" if assigned else "has no items assigned"
            raise AnnotationLogError(
                f"{person!r} cannot be invited as {access}: {person!r} {why}. "
                f"The study's raters are {format_ids(self.study.assignments)}"
            )
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        row = {"access": str(access), "token_hash": _hash(token), "invited": _now()}

        def write(connection: Connection) -> None:
            if not connection.execute(update(people).where(people.c.id == person).values(row)).rowcount:
                connection.execute(insert(people).values(id=person, **row))

        self._write(write)
        return token

    def revoke(self, person: str) -> bool:
        """Make a person's token invalid and return whether there was one; their annotations stay."""
        holds = (people.c.id == person) & people.c.token_hash.is_not(None)
        taken = update(people).where(holds).values(token_hash=None)
        return self._write(lambda connection: connection.execute(taken).rowcount > 0)

    def person_for_token(self, token: str) -> Person | None:
        """Find the person whose token this is; None for an unknown one."""
        row = self._first(select(people).where(people.c.token_hash == _hash(token)))
        return Person(row.id, Access(row.access)) if row else None

    def record(self, annotation: Annotation) -> Receipt:
        """Store an annotation; return what the log then holds, once it is safe on disk.

        Args:
            annotation: with the version that it is to have; its time is set here where it is empty.

        Raises:
            AnnotationLogError: the annotation contradicts the study, or its event id or version cannot be its own.
        """
        self.check(annotation)
        timed = dataclasses.replace(annotation, time=annotation.time or _now())
        outcome = self._write(lambda connection: self._append(connection, timed))
        if outcome is DeliveryOutcome.CONFLICT:
            stored = self.latest(annotation.item, _person(annotation))
        else:
            row = self._first(select(events).where(events.c.event == annotation.event))
            stored = _annotation(row) if row else None
        if stored is None:
            raise AnnotationLogError(
                f"{self._engine.url!r}: event {annotation.event!r} was written and cannot be read back"
            )
        return Receipt(outcome, stored)

    def put_off(self, item: str, person: Person, *, event_id: str) -> None:
        """Log that a person wants to come back to an item later. A repeated delivery changes nothing.

        Raises:
            AnnotationLogError: the item is not theirs, or the event id is another event's.
        """
        self._check_item(item, person)
        row = {"kind": EventKind.LATER.value, "item": item, "rater": person.id, "role": person.role.value}

        def write(connection: Connection) -> None:
            held = connection.execute(select(events).where(events.c.event == event_id)).mappings().first()
            if held is None:
                connection.execute(insert(events).values(**row, event=event_id, seconds=0.0, time=_now()))
            elif any(held[name] != value for name, value in row.items()):
                raise AnnotationLogError(f"event id {event_id!r} is in use for another event")

        self._write(write)

    def annotations(self) -> list[Annotation]:
        """Read all annotations, superseded ones too, in the order of their arrival."""
        query = select(events).where(events.c.kind == EventKind.ANNOTATION.value).order_by(events.c.seq)
        with self._engine.connect() as connection:
            return [_annotation(row) for row in connection.execute(query)]

    def count(self) -> int:
        """Count the annotations in the log."""
        row = self._first(select(func.count().label("n")).where(events.c.kind == EventKind.ANNOTATION.value))
        return int(row.n) if row else 0

    def by_item(self) -> dict[str, list[Annotation]]:
        """Group the latest annotations, of raters and adjudicators, by item id."""
        found: dict[str, list[Annotation]] = {}
        for annotation in latest(self.annotations()):
            found.setdefault(annotation.item, []).append(annotation)
        return found

    def latest(self, item: str, person: Person) -> Annotation | None:
        """Read a person's latest annotation of an item."""
        row = self._first(_latest(item, person))
        return _annotation(row) if row else None

    def trail(self, person: Person) -> list[LogEvent]:
        """List what a person did, in order."""
        columns = (events.c.kind, events.c.item, events.c.seconds, events.c.time)
        query = select(*columns).where(_by(person)).order_by(events.c.seq)
        with self._engine.connect() as connection:
            return [LogEvent(EventKind(row.kind), row.item, row.seconds, row.time) for row in connection.execute(query)]

    def check(self, annotation: Annotation) -> None:
        """Refuse an annotation that the study does not provide for.

        Raises:
            RejectedAnnotationError: it names an item, a question, a reason or an image that the study does not have
                there (see `find_misfits`), or holds text that cannot be stored.
        """
        self._check_item(annotation.item, _person(annotation))
        refused = partial(RejectedAnnotationError, item=annotation.item, person=annotation.rater)
        for _, _, problem in find_misfits(self.study, annotation):
            raise refused(problem)
        for name in ("flags", "reasons", "alternatives"):
            repeated = duplicates(getattr(annotation, name))
            if repeated:
                raise refused(f"{name} are repeated ({format_ids(repeated)})")
        if not (math.isfinite(annotation.seconds) and annotation.seconds >= 0 and annotation.version >= 1):
            raise refused(f"{annotation.seconds} seconds or version {annotation.version} cannot be")
        try:
            f"{annotation.note}{annotation.event}{annotation.time}".encode()
        except UnicodeEncodeError as error:
            raise refused(f"its note, event id or time holds half a character, a lone surrogate ({error})") from error

    def import_log(self, path: StrPath) -> int:
        """Import a log of JSON lines, all of it or nothing; what is there already is passed over.

        Returns:
            The number of annotations added.

        Raises:
            FormatError: the file is no log.
            AnnotationLogError: an annotation contradicts the study, or comes before the version that it replaces.
            MismatchError: the log holds other annotations of the same versions.
        """
        annotations = [_complete(annotation) for annotation in read_annotations(path)]
        for annotation in annotations:
            self.check(annotation)

        def write(connection: Connection) -> int:
            outcomes = [self._append(connection, annotation) for annotation in annotations]
            pairs = zip(annotations, outcomes, strict=True)
            others = [f"{j.item} by {j.rater}" for j, outcome in pairs if outcome is DeliveryOutcome.CONFLICT]
            if others:
                raise MismatchError(
                    f"{path}: the log holds other annotations of {format_ids(others)}; nothing was added"
                )
            return outcomes.count(DeliveryOutcome.STORED)

        return self._write(write)

    def _claim(self, connection: Connection) -> None:
        """Tie the database to its study, or compare."""
        digest = hashlib.sha256(to_json(dataclasses.asdict(self.study)).encode()).hexdigest()
        held = connection.execute(select(study_table)).first()
        if held is None:
            connection.execute(insert(study_table).values(id=1, study=self.study.name, digest=digest))
        elif held.digest != digest:
            raise MismatchError(
                f"{self._engine.url!r}: holds annotations of the study {held.study!r}, which is another than "
                f"{self.study.name!r}, or the study was changed since. Use a database of its own"
            )

    def _check_item(self, item: str, person: Person) -> None:
        if item not in self.study.item_by_id:
            raise RejectedAnnotationError(f"not an item of the study {self.study.name!r}", item=item, person=person.id)
        if person.access is Access.ADJUDICATOR:
            return
        mine = self.study.assignments.get(person.id)
        if mine is None or not (item in mine or self.study.item_by_id[item].training):
            raise RejectedAnnotationError("the item is not assigned to them", item=item, person=person.id)

    def _append(self, connection: Connection, annotation: Annotation) -> DeliveryOutcome:
        # In this order: this delivery is recognized if another process stores it between the two looks, and any other
        # annotation stored there makes the insert fail.
        last = connection.execute(_latest(annotation.item, _person(annotation))).first()
        newest = last.version if last else 0
        held = connection.execute(select(events).where(events.c.event == annotation.event)).first()
        if held is not None:
            if held.body and _annotation(held) == dataclasses.replace(annotation, time=held.time):
                return DeliveryOutcome.REPEATED
            raise AnnotationLogError(f"event id {annotation.event!r} is in use for another event")
        if annotation.version > newest + 1:
            raise RejectedAnnotationError(
                f"version {annotation.version} replaces one that the log does not have; its last is {newest}",
                item=annotation.item,
                person=annotation.rater,
            )
        if annotation.version <= newest:
            return DeliveryOutcome.CONFLICT
        row = dataclasses.asdict(annotation)
        columns = {name: row[name] for name in ("item", "rater", "role", "version", "event", "seconds", "time")}
        values = {**columns, "kind": EventKind.ANNOTATION.value, "body": to_line(annotation)}
        connection.execute(insert(events).values(values))
        return DeliveryOutcome.STORED

    def _first(self, query: Any) -> Row[Any] | None:
        with self._engine.connect() as connection:
            return connection.execute(query).first()

    def _write(self, work: Callable[[Connection], _T]) -> _T:
        """Run `work` in a transaction. In SQLite nobody else writes meanwhile.

        In PostgreSQL the unique constraints refuse the slower of two writers; what the faster one wrote can then be
        read, so that a second attempt comes to the right answer.
        """
        with self._engine.connect().execution_options(**{WRITES: True}) as connection:
            try:
                with connection.begin():
                    return work(connection)
            except IntegrityError:
                with connection.begin():
                    return work(connection)


def open_log(study_folder: StrPath, *, database: StrPath | None = None) -> AnnotationLog:
    """Open the annotation log of a saved study.

    Args:
        study_folder: the folder of `study.json`.
        database: a file, or a database URL; `judgements.sqlite` in the study's folder by default.

    Raises:
        FormatError: the folder holds no study.
        AnnotationLogError: the database cannot be opened.
        MismatchError: the database holds the annotations of another study.
    """
    return AnnotationLog(Study.load(study_folder), database or Path(study_folder) / DATABASE_FILE)


def _by(person: Person) -> ColumnElement[bool]:
    return (events.c.rater == person.id) & (events.c.role == person.role.value)


def _latest(item: str, person: Person) -> Any:
    judged = (events.c.kind == EventKind.ANNOTATION.value) & (events.c.item == item) & _by(person)
    return select(events).where(judged).order_by(events.c.version.desc()).limit(1)


def _annotation(row: Row[Any]) -> Annotation:
    return parse_annotation(row.body)


def _person(annotation: Annotation) -> Person:
    return Person(annotation.rater, Access(annotation.role.value))


def _complete(annotation: Annotation) -> Annotation:
    """Add to an imported annotation what other logs lack: an id that is the same at every import, and a time."""
    row = dataclasses.asdict(annotation)
    own = str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(row, sort_keys=True)))
    return dataclasses.replace(annotation, event=annotation.event or own, time=annotation.time or _now())


def _hash(token: str) -> str:
    """Hash a token; tokens are random and long, so that a plain hash cannot be reversed by trying."""
    return hashlib.sha256(token.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
