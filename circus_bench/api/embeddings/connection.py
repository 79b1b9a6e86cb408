"""HTTP to a vendor: what an answer means, and a key that stays where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import NewConnectionError

from circus_bench.api.embeddings.vendor import RejectedError, Vendor
from circus_bench.api.runtime import PASSING, REJECTED, RemoteError, Secret, TransientError, check_address, retry_after

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

_CONNECT_SECONDS = 10.0
_SHOWN = 300  # characters of a service's own words in a message


class Connection:
    """Speaks to one vendor.

    Args:
        vendor: whom to ask.
        key: goes into a header, and nowhere else.
        base_url: another address than the vendor's own.
        timeout: seconds to wait for a sign of an answer.
        threads: how many ask at the same time.

    Raises:
        RemoteError: the address would send the key over an open line.
    """

    def __init__(self, vendor: Vendor, key: Secret, *, base_url: str | None, timeout: float, threads: int) -> None:
        base = (base_url or vendor.base_url(key)).rstrip("/")
        check_address(base, setting=vendor.url_variable)
        self._vendor = vendor
        self._key = key
        self._url = base + vendor.path()
        self._timeout = (_CONNECT_SECONDS, timeout)
        self._session = requests.Session()
        self._session.auth = _KeyHeader(vendor, key)
        adapter = HTTPAdapter(pool_maxsize=threads)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

    def ask(self, body: Any) -> Any:
        """Post JSON and return the JSON of the answer.

        Raises:
            TransientError: the failure may pass.
            RejectedError: the request will not be taken as it is.
            RemoteError: nothing of this kind will be answered: the key or the model is wrong.
        """
        try:
            # A redirect is not followed: the key would go along to wherever it points.
            response = self._session.post(self._url, json=body, timeout=self._timeout, allow_redirects=False)
        except requests.RequestException as error:
            raise TransientError(
                f"{self._vendor.name}: no answer ({self._clean(error)})", maybe_paid=not _never_sent(error)
            ) from None
        try:
            reply = response.json()
        except ValueError:
            reply = None
        if response.status_code != requests.codes.ok:
            raise self._error(response, reply)
        if reply is None:
            raise self.broken(f"{len(response.content):,} bytes that are not JSON")
        return reply

    def broken(self, what: str) -> TransientError:
        """The error for an answer that arrived, was charged, and is of no use."""
        return TransientError(f"{self._vendor.name}: a broken answer ({self._clean(what)})", maybe_paid=True)

    def _error(self, response: Response, reply: Any) -> RemoteError:
        status = response.status_code
        failure = self._vendor.failure(status, reply)
        reason = self._clean(failure.reason)
        message = f"{self._vendor.name}: HTTP {status} ({reason})"
        if failure.bad_key or status in (401, 403):
            return RemoteError(f"{message}; look at the key in {' or '.join(self._vendor.key_variables)}")
        if status in PASSING:
            header = retry_after(response.headers)
            return TransientError(message, retry_after=failure.retry_after if header is None else header)
        if status in REJECTED:
            return RejectedError(message, reason)
        return RemoteError(message)

    def _clean(self, text: object) -> str:
        shown = " ".join(self._key.redact(str(text)).split())
        return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + " ..."


class _KeyHeader(AuthBase):
    """Puts the key into a request when it is sent, so that no variable holds it before."""

    def __init__(self, vendor: Vendor, key: Secret) -> None:
        self._vendor = vendor
        self._key = key

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        name, value = self._vendor.header(self._key)
        request.headers[name] = value
        return request


def _never_sent(error: requests.RequestException) -> bool:
    """Whether no connection came about, so that nothing can have been charged."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(error, requests.ConnectTimeout) or isinstance(reason, NewConnectionError)
