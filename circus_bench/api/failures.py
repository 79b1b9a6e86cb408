"""Turn the failures of a service into errors: those that may pass, rejections, and those that the user can mend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from circus_bench.api.runtime import (
    CLIENT_ERROR,
    RETRYABLE_STATUS,
    RejectedError,
    RemoteError,
    Secret,
    TransientError,
    retry_after,
)

_SHOWN = 300  # characters of a service's own words in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Makes the errors of one service.

    Attributes:
        name: of the service.
        key: blotted out of the service's words; None where none is needed.
        key_variables: environment variables that may hold the key.
    """

    name: str
    key: Secret | None
    key_variables: tuple[str, ...]

    def of_status(
        self,
        status: int,
        reason: str,
        headers: Mapping[str, str],
        *,
        bad_key: bool = False,
        wait: float | None = None,
    ) -> RemoteError:
        """Make the error for an answer that is not 200.

        Args:
            status: of HTTP.
            reason: in the service's words.
            headers: of the answer.
            bad_key: whether the service said that the key is wrong, whatever the status.
            wait: seconds that the body of the answer asks to wait; the header goes before it.
        """
        reason = self._clean(reason)
        message = f"{self.name}: HTTP {status} ({reason})"
        if bad_key or status in (401, 403):
            return RemoteError(f"{message}; look at the key in {' or '.join(self.key_variables)}")
        if status == 404:
            return RemoteError(f"{message}; look at the model's name, for vendors retire models, and at the address")
        if status in RETRYABLE_STATUS:
            header = retry_after(headers)
            return TransientError(message, retry_after=wait if header is None else header)
        if status in CLIENT_ERROR:
            return RejectedError(message, reason)
        return RemoteError(message)

    def no_answer(self, error: Exception, *, never_sent: bool) -> TransientError:
        """Make the error for an answer that did not arrive."""
        return TransientError(f"{self.name}: no answer ({self._clean(error)})", maybe_paid=not never_sent)

    def broken_answer(self, what: object) -> TransientError:
        """Make the error for an answer that arrived, was charged, and is of no use."""
        return TransientError(f"{self.name}: a broken answer ({self._clean(what)})", maybe_paid=True)

    def _clean(self, text: object) -> str:
        words = " ".join((self.key.redact(str(text)) if self.key else str(text)).split())
        return words if len(words) <= _SHOWN else words[:_SHOWN] + " ..."
