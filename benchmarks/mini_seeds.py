"""Does an audit with the mini encoders find what was planted? One row per benchmark seed and cut-off.

    python benchmarks/mini_seeds.py [--seeds 1 2 3 4 5 7] [--weights DIR]

`--weights` takes the folder that a training wrote, instead of the weights that ship. At the cut-off that the benchmark
is made for (10), a seed passes when every share reaches its threshold; the exit status tells whether all did.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import mteb
from rich.console import Console
from rich.table import Table

from circus_bench.demo.ground_truth import GroundTruthCheck, check_ground_truth
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.labels.pool import Pool
from circus_bench.models import POOL_MINI, register
from circus_bench.runs.run import run_benchmark
from circus_bench.sources.scenes import scenes

CUTOFFS = (5, 10, 20)
THRESHOLDS = {
    "text_caught": 0.85,
    "image_caught": 0.97,
    "composition_found": 0.85,
    "best_multimodal": 0.90,
    "agreement": 0.90,
}


def checks(seed: int, weights: Path | None) -> list[GroundTruthCheck]:
    benchmark = scenes(seed)
    runs = []
    for name in POOL_MINI:
        options = {"folder": weights / name.rpartition("-")[2]} if weights else {}
        with tempfile.TemporaryDirectory() as store:
            runs.append(run_benchmark(mteb.get_model(name, **options), benchmark, store=EmbeddingStore(Path(store))))
    pool = Pool.of_runs(runs)
    return [check_ground_truth(benchmark, pool, k=k) for k in CUTOFFS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5, 7])
    parser.add_argument("--weights", type=Path)
    options = parser.parse_args()
    register()
    table = Table("seed", "K", *THRESHOLDS, "decided", "passes")
    passed = True
    for seed in options.seeds:
        for check in checks(seed, options.weights):
            values = {name: getattr(check, name).value for name in THRESHOLDS}
            good = all(values[name] >= threshold for name, threshold in THRESHOLDS.items())
            passed &= good or check.k != 10
            shown = [f"{value:.3f}" for value in values.values()]
            verdict = {True: "yes", False: "no"}[good] if check.k == 10 else ""
            table.add_row(str(seed), str(check.k), *shown, str(check.agreement.n), verdict)
    Console(width=120).print(table)
    sys.exit(not passed)


if __name__ == "__main__":
    main()
