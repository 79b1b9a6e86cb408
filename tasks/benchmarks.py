"""Define the MTEB benchmarks `CIRCUS` and `RMIR`, for `mteb run -b`."""

from __future__ import annotations

from mteb.benchmarks.benchmark import Benchmark

from circus_bench.tasks.circus_circo import CircusCIRCO
from circus_bench.tasks.circus_cirr import CircusCIRR
from circus_bench.tasks.circus_fashioniq import CircusFashionIQ
from circus_bench.tasks.circus_lasco import CircusLaSCo
from circus_bench.tasks.metadata import CITATION
from circus_bench.tasks.rmir import RMIR


def circus() -> Benchmark:
    """Make the benchmark of the CIRCUS paper: its four tasks."""
    tasks = (CircusCIRR(), CircusFashionIQ(), CircusLaSCo(), CircusCIRCO())
    return Benchmark(
        name="CIRCUS",
        tasks=tasks,
        description=(
            "Composed image retrieval without unimodal shortcuts: CIRR, FashionIQ, LaSCo and CIRCO, on all queries, on "
            "those without a shortcut and on those that people judged valid, with both modalities and with one alone."
        ),
        reference="https://arxiv.org/abs/2605.14787",
        citation=CITATION,
    )


def rmir() -> Benchmark:
    """Make the benchmark of RMIR alone."""
    task = RMIR()
    return Benchmark(
        name="RMIR",
        tasks=(task,),
        description="Image retrieval by an image and a question whose answer takes a step of reasoning.",
        reference=task.metadata.reference,
        citation=task.metadata.bibtex_citation,
    )
