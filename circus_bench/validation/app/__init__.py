"""Annotation app: a web page on which people judge the items of a study.

`serve` runs it on the loopback interface, `create_app` makes it for another server, `open_log` opens the annotations,
and `sign_in_link` makes the link to send to a person from their token. The app needs the extra `annotate`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from circus_bench.errors import CircusError

if TYPE_CHECKING:
    from circus_bench.validation.annotation_log import open_log
    from circus_bench.validation.app.server import create_app, serve

__all__ = ["create_app", "open_log", "serve", "sign_in_link"]

_HOME = {"create_app": "app.server", "open_log": "annotation_log", "serve": "app.server"}


def sign_in_link(token: str, url: str = "http://127.0.0.1:8000") -> str:
    """Make the link that signs a person in. The token stands behind a `#`, so that no server or proxy logs it."""
    return f"{url.rstrip('/')}/sign-in#{token}"


def __getattr__(name: str) -> Any:
    """Import a function on first use, for it needs packages that the extra brings."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    missing = [package for package in ("fastapi", "sqlalchemy", "uvicorn") if find_spec(package) is None]
    if missing:
        raise CircusError(f"the annotation app needs {', '.join(missing)}; run: pip install 'circus-bench[annotate]'")
    return getattr(import_module(f"circus_bench.validation.{_HOME[name]}"), name)
