"""A server on 127.0.0.1 with the batch endpoints of Anthropic and OpenAI, which takes its time and loses answers."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.loopback import LoopbackServer
from support.misbehaving_server import KEY, Asked, anthropic_message, echo, openai_completion, openai_error

_CREATED = 4_000_000_000  # seconds; far in the future, so that every batch is a new one


@dataclass
class Batch:
    """A batch that was taken.

    Attributes:
        id: its name.
        requests: body by key.
        metadata: as it was given.
        looks: how often it will be said to be under way.
    """

    id: str
    requests: Mapping[str, Any]
    metadata: Any
    looks: int


class BatchServer(LoopbackServer):
    """The server.

    Attributes:
        looks: how often a batch is said to be under way before it is done.
        lose: answers to the next creations that get lost on the way, after the batch was taken.
        busy: creations that are turned away before.
        fates: by text of a question: `invalid` (rejected), `expired` (in the first batch; later ones answer it) or
            `stuck` (expired in all of them); else it is answered.
        broken_file: why batches fail as a whole.
        batches: all that were taken.
        headers: of every creation.
        paid: how often each text was answered.
    """

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.looks = 2
        self.lose = 0
        self.busy = 0
        self.fates: dict[str, str] = {}
        self.broken_file: str | None = None
        self.batches: list[Batch] = []
        self.headers: list[Mapping[str, str]] = []
        self.paid: Counter[str] = Counter()
        self.files: dict[str, bytes] = {}
        self.lock = threading.RLock()

    def take(self, requests: Mapping[str, Any], metadata: Any = None) -> Batch:
        """Take a batch; what will be answered is paid from now on."""
        batch = Batch(f"batch_{len(self.batches)}", requests, metadata, self.looks)
        self.batches.append(batch)
        for body in requests.values():
            if text(body) not in self.fates:
                self.paid[text(body)] += 1
        return batch


def text(body: Any) -> str:
    """The text of a question."""
    return str(body["messages"][0]["content"][-1]["text"])


def _anthropic_state(server: BatchServer, batch: Batch) -> Any:
    ended = batch.looks <= 0
    counts = {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
    counts["succeeded" if ended else "processing"] = len(batch.requests)
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if ended else "in_progress",
        "request_counts": counts,
        "created_at": "2096-10-02T07:06:40Z",
        "expires_at": "2096-10-03T07:06:40Z",
        "results_url": f"{server.url}/v1/messages/batches/{batch.id}/results" if ended else None,
    }


def _openai_state(batch: Batch, broken: str | None) -> Any:
    done = batch.looks <= 0
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "created_at": _CREATED,
        "input_file_id": "file",
        "metadata": batch.metadata,
        "status": "failed" if broken else "completed" if done else "in_progress",
        "errors": {"object": "list", "data": [{"message": broken, "code": "x"}]} if broken else None,
        "output_file_id": f"{batch.id}-output" if done else None,
        "error_file_id": f"{batch.id}-errors" if done else None,
    }


class _Handler(BaseHTTPRequestHandler):
    service: BatchServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_POST(self) -> None:
        server = self.service
        data = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Authorization"] == f"Bearer {KEY}"
        with server.lock:
            if self.path == "/v1/files":
                name = f"file_{len(server.files)}"
                [server.files[name]] = re.findall(rb"\r\n\r\n(\{.*\})\r\n--", data, re.DOTALL)
                self._answer(200, {"id": name, "object": "file", "purpose": "batch", "bytes": 1, "created_at": 0})
                return
            server.headers.append(self.headers)
            if server.busy > 0:
                server.busy -= 1
                self._answer(429, {"error": {"type": "rate_limit_error", "message": "busy"}}, {"Retry-After": "5"})
                return
            body = json.loads(data)
            if self.path == "/v1/messages/batches":
                batch = server.take({entry["custom_id"]: entry["params"] for entry in body["requests"]})
                state = _anthropic_state(server, batch)
            else:
                lines = map(json.loads, server.files[body["input_file_id"]].splitlines())
                batch = server.take({line["custom_id"]: line["body"] for line in lines}, body["metadata"])
                state = _openai_state(batch, None)
            if server.lose > 0:
                server.lose -= 1
                self.close_connection = True
                return
            self._answer(200, state)

    def do_GET(self) -> None:
        server = self.service
        path, _, _ = self.path.partition("?")
        with server.lock:
            if path.endswith("/results"):
                self._answer(200, self._anthropic_results(path.split("/")[-2]))
            elif path.endswith("/content"):
                self._answer(200, self._openai_file(path.split("/")[-2]))
            elif path.endswith("/batches"):
                for batch in server.batches:
                    batch.looks -= 1
                self._answer(200, {"data": [self._state(batch) for batch in server.batches[::-1]], "has_more": False})
            else:
                batch = next(batch for batch in server.batches if batch.id == path.rpartition("/")[2])
                batch.looks -= 1
                self._answer(200, self._state(batch))

    def _state(self, batch: Batch) -> Any:
        server = self.service
        if "/messages/" in self.path:
            return _anthropic_state(server, batch)
        return _openai_state(batch, server.broken_file)

    def _anthropic_results(self, name: str) -> bytes:
        lines = []
        for key, body, fate in self._fates(name):
            if fate == "answered":
                result = {"type": "succeeded", "message": anthropic_message(echo([Asked(text(body), None)]))}
            elif fate == "expired":
                result = {"type": "expired"}
            else:
                error = {"type": "error", "error": {"type": "invalid_request_error", "message": "too blue"}}
                result = {"type": "errored", "error": error}
            lines.append(json.dumps({"custom_id": key, "result": result}))
        return "\n".join(lines[::-1]).encode()  # in another order than asked

    def _openai_file(self, name: str) -> bytes:
        batch, _, kind = name.partition("-")
        lines = []
        for key, body, fate in self._fates(batch):
            if (fate == "answered") != (kind == "output"):
                continue
            entry: dict[str, Any] = {"id": "x", "custom_id": key, "response": None, "error": None}
            if fate == "answered":
                answer = openai_completion(echo([Asked(text(body), None)]))
                entry["response"] = {"status_code": 200, "request_id": "r", "body": answer}
            elif fate == "expired":
                entry["error"] = {"code": "batch_expired", "message": "not executed in time"}
            else:
                entry["response"] = {"status_code": 400, "request_id": "r", "body": openai_error("too blue")}
            lines.append(json.dumps(entry))
        return "\n".join(lines[::-1]).encode()

    def _fates(self, name: str) -> Iterator[tuple[str, Any, str]]:
        server = self.service
        batch = next(batch for batch in server.batches if batch.id == name)
        for key, body in batch.requests.items():
            fate = server.fates.get(text(body), "answered")
            if fate == "stuck":
                fate = "expired"
            elif fate == "expired" and batch is not server.batches[0]:
                fate = "answered"
            yield key, body, fate

    def _answer(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response_only(status)
        kind = "application/binary" if isinstance(body, bytes) else "application/json"
        described = {"Content-Type": kind, "Content-Length": str(len(data))}
        for name, value in {**described, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
