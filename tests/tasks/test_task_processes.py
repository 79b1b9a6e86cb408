"""A job of two processes: mteb's command under a launcher, on one machine without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_ARGUMENTS = ["mteb", "run", "-m", "circus-bench/mini-balanced", "-t", "CIRCUS-CIRR"]
_COMMAND = "import sys; from circus_bench.cli import main; sys.argv[0] = 'circus-bench'; main()"


@pytest.mark.slow
def test_two_processes_write_the_run_and_the_scores_of_one(folder, tmp_path, warm_python):
    env = {**os.environ, "CIRCUS_DATA": str(folder), "ACCELERATE_USE_CPU": "true", "SOURCE_DATE_EPOCH": "0"}
    done = warm_python.run(_COMMAND, *_ARGUMENTS, "--output-folder", tmp_path / "one", env=env)
    assert done.returncode == 0, done.stderr
    launcher = [str(Path(sys.executable).with_name("accelerate")), "launch", "--multi_gpu", "--num_processes", "2"]
    command = [*launcher, "--module", "circus_bench", *_ARGUMENTS, "--output-folder", str(tmp_path / "two")]
    subprocess.run(command, env=env, check=True, capture_output=True)
    one, two = (next((tmp_path / name).glob("results/*/*/CIRCUS-CIRR.json")) for name in ("one", "two"))
    assert json.loads(one.read_text())["scores"] == json.loads(two.read_text())["scores"]
    for file in ("ranks.parquet", "topk.parquet", "manifest.json"):
        assert (one.with_suffix("") / file).read_bytes() == (two.with_suffix("") / file).read_bytes()
