"""Define the annotation log's tables and connections. Triggers refuse every change of the event log, whoever asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import (
    DDL,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from circus_bench._typing import StrPath
from circus_bench.errors import CircusError

WRITES = "circus_writes"
"""Execution option of a connection that is going to write."""
_LOCK_WAIT = 30_000  # milliseconds that SQLite waits for another writer

metadata = MetaData()

study_table = Table(
    "study",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("study", Text, nullable=False),
    Column("digest", String(64), nullable=False),
)
"""The study that the database belongs to: one row."""

people = Table(
    "people",
    metadata,
    Column("id", Text, primary_key=True),
    Column("access", String(16), nullable=False),
    Column("token_hash", String(64), unique=True),
    Column("invited", String(32), nullable=False),
)
"""Who may sign in. A revoked token leaves null behind."""

events = Table(
    "events",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("event", Text, nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("item", Text, nullable=False),
    Column("rater", Text, nullable=False),
    Column("role", String(16), nullable=False),
    Column("version", Integer),
    Column("seconds", Float, nullable=False),
    Column("time", String(32), nullable=False),
    Column("body", Text),
    UniqueConstraint("item", "rater", "role", "version"),  # events without a version do not collide
    Index("events_by_rater", "rater", "role"),
    sqlite_autoincrement=True,
)
"""The log. `body` is the whole annotation as JSON; the other columns are what queries need."""


def _after_creation(statement: str, *, dialect: str) -> None:
    ddl = DDL(statement)  # type: ignore[no-untyped-call]
    event.listen(events, "after_create", ddl.execute_if(dialect=dialect))


for _change in ("UPDATE", "DELETE"):
    _after_creation(
        f"CREATE TRIGGER events_no_{_change.lower()} BEFORE {_change} ON events "
        "BEGIN SELECT RAISE(ABORT, 'the event log is append-only'); END",
        dialect="sqlite",
    )
_after_creation(
    "CREATE FUNCTION events_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the event log is append-only'; END $$",
    dialect="postgresql",
)
_after_creation(
    "CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events "
    "FOR EACH STATEMENT EXECUTE FUNCTION events_append_only()",
    dialect="postgresql",
)


class AnnotationLogError(CircusError):
    """The database cannot be used, or a delivery does not fit the study or the log."""


def open_engine(database: StrPath) -> Engine:
    """Create the engine of a database; nothing is connected yet.

    Args:
        database: a file for SQLite, or a database URL.

    Raises:
        AnnotationLogError: the URL is none, or its driver is not installed.
    """
    try:
        if isinstance(database, str) and "://" in database:
            url = make_url(database)
        else:
            Path(database).parent.mkdir(parents=True, exist_ok=True)
            url = URL.create("sqlite", database=str(database))
        engine = create_engine(url)
    except (ArgumentError, NoSuchModuleError) as error:
        raise AnnotationLogError(
            "the database URL is not one of SQLAlchemy's; expected dialect+driver://..."
        ) from error
    except ModuleNotFoundError as error:
        raise AnnotationLogError(f"{url!r}: install its driver first ({error})") from error
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    """Turn on write-ahead logging, so that readers do not wait for the writer, and a sync with every commit."""
    connection.isolation_level = None  # transactions are begun by `_begin_sqlite`
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={_LOCK_WAIT}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes then would fail, not wait, where another writer came in between.
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
