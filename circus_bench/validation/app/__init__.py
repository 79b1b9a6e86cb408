"""The annotation app: a web page on which people judge the items of a study.

`serve` runs it on the loopback interface, `create_app` makes it for another server, `invite` makes a person's sign-in
token and `sign_in_link` the link to send them. The app needs the extra `annotate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from circus_bench.errors import CircusError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from circus_bench.benchmark import Benchmark
    from circus_bench.validation.annotation_log import JudgementStore
    from circus_bench.validation.study import Study

__all__ = ["create_app", "invite", "open_store", "serve", "sign_in_link"]


def open_store(study_folder: Path, *, database: str | Path | None = None) -> JudgementStore:
    """Open the judgements of a saved study.

    Args:
        study_folder: the folder of `study.json`.
        database: a file, or a database URL; `judgements.sqlite` in the study's folder by default.

    Raises:
        FormatError: the folder holds no study.
        StoreError: the database cannot be opened.
        MismatchError: the database holds the judgements of another study.
    """
    _require_packages()
    from circus_bench.validation.annotation_log import JudgementStore
    from circus_bench.validation.annotations import DATABASE_FILE
    from circus_bench.validation.study import Study

    return JudgementStore(Study.load(study_folder), database or study_folder / DATABASE_FILE)


def invite(store: JudgementStore, rater: str, role: str = "rater") -> str:
    """Make a person's sign-in token. It is shown this once; a former token of theirs stops working.

    Args:
        store: the study's judgements.
        rater: the person's id; for a rater one of those that the study assigns items to.
        role: `rater`, `adjudicator` or `owner`.

    Raises:
        StoreError: there is no such role, or the study does not know the rater.
    """
    from circus_bench.validation.annotation_log import Access
    from circus_bench.validation.log_database import StoreError

    if role not in {*Access}:
        raise StoreError(f"{role!r} is no role; expected one of {', '.join(Access)}")
    return store.invite(rater, Access(role))


def sign_in_link(token: str, url: str = "http://127.0.0.1:8000") -> str:
    """The link that signs a person in. The token stands behind a `#`, so that no server or proxy logs it."""
    return f"{url.rstrip('/')}/sign-in#{token}"


def create_app(study: Study, benchmarks: Mapping[str, Benchmark], store: JudgementStore) -> FastAPI:
    """Make the app of a study.

    Args:
        study: the study.
        benchmarks: its benchmarks, with images, by the names that the items use.
        store: where judgements go.

    Raises:
        MismatchError: the items name benchmarks, queries or images that are not there.
        StoreError: a key of the rubric is one that the app itself uses.
    """
    _require_packages()
    from circus_bench.validation.app.server import build_app

    return build_app(study, benchmarks, store)


def serve(
    study_folder: Path,
    *,
    database: str | Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    backup_every: int = 50,
    hub_repo: str | None = None,
) -> None:
    """Serve the app of a saved study until it is stopped (SIGINT, SIGTERM).

    Args:
        study_folder: the folder of `study.json`; backups go to its subfolder `backups`.
        database: see `open_store`.
        host: the address to listen on; anything but the loopback interface should stand behind HTTPS.
        port: the port; 0 takes a free one.
        backup_every: judgements after which a backup is made.
        hub_repo: a private dataset repository on the Hub, `ORG/NAME`, that the log is committed to every ten minutes
            and at the end; judgements that it holds and the database does not are imported first.

    Raises:
        FormatError: the folder holds no study, or a benchmark of it cannot be read.
        StoreError: the database cannot be opened.
        PublishError: the Hub cannot be asked.
        MismatchError: study, benchmarks, database and repository do not belong together.
    """
    _require_packages()
    from circus_bench.validation.app.server import run_server

    store = open_store(study_folder, database=database)
    run_server(study_folder, store, host=host, port=port, backup_every=backup_every, hub_repo=hub_repo)


def _require_packages() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("fastapi", "sqlalchemy", "uvicorn") if find_spec(name) is None]
    if missing:
        raise CircusError(f"the annotation app needs {', '.join(missing)}; run: pip install 'circus-bench[annotate]'")
