"""A server on 127.0.0.1 that speaks the wire protocols of paid APIs, and misbehaves when it is told to.

Requests are numbered from 0 in the order of their arrival. A request whose number is in `script` is treated as its
`Act` says, any other is answered as the vendor would: embedding APIs give a vector, those that chat give a JSON object
with the text of the question under `echo`. Every input that was answered is written down as paid.
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from PIL import Image
from support.loopback import LoopbackServer
from support.standins import vector_of

from circus_bench.images import digest

KEY = "sk-loopback-3f9a77c1d2"
PATIENCE = 60  # seconds


@dataclass(frozen=True)
class Asked:
    """One input as it arrived: its text, the digests of its images, and what it was said to be, or the model asked."""

    text: str | None
    image: str | None
    role: str | None = None


@dataclass(frozen=True)
class Act:
    """How one request is treated.

    Attributes:
        status: of the answer; 200 answers properly, unless `body` says otherwise.
        headers: added to the answer.
        body: instead of the proper answer; bytes are sent as they are.
        cut: send only the first half of the proper answer, as if that were all.
        drop: close the connection without an answer.
        hold: answer only when this is set.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    cut: bool = False
    drop: bool = False
    hold: threading.Event | None = None


@dataclass(frozen=True)
class Dialect:
    """A vendor's protocol.

    Attributes:
        path: where it is spoken.
        key_header: name and value of the header with the right key.
        wrong_key: status and body of the answer to another key.
        read: the inputs of a request.
        write: the body of an answer.
        refuse: the body of a 400 that names the input of this position.
        too_large: the body of a 400 for too large a request.
    """

    path: str
    key_header: tuple[str, str]
    wrong_key: tuple[int, Any]
    read: Callable[[Any], list[Asked]]
    write: Callable[[Sequence[Asked], int], Any]
    refuse: Callable[[int], Any]
    too_large: Any


def vector(asked: Asked, dim: int) -> list[float]:
    """The vector that the server gives for an input."""
    return [float(value) for value in vector_of(f"{asked.text} {asked.image} {asked.role}", dim)]


def _digest(data: str) -> str:
    # Google's package writes the alphabet for URLs, and the service takes both.
    with Image.open(io.BytesIO(base64.b64decode(data.replace("-", "+").replace("_", "/")))) as image:
        return digest(image.convert("RGB"))


def _read_gemini(body: Any) -> list[Asked]:
    asked = []
    for request in body["requests"]:
        parts = request["content"]["parts"]
        text = next((part["text"] for part in parts if "text" in part), None)
        image = next((_digest(part["inlineData"]["data"]) for part in parts if "inlineData" in part), None)
        asked.append(Asked(text, image))
    return asked


def _write_gemini(asked: Sequence[Asked], dim: int) -> Any:
    details = [
        {"modality": "TEXT", "tokenCount": sum(len(item.text or "") for item in asked)},
        {"modality": "IMAGE", "tokenCount": sum(258 for item in asked if item.image)},
    ]
    return {
        "embeddings": [{"values": vector(item, dim)} for item in asked],
        "usageMetadata": {
            "promptTokenCount": sum(entry["tokenCount"] for entry in details),
            "promptTokenDetails": details,
        },
    }


def gemini_error(code: int, status: str, message: str, *details: Any) -> Any:
    """An error in Google's form."""
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


def _read_voyage(body: Any) -> list[Asked]:
    asked = []
    for entry in body["inputs"]:
        text = next((part["text"] for part in entry["content"] if part["type"] == "text"), None)
        images = [part["image_base64"] for part in entry["content"] if part["type"] == "image_base64"]
        assert all(image.startswith("data:image/png;base64,") for image in images)
        asked.append(Asked(text, _digest(images[0].partition(",")[2]) if images else None, body["input_type"]))
    return asked


def _write_voyage(asked: Sequence[Asked], dim: int) -> Any:
    rows = [{"object": "embedding", "embedding": vector(item, dim), "index": i} for i, item in enumerate(asked)]
    usage = {
        "text_tokens": sum(len(item.text or "") for item in asked),
        "image_pixels": sum(50_000 for item in asked if item.image),
    }
    # The protocol gives every row its index, so the order is not promised.
    return {
        "object": "list",
        "data": rows[::-1],
        "model": "voyage-multimodal-3.5",
        "usage": usage | {"total_tokens": usage["text_tokens"] + usage["image_pixels"] // 560},
    }


GEMINI = Dialect(
    path="/v1beta/models/gemini-embedding-2-preview:batchEmbedContents",
    key_header=("x-goog-api-key", KEY),
    wrong_key=(
        400,
        gemini_error(
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"},
        ),
    ),
    read=_read_gemini,
    write=_write_gemini,
    refuse=lambda _: gemini_error(400, "INVALID_ARGUMENT", "Unable to process input image."),
    too_large=gemini_error(
        400, "INVALID_ARGUMENT", "* BatchEmbedContentsRequest.requests: at most 100 requests can be in one batch"
    ),
)
VOYAGE = Dialect(
    path="/v1/multimodalembeddings",
    key_header=("Authorization", f"Bearer {KEY}"),
    wrong_key=(401, {"detail": "Provided API key is invalid."}),
    read=_read_voyage,
    write=_write_voyage,
    refuse=lambda position: {
        "detail": f"Request to model 'voyage-multimodal-3.5' failed. The image file you have provided is invalid or "
        f"corrupt: [base64 image at input {position}, index 0]"
    },
    too_large={
        "detail": "Request to model 'voyage-multimodal-3.5' failed. The max allowed tokens per submitted batch is "
        "120000. Your batch has 124302 tokens after truncation. Please lower the number of tokens in the batch."
    },
)


def _read_anthropic(body: Any) -> list[Asked]:
    *pictures, text = body["messages"][0]["content"]
    images = [_digest(part["source"]["data"]) for part in pictures]
    return [Asked(text["text"], " ".join(images) or None, body["model"])]


def anthropic_message(text: str, stop: str = "end_turn") -> Any:
    """A response of the Messages API; one token per character."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": len(text)},
    }


def anthropic_error(kind: str, message: str) -> Any:
    """An error in Anthropic's form."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def _read_openai(body: Any) -> list[Asked]:
    *pictures, text = body["messages"][0]["content"]
    images = [_digest(part["image_url"]["url"].partition(",")[2]) for part in pictures]
    return [Asked(text["text"], " ".join(images) or None, body["model"])]


def openai_completion(text: str, stop: str = "stop", refusal: str | None = None) -> Any:
    """A response of the chat completions; one token per character."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "gpt",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text or None, "refusal": refusal},
                "finish_reason": stop,
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": len(text), "total_tokens": 100 + len(text)},
    }


def openai_error(message: str, code: str | None = None) -> Any:
    """An error in OpenAI's form."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def _read_gemini_chat(body: Any) -> list[Asked]:
    *pictures, text = body["contents"][0]["parts"]
    return [Asked(text["text"], " ".join(_digest(part["inlineData"]["data"]) for part in pictures) or None)]


def gemini_reply(text: str, stop: str = "STOP") -> Any:
    """A response of `generateContent`; one token per character."""
    return {
        "candidates": [
            {"content": {"parts": [{"text": text}] if text else [], "role": "model"}, "finishReason": stop, "index": 0}
        ],
        "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": len(text), "totalTokenCount": 100},
    }


def echo(asked: Sequence[Asked]) -> str:
    """The text that the dialects that chat answer with."""
    return json.dumps({"echo": asked[0].text})


ANTHROPIC = Dialect(
    path="/v1/messages",
    key_header=("Authorization", f"Bearer {KEY}"),
    wrong_key=(401, anthropic_error("authentication_error", "invalid x-api-key")),
    read=_read_anthropic,
    write=lambda asked, _: anthropic_message(echo(asked)),
    refuse=lambda _: anthropic_error("invalid_request_error", "Could not process image"),
    too_large=anthropic_error("request_too_large", "Request exceeds the maximum size"),
)
OPENAI = Dialect(
    path="/v1/chat/completions",
    key_header=("Authorization", f"Bearer {KEY}"),
    wrong_key=(401, openai_error("Incorrect API key provided", "invalid_api_key")),
    read=_read_openai,
    write=lambda asked, _: openai_completion(echo(asked)),
    refuse=lambda _: openai_error("You uploaded an unsupported image.", "image_parse_error"),
    too_large=openai_error("Request too large"),
)
GEMINI_CHAT = Dialect(
    path="/v1beta/models/gemini-2.5-flash:generateContent",
    key_header=("x-goog-api-key", KEY),
    wrong_key=GEMINI.wrong_key,
    read=_read_gemini_chat,
    write=lambda asked, _: gemini_reply(echo(asked)),
    refuse=lambda _: gemini_error(400, "INVALID_ARGUMENT", "Unable to process input image."),
    too_large=gemini_error(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit"),
)


class MisbehavingServer(LoopbackServer):
    """The server.

    Args:
        dialect: what it speaks.
        dim: dimensions of its vectors, if it gives any.

    Attributes:
        script: number of a request to how it is treated.
        refused: digests of images that are never taken.
        most_items: inputs above which a request is too large.
        requests: the inputs of every request, in the order of arrival.
        bodies: what every request said, likewise.
        headers: of every request, likewise.
        paid: every input that was answered.
    """

    def __init__(self, dialect: Dialect, dim: int = 0) -> None:
        super().__init__(_Handler)
        self.dialect = dialect
        self.dim = dim
        self.script: dict[int, Act] = {}
        self.refused: set[str] = set()
        self.most_items = 100
        self.requests: list[list[Asked]] = []
        self.bodies: list[Any] = []
        self.headers: list[Mapping[str, str]] = []
        self.paid: list[Asked] = []
        self.lock = threading.Condition()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Serve until the block ends; nobody is held any longer then."""
        with super().running():
            try:
                yield self
            finally:
                for act in self.script.values():
                    if act.hold:
                        act.hold.set()

    def await_requests(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        with self.lock:
            assert self.lock.wait_for(lambda: len(self.requests) >= count, PATIENCE)

    def arrived(self, body: Any, headers: Mapping[str, str]) -> tuple[int, list[Asked]]:
        """Number a request, and write down what it asks."""
        asked = self.dialect.read(body)
        with self.lock:
            self.requests.append(asked)
            self.bodies.append(body)
            self.headers.append(headers)
            self.lock.notify_all()
            return len(self.requests) - 1, asked

    def proper(self, asked: Sequence[Asked]) -> tuple[int, Any]:
        """The vendor's answer."""
        if len(asked) > self.most_items:
            return 400, self.dialect.too_large
        for position, item in enumerate(asked):
            if item.image in self.refused:
                return 400, self.dialect.refuse(position)
        return 200, self.dialect.write(asked, self.dim)


class _Handler(BaseHTTPRequestHandler):
    service: MisbehavingServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_POST(self) -> None:
        server = self.service
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, value = server.dialect.key_header
        if self.path != server.dialect.path:
            self._answer(404, {"error": f"no such method as {self.path}", "detail": "no such method"})
        elif self.headers.get(name) != value:
            self._answer(*server.dialect.wrong_key)
        else:
            self._act(body)

    def _act(self, body: Any) -> None:
        server = self.service
        number, asked = server.arrived(body, self.headers)
        act = server.script.get(number, Act())
        if act.hold and not act.hold.wait(PATIENCE):
            return
        if act.drop:
            self.close_connection = True
            return
        status, answer = server.proper(asked) if act.status == 200 and act.body is None else (act.status, act.body)
        if status == 200 and act.body is None and not act.cut:
            with server.lock:
                server.paid.extend(asked)
        self._answer(status, answer, act.headers, cut=act.cut)

    def _answer(self, status: int, body: Any, headers: Mapping[str, str] | None = None, *, cut: bool = False) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        data = data[: len(data) // 2] if cut else data
        self.send_response_only(status)
        described = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        for name, value in {**described, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
