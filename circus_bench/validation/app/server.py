"""Puts the app together and runs it."""

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

from circus_bench.benchmark import Benchmark
from circus_bench.validation.annotation_log import JudgementStore, RefusedError
from circus_bench.validation.app.pages import Pages
from circus_bench.validation.app.routes import Site, router
from circus_bench.validation.app.security import AttemptLimit, Guard
from circus_bench.validation.backup import Backups
from circus_bench.validation.log_database import StoreError
from circus_bench.validation.study import Study

_LOG = logging.getLogger(__name__)
_STATIC = Path(__file__).parent / "static"


Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def build_app(
    study: Study, benchmarks: Mapping[str, Benchmark], store: JudgementStore, *, lifespan: Lifespan | None = None
) -> FastAPI:
    """Make the app; see `circus_bench.validation.app.create_app`. `lifespan` surrounds the time of its service."""
    app = FastAPI(title=study.name, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.site = site = Site(study, store, Pages(study, benchmarks, store), AttemptLimit())
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=_STATIC))
    app.add_middleware(Guard, visit_cookie=site.visit_cookie)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(StoreError, _unfit)
    app.add_exception_handler(DBAPIError, _unstored)
    return app


def run_server(
    study_folder: Path, store: JudgementStore, *, host: str, port: int, backup_every: int, hub_repo: str | None
) -> None:
    """Run the app until it is stopped; see `circus_bench.validation.app.serve`."""
    import uvicorn

    study = store.study
    benchmarks = {name: Benchmark.load(study_folder / folder) for name, folder in study.benchmarks.items()}
    backups = Backups(store, study_folder / "backups", every=backup_every, hub_repo=hub_repo)
    restored = backups.restore()
    if restored:
        _LOG.warning("%d judgements were imported from %s", restored, hub_repo)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # Not after `uvicorn.run`: that ends the process by the signal which stopped it.
        with closing(store), backups.running():
            yield

    app = build_app(study, benchmarks, store, lifespan=lifespan)
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
    return JSONResponse({"error": error.why if isinstance(error, RefusedError) else str(error)}, 422)


def _unstored(_: Request, error: Exception) -> Response:
    """The database did not take it; the browser keeps it and tries again."""
    _LOG.error("the database failed: %s", error)
    return JSONResponse({"error": "the database does not answer; it will be tried again"}, 503)
