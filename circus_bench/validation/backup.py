"""Back up the annotation log: copies beside the study, and commits to a private dataset repository on the Hub."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from circus_bench._typing import StrPath
from circus_bench.errors import CircusError
from circus_bench.hub.publish import PublishError, explained
from circus_bench.io import atomic_write
from circus_bench.validation.annotation_log import AnnotationLog
from circus_bench.validation.annotations import LOG_FILE, to_lines

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_KEPT = 3
_POLL_SECONDS = 1.0
_HUB_INTERVAL = 600.0  # seconds between two commits

_LOG = logging.getLogger(__name__)


class Backups:
    """Backups of an annotation log while a server runs, and when it stops.

    A copy is the log as JSON lines, which any log imports, and for SQLite the whole database. Its name carries the
    number of annotations, so that no copy replaces one that holds more.

    Args:
        log: the annotations.
        folder: where copies go; the last three of a run are kept.
        every: annotations after which a copy is made.
        hub_repo: a private dataset repository, `ORG/NAME`, for the log; none by default.
        hub_interval: seconds between two commits, which are only made when there are new annotations.
    """

    def __init__(
        self,
        log: AnnotationLog,
        folder: StrPath,
        *,
        every: int = 50,
        hub_repo: str | None = None,
        hub_interval: float = _HUB_INTERVAL,
    ) -> None:
        self._log = log
        self._folder = Path(folder)
        self._every = every
        self._hub_repo = hub_repo
        self._hub_interval = hub_interval
        self._copied = log.count()
        self._committed = 0
        self._written: list[Path] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch the log in a thread until the block ends, and make a last copy then."""
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
        """Copy the log, and the database where it is a file; return the log's copy, or None for an empty log."""
        annotations = self._log.annotations()
        if not annotations:
            return None
        path = self._folder / f"judgements-{len(annotations):07d}.jsonl"
        with atomic_write(path) as temporary:
            temporary.write_text(to_lines(annotations), encoding="utf-8")
        if self._log.sqlite_file:
            _copy_database(self._log.sqlite_file, path.with_suffix(".sqlite"))
        self._copied = len(annotations)
        self._written = [*(known for known in self._written if known != path), path]
        for old in self._written[:-_KEPT]:
            for suffix in (".jsonl", ".sqlite"):
                old.with_suffix(suffix).unlink(missing_ok=True)
        self._written = self._written[-_KEPT:]
        return path

    def restore(self) -> int:
        """Import the log that the Hub holds, for a server whose disk did not outlive the last one.

        Returns:
            The number of annotations that the database did not have.

        Raises:
            PublishError: the Hub cannot be asked.
            MismatchError: the Hub holds other annotations than the database.
        """
        if self._hub_repo is None:
            return 0
        from huggingface_hub import HfApi

        with explained(f"reading annotations of {self._hub_repo}", command="the server"):
            path = _remote_log(HfApi(), self._hub_repo)
        return self._log.import_log(path) if path else 0

    def commit(self) -> None:
        """Commit the log to the Hub, if a repository was named and there are new annotations.

        Raises:
            PublishError: the repository is public, or the Hub did not take the commit.
        """
        annotations = self._log.annotations()
        if self._hub_repo is not None and len(annotations) > self._committed:
            commit_log(
                to_lines(annotations),
                self._hub_repo,
                message=f"{len(annotations)} annotations of {self._log.study.name}",
            )
            self._committed = len(annotations)

    def _watch(self, stop: threading.Event) -> None:
        due = time.monotonic() + self._hub_interval
        while not stop.wait(_POLL_SECONDS):
            self._attempt("a backup", self._copy_if_due)
            if time.monotonic() >= due:
                self._attempt("a commit to the Hub", self.commit)
                due = time.monotonic() + self._hub_interval

    def _copy_if_due(self) -> None:
        if self._log.count() >= self._copied + self._every:
            self.copy()

    def _attempt(self, what: str, work: Callable[[], object]) -> None:
        """Report a copy that fails, which must not stop the judging; it is tried again when the next one is due."""
        from sqlalchemy.exc import DBAPIError

        try:
            work()
        except (CircusError, DBAPIError, OSError, sqlite3.Error):
            _LOG.exception("%s failed", what)


def commit_log(lines: str, repo: str, *, message: str) -> None:
    """Commit a log to a private dataset repository, which is created if need be. The token is huggingface_hub's.

    Raises:
        PublishError: the repository is public or holds annotations that this log lacks, or the Hub did not take the
            commit.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi()
    with explained(f"committing annotations to {repo}", command="the commit"):
        api.create_repo(repo, repo_type="dataset", private=True, exist_ok=True)
        info = api.repo_info(repo, repo_type="dataset")
        if not info.private:
            raise PublishError(f"{repo} is public; annotations go to a private repository only")
        held = _remote_log(api, repo)
        lacking = {*held.read_text(encoding="utf-8").splitlines()} - {*lines.splitlines()} if held else set()
        if lacking:
            raise PublishError(f"{repo} holds {len(lacking)} annotations that this log lacks; import them first")
        operation = CommitOperationAdd(path_in_repo=LOG_FILE, path_or_fileobj=lines.encode())
        api.create_commit(repo, [operation], commit_message=message, repo_type="dataset", parent_commit=info.sha)


def _remote_log(api: HfApi, repo: str) -> Path | None:
    """Download the log that a repository holds; None where there is none."""
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

    try:
        return Path(api.hf_hub_download(repo, LOG_FILE, repo_type="dataset"))
    except (EntryNotFoundError, RepositoryNotFoundError):
        return None


def _copy_database(source: Path, target: Path) -> None:
    with (
        atomic_write(target) as temporary,
        closing(sqlite3.connect(source)) as reading,
        closing(sqlite3.connect(temporary)) as writing,
    ):
        reading.backup(writing)
