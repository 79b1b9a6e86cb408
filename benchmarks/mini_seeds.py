"""Does an audit with the mini encoders find what was planted? One row per benchmark seed and cutoff.

Usage: `python benchmarks/mini_seeds.py [--seeds 1 2 3 4 5 7] [--cutoffs 5 10 20]`
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.progress import track
from rich.table import Table

from circus_bench.benchmark import Benchmark
from circus_bench.models import POOL_MINI, load_encoder
from circus_bench.sources.scenes import Kind, scenes, truth

MULTIMODAL, TEXT_ONLY, IMAGE_ONLY = range(3)
BATCH = 256
# A row passes when every share reaches its threshold at the cutoff that the benchmark is made for.
CUTOFF = 10


@dataclass(frozen=True)
class Row:
    """Shares between 0 and 1 for one seed and cutoff; `None` where no query counts."""

    text_shortcuts: float
    image_shortcuts: float
    composition: float
    best_multimodal: float
    agreement: float | None
    decided: int


THRESHOLDS = Row(0.85, 0.97, 0.85, 0.90, 0.90, 0)


def ranks(benchmark: Benchmark, encoder: Any) -> NDArray[np.int64]:
    """Exact ranks with the reference removed and ties against the model, int64 [3 conditions, queries]."""
    images = benchmark.gallery.images
    assert images is not None
    pictures = {image_id: Image.open(io.BytesIO(images[image_id])) for image_id in benchmark.image_ids}
    place = {image_id: index for index, image_id in enumerate(benchmark.gallery.ids)}
    gallery = encoder.encode(batches(image=[pictures[image_id] for image_id in benchmark.gallery.ids]))
    references = [pictures[query.reference] for query in benchmark.queries]
    texts = [query.text for query in benchmark.queries]
    black = [Image.new("RGB", picture.size) for picture in references]
    shown: list[dict[str, Sequence[Any]]] = [{"image": references, "text": texts}, {"image": black, "text": texts}]
    shown.append({"image": references})
    reference = np.array([place[query.reference] for query in benchmark.queries])
    target = np.array([place[query.targets[0]] for query in benchmark.queries])
    rows = np.arange(len(target))
    found = []
    for columns in shown:
        scores = encoder.encode(batches(**columns)) @ gallery.T
        of_target = scores[rows, target].copy()
        scores[rows, reference] = -np.inf
        found.append((scores >= of_target[:, None]).sum(1))
    return np.array(found)


def batches(**columns: Sequence[Any]) -> Iterator[dict[str, Sequence[Any]]]:
    """Cut columns of equal length into batches."""
    length = len(next(iter(columns.values())))
    for start in range(0, length, BATCH):
        yield {name: column[start : start + BATCH] for name, column in columns.items()}


def labels(pool: NDArray[np.int64], k: int) -> NDArray[np.str_]:
    """Min-rank labels of a pool's ranks [models, conditions, queries]."""
    hit = (pool <= k).any(0)
    shortcut = hit[TEXT_ONLY] | hit[IMAGE_ONLY]
    return np.where(shortcut, "shortcut", np.where(hit[MULTIMODAL], "composition_required", "unresolved"))


def row(benchmark: Benchmark, pool: NDArray[np.int64], k: int) -> Row:
    """Compare an audit with the plants."""
    found = labels(pool, k)
    kinds = np.array([query.group for query in benchmark.queries])
    planted = np.array([truth(query, k) or "" for query in benchmark.queries])
    decided = planted != ""
    composed = kinds == Kind.COMPOSITION_REQUIRED
    return Row(
        text_shortcuts=float((found == "shortcut")[kinds == Kind.TEXT_SHORTCUT].mean()),
        image_shortcuts=float((found == "shortcut")[kinds == Kind.IMAGE_SHORTCUT].mean()),
        composition=float((found == "composition_required")[composed].mean()),
        best_multimodal=float((pool[:, MULTIMODAL][:, composed] <= k).mean(1).max()),
        agreement=float((found == planted)[decided].mean()) if decided.any() else None,
        decided=int(decided.sum()),
    )


def details(benchmark: Benchmark, pool: NDArray[np.int64], k: int) -> Table:
    """Labels by planted kind and edit, for a closer look."""
    table = Table(title=f"labels at K={k}")
    for name in ("kind", "edit", "queries", "shortcut", "composition_required", "unresolved"):
        table.add_column(name)
    found = labels(pool, k)
    groups: dict[tuple[str, str], list[str]] = {}
    for query, label in zip(benchmark.queries, found, strict=True):
        groups.setdefault((query.group, query.details["edit"].split("+")[0]), []).append(label)
    for (kind, edit), members in sorted(groups.items()):
        counts = [str(members.count(label)) for label in ("shortcut", "composition_required", "unresolved")]
        table.add_row(kind, edit, str(len(members)), *counts)
    return table


def encoders(checkpoints: Path | None) -> Iterable[Any]:
    """The installed pool, or other checkpoints of the same names."""
    if checkpoints is None:
        return [load_encoder(name) for name in POOL_MINI]
    from circus_bench.models.mini.encoder import MiniEncoder

    return [MiniEncoder(name, folder=checkpoints / name.rpartition("-")[2]) for name in POOL_MINI]


def shares(values: Row) -> list[str]:
    marks = []
    for name, threshold in vars(THRESHOLDS).items():
        value = getattr(values, name)
        if isinstance(value, float):
            low = "[red]" if value < threshold else ""
            marks.append(f"{low}{value:.3f}")
        else:
            marks.append("-" if value is None else str(value))
    return marks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5, 7])
    parser.add_argument("--cutoffs", type=int, nargs="+", default=[5, CUTOFF, 20])
    parser.add_argument("--checkpoints", type=Path, help="folder with other checkpoints than the installed ones")
    parser.add_argument("--details", action="store_true", help="also print labels by planted kind and edit")
    arguments = parser.parse_args()
    console = Console(width=120)
    pool = list(encoders(arguments.checkpoints))
    table = Table(title="planted queries and what the mini pool makes of them (red: below the threshold)")
    for name in ("K", "seed", *vars(THRESHOLDS)):
        table.add_column(name.replace("_", " "), justify="right")
    table.add_row("", "at least", *shares(THRESHOLDS), end_section=True)
    rows: dict[int, list[tuple[int, Row]]] = {k: [] for k in arguments.cutoffs}
    for seed in track(arguments.seeds, "auditing", console=console, transient=True):
        benchmark = scenes(seed)
        found = np.array([ranks(benchmark, encoder) for encoder in pool])
        for k in arguments.cutoffs:
            rows[k].append((seed, row(benchmark, found, k)))
        if arguments.details:
            console.print(f"seed {seed}; multimodal, text-only and image-only hit@{CUTOFF} of each model by kind:")
            console.print(by_model(benchmark, found))
            console.print(details(benchmark, found, CUTOFF))
    for k, found_rows in rows.items():
        for seed, values in found_rows:
            table.add_row(str(k), str(seed), *shares(values), end_section=seed == found_rows[-1][0])
    console.print(table)


def by_model(benchmark: Benchmark, pool: NDArray[np.int64]) -> Table:
    """Hit rates of each model under each condition, by planted kind."""
    table = Table("kind", *(name.rpartition("-")[2] for name in POOL_MINI), "pool")
    kinds = np.array([query.group for query in benchmark.queries])
    for kind in Kind:
        hits = (pool[:, :, kinds == kind] <= CUTOFF).astype(float)
        cells = [" ".join(f"{share:.2f}" for share in model.mean(1)) for model in (*hits, hits.max(0))]
        table.add_row(kind.value, *cells)
    return table


if __name__ == "__main__":
    main()
