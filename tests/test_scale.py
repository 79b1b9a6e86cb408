"""Several processes give the Run of one, to the last byte, and a failure in one of them ends all."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.standins import StandIn
from support.threaded_job import in_job
from typer.testing import CliRunner

from circus_bench.benchmark import Benchmark, Query
from circus_bench.cli import app
from circus_bench.distributed import SINGLE_PROCESS, DistributedJob, ProcessError, claim_device, current_job
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.encoder import BenchmarkEncoder, EncodeSettings
from circus_bench.errors import CircusError, EmbeddingError
from circus_bench.hub.writer import save_benchmark
from circus_bench.images import Unreadable, inspect_images
from circus_bench.ranking.backends import Backend
from circus_bench.ranking.ranker import Ranker, Ranking, Targets
from circus_bench.runs.run import Run, run_benchmark
from circus_bench.sources.scenes import scenes

N_IMAGES, N_QUERIES = 23, 17
SETTINGS = EncodeSettings(batch_size=2, checkpoint_every=5)
SHARDS = 5 + 4 + 4 + 4  # 23 gallery images, and 17 queries three times, all of them different


class Batchy(StandIn):
    """Its vectors depend on the batch and the call that an input is in, as with padding or sorting by length."""

    def encode(self, inputs: Any, **options: Any) -> np.ndarray:
        vectors = super().encode(inputs, **options)
        position = np.arange(len(vectors), dtype=np.float32)[:, None]
        return vectors + np.float32(0.01) * position + np.float32(0.1) * len(vectors)


@pytest.fixture
def benchmark(toy_benchmark: Callable[..., Benchmark], encode_image: Callable[..., bytes]) -> Benchmark:
    """Every query has a reference, a text and a target of its own; references differ in size."""
    names = [f"i{number}" for number in range(N_IMAGES)]
    queries = [
        Query(f"q{number}", names[number], f"text {number}", (names[(number + 3) % N_IMAGES],))
        for number in range(N_QUERIES)
    ]
    images = {
        name: encode_image(Image.new("RGB", (30 + number, 40), (number, 2 * number, 0)), "PNG")
        for number, name in enumerate(names)
    }
    return toy_benchmark(queries=queries, gallery=names, images=images)


@pytest.fixture(autouse=True)
def _fixed_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def fresh(benchmark: Benchmark) -> Benchmark:
    """The benchmark as another process has it: nothing of it is known yet."""
    return dataclasses.replace(benchmark)


def run_in(
    job: DistributedJob, benchmark: Benchmark, store: Path, encoder: StandIn | None = None, **options: Any
) -> Run:
    return run_benchmark(
        encoder or Batchy(),
        fresh(benchmark),
        store=EmbeddingStore(store),
        settings=options.pop("settings", SETTINGS),
        job=job,
        **options,
    )


def saved(run: Run, folder: Path) -> dict[str, bytes]:
    run.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def shards(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.safetensors")}


@pytest.mark.parametrize("count", [2, 3, 20])
def test_any_number_of_processes_gives_the_bytes_of_one(tmp_path: Path, benchmark: Benchmark, count: int) -> None:
    # Twenty processes have more hands than there are shards or blocks of queries: some have nothing to do.
    expected = saved(run_in(SINGLE_PROCESS, benchmark, tmp_path / "store-alone"), tmp_path / "alone")
    runs = in_job(count, lambda job: run_in(job, benchmark, tmp_path / "store"))
    for rank, run in enumerate(runs):
        assert saved(run, tmp_path / str(rank)) == expected, rank
    assert shards(tmp_path / "store") == shards(tmp_path / "store-alone")
    assert len(shards(tmp_path / "store")) == SHARDS


def test_every_input_is_encoded_by_one_process_alone(tmp_path: Path, benchmark: Benchmark) -> None:
    encoders = [Batchy(), Batchy()]
    in_job(2, lambda job: run_in(job, benchmark, tmp_path, encoders[job.rank]))
    alone = Batchy()
    run_in(SINGLE_PROCESS, benchmark, tmp_path / "alone", alone)
    # The sanity check comes before, and in the main process alone.
    assert len(encoders[0].seen) + len(encoders[1].seen) == len(alone.seen)
    assert sorted(map(str, encoders[0].seen + encoders[1].seen)) == sorted(map(str, alone.seen))
    assert len(encoders[1].calls) == SHARDS // 2


def test_what_is_stored_is_encoded_by_none(tmp_path: Path, benchmark: Benchmark) -> None:
    first = run_in(SINGLE_PROCESS, benchmark, tmp_path)
    encoders = [Batchy(), Batchy()]
    runs = in_job(2, lambda job: run_in(job, benchmark, tmp_path, encoders[job.rank]))
    assert encoders[1].calls == []
    assert [saved(run, tmp_path / "run") for run in runs] == [saved(first, tmp_path / "run")] * 2


def test_every_process_reports_the_progress_of_all(tmp_path: Path, benchmark: Benchmark) -> None:
    steps: list[list[int]] = [[], []]
    in_job(2, lambda job: run_in(job, benchmark, tmp_path, advance=steps[job.rank].append))
    assert [sum(of_process) for of_process in steps] == [N_IMAGES + 3 * N_QUERIES] * 2


class Failing(Batchy):
    """Runs out of memory in the call of that number."""

    def __init__(self, call: int) -> None:
        super().__init__()
        self._call = call

    def encode(self, inputs: Any, **options: Any) -> np.ndarray:
        if len(self.calls) == self._call:
            raise MemoryError("no memory left")
        return super().encode(inputs, **options)


def test_a_failure_in_one_process_is_an_error_in_all(tmp_path: Path, benchmark: Benchmark) -> None:
    errors = in_job(3, lambda job: run_in(job, benchmark, tmp_path, Failing(1) if job.rank == 2 else None))
    assert isinstance(errors[2], MemoryError)
    for error in errors[:2]:
        assert isinstance(error, ProcessError)
        assert "process 2 of 3 failed while encoding: MemoryError: no memory left" in str(error)


def test_a_failure_keeps_what_was_stored_and_the_next_job_ends_with_the_same_bytes(
    tmp_path: Path, benchmark: Benchmark
) -> None:
    expected = saved(run_in(SINGLE_PROCESS, benchmark, tmp_path / "store-alone"), tmp_path / "alone")
    in_job(2, lambda job: run_in(job, benchmark, tmp_path / "store", Failing(2) if job.rank == 1 else None))
    kept = shards(tmp_path / "store")
    assert len(kept) >= 2
    runs = in_job(3, lambda job: run_in(job, benchmark, tmp_path / "store"))
    assert saved(runs[1], tmp_path / "run") == expected
    assert shards(tmp_path / "store") == shards(tmp_path / "store-alone")


def test_the_others_stop_soon_after_one_failed() -> None:
    rounds = [0, 0]

    def work(job: DistributedJob) -> None:
        def step() -> None:
            if job.rank == 1:
                raise ValueError("broken")
            while not job.should_stop():
                rounds[0] += 1

        job.run_on_all("a step", step)

    assert [type(error) for error in in_job(2, work)] == [ProcessError, ValueError]


def test_processes_go_on_after_a_failure() -> None:
    def work(job: DistributedJob) -> list[tuple[int, bool]]:
        with pytest.raises((ProcessError, ZeroDivisionError)):
            job.run_on_all("dividing", lambda: 1 // job.rank)
        return job.run_on_all("counting", lambda: (job.rank, job.should_stop()))

    assert in_job(2, work) == [[(0, False), (1, False)]] * 2


def test_processes_at_different_steps_are_an_error() -> None:
    errors = in_job(2, lambda job: job.run_on_all(["encoding", "ranking"][job.rank], lambda: None))
    for error in errors:
        assert "process 0 is encoding, process 1 is ranking" in str(error)


@pytest.mark.parametrize(
    ("report", "what"), [(lambda found: found * 2, "twice"), (lambda found: found[1:], "not at all")]
)
def test_an_input_encoded_twice_or_not_at_all_is_an_error_that_names_it(
    tmp_path: Path, benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch, report: Callable[..., Any], what: str
) -> None:
    encode_share = BenchmarkEncoder._encode_share
    monkeypatch.setattr(BenchmarkEncoder, "_encode_share", lambda self, shards: report(encode_share(self, shards)))
    errors = in_job(2, lambda job: run_in(job, benchmark, tmp_path))
    assert isinstance(errors[0], EmbeddingError)
    # The shards go round: the main process has the first, the other the second one.
    assert f"gallery inputs were encoded {what} (" in str(errors[0])
    assert "'i0'" in str(errors[0])


def test_processes_with_different_benchmarks_are_refused(tmp_path: Path, benchmark: Benchmark) -> None:
    other = dataclasses.replace(benchmark, queries=benchmark.queries[1:])
    errors = in_job(2, lambda job: run_in(job, [benchmark, other][job.rank], tmp_path))
    assert all("the processes differ in benchmark" in str(error) for error in errors)


def test_processes_with_different_settings_are_refused(tmp_path: Path, benchmark: Benchmark) -> None:
    errors = in_job(2, lambda job: run_in(job, benchmark, tmp_path, top_k=5 + job.rank))
    assert all("the processes differ in model and settings" in str(error) for error in errors)


def test_a_store_that_is_not_shared_is_an_error(tmp_path: Path, benchmark: Benchmark) -> None:
    errors = in_job(2, lambda job: run_in(job, benchmark, tmp_path / str(job.rank)))
    assert isinstance(errors[0], EmbeddingError)
    assert "has to be one folder that all processes share" in str(errors[0])
    assert isinstance(errors[1], ProcessError)


def equal(a: Ranking, b: Ranking) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(Ranking))


@pytest.mark.parametrize("backend", list(Backend))
@pytest.mark.parametrize("count", [2, 5])
def test_ranking_is_shared_without_changing_anything(backend: Backend, count: int) -> None:
    rng = np.random.default_rng(0)
    queries, gallery = (rng.standard_normal((n, 32)).astype(np.float32) for n in (500, 300))
    targets = Targets.of([rng.permutation(300)[:3].tolist() for _ in range(500)], rng.integers(0, 300, 500).tolist())
    done: list[list[int]] = [[] for _ in range(count)]

    def rank(job: DistributedJob | None = None) -> Ranking:
        # 64 rows of scores fit, so that there are 8 blocks of 62 or 63 queries.
        ranker = Ranker(gallery, backend=backend, memory=64 * 4 * 300, **({"job": job} if job else {}))
        return ranker.rank(queries, targets=targets, top_k=10, **({"advance": done[job.rank].append} if job else {}))

    whole = rank()
    assert all(equal(found, whole) for found in in_job(count, rank))
    assert sum(map(sum, done)) == 500
    assert min(map(len, done)) >= 1


class Counted(Mapping[str, bytes]):
    """Images that count how often they are read."""

    def __init__(self, images: Mapping[str, bytes]) -> None:
        self._images = images
        self.read: list[str] = []

    def __getitem__(self, image_id: str) -> bytes:
        self.read.append(image_id)
        return self._images[image_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._images)

    def __len__(self) -> int:
        return len(self._images)


def test_every_image_is_inspected_by_one_process_and_known_to_all(benchmark: Benchmark) -> None:
    images = {**(benchmark.gallery.images or {}), "i7": b"no image"}
    wanted = [*benchmark.gallery.ids, "gone"]
    expected = inspect_images(images, wanted)
    assert expected.unreadable == {"i7": Unreadable.NOT_AN_IMAGE, "gone": Unreadable.MISSING}
    views = [Counted(images) for _ in range(3)]
    found = in_job(3, lambda job: inspect_images(views[job.rank], wanted, job=job))
    assert found == [expected] * 3
    assert [list(inspection.readable) for inspection in found] == [list(expected.readable)] * 3
    assert sorted(name for view in views for name in view.read) == sorted(wanted)
    assert [len(view.read) for view in views] == [8, 8, 8]


def test_without_a_launcher_there_is_one_process_and_no_torch() -> None:
    script = (
        "import sys, circus_bench.distributed as p; print(p.current_job() is p.SINGLE_PROCESS, p.claim_device(), "
        "'torch' in sys.modules, 'accelerate' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "WORLD_SIZE"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["True", "None", "False", "False"]


def test_an_environment_that_no_launcher_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CircusError, match="RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT are not set: start with"):
        current_job()


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine that pretends to have two GPUs; the list notes which became the current one."""
    import torch

    chosen: list[int] = []
    cuda = SimpleNamespace(is_available=lambda: True, device_count=lambda: 2, set_device=chosen.append)
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.delenv("ACCELERATE_USE_CPU", raising=False)
    return chosen


@pytest.mark.parametrize("asked", [None, "cuda"])
def test_a_process_takes_the_gpu_of_its_local_rank(two_gpus: list[int], asked: str | None) -> None:
    assert claim_device(asked) == "cuda:1"
    assert two_gpus == [1]


@pytest.mark.parametrize("asked", ["cpu", "cuda:0"])
def test_a_device_that_was_asked_for_is_kept(two_gpus: list[int], asked: str) -> None:
    assert claim_device(asked) == asked
    assert two_gpus == []


def test_more_processes_than_gpus_share_them(two_gpus: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert claim_device() == "cuda:0"
    assert two_gpus == [0]


def test_on_the_cpu_no_gpu_is_taken(two_gpus: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert claim_device() is None
    assert two_gpus == []


# The memory that a process may take for itself is limited from here on to less than half of what the vectors need.
_BOUNDED = """
import hashlib, resource, sys
from pathlib import Path
import numpy as np
from circus_bench.ranking.ranker import Ranker, Targets
from circus_bench.encoding.embedding_store import EmbeddingStore

N, DIM, MIB = 60_000, 1024, 2**20  # 234 MiB
digests = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(N)]
np.ones((64, DIM), np.float32) @ np.ones((DIM, 64), np.float32)  # the BLAS takes its memory
own = int(next(l for l in open("/proc/self/status") if l.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (own + 100 * MIB,) * 2)
try:
    np.ones((N, DIM), np.float32)
    sys.exit("the limit does not hold")
except MemoryError:
    pass
rng = np.random.default_rng(0)
partition = EmbeddingStore(Path(sys.argv[1])).partition({"model": "m", "revision": "1"})
for start in range(0, N, 1000):
    partition.write(digests[start : start + 1000], rng.standard_normal((1000, DIM), np.float32))
gallery = partition.open_memmap(partition.materialize(digests))
queries = partition.open_memmap(partition.materialize(digests[:130]))
targets = Targets.of([[i] for i in range(130)], [0] * 130)
# 64 rows of scores are 15 MiB.
ranking = Ranker(gallery, memory=20 * MIB, max_norm=1.0).rank(queries, targets=targets, top_k=3)
print(set(ranking.rank.tolist()), ranking.top[:, 0].tolist() == list(range(130)))
"""


def test_a_gallery_that_does_not_fit_into_memory_is_laid_out_and_ranked(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BOUNDED, str(tmp_path)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Every vector is nearest to itself.
    assert done.stdout.split() == ["{1}", "True"]


PATIENCE = 300  # seconds, for a machine that is busy with other things
MODEL = "circus-bench/mini-balanced"

# In process 1, the process dies just after its second shard got its name.
_DIES = """
import os, signal, sys
from pathlib import Path

from circus_bench.cli import main

rename, finished = Path.replace, []


def replace(path, target):
    renamed = rename(path, target)
    if os.environ["RANK"] == "1" and Path(target).suffix == ".safetensors":
        finished.append(target)
        if len(finished) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    return renamed


Path.replace = replace
sys.argv = ["circus-bench", *sys.argv[1:]]
main()
"""


def launched(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a session of its own, as a launcher that is killed leaves its processes behind."""
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.slow
def test_a_job_of_which_a_process_was_killed_is_launched_again_and_ends_with_the_bytes_of_one_process(
    tmp_path: Path,
) -> None:
    save_benchmark(scenes(7, 40, gallery=400), tmp_path / "scenes")
    script = tmp_path / "dies.py"
    script.write_text(_DIES)
    programs = Path(sys.executable).parent

    def arguments(out: str) -> list[str]:
        options = ("run", tmp_path / "scenes", "-m", MODEL, "--out", tmp_path / out, "--checkpoint-every", 50)
        return list(map(str, options))

    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    killed = launched(*torchrun, str(script), *arguments("shared"))
    assert killed.returncode != 0
    assert "SIGKILL" in killed.stderr
    stored = {path: path.stat().st_mtime_ns for path in (tmp_path / "shared").rglob("*.safetensors")}
    assert 2 <= len(stored) < 11  # 8 of the gallery and 3 of the queries are all there are

    accelerate = (str(programs / "accelerate"), "launch", "--multi_gpu", "--num_processes", "2")
    again = launched(*accelerate, "--module", "circus_bench", *arguments("shared"))
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("circus-bench/mini-balanced: ") == 1  # one process speaks
    assert {path: path.stat().st_mtime_ns for path in stored} == stored

    alone = CliRunner().invoke(app, arguments("alone"))
    assert alone.exit_code == 0, alone.output
    for name in ("ranks.parquet", "topk.parquet", "manifest.json"):
        shared, own = (tmp_path / out / "circus-bench__mini-balanced" / name for out in ("shared", "alone"))
        assert shared.read_bytes() == own.read_bytes(), name
    assert shards(tmp_path / "shared" / ".embeddings") == shards(tmp_path / "alone" / ".embeddings")
