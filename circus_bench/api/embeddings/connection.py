"""Speak HTTP to a vendor of embeddings, with a key that stays where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import NewConnectionError

from circus_bench.api.embeddings.vendor import Vendor
from circus_bench.api.failures import Failures
from circus_bench.api.runtime import Secret, check_address

if TYPE_CHECKING:
    from requests import PreparedRequest

_CONNECT_SECONDS = 10.0


class Connection:
    """Speaks to one vendor.

    Args:
        vendor: of the model.
        key: goes into a header, and nowhere else.
        base_url: another address than the vendor's own.
        timeout: seconds to wait for a sign of an answer.
        threads: how many use it at the same time.

    Attributes:
        failures: makes the errors of the service.

    Raises:
        RemoteError: the address would send the key over an open line.
    """

    def __init__(self, vendor: Vendor, key: Secret, *, base_url: str | None, timeout: float, threads: int) -> None:
        base = (base_url or vendor.base_url(key)).rstrip("/")
        check_address(base, setting=vendor.url_variable)
        self._vendor = vendor
        self.failures = Failures(name=vendor.name, key=key, key_variables=vendor.key_variables)
        self._url = base + vendor.path()
        self._timeout = (_CONNECT_SECONDS, timeout)
        self._session = requests.Session()
        self._session.auth = _KeyHeader(vendor, key)
        adapter = HTTPAdapter(pool_maxsize=threads)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

    def post(self, body: Any) -> Any:
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
            raise self.failures.no_answer(error, never_sent=_never_sent(error)) from None
        try:
            content = response.json()
        except ValueError:
            content = None
        if response.status_code != requests.codes.ok:
            said = self._vendor.failure(response.status_code, content)
            raise self.failures.of_status(
                response.status_code, said.reason, response.headers, bad_key=said.bad_key, wait=said.retry_after
            )
        if content is None:
            raise self.failures.broken_answer(f"{len(response.content):,} bytes that are not JSON")
        return content


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
    """Tell whether no connection came about, so that nothing can have been charged."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(error, requests.ConnectTimeout) or isinstance(reason, NewConnectionError)
