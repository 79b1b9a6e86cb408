"""Runs of both wire protocols that are killed while answers are on their way."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from support.misbehaving_server import ANTHROPIC, KEY, OPENAI, Act, MisbehavingServer

from circus_bench.api.chat.messages import Parsed, Request
from circus_bench.api.chat.providers import ProviderSettings, make_client

SCHEMA = {
    "type": "object",
    "required": ["echo"],
    "additionalProperties": False,
    "properties": {"echo": {"type": "string"}},
}
TEXTS = [str(number) for number in range(10)]
CHILD = """
import sys
sys.path[:0] = sys.argv[1].split(":")
from pathlib import Path

from test_providers_kill import complete

complete(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
"""


def complete(model, url, replies):
    settings = {model.partition("/")[0]: ProviderSettings(base_url=url)}
    with make_client([model], replies, budget=1.0, threads=3, settings=settings) as client:
        return list(client.complete([Request(model, "ask@1", text, schema=SCHEMA) for text in TEXTS]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "dialect", "path"),
    [("anthropic/claude-haiku-4-5", ANTHROPIC, ""), ("openai/gpt-4.1-mini", OPENAI, "/v1")],
    ids=["anthropic", "openai"],
)
def test_nothing_that_was_answered_is_asked_again_after_a_kill(model, dialect, path, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    here = Path(__file__).parent
    # Three threads: when the last of three held requests has arrived, all answers before them are on disk.
    held = threading.Event()
    with MisbehavingServer(dialect).running() as server:
        server.script = {number: Act(hold=held) for number in (4, 5, 6)}
        arguments = [f"{here}:{here.parents[1]}", model, server.url + path, str(tmp_path / "replies.sqlite")]
        with subprocess.Popen([sys.executable, "-c", CHILD, *arguments]) as process:
            server.await_requests(7)
            process.send_signal(signal.SIGKILL)
        answered, lost = server.requests[:4], server.requests[4:]
        found = complete(model, server.url + path, tmp_path / "replies.sqlite")
    times = Counter(item.text for request in server.requests for item in request)
    assert [times[item.text] for [item] in answered] == [1, 1, 1, 1]
    assert [times[item.text] for [item] in lost] == [2, 2, 2]
    assert found == [Parsed({"echo": text}) for text in TEXTS]
