"""Guard the routes: security headers, anti-forgery tokens, size limits, and a limit on guessing."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.requests import cookie_parser

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CSRF_HEADER = "x-csrf-token"
MAX_BODY = 64 * 1024
_KEPT_ADDRESSES = 10_000

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def csrf_token(visit: str) -> str:
    """Derive the anti-forgery token of a visit. Only this site's pages can read it: the visit's cookie is HttpOnly."""
    return hmac.new(visit.encode(), b"circus-bench csrf", hashlib.sha256).hexdigest()


class SecurityMiddleware:
    """Middleware that sets the headers of every answer, and turns away large bodies and forged requests.

    Args:
        app: what is guarded.
        visit_cookie: name of the cookie that anti-forgery tokens are bound to.
    """

    def __init__(self, app: ASGIApp, *, visit_cookie: str) -> None:
        self._app = app
        self._visit_cookie = visit_cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                added = {**HEADERS, "cache-control": "no-store"}
                message["headers"] = [
                    *message["headers"],
                    *((n.encode(), v.encode()) for n, v in added.items() if n.encode() not in given),
                ]
            await send(message)

        if scope["method"] not in {"GET", "HEAD"}:
            length = headers.get("content-length", "")
            if not length.isdecimal() or int(length) > MAX_BODY:
                await _refuse(guarded_send, 413, f"send at most {MAX_BODY} bytes, and their number")
                return
            visit = cookie_parser(headers.get("cookie", "")).get(self._visit_cookie, "")
            given = headers.get(CSRF_HEADER, "").encode()
            if not visit or not hmac.compare_digest(csrf_token(visit).encode(), given):
                await _refuse(guarded_send, 403, "the page is out of date; reload it")
                return
        await self._app(scope, receive, guarded_send)


class AttemptLimit:
    """Limit of failed attempts per address over a sliding window.

    Args:
        attempts: that may fail within the window.
        seconds: length of the window.
        clock: tells the time in seconds.
    """

    def __init__(self, attempts: int = 10, *, seconds: float = 60, clock: Callable[[], float] = time.monotonic) -> None:
        self._attempts = attempts
        self._seconds = seconds
        self._clock = clock
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, address: str) -> int:
        """Compute the seconds until the address may try again; 0 for at once."""
        with self._lock:
            failed = self._failed.get(address, deque())
            while failed and failed[0] <= self._clock() - self._seconds:
                failed.popleft()
            return 0 if len(failed) < self._attempts else int(failed[0] + self._seconds - self._clock()) + 1

    def failed(self, address: str) -> None:
        """Count a failed attempt."""
        with self._lock:
            self._failed.setdefault(address, deque(maxlen=self._attempts)).append(self._clock())
            self._failed.move_to_end(address)
            while len(self._failed) > _KEPT_ADDRESSES:
                self._failed.popitem(last=False)


async def _refuse(send: Send, status: int, why: str) -> None:
    body = json.dumps({"error": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
