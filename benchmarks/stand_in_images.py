"""Give a dataset folder stand-in images: a tiny, distinct one for each image id, drawn from the id.

With them an evaluation can be run at a benchmark's real counts where its own images may not be had. Scores say nothing.

    circus-bench data make cirr/circus --data DATA --out circus
    python benchmarks/stand_in_images.py circus cirr --out circus-stand-ins
    CIRCUS_DATA=circus-stand-ins mteb run -m circus-bench/mini-balanced -t CIRCUS-CIRR --output-folder out
"""

from __future__ import annotations

import argparse
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from circus_bench.benchmark import Benchmark
from circus_bench.hub.loading import load_benchmark, load_labeled_benchmark
from circus_bench.hub.writer import n_rows, write_dataset_folder

SIDE = 32


class StandInImages(Mapping[str, bytes]):
    """Image id to a PNG file of 4 x 4 colored squares, drawn when it is asked for."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = dict.fromkeys(ids)

    def __getitem__(self, image_id: str) -> bytes:
        if image_id not in self._ids:
            raise KeyError(image_id)
        colors = np.frombuffer(hashlib.sha512(image_id.encode()).digest()[:48], np.uint8).reshape(4, 4, 3)
        file = io.BytesIO()
        Image.fromarray(colors).resize((SIDE, SIDE), Image.Resampling.NEAREST).save(file, "PNG")
        return file.getvalue()

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


def join_stand_ins(folder: Path, name: str, *, out: Path) -> Benchmark:
    """Write a dataset folder that holds a benchmark of another one with stand-in images."""
    bare = load_benchmark(f"{folder}#{name}")
    labeled = load_labeled_benchmark(f"{folder}#{name}", images=StandInImages(bare.image_ids))
    with tqdm(desc=name, total=n_rows([labeled])) as bar:
        write_dataset_folder([labeled], out, advance=bar.update)
    return labeled.benchmark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the dataset folder")
    parser.add_argument("name", help="the benchmark in it, such as cirr")
    parser.add_argument("--out", type=Path, required=True, help="the new dataset folder")
    given = parser.parse_args()
    benchmark = join_stand_ins(given.folder, given.name, out=given.out)
    print(f"{given.out}: {len(benchmark.image_ids):,} images, {len(benchmark.queries):,} queries")


if __name__ == "__main__":
    main()
