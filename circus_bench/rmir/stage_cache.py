"""Cache the output of each stage on disk, content-addressed: in a folder keyed by everything that it depends on.

```
<root>/<stage>/<key>/
  batches/<digest>.<rows>.parquet   while the stage is under way
  <rows>.parquet                    the output, one file per kind of row
  stage.json                        what the key is made of, and how many rows there are; written last
```

The key is a hash over the stage, the version of its code, its settings, its templates and the keys of its inputs. A
batch is named after its input rows, so that neither the size of the batches nor their order shows in the output.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from circus_bench.errors import FormatError
from circus_bench.io import read_json, to_json, write_json
from circus_bench.rmir.records import join_rows, load_rows, save_rows, table_name

SCHEMA_VERSION = 1
MANIFEST = "stage.json"

T = TypeVar("T")
Tables = Mapping[type[Any], Sequence[Any]]
"""Rows by their kind."""


@dataclass(frozen=True)
class StageFolder:
    """Output folder of one stage.

    Attributes:
        root: of the pipeline.
        stage: its name.
        kinds: of the rows that it makes.
        about: all that the output depends on, JSON-able.
    """

    root: Path
    stage: str
    kinds: tuple[type[Any], ...]
    about: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        """64 bits of the SHA-256 over the stage and all that its output depends on, in hexadecimal digits."""
        return hashlib.sha256(to_json({"stage": self.stage, **self.about}).encode()).hexdigest()[:16]

    @property
    def path(self) -> Path:
        """The folder."""
        return self.root / self.stage / self.key

    @property
    def is_done(self) -> bool:
        """Tell whether the output is complete."""
        return (self.path / MANIFEST).exists()

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows per kind; empty as long as the output is not complete.

        Raises:
            FormatError: the folder was written by another version.
        """
        if not self.is_done:
            return {}
        manifest = read_json(self.path / MANIFEST)
        if manifest.get("schema_version") != SCHEMA_VERSION:
            raise FormatError(f"{self.path / MANIFEST}: not of schema version {SCHEMA_VERSION}; delete the folder")
        return dict(manifest["rows"])

    def rows(self, kind: type[T]) -> list[T]:
        """Load the rows of a kind.

        Raises:
            FormatError: the stage was not run to its end, or its file is damaged.
        """
        if not self.is_done:
            raise FormatError(f"{self.path}: the stage {str(self.stage)!r} was not run to its end; run it first")
        return load_rows(self._table(kind), kind)

    def write(self, tables: Tables) -> None:
        """Write the whole output."""
        for kind in self.kinds:
            save_rows(self._table(kind), tables[kind], kind)
        self._finish({kind: len(tables[kind]) for kind in self.kinds})

    def write_batch(self, batch: StageBatch, tables: Tables) -> None:
        """Write the output of a batch; the file of the last kind says that it is complete."""
        for kind in self.kinds:
            save_rows(self._part(batch, kind), tables[kind], kind)

    def holds(self, batch: StageBatch) -> bool:
        """Tell whether the output of a batch is there."""
        return self._part(batch, self.kinds[-1]).exists()

    def join(self, batches: Iterable[StageBatch]) -> None:
        """Concatenate the outputs of the batches, in their order, and remove these."""
        given = list(batches)
        counts = {kind: join_rows(self._table(kind), (self._part(b, kind) for b in given), kind) for kind in self.kinds}
        self._finish(counts)
        shutil.rmtree(self.path / "batches", ignore_errors=True)

    def _part(self, batch: StageBatch, kind: type[Any]) -> Path:
        return self.path / "batches" / f"{batch.digest}.{table_name(kind)}.parquet"

    def _table(self, kind: type[Any]) -> Path:
        return self.path / f"{table_name(kind)}.parquet"

    def _finish(self, counts: Mapping[type[Any], int]) -> None:
        rows = {table_name(kind): count for kind, count in counts.items()}
        manifest = {"schema_version": SCHEMA_VERSION, "stage": self.stage, "key": self.key, "about": dict(self.about)}
        write_json(self.path / MANIFEST, {**manifest, "rows": rows})


@dataclass(frozen=True)
class StageBatch:
    """Rows, or ids, that are worked on together."""

    items: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def digest(self) -> str:
        """Of the rows, in 20 hexadecimal digits."""
        rows = [item if isinstance(item, (str, tuple)) else dataclasses.asdict(item) for item in self.items]
        return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()[:20]


def batches_of(items: Sequence[Any], size: int) -> list[StageBatch]:
    """Cut a list into batches."""
    return [StageBatch(tuple(items[start : start + size])) for start in range(0, len(items), size)]
