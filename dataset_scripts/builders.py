"""Build the rows of a dataset folder with `datasets`, without the folder.

Loading scripts are gone from `datasets`; a builder is used directly:

Example:
    >>> from circus_bench.hub.tables import LabeledBenchmark
    >>> from circus_bench.sources.scenes import scenes
    >>> builder = make_builder(LabeledBenchmark(scenes(queries=40, gallery=400)))
    >>> builder.config.name, next(iter(builder.as_streaming_dataset("test")))["query_id"]
    ('scenes_full', 'q-0000')
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import datasets

from circus_bench import __version__
from circus_bench._typing import StrPath
from circus_bench.hub.tables import SPLIT, LabeledBenchmark, Table, config_name, features, rows
from circus_bench.hub.writer import part_head
from circus_bench.io import to_json
from circus_bench.labels.labels import Subset


@dataclass
class CircusConfig(datasets.BuilderConfig):  # type: ignore[misc]  # datasets has no types
    """One configuration: a table of a subset of a benchmark.

    Attributes:
        labeled: the benchmark and its labels.
        subset: one of those that the labels give.
        table: which table.
        with_images: give the original bytes of the images.
    """

    labeled: LabeledBenchmark | None = None
    subset: Subset = Subset.FULL
    table: Table = Table.ROWS
    with_images: bool = False

    def create_config_id(
        self,
        config_kwargs: dict[str, Any],  # noqa: ARG002 - the signature is the base's
        custom_features: datasets.Features | None = None,  # noqa: ARG002
    ) -> str:
        """Name the cache after what the rows follow from, not after the objects that hold it."""
        known = self.labeled.label_of if self.labeled else {}
        head = part_head(self.labeled) if self.labeled else None
        facts = [head, self.with_images, [repr(known[key]) for key in sorted(known)]]
        return f"{self.name}-{hashlib.sha256(to_json(facts).encode()).hexdigest()[:16]}"


class CircusBuilder(datasets.GeneratorBasedBuilder):  # type: ignore[misc]
    """Makes the rows of one configuration."""

    VERSION = datasets.Version(__version__)
    BUILDER_CONFIG_CLASS = CircusConfig
    config: CircusConfig

    def _info(self) -> datasets.DatasetInfo:
        columns = features(self.config.table, with_images=self.config.with_images)
        return datasets.DatasetInfo(features=columns)

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:  # noqa: ARG002 - as above
        return [datasets.SplitGenerator(name=SPLIT)]

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        config = self.config
        assert config.labeled is not None
        yield from enumerate(rows(config.labeled, config.subset, config.table, with_images=config.with_images))


def make_builder(
    labeled: LabeledBenchmark,
    subset: Subset | str = Subset.FULL,
    *,
    table: Table = Table.ROWS,
    with_images: bool = False,
    cache_dir: StrPath | None = None,
) -> CircusBuilder:
    """Make the builder of one configuration.

    Args:
        labeled: the benchmark and its labels.
        subset: one of those that the labels give.
        table: which table.
        with_images: give the original bytes of the images; mind their license before passing them on.
        cache_dir: where the rows are kept; that of `datasets` by default.
    """
    subset = Subset(subset)
    return CircusBuilder(
        cache_dir=cache_dir and str(cache_dir),
        config_name=config_name(labeled.name, subset, table),
        labeled=labeled,
        subset=subset,
        table=table,
        with_images=with_images,
    )
