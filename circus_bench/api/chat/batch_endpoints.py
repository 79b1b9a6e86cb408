"""The vendors' batch endpoints, as `circus_bench.api.chat.batch` uses them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from circus_bench.api.chat.anthropic import AnthropicProvider
from circus_bench.api.chat.messages import Question, Reply
from circus_bench.api.chat.openai import OpenAIProvider
from circus_bench.api.runtime import RemoteError, Usage

_CLOCKS_DIFFER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A question that the service does not take; `reason` is in its words. It is not charged."""

    reason: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch, as the journal keeps it.

    Attributes:
        marker: our own name for it.
        model: of all its questions.
        keys: of its questions.
        created: when it was about to be sent, ISO 8601.
        id: the service's name for it; empty until that is known.
    """

    marker: str
    model: str
    keys: tuple[str, ...]
    created: str
    id: str = ""


class BatchService(Protocol):
    """A vendor's batch endpoint. Methods raise what a provider does."""

    max_requests: int
    max_bytes: int

    def body(self, question: Question) -> Mapping[str, Any]:
        """A request of a batch."""
        ...

    def estimate(self, question: Question) -> Usage:
        """What a question may use at most."""
        ...

    def send(self, bodies: Mapping[str, Mapping[str, Any]], marker: str) -> str:
        """Send requests by key; returns the id of the batch."""
        ...

    def find(self, sent: Sent) -> str | None:
        """The id of a batch that was perhaps sent, or None if it was not; may have to wait, see `is_finished`."""
        ...

    def is_finished(self, batch: str) -> bool:
        """Whether the service has done with a batch."""
        ...

    def results(self, batch: str, model: str) -> dict[str, Reply | Rejected]:
        """The results of a finished batch by key; what it left open is left out."""
        ...


class NotYetError(Exception):
    """A batch is still being worked on."""


class BatchFailedError(RemoteError):
    """The service did not take a batch at all. Nothing is charged."""


class AnthropicBatches:
    """Anthropic's Message Batches: at most 100,000 requests and 256 MB (platform.claude.com, "Batch processing").

    Args:
        provider: whose client and requests are used.
    """

    max_requests = 100_000
    max_bytes = 240_000_000

    def __init__(self, provider: AnthropicProvider) -> None:
        import anthropic

        self._provider = provider
        self._batches = provider.client.messages.batches
        self._calling: Callable[[], Any] = lambda: provider.endpoint.calling(anthropic)

    def body(self, question: Question) -> Mapping[str, Any]:
        """A request of a batch."""
        return self._provider.body(question)

    def estimate(self, question: Question) -> Usage:
        """What a question may use at most."""
        return self._provider.estimate(question, batch=True)

    def send(self, bodies: Mapping[str, Mapping[str, Any]], marker: str) -> str:  # noqa: ARG002
        """Send requests by key; batches carry no mark of ours, only the keys in their results."""
        requests: Any = [{"custom_id": key, "params": body} for key, body in bodies.items()]
        with self._calling():
            batch = self._batches.create(requests=requests)
        with self._provider.endpoint.reading():
            return str(batch.id)

    def find(self, sent: Sent) -> str | None:
        """Among the batches that were made since, the one whose results have our keys."""
        since = datetime.fromisoformat(sent.created) - _CLOCKS_DIFFER
        keys = set(sent.keys)
        with self._calling():
            for batch in self._batches.list(limit=100):  # newest first
                if batch.created_at < since:
                    return None
                counts = batch.request_counts
                total = sum((counts.processing, counts.succeeded, counts.errored, counts.canceled, counts.expired))
                if total != len(keys):
                    continue
                if batch.processing_status != "ended":
                    raise NotYetError  # its keys are told when it ends
                if any(entry.custom_id in keys for entry in self._batches.results(batch.id)):
                    return batch.id
        return None

    def is_finished(self, batch: str) -> bool:
        """Whether the service has done with a batch."""
        with self._calling():
            return self._batches.retrieve(batch).processing_status == "ended"

    def results(self, batch: str, model: str) -> dict[str, Reply | Rejected]:
        """The results of a finished batch by key."""
        found: dict[str, Reply | Rejected] = {}
        with self._calling(), self._provider.endpoint.reading():
            for entry in self._batches.results(batch):
                result: Any = entry.result.to_dict(mode="json")
                if result["type"] == "succeeded":
                    found[entry.custom_id] = self._provider.reply(model, result["message"], batch=True)
                elif result["type"] == "errored" and result["error"]["error"]["type"] == "invalid_request_error":
                    found[entry.custom_id] = Rejected(result["error"]["error"]["message"])
        return found


class OpenAIBatches:
    """OpenAI's Batch API: at most 50,000 requests and 200 MB (developers.openai.com, "Batch API").

    Args:
        provider: whose client and requests are used.
    """

    max_requests = 50_000
    max_bytes = 190_000_000

    def __init__(self, provider: OpenAIProvider) -> None:
        import openai

        self._provider = provider
        self._client = provider.client
        self._calling: Callable[[], Any] = lambda: provider.endpoint.calling(openai)

    def body(self, question: Question) -> Mapping[str, Any]:
        """A request of a batch."""
        return self._provider.body(question)

    def estimate(self, question: Question) -> Usage:
        """What a question may use at most."""
        return self._provider.estimate(question, batch=True)

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
        """The batch that carries our mark."""
        since = (datetime.fromisoformat(sent.created) - _CLOCKS_DIFFER).timestamp()
        with self._calling():
            for batch in self._client.batches.list(limit=100):  # newest first
                if batch.created_at < since:
                    return None
                if (batch.metadata or {}).get("circus_bench") == sent.marker:
                    return batch.id
        return None

    def is_finished(self, batch: str) -> bool:
        """Whether the service has done with a batch."""
        with self._calling():
            found = self._client.batches.retrieve(batch)
        if found.status == "failed":
            said = [entry.message for entry in (found.errors.data if found.errors else None) or []]
            raise BatchFailedError(f"{self._provider.name}: batch {batch} failed ({'; '.join(map(str, said[:5]))})")
        return found.status in {"completed", "expired", "cancelled"}

    def results(self, batch: str, model: str) -> dict[str, Reply | Rejected]:
        """The results of a finished batch by key."""
        found: dict[str, Reply | Rejected] = {}
        with self._calling():
            state = self._client.batches.retrieve(batch)
            files = [file for file in (state.output_file_id, state.error_file_id) if file]
            lines = [line for file in files for line in self._client.files.content(file).text.splitlines() if line]
            entries = [json.loads(line) for line in lines]
        with self._provider.endpoint.reading():
            for entry in entries:
                response = entry.get("response") or {}
                if response.get("status_code") == 200:
                    found[entry["custom_id"]] = self._provider.reply(model, response["body"], batch=True)
                elif response.get("status_code") == 400:
                    found[entry["custom_id"]] = Rejected(str(response["body"]["error"]["message"]))
        return found
