"""Judgement store: an append-only log of what raters said, in SQLite or PostgreSQL.

A judgement is acknowledged only once its transaction is on disk, and is read back for that. A delivery that is
repeated, because its acknowledgement was lost, is recognised by its event id and stored once. A judgement names the
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

from circus_bench.errors import MismatchError, some
from circus_bench.io import to_json
from circus_bench.validation.annotations import (
    Judgement,
    Role,
    in_force,
    judgement_of,
    read_judgements,
    write_judgements,
)
from circus_bench.validation.log_database import WRITES, StoreError, about, events, metadata, open_engine, people
from circus_bench.validation.study import Study

_TOKEN_BYTES = 32
_T = TypeVar("_T")


class Access(StrEnum):
    """What a person may do."""

    RATER = "rater"
    """Judge the items assigned to them."""
    ADJUDICATOR = "adjudicator"
    """Decide on items that raters disagree on."""
    OWNER = "owner"
    """See the dashboard and export the log."""


class Kind(StrEnum):
    """What an event of the log says."""

    JUDGEMENT = "judgement"
    LATER = "later"
    """The person put the item off."""


class Outcome(StrEnum):
    """What became of a delivered judgement."""

    STORED = "stored"
    REPEATED = "repeated"
    """It had been stored before; this is the same delivery again."""
    CONFLICT = "conflict"
    """It was not stored: another judgement has the version that it would have had."""


class RefusedError(StoreError):
    """A delivery does not fit the study or the log.

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
    def role(self) -> Role:
        """The role of their judgements."""
        return Role.ADJUDICATOR if self.access is Access.ADJUDICATOR else Role.RATER


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to a delivered judgement.

    Attributes:
        outcome: what became of it.
        judgement: as the log has it: the delivered one, or in a conflict the one in force.
    """

    outcome: Outcome
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a person's trail.

    Attributes:
        kind: judgement, or put off.
        item: id of the item.
        seconds: that it was on the screen.
        time: UTC, ISO 8601.
    """

    kind: Kind
    item: str
    seconds: float
    time: str


class JudgementStore:
    """The log of one study.

    Args:
        study: the study; the database remembers which one it belongs to.
        database: a file for SQLite, or a database URL such as `postgresql+psycopg://user@host/name`.

    Raises:
        StoreError: the database cannot be opened.
        MismatchError: it holds the judgements of another study.
    """

    def __init__(self, study: Study, database: str | Path) -> None:
        self.study = study
        self._items = {item.id: item for item in study.items}
        self._engine = open_engine(database)
        try:
            metadata.create_all(self._engine)
            self._write(self._claim)
        except DBAPIError as error:
            raise StoreError(f"{self._engine.url!r}: the database cannot be used ({error.orig})") from error

    @property
    def sqlite_file(self) -> Path | None:
        """The database file, where there is one."""
        url = self._engine.url
        return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def invite(self, person: str, access: Access) -> str:
        """Make a sign-in token. It is shown this once; the database keeps its hash. A former token stops working.

        Raises:
            StoreError: a rater without assignments, a rater who is to be something else too, or a blank id.
        """
        assigned = person in self.study.assignments
        if not person.strip() or assigned != (access is Access.RATER):
            why = "is a rater, and raters stay blind" if assigned else "has no items assigned"
            raise StoreError(
                f"{person!r} cannot be invited as {access.value}: {person!r} {why}. "
                f"The study's raters are {some(self.study.assignments)}"
            )
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        row = {"access": access.value, "token_hash": _hash(token), "invited": _now()}

        def write(connection: Connection) -> None:
            if not connection.execute(update(people).where(people.c.id == person).values(row)).rowcount:
                connection.execute(insert(people).values(id=person, **row))

        self._write(write)
        return token

    def revoke(self, person: str) -> bool:
        """Make a person's token invalid; their judgements stay. Returns whether there was one."""
        holds = (people.c.id == person) & people.c.token_hash.is_not(None)
        taken = update(people).where(holds).values(token_hash=None)
        return self._write(lambda connection: connection.execute(taken).rowcount > 0)

    def person_of(self, token: str) -> Person | None:
        """Whose token this is; None for an unknown one."""
        row = self._first(select(people).where(people.c.token_hash == _hash(token)))
        return Person(row.id, Access(row.access)) if row else None

    def record(self, judgement: Judgement) -> Receipt:
        """Store a judgement; what the log then holds is returned once it is safe on disk.

        Args:
            judgement: with the version that it is to have; its time is set here where it is empty.

        Raises:
            StoreError: the judgement contradicts the study, or its event id or version cannot be its own.
        """
        self.check(judgement)
        timed = dataclasses.replace(judgement, time=judgement.time or _now())
        outcome = self._write(lambda connection: self._append(connection, timed))
        if outcome is Outcome.CONFLICT:
            stored = self.last(judgement.item, _person(judgement))
        else:
            row = self._first(select(events).where(events.c.event == judgement.event))
            stored = _judgement(row) if row else None
        if stored is None:
            raise StoreError(f"{self._engine.url!r}: event {judgement.event!r} was written and cannot be read back")
        return Receipt(outcome, stored)

    def put_off(self, item: str, person: Person, *, event_id: str) -> None:
        """Note that a person wants to come back to an item later. A repeated delivery changes nothing.

        Raises:
            StoreError: the item is not theirs, or the event id is another event's.
        """
        self._check_item(item, person)
        row = {"kind": Kind.LATER.value, "item": item, "rater": person.id, "role": person.role.value}

        def write(connection: Connection) -> None:
            held = connection.execute(select(events).where(events.c.event == event_id)).mappings().first()
            if held is None:
                connection.execute(insert(events).values(**row, event=event_id, seconds=0.0, time=_now()))
            elif any(held[name] != value for name, value in row.items()):
                raise StoreError(f"event id {event_id!r} is in use for another event")

        self._write(write)

    def judgements(self) -> list[Judgement]:
        """All judgements, superseded ones too, in the order of their arrival."""
        query = select(events).where(events.c.kind == Kind.JUDGEMENT.value).order_by(events.c.seq)
        with self._engine.connect() as connection:
            return [_judgement(row) for row in connection.execute(query)]

    def count(self) -> int:
        """The number of judgements in the log."""
        row = self._first(select(func.count().label("n")).where(events.c.kind == Kind.JUDGEMENT.value))
        return int(row.n) if row else 0

    def by_item(self) -> dict[str, list[Judgement]]:
        """Item id to the judgements in force, of raters and adjudicators."""
        found: dict[str, list[Judgement]] = {}
        for judgement in in_force(self.judgements()):
            found.setdefault(judgement.item, []).append(judgement)
        return found

    def last(self, item: str, person: Person) -> Judgement | None:
        """A person's judgement in force of an item."""
        row = self._first(_last(item, person))
        return _judgement(row) if row else None

    def trail(self, person: Person) -> list[Step]:
        """What a person did, in order."""
        columns = (events.c.kind, events.c.item, events.c.seconds, events.c.time)
        query = select(*columns).where(_by(person)).order_by(events.c.seq)
        with self._engine.connect() as connection:
            return [Step(Kind(row.kind), row.item, row.seconds, row.time) for row in connection.execute(query)]

    def check(self, judgement: Judgement) -> None:
        """Refuse a judgement that the study does not provide for.

        Raises:
            RefusedError: it names an item, a question, a reason or an image that the study does not have there, or
                holds text that cannot be stored.
        """
        rubric = self.study.rubric
        self._check_item(judgement.item, _person(judgement))
        flagged = [step for step in rubric.steps if step.id in judgement.flags]
        allowed = {
            "flags": (judgement.flags, {step.id for step in rubric.steps}),
            "reasons": (judgement.reasons, {f"{step.id}.{reason}" for step in flagged for reason in step.reasons}),
            "answers": (judgement.answers, set() if flagged else {entry.id for entry in rubric.follow_ups}),
            "alternatives": (judgement.alternatives, set(self._items[judgement.item].panel)),
        }
        refused = partial(RefusedError, item=judgement.item, person=judgement.rater)
        for name, (given, known) in allowed.items():
            strange = [entry for entry in given if entry not in known]
            if strange or len(set(given)) < len(given):
                raise refused(f"{name} are repeated or unknown ({some(given)}; known are {some(known)})")
        expected = rubric.label_of(judgement.flags)
        if judgement.label != expected:
            raise refused(f"its flags make the label {expected!r}, not {judgement.label!r}")
        if not (math.isfinite(judgement.seconds) and judgement.seconds >= 0 and judgement.version >= 1):
            raise refused(f"{judgement.seconds} seconds or version {judgement.version} cannot be")
        try:
            f"{judgement.note}{judgement.event}{judgement.time}".encode()
        except UnicodeEncodeError as error:
            raise refused(f"its note, event id or time holds half a character, a lone surrogate ({error})") from error

    def export(self, path: Path) -> int:
        """Write the log as JSON lines; returns the number of judgements."""
        log = self.judgements()
        write_judgements(path, log)
        return len(log)

    def import_log(self, path: Path) -> int:
        """Add a log that `export` wrote, all of it or nothing; what is there already is passed over.

        Returns:
            The number of judgements added.

        Raises:
            FormatError: the file is no log.
            StoreError: a judgement contradicts the study, or comes before the version that it replaces.
            MismatchError: the log holds other judgements of the same versions.
        """
        log = [_complete(judgement) for judgement in read_judgements(path)]
        for judgement in log:
            self.check(judgement)

        def write(connection: Connection) -> int:
            outcomes = [self._append(connection, judgement) for judgement in log]
            pairs = zip(log, outcomes, strict=True)
            others = [f"{j.item} by {j.rater}" for j, outcome in pairs if outcome is Outcome.CONFLICT]
            if others:
                raise MismatchError(f"{path}: the store holds other judgements of {some(others)}; nothing was added")
            return outcomes.count(Outcome.STORED)

        return self._write(write)

    def _claim(self, connection: Connection) -> None:
        """Write down which study the database belongs to, or compare."""
        digest = hashlib.sha256(to_json(dataclasses.asdict(self.study)).encode()).hexdigest()
        held = connection.execute(select(about)).first()
        if held is None:
            connection.execute(insert(about).values(id=1, study=self.study.name, digest=digest))
        elif held.digest != digest:
            raise MismatchError(
                f"{self._engine.url!r}: holds judgements of the study {held.study!r}, which is another than "
                f"{self.study.name!r}, or the study was changed since. Use a database of its own"
            )

    def _check_item(self, item: str, person: Person) -> None:
        if item not in self._items:
            raise RefusedError(f"not an item of the study {self.study.name!r}", item=item, person=person.id)
        if person.access is Access.ADJUDICATOR:
            return
        mine = self.study.assignments.get(person.id)
        if mine is None or not (item in mine or self._items[item].training):
            raise RefusedError("the item is not assigned to them", item=item, person=person.id)

    def _append(self, connection: Connection, judgement: Judgement) -> Outcome:
        # In this order: this delivery is recognised if another process stores it between the two looks, and any other
        # judgement stored there makes the insert fail.
        last = connection.execute(_last(judgement.item, _person(judgement))).first()
        newest = last.version if last else 0
        held = connection.execute(select(events).where(events.c.event == judgement.event)).first()
        if held is not None:
            if held.body and _judgement(held) == dataclasses.replace(judgement, time=held.time):
                return Outcome.REPEATED
            raise StoreError(f"event id {judgement.event!r} is in use for another event")
        if judgement.version > newest + 1:
            raise RefusedError(
                f"version {judgement.version} replaces one that the log does not have; its last is {newest}",
                item=judgement.item,
                person=judgement.rater,
            )
        if judgement.version <= newest:
            return Outcome.CONFLICT
        row = dataclasses.asdict(judgement)
        columns = {name: row[name] for name in ("item", "rater", "role", "version", "event", "seconds", "time")}
        body = json.dumps(row, sort_keys=True, ensure_ascii=False)
        connection.execute(insert(events).values(**columns, kind=Kind.JUDGEMENT.value, body=body))
        return Outcome.STORED

    def _first(self, query: Any) -> Row[Any] | None:
        with self._engine.connect() as connection:
            return connection.execute(query).first()

    def _write(self, work: Callable[[Connection], _T]) -> _T:
        """Do `work` in a transaction. In SQLite nobody else writes meanwhile.

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


def _by(person: Person) -> ColumnElement[bool]:
    return (events.c.rater == person.id) & (events.c.role == person.role.value)


def _last(item: str, person: Person) -> Any:
    judged = (events.c.kind == Kind.JUDGEMENT.value) & (events.c.item == item) & _by(person)
    return select(events).where(judged).order_by(events.c.version.desc()).limit(1)


def _judgement(row: Row[Any]) -> Judgement:
    return judgement_of(json.loads(row.body))


def _person(judgement: Judgement) -> Person:
    return Person(judgement.rater, Access(judgement.role.value))


def _complete(judgement: Judgement) -> Judgement:
    """Give an imported judgement what logs of other origin lack: an id that is the same at every import, and a time."""
    row = dataclasses.asdict(judgement)
    own = str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(row, sort_keys=True)))
    return dataclasses.replace(judgement, event=judgement.event or own, time=judgement.time or _now())


def _hash(token: str) -> str:
    """Tokens are random and long, so that a plain hash cannot be reversed by trying."""
    return hashlib.sha256(token.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
