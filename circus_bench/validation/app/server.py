"""Assemble the annotation app and run its server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark
from circus_bench.validation.annotation_log import AnnotationLog, RejectedAnnotationError, open_log
from circus_bench.validation.app.pages import Pages
from circus_bench.validation.app.routes import Site, router
from circus_bench.validation.app.security import AttemptLimit, SecurityMiddleware
from circus_bench.validation.backup import Backups
from circus_bench.validation.log_database import AnnotationLogError
from circus_bench.validation.study import Study
from circus_bench.validation.study_benchmarks import load_benchmarks

_LOG = logging.getLogger(__name__)
_STATIC = Path(__file__).parent / "static"


Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(
    study: Study, benchmarks: Mapping[str, Benchmark], log: AnnotationLog, *, lifespan: Lifespan | None = None
) -> FastAPI:
    """Create the app of a study.

    Args:
        study: the study.
        benchmarks: its benchmarks, with images, by the names that the items use.
        log: where annotations go.
        lifespan: surrounds the time of the app's service.

    Raises:
        MismatchError: the items name benchmarks, queries or images that are not there.
        AnnotationLogError: a key of the rubric is one that the app itself uses.
    """
    app = FastAPI(title=study.name, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.site = site = Site(study, log, Pages(study, benchmarks, log), AttemptLimit())
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=_STATIC))
    app.add_middleware(SecurityMiddleware, visit_cookie=site.visit_cookie)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(AnnotationLogError, _unfit)
    app.add_exception_handler(DBAPIError, _unstored)
    return app


def serve(
    study_folder: StrPath,
    *,
    database: StrPath | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    backup_every: int = 50,
    hub_repo: str | None = None,
) -> None:
    """Serve the app of a saved study until it is stopped (SIGINT, SIGTERM).

    Args:
        study_folder: the folder of `study.json`; backups go to its subfolder `backups`.
        database: see `circus_bench.validation.annotation_log.open_log`.
        host: the address to listen on; anything but the loopback interface should stand behind HTTPS.
        port: the port; 0 takes a free one.
        backup_every: annotations after which a backup is made.
        hub_repo: a private dataset repository on the Hub, `ORG/NAME`, that the log is committed to every ten minutes
            and at the end; annotations that it holds and the database does not are imported first.

    Raises:
        FormatError: the folder holds no study, or a benchmark of it cannot be read.
        AnnotationLogError: the database cannot be opened.
        PublishError: the Hub cannot be asked.
        MismatchError: study, benchmarks, database and repository do not belong together.
    """
    import uvicorn

    log = open_log(study_folder, database=database)
    study = log.study
    benchmarks = load_benchmarks(study, study_folder)
    backups = Backups(log, Path(study_folder) / "backups", every=backup_every, hub_repo=hub_repo)
    restored = backups.restore()
    if restored:
        _LOG.warning("%d annotations were imported from %s", restored, hub_repo)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # Not after `uvicorn.run`: that ends the process by the signal which stopped it.
        with closing(log), backups.running():
            yield

    app = create_app(study, benchmarks, log, lifespan=lifespan)
    uvicorn.run(app, host=host, port=port, log_level="info", access_log=False, server_header=False)


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    wants_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if error.status_code == 401 and wants_page:
        return RedirectResponse("/sign-in", 303)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def _malformed(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    where = sorted({".".join(map(str, entry["loc"])) for entry in error.errors()})
    return JSONResponse({"error": f"not as expected: {', '.join(where)}"}, 422)


def _unfit(_: Request, error: Exception) -> Response:
    _LOG.warning("refused: %s", error)
    return JSONResponse({"error": error.why if isinstance(error, RejectedAnnotationError) else str(error)}, 422)


def _unstored(_: Request, error: Exception) -> Response:
    """Tell the browser that the database did not take it, so that it keeps it and tries again."""
    _LOG.error("the database failed: %s", error)
    return JSONResponse({"error": "the database does not answer; it will be tried again"}, 503)
