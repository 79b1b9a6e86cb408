"""`circus-bench demo`: the whole chain on the embedded benchmark with the embedded models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circus_bench.cli.output import percent, print_audit, print_json, print_table, progress
from circus_bench.cli.validate import print_agreement, print_recovery

if TYPE_CHECKING:
    from circus_bench.audit.audit import Audit
    from circus_bench.benchmark import Benchmark
    from circus_bench.demo.ground_truth import GroundTruthCheck


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for everything that is made.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the benchmark.")] = 7,
    queries: Annotated[int, typer.Option(min=40, help="Number of queries.")] = 600,
    gallery: Annotated[int, typer.Option(min=400, help="Number of gallery images.")] = 3000,
    k: Annotated[int, typer.Option("-k", min=1, help="Rank up to which a query counts as solved.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Render a benchmark of known truth, run three small trained encoders on it, audit it, and write a report.

    At the end three simulated raters, who err with chance 0.1, judge the shortcut-free queries. Needs no network and no
    GPU. Leaves the benchmark, the Runs, the labels, the validation and report.html in OUT.
    """
    from circus_bench.audit.audit import audit_runs
    from circus_bench.audit.report import write_report
    from circus_bench.demo.ground_truth import check_ground_truth
    from circus_bench.demo.simulated_raters import simulate_validation
    from circus_bench.encoding.embedding_store import EmbeddingStore
    from circus_bench.hub.writer import save_benchmark
    from circus_bench.io import slug, to_plain
    from circus_bench.models import POOL_MINI, load_encoder
    from circus_bench.runs.run import n_inputs, run_benchmark
    from circus_bench.sources.scenes import scenes

    benchmark = scenes(seed, queries, gallery=gallery)
    with progress("benchmark", len(benchmark.image_ids)) as advance:
        benchmark.inspect(advance=advance)
    save_benchmark(benchmark, out / "benchmark")
    runs = []
    for name in POOL_MINI:
        with progress(name, n_inputs(benchmark)) as advance:
            run = run_benchmark(
                load_encoder(name), benchmark, store=EmbeddingStore(out / "embeddings"), advance=advance
            )
        run.save(out / "runs" / slug(name))
        runs.append(run)
    outcome = audit_runs(runs, k=k)
    outcome.labels.save(out / "labels.parquet")
    outcome, validation = simulate_validation(outcome, benchmark, folder="../benchmark", seed=seed)
    validation.study.save(out / "validation")
    validation.save(out / "validation", {benchmark.name: benchmark})
    write_report(outcome, out / "report.html", benchmark=benchmark)
    checks = [check_ground_truth(benchmark, outcome.pool, k=cutoff) for cutoff in sorted({5, k, 20})]
    if json:
        planted = {"confusion": outcome.by_group(benchmark), "checks": to_plain(checks)}
        print_json({**outcome.to_dict(), "planted": planted, "validation": validation.to_dict()})
        return
    _print_planted(outcome, benchmark, checks)
    print_audit(outcome)
    print_agreement(validation.study, validation.agreement, title="agreement of three simulated raters")
    print_recovery({f"{validation.error:g}": validation.recovery}, per_item=3)
    typer.echo(f"report: {out / 'report.html'}")


def _print_planted(audit: Audit, benchmark: Benchmark, checks: list[GroundTruthCheck]) -> None:
    confusion = audit.by_group(benchmark)
    names = sorted({name for row in confusion.values() for name in row}, reverse=True)
    rows = [[kind, *(str(row.get(name, 0)) for name in names)] for kind, row in sorted(confusion.items())]
    print_table(f"planted kind against label at K = {audit.shortcut_labels.k}", ["planted", *names], rows)
    print_table(
        "agreement with the planted truth, % [95 %]",
        ["K", "agreement", "decided", "text caught", "image caught", "composition found", "best multimodal hit"],
        [
            [
                str(check.k),
                percent(check.agreement),
                str(check.agreement.n),
                percent(check.text_caught),
                percent(check.image_caught),
                percent(check.composition_found),
                percent(check.best_multimodal),
            ]
            for check in checks
        ],
    )
