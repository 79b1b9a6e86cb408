"""The tools of a pipeline as its settings describe them: images, captions, providers, encoders."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from circus_bench.api.chat.batch import BatchAsker, make_batch_asker
from circus_bench.api.chat.client import CachedAsker
from circus_bench.api.chat.messages import Asker, Outcome, Question
from circus_bench.api.chat.providers import PROVIDERS, ProviderSettings, budget_meter, make_asker, price_of
from circus_bench.errors import CircusError, FormatError, some
from circus_bench.images import ImageFiles, ParquetImages
from circus_bench.rmir.config import Config
from circus_bench.rmir.embedders import Embedder, MtebEmbedder
from circus_bench.rmir.executors import LocalEngine, Tools
from circus_bench.rmir.pipeline import Pipeline
from circus_bench.rmir.ray_executor import RayEngine, Share
from circus_bench.sources.annotations import read_rows

REPLIES = "replies.sqlite"


def make_tools(share: Share, *, config: Config, root: Path, budget: float | None = None, batch: bool = False) -> Tools:
    """The tools of one process. Neither a provider nor an encoder is touched before it is needed.

    Args:
        share: what it has in common with others.
        config: the settings.
        root: of the pipeline; it holds the replies.
        budget: US dollars that all processes may spend together; None refuses to spend.
        batch: send questions to the vendors' batch endpoints; one process and one thread at a time.

    Raises:
        FormatError: the settings name no images, or a file that is not what it should be.
        RemoteError: a model has no provider.
    """
    settings = {name: _shared(config.providers.get(name), share) for name in {*PROVIDERS, *config.providers}}
    meter = share.meter(budget_meter((price_of(model, settings=settings) for model in config.models), budget))

    def ask() -> Asker:
        make = make_batch_asker if batch else partial(make_asker, threads=config.run.threads)
        made: CachedAsker | BatchAsker = make(config.models, root / REPLIES, budget=budget, settings=settings)
        made.meter = meter
        return made

    return Tools(
        images=images_of(config),
        asker=LateAsker(ask),
        embedder=_Embedders(config.run.device),
        captions=captions_of(config),
        meter=meter,
        version=config.collection.version,
    )


@contextmanager
def open_pipeline(
    config: Config,
    root: Path,
    *,
    budget: float | None = None,
    batch: bool = False,
    on_ray: bool = False,
    workers: int | None = None,
    address: str | None = None,
) -> Iterator[Pipeline]:
    """A pipeline as its settings describe it.

    Args:
        config: the settings.
        root: folder of the outcomes.
        budget: see `make_tools`.
        batch: see `make_tools`.
        on_ray: let Ray do the work; else this process does.
        workers: see `RayEngine`.
        address: see `RayEngine`.

    Raises:
        CircusError: batches were asked for on Ray; see `make_tools` and `RayEngine` for others.
    """
    root = root.absolute()  # workers have other working directories
    make = partial(make_tools, config=config, root=root, budget=budget, batch=batch)
    if not on_ray:
        # Only one thread at a time may wait for batches.
        yield Pipeline(config, root, LocalEngine(make(Share()), threads=1 if batch else 2))
        return
    if batch:
        raise CircusError("batch endpoints are asked by one process; leave --batch or --engine ray out")
    with RayEngine(make, workers=workers, address=address) as engine:
        yield Pipeline(config, root, engine)


def images_of(config: Config) -> Mapping[str, bytes]:
    """The collection.

    Raises:
        FormatError: the settings name none, or what they name does not exist.
        ImageError: two files share an id.
    """
    place = Path(config.collection.images)
    if not config.collection.images or not place.exists():
        what = f"{place}: no such folder or file" if config.collection.images else "collection.images is missing"
        raise FormatError(f"RMIR settings: {what}; name a folder of images, or an images.parquet of a benchmark")
    return ImageFiles.folder(place) if place.is_dir() else ParquetImages(place)


def captions_of(config: Config) -> dict[str, str]:
    """The captions that the collection brings; none by default.

    Raises:
        FormatError: the file is missing or lacks a column, or an image has two captions.
    """
    if not config.collection.captions:
        return {}
    path = Path(config.collection.captions)
    rows = [(row.identifier("id"), row.get("text", str)) for row in read_rows(path, origin="the collection")]
    repeated = [image for image, count in Counter(image for image, _ in rows).items() if count > 1]
    if repeated:
        raise FormatError(f"{path}: images with more than one caption ({some(repeated)}); join them")
    return dict(rows)


def usage_on_disk(root: Path) -> Counter[str]:
    """What the kept replies used, by unit of billing: all that was ever spent here but for answers that were lost."""
    path = root / REPLIES
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


class LateAsker:
    """An asker that is made when the first question is asked: stages that ask nothing need no API key.

    Args:
        make: makes it.
    """

    def __init__(self, make: Callable[[], Asker]) -> None:
        self._make = make
        self._made: Asker | None = None
        self._lock = threading.Lock()

    def ask(self, questions: Sequence[Question]) -> Iterator[Outcome]:
        """See `Asker`."""
        if not questions:
            return iter(())
        with self._lock:
            self._made = self._made or self._make()
        return self._made.ask(questions)


class _Embedders:
    """Loads each encoder once, when it is needed."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._loaded: dict[str, Embedder] = {}
        self._lock = threading.Lock()

    def __call__(self, name: str) -> Embedder:
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = MtebEmbedder.load(name, device=self._device or None)
            return self._loaded[name]


def _shared(settings: ProviderSettings | None, share: Share) -> ProviderSettings:
    """A process's part of the rates that a service allows."""
    given = settings or ProviderSettings()
    return dataclasses.replace(
        given,
        requests_per_minute=given.requests_per_minute / share.workers,
        tokens_per_minute=given.tokens_per_minute / share.workers,
    )
