"""Speak to the vendors' batch endpoints, as `circus_bench.api.chat.batch` uses them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from circus_bench.api.chat.anthropic import AnthropicProvider
from circus_bench.api.chat.messages import Completion, Request
from circus_bench.api.chat.openai import OpenAIProvider
from circus_bench.api.runtime import RemoteError, Usage

_CLOCKS_DIFFER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A request that the service does not take; `reason` is in its words. It is not charged."""

    reason: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch, as the journal keeps it.

    Attributes:
        marker: our own name for it.
        model: of all its requests.
        keys: of its requests.
        created: when it was about to be sent, ISO 8601.
        id: the service's name for it; empty until that is known.
    """

    marker: str
    model: str
    keys: tuple[str, ...]
    created: str
    id: str = ""


class BatchService(ABC):
    """A vendor's batch endpoint. Methods raise what a provider does.

    Args:
        provider: whose client and requests are used.
    """

    max_requests: int
    max_bytes: int

    def __init__(self, provider: AnthropicProvider | OpenAIProvider) -> None:
        self._provider = provider
        self._client: Any = provider.client

    def body(self, request: Request) -> Mapping[str, Any]:
        """Write a request of a batch."""
        return self._provider.body(request)

    def estimate(self, request: Request) -> Usage:
        """Estimate what a request may use at most."""
        return self._provider.estimate(request, batch=True)

    @abstractmethod
    def send(self, bodies: Mapping[str, Mapping[str, Any]], marker: str) -> str:
        """Send requests by key; returns the id of the batch."""

    @abstractmethod
    def find(self, sent: Sent) -> str | None:
        """Find the id of a batch that was perhaps sent, or None if it was not; may have to wait, see `is_finished`."""

    @abstractmethod
    def is_finished(self, batch: str) -> bool:
        """Tell whether the service has done with a batch."""

    @abstractmethod
    def results(self, batch: str, model: str) -> dict[str, Completion | Rejected]:
        """Fetch the results of a finished batch by key; what it left open is left out."""

    def _calling(self) -> AbstractContextManager[None]:
        return self._provider.endpoint.calling(self._provider.sdk)


class NotYetError(Exception):
    """A batch is still being worked on."""


class BatchFailedError(RemoteError):
    """The service did not take a batch at all. Nothing is charged."""


class AnthropicBatches(BatchService):
    """Anthropic's Message Batches: at most 100,000 requests and 256 MB (platform.claude.com, "Batch processing")."""

    max_requests = 100_000
    max_bytes = 240_000_000

    def send(self, bodies: Mapping[str, Mapping[str, Any]], marker: str) -> str:  # noqa: ARG002
        """Send requests by key; batches carry no mark of ours, only the keys in their results."""
        requests: Any = [{"custom_id": key, "params": body} for key, body in bodies.items()]
        with self._calling():
            batch = self._client.messages.batches.create(requests=requests)
        with self._provider.endpoint.reading():
            return str(batch.id)

    def find(self, sent: Sent) -> str | None:
        """Find, among the batches that were made since, the one whose results have our keys."""
        since = datetime.fromisoformat(sent.created) - _CLOCKS_DIFFER
        keys = set(sent.keys)
        with self._calling():
            for batch in self._client.messages.batches.list(limit=100):  # newest first
                if batch.created_at < since:
                    return None
                counts = batch.request_counts
                total = sum((counts.processing, counts.succeeded, counts.errored, counts.canceled, counts.expired))
                if total != len(keys):
                    continue
                if batch.processing_status != "ended":
                    raise NotYetError  # its keys are told when it ends
                if any(entry.custom_id in keys for entry in self._client.messages.batches.results(batch.id)):
                    return str(batch.id)
        return None

    def is_finished(self, batch: str) -> bool:
        """Tell whether the service has done with a batch."""
        with self._calling():
            return bool(self._client.messages.batches.retrieve(batch).processing_status == "ended")

    def results(self, batch: str, model: str) -> dict[str, Completion | Rejected]:
        """Fetch the results of a finished batch by key."""
        found: dict[str, Completion | Rejected] = {}
        with self._calling(), self._provider.endpoint.reading():
            for entry in self._client.messages.batches.results(batch):
                result: Any = entry.result.to_dict(mode="json")
                if result["type"] == "succeeded":
                    found[entry.custom_id] = self._provider.completion(model, result["message"], batch=True)
                elif result["type"] == "errored" and result["error"]["error"]["type"] == "invalid_request_error":
                    found[entry.custom_id] = Rejected(result["error"]["error"]["message"])
        return found


class OpenAIBatches(BatchService):
    """OpenAI's Batch API: at most 50,000 requests and 200 MB (developers.openai.com, "Batch API")."""

    max_requests = 50_000
    max_bytes = 190_000_000

    def send(self, bodies: Mapping[str, Mapping[str, Any]], marker: str) -> str:
        """Upload a file of requests by key, and start a batch that carries our mark."""
        path: Literal["/v1/chat/completions"] = "/v1/chat/completions"
        lines = [
            json.dumps({"custom_id": key, "method": "POST", "url": path, "body": body}) for key, body in bodies.items()
        ]
        with self._calling():
            file = self._client.files.create(file=(f"{marker}.jsonl", "\n".join(lines).encode()), purpose="batch")
            batch = self._client.batches.create(
                input_file_id=file.id,
                endpoint=path,
                completion_window="24h",
                metadata={"circus_bench": marker},
            )
        with self._provider.endpoint.reading():
            return str(batch.id)

    def find(self, sent: Sent) -> str | None:
        """Find the batch that carries our mark."""
        since = (datetime.fromisoformat(sent.created) - _CLOCKS_DIFFER).timestamp()
        with self._calling():
            for batch in self._client.batches.list(limit=100):  # newest first
                if batch.created_at < since:
                    return None
                if (batch.metadata or {}).get("circus_bench") == sent.marker:
                    return str(batch.id)
        return None

    def is_finished(self, batch: str) -> bool:
        """Tell whether the service has done with a batch."""
        with self._calling():
            found = self._client.batches.retrieve(batch)
        if found.status == "failed":
            error_message = [entry.message for entry in (found.errors.data if found.errors else None) or []]
            raise BatchFailedError(
                f"{self._provider.name}: batch {batch} failed ({'; '.join(map(str, error_message[:5]))})"
            )
        return found.status in {"completed", "expired", "cancelled"}

    def results(self, batch: str, model: str) -> dict[str, Completion | Rejected]:
        """Fetch the results of a finished batch by key."""
        found: dict[str, Completion | Rejected] = {}
        with self._calling():
            state = self._client.batches.retrieve(batch)
            files = [file for file in (state.output_file_id, state.error_file_id) if file]
            lines = [line for file in files for line in self._client.files.content(file).text.splitlines() if line]
            entries = [json.loads(line) for line in lines]
        with self._provider.endpoint.reading():
            for entry in entries:
                response = entry.get("response") or {}
                if response.get("status_code") == 200:
                    found[entry["custom_id"]] = self._provider.completion(model, response["body"], batch=True)
                elif response.get("status_code") == 400:
                    found[entry["custom_id"]] = Rejected(str(response["body"]["error"]["message"]))
        return found
