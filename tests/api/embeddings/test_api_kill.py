"""An encode that is killed while answers are on their way."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from mteb.types import PromptType
from support.misbehaving_server import KEY, VOYAGE, Act, Asked, MisbehavingServer, vector

from circus_bench.api.embeddings import voyage
from circus_bench.api.embeddings.encoder import ApiEncoder
from circus_bench.api.embeddings.settings import ApiSettings
from circus_bench.images import digest

CHILD = """
import sys
sys.path[:0] = sys.argv[1].split(":")
from pathlib import Path

from PIL import Image
from test_api_kill import encode

encode(sys.argv[2], Path(sys.argv[3]), [Image.open(path) for path in sorted(Path(sys.argv[4]).iterdir())])
"""


def encode(url, cache_dir, images):
    vendor = voyage.vendor()
    vendor = dataclasses.replace(vendor, dimensions=8, limits=dataclasses.replace(vendor.limits, items=1))
    settings = ApiSettings(budget_usd=1.0, cache_dir=cache_dir, base_url=url, threads=3)
    return ApiEncoder(vendor, settings).encode([{"image": images}], prompt_type=PromptType.document)


@pytest.mark.slow
def test_nothing_that_was_answered_is_asked_again_after_a_kill(noise, tmp_path, monkeypatch):
    monkeypatch.setenv("VOYAGE_API_KEY", KEY)
    pictures = [noise((32, 32), seed) for seed in range(10)]
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, picture in enumerate(pictures):
        picture.save(folder / f"{number}.png")

    here = Path(__file__).parent
    paths = f"{here}:{here.parents[1]}"
    # Three threads: when the last of three held requests has arrived, all answers before them are on disk.
    held = threading.Event()
    with MisbehavingServer(VOYAGE, 8).running() as server:
        server.script = {number: Act(hold=held) for number in (4, 5, 6)}
        command = [sys.executable, "-c", CHILD, paths, server.url, str(tmp_path / "replies"), str(folder)]
        with subprocess.Popen(command) as process:
            server.await_requests(7)
            process.send_signal(signal.SIGKILL)
        answered, lost = server.requests[:4], server.requests[4:]
        found = encode(server.url, tmp_path / "replies", pictures)
    times = Counter(item.image for request in server.requests for item in request)
    assert [times[item.image] for [item] in answered] == [1, 1, 1, 1]
    assert [times[item.image] for [item] in lost] == [2, 2, 2]
    expected = [vector(Asked(None, digest(picture), "document"), 8) for picture in pictures]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))
