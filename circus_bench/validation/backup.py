"""Backups of the judgement store: copies beside the study, and the log in a private dataset repository on the Hub."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from circus_bench.errors import CircusError
from circus_bench.hub.publish import PublishError, explained
from circus_bench.io import replacing
from circus_bench.validation.annotation_log import JudgementStore
from circus_bench.validation.annotations import LOG_FILE, to_lines

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_KEPT = 3
_POLL = 1.0  # seconds between two looks at the store
_HUB_INTERVAL = 600.0  # seconds between two commits

_LOG = logging.getLogger(__name__)


class Backups:
    """Makes copies while a server runs, and when it stops.

    A copy is the log as JSON lines, which any store imports, and for SQLite the whole database. Its name carries the
    number of judgements, so that no copy replaces one that holds more.

    Args:
        store: the judgements.
        folder: where copies go; the last three of a run are kept.
        every: judgements after which a copy is made.
        hub_repo: a private dataset repository, `ORG/NAME`, for the log; none by default.
        hub_interval: seconds between two commits, which are only made when there are new judgements.
    """

    def __init__(
        self,
        store: JudgementStore,
        folder: Path,
        *,
        every: int = 50,
        hub_repo: str | None = None,
        hub_interval: float = _HUB_INTERVAL,
    ) -> None:
        self._store = store
        self._folder = folder
        self._every = every
        self._hub_repo = hub_repo
        self._hub_interval = hub_interval
        self._copied = store.count()
        self._committed = 0
        self._written: list[Path] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look after the store in a thread until the block ends, and make a last copy then."""
        stop = threading.Event()
        thread = threading.Thread(target=self._watch, args=(stop,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self._attempt("the last backup", self.copy)
            self._attempt("the last commit to the Hub", self.commit)

    def copy(self) -> Path | None:
        """Copy the log, and the database where it is a file; returns the log's copy, or None for an empty log."""
        log = self._store.judgements()
        if not log:
            return None
        path = self._folder / f"judgements-{len(log):07d}.jsonl"
        with replacing(path) as temporary:
            temporary.write_text(to_lines(log), encoding="utf-8")
        if self._store.sqlite_file:
            _copy_database(self._store.sqlite_file, path.with_suffix(".sqlite"))
        self._copied = len(log)
        self._written = [*(known for known in self._written if known != path), path]
        for old in self._written[:-_KEPT]:
            for suffix in (".jsonl", ".sqlite"):
                old.with_suffix(suffix).unlink(missing_ok=True)
        self._written = self._written[-_KEPT:]
        return path

    def restore(self) -> int:
        """Import what the Hub holds of the log, for a server whose disk did not outlive the last one.

        Returns:
            The number of judgements that the store did not have.

        Raises:
            PublishError: the Hub cannot be asked.
            MismatchError: the Hub holds other judgements than the store.
        """
        if self._hub_repo is None:
            return 0
        from huggingface_hub import HfApi

        with explained(f"reading judgements of {self._hub_repo}", command="the server"):
            path = _remote_log(HfApi(), self._hub_repo)
        return self._store.import_log(path) if path else 0

    def commit(self) -> None:
        """Commit the log to the Hub, if a repository was named and there are new judgements.

        Raises:
            PublishError: the repository is public, or the Hub did not take the commit.
        """
        log = self._store.judgements()
        if self._hub_repo is not None and len(log) > self._committed:
            commit_log(to_lines(log), self._hub_repo, message=f"{len(log)} judgements of {self._store.study.name}")
            self._committed = len(log)

    def _watch(self, stop: threading.Event) -> None:
        due = time.monotonic() + self._hub_interval
        while not stop.wait(_POLL):
            self._attempt("a backup", self._copy_if_due)
            if time.monotonic() >= due:
                self._attempt("a commit to the Hub", self.commit)
                due = time.monotonic() + self._hub_interval

    def _copy_if_due(self) -> None:
        if self._store.count() >= self._copied + self._every:
            self.copy()

    def _attempt(self, what: str, work: Callable[[], object]) -> None:
        """A copy that fails must not stop the judging: it is reported, and tried again when the next one is due."""
        from sqlalchemy.exc import DBAPIError

        try:
            work()
        except (CircusError, DBAPIError, OSError, sqlite3.Error):
            _LOG.exception("%s failed", what)


def commit_log(lines: str, repo: str, *, message: str) -> None:
    """Commit a log to a private dataset repository, which is made if need be. The token is huggingface_hub's.

    Raises:
        PublishError: the repository is public or holds judgements that this log lacks, or the Hub did not take the
            commit.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi()
    with explained(f"committing judgements to {repo}", command="the commit"):
        api.create_repo(repo, repo_type="dataset", private=True, exist_ok=True)
        info = api.repo_info(repo, repo_type="dataset")
        if not info.private:
            raise PublishError(f"{repo} is public; judgements go to a private repository only")
        held = _remote_log(api, repo)
        lacking = {*held.read_text(encoding="utf-8").splitlines()} - {*lines.splitlines()} if held else set()
        if lacking:
            raise PublishError(f"{repo} holds {len(lacking)} judgements that this log lacks; import them first")
        operation = CommitOperationAdd(path_in_repo=LOG_FILE, path_or_fileobj=lines.encode())
        api.create_commit(repo, [operation], commit_message=message, repo_type="dataset", parent_commit=info.sha)


def _remote_log(api: HfApi, repo: str) -> Path | None:
    """The log that a repository holds, downloaded; None where there is none."""
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

    try:
        return Path(api.hf_hub_download(repo, LOG_FILE, repo_type="dataset"))
    except (EntryNotFoundError, RepositoryNotFoundError):
        return None


def _copy_database(source: Path, target: Path) -> None:
    with (
        replacing(target) as temporary,
        closing(sqlite3.connect(source)) as reading,
        closing(sqlite3.connect(temporary)) as writing,
    ):
        reading.backup(writing)
