"""Fixtures that every test may use. All images and benchmarks are generated here."""

from __future__ import annotations

import gc
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import hypothesis.configuration
import numpy as np
import pytest
from PIL import Image
from support.warm_python import WarmPython

if TYPE_CHECKING:
    from circus_bench.benchmark import Benchmark, Query

ROOT = Path(__file__).resolve().parent.parent
_PRIVATE_HOME = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep Hugging Face libraries offline and in a private home; make hypothesis repeatable.

    This runs before any test module is imported: the libraries read their environment on import. Imports make no
    garbage, and looking for it takes a fifth of their time.
    """
    gc.disable()
    home = tempfile.mkdtemp(prefix="circus-bench-tests-")
    config.stash[_PRIVATE_HOME] = home
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HOME"] = home
    os.environ["HF_DATASETS_CACHE"] = str(Path(home) / "datasets")
    hypothesis.configuration.set_hypothesis_home_dir(Path(home) / "hypothesis")
    hypothesis.settings.register_profile("circus", deadline=None, derandomize=True, database=None)
    hypothesis.settings.load_profile("circus")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files with slow tests first: one that is begun last keeps a worker busy when the others are done."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Look for garbage again, though not among the modules."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the private home."""
    shutil.rmtree(config.stash.get(_PRIVATE_HOME, ""), ignore_errors=True)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of third-party data, read in place; tests that need it are skipped where it is not.

    Where CIRCUS_REQUIRE_SHARED is set they fail instead, so that a missing folder cannot pass unnoticed.
    """
    folder = Path(os.environ.get("CIRCUS_SHARED", ROOT / ".." / "shared"))
    if not (folder / "data").is_dir():
        miss = pytest.fail if os.environ.get("CIRCUS_REQUIRE_SHARED") else pytest.skip
        miss(f"needs third-party data: {folder}/data does not exist (set CIRCUS_SHARED to its parent folder)")
    return folder


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmPython]:
    """Processes that have imported what the command `run` needs."""
    python = WarmPython("circus_bench.cli", "circus_bench.models.mini.encoder", "circus_bench.runs.run")
    yield python
    python.close()


@pytest.fixture(scope="session")
def warm_libraries() -> Iterator[WarmPython]:
    """Processes that have imported what mteb does, but none of the libraries of Hugging Face; the hook is off.

    A test can thus set what those read when they are imported, such as the address of the Hub.
    """
    libraries = ("aiohttp", "pandas", "polars", "pyarrow.dataset", "scipy.stats", "sklearn.preprocessing", "torch")
    python = WarmPython(*libraries, env={**os.environ, "CIRCUS_BENCH_NO_MTEB_HOOK": "1"})
    yield python
    python.close()


@pytest.fixture(scope="session")
def encode_image() -> Callable[..., bytes]:
    """`encode_image(image, format, **options)`: the bytes of an image file."""

    def encode(image: Image.Image, image_format: str, **options: Any) -> bytes:
        file = io.BytesIO()
        image.save(file, image_format, **options)
        return file.getvalue()

    return encode


@pytest.fixture(scope="session")
def noise() -> Callable[..., Image.Image]:
    """`noise(size, seed=0)`: an RGB image whose pixels have no symmetry and compress badly."""

    def make(size: tuple[int, int], seed: int = 0) -> Image.Image:
        pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        return Image.fromarray(pixels)

    return make


@pytest.fixture(scope="session")
def toy_benchmark(encode_image: Callable[..., bytes], noise: Callable[..., Image.Image]) -> Callable[..., Benchmark]:
    """`toy_benchmark(**changes)`: a sound benchmark, with what the test wants changed.

    By default three queries search the gallery `a b c d`; the third has its reference `outside` it and two targets.
    Images are 32 x 32 PNG files of noise, one seed an id; `with_images=False` leaves them out.
    """

    def make(
        *,
        queries: Iterable[Query] | None = None,
        gallery: Iterable[Any] = ("a", "b", "c", "d"),
        images: Mapping[str, bytes] | None = None,
        with_images: bool = True,
        **rest: Any,
    ) -> Benchmark:
        from circus_bench.benchmark import Benchmark, Gallery, Protocol, Query, ReferencePolicy

        if queries is None:
            queries = (
                Query("q1", "a", "make it red", ("b",), group="colour"),
                Query("q2", "b", "with  a “longer” sleeve, ça va", ("c",), group="shape", details={"kind": ["x", 1]}),
                Query("q3", "outside", "two of them", ("d", "a")),
            )
        queries = tuple(queries)
        gallery = tuple(gallery)
        if images is None and with_images:
            needed = dict.fromkeys((*gallery, *(query.reference for query in queries)))
            images = {name: encode_image(noise((32, 32), seed), "PNG") for seed, name in enumerate(needed)}
        settings: dict[str, Any] = {
            "name": "toy",
            "protocol": Protocol("toy/test", ReferencePolicy.KEPT, instruction="Find the image."),
            "source": {"licence": "CC0-1.0", "seed": 0},
        }
        return Benchmark(queries=queries, gallery=Gallery(gallery, images), **{**settings, **rest})

    return make
