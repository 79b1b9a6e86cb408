"""Make the resources of a pipeline from its settings: images, captions, chat clients, encoders."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from circus_bench._typing import StrPath
from circus_bench.api.chat.batch import BatchClient, make_batch_client
from circus_bench.api.chat.client import CachedClient
from circus_bench.api.chat.messages import ChatClient, ParseResult, Request
from circus_bench.api.chat.providers import PROVIDERS, ProviderSettings, make_client, price_of, shared_budget
from circus_bench.errors import CircusError, FormatError, duplicates, format_ids
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import MANIFEST
from circus_bench.images import ImageFiles, ParquetImages
from circus_bench.rmir.config import Config
from circus_bench.rmir.embedders import EmbedderProtocol, MtebEmbedder
from circus_bench.rmir.executors import LocalExecutor, Resources
from circus_bench.rmir.pipeline import Pipeline
from circus_bench.rmir.ray_executor import RayExecutor, WorkerQuota
from circus_bench.sources.annotations import read_rows

REPLIES = "replies.sqlite"


def make_resources(
    quota: WorkerQuota, *, config: Config, root: Path, budget: float | None = None, batch: bool = False
) -> Resources:
    """Make the resources of one process. Providers and encoders are loaded when they are needed first.

    Args:
        quota: the process's share of rate limits and budget.
        config: the settings.
        root: of the pipeline; it holds the response cache.
        budget: US dollars that all processes may spend together; None refuses to spend.
        batch: send requests to the vendors' batch endpoints; one process and one thread at a time.

    Raises:
        FormatError: the settings name no images, or a file of another format.
        RemoteError: a model has no provider.
    """
    settings = {name: _shared(config.providers.get(name), quota) for name in {*PROVIDERS, *config.providers}}
    total = quota.budget(shared_budget((price_of(model, settings=settings) for model in config.models), budget))

    def make_now() -> ChatClient:
        make = make_batch_client if batch else partial(make_client, threads=config.run.threads)
        made: CachedClient | BatchClient = make(config.models, root / REPLIES, budget=budget, settings=settings)
        made.budget = total
        return made

    return Resources(
        images=load_collection(config),
        client=LazyClient(make_now),
        embedder=_Embedders(config.run.device),
        captions=load_captions(config),
        budget=total,
        version=config.collection.version,
    )


@contextmanager
def open_pipeline(
    config: Config,
    root: StrPath,
    *,
    budget: float | None = None,
    batch: bool = False,
    on_ray: bool = False,
    workers: int | None = None,
    address: str | None = None,
) -> Iterator[Pipeline]:
    """Open a pipeline with the resources and the executor of its settings.

    Args:
        config: the settings.
        root: folder of the outputs.
        budget: see `make_resources`.
        batch: see `make_resources`.
        on_ray: execute on Ray; else in this process.
        workers: see `RayExecutor`.
        address: see `RayExecutor`.

    Raises:
        CircusError: batch endpoints were requested on Ray; see `make_resources` and `RayExecutor` for others.
    """
    root = Path(root).absolute()  # workers have other working directories
    make = partial(make_resources, config=config, root=root, budget=budget, batch=batch)
    if not on_ray:
        # Only one thread at a time may wait for batches.
        yield Pipeline(config, root, LocalExecutor(make(WorkerQuota()), threads=1 if batch else 2))
        return
    if batch:
        raise CircusError("batch endpoints work in one process only; leave --batch or --engine ray out")
    with RayExecutor(make, workers=workers, address=address) as executor:
        yield Pipeline(config, root, executor)


def load_collection(config: Config) -> Mapping[str, bytes]:
    """Load the collection.

    Raises:
        FormatError: the settings name none, or one that does not exist or has no images.
        ImageError: two files share an id.
    """
    named = config.collection.images
    if not named:
        raise FormatError("RMIR settings: collection.images is missing; name a folder of images, or a dataset folder")
    if (Path(named.partition("#")[0]) / MANIFEST).is_file():
        if images := load_benchmark(named).gallery.images:
            return images
        raise FormatError(f"RMIR settings: {named}: a benchmark without images; name one that has them")
    place = Path(named)
    if not place.exists():
        raise FormatError(f"RMIR settings: {place}: no such folder or file; name a folder of images")
    return ImageFiles.folder(place) if place.is_dir() else ParquetImages.load(place)


def load_captions(config: Config) -> dict[str, str]:
    """Load the captions that the collection brings; none by default.

    Raises:
        FormatError: the file is missing or lacks a column, or an image has two captions.
    """
    if not config.collection.captions:
        return {}
    path = Path(config.collection.captions)
    rows = [(row.get_id("id"), row.get("text", str)) for row in read_rows(path, origin="the collection")]
    if repeated := duplicates(image for image, _ in rows):
        raise FormatError(f"{path}: images with more than one caption ({format_ids(repeated)}); join them")
    return dict(rows)


def usage_on_disk(root: StrPath) -> Counter[str]:
    """Sum the usage of the cached replies, per unit of billing: all that was ever spent here but for lost replies."""
    path = Path(root) / REPLIES
    if not path.exists():
        return Counter()
    query = (
        "SELECT unit.key, SUM(unit.value) FROM replies, json_each(CAST(reply AS TEXT), '$.usage') AS unit GROUP BY 1"
    )
    file = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)
    try:
        return Counter(dict(file.execute(query)))
    finally:
        file.close()


class LazyClient:
    """Client that is made when the first request is sent: stages that send none need no API key.

    Args:
        make: makes it.
    """

    def __init__(self, make: Callable[[], ChatClient]) -> None:
        self._make = make
        self._made: ChatClient | None = None
        self._lock = threading.Lock()

    def complete(self, requests: Sequence[Request]) -> Iterator[ParseResult]:
        """See `ChatClient`."""
        if not requests:
            return iter(())
        with self._lock:
            self._made = self._made or self._make()
        return self._made.complete(requests)


class _Embedders:
    """Loader of each encoder once, when it is needed first."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._loaded: dict[str, EmbedderProtocol] = {}
        self._lock = threading.Lock()

    def __call__(self, name: str) -> EmbedderProtocol:
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = MtebEmbedder.load(name, device=self._device or None)
            return self._loaded[name]


def _shared(settings: ProviderSettings | None, quota: WorkerQuota) -> ProviderSettings:
    """Divide the rate limits of a service among the workers."""
    given = settings or ProviderSettings()
    return dataclasses.replace(
        given,
        requests_per_minute=given.requests_per_minute / quota.workers,
        tokens_per_minute=given.tokens_per_minute / quota.workers,
    )
