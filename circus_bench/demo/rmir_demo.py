"""The whole pipeline on the embedded world, offline, held against the truth at every stage.

What the numbers show is what the stages do to the errors that were put in; the errors themselves are made up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench.audit.audit import Audit, audit_runs
from circus_bench.audit.groups import GroupedAudit, audit_by_group
from circus_bench.audit.report import write_report
from circus_bench.audit.statistics import Estimate
from circus_bench.benchmark import Benchmark
from circus_bench.demo.rmir_ground_truth import (
    Account,
    Drafted,
    Panel,
    TsrCheck,
    drafted,
    found_by,
    panels_against,
    stages_against,
    tsr_against,
    votes_of,
)
from circus_bench.demo.rmir_setup import (
    Counted,
    DemoSettings,
    all_judges,
    mixed_panel,
    oracles,
    paper_panel,
    run_pipeline,
)
from circus_bench.demo.world.collection import World, make_world
from circus_bench.demo.world.reader_model import Reader
from circus_bench.demo.world.synthetic_judges import OracleAsker, family_of
from circus_bench.demo.world.truth import correct_pairs
from circus_bench.errors import CircusError
from circus_bench.io import slug, write_json
from circus_bench.rmir.export import benchmark_of, save_all
from circus_bench.rmir.judge_analysis import JudgeReport, judge_report
from circus_bench.rmir.pipeline import Stage
from circus_bench.rmir.records import Assigned, Candidate, Draft, Split, Vote

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol

MINI, READER = "mini encoders", "reader"
"""The pools that the demo's benchmark is audited with: trained encoders that know nothing of the world, and one model
that understands its questions."""


@dataclass(frozen=True)
class PoolAudit:
    """The shortcut audit of the test split with one pool.

    Attributes:
        audit: labels, sensitivity and scores.
        by_category: labels and hit rates by category, micro and macro.
    """

    audit: Audit = field(repr=False)
    by_category: GroupedAudit

    def to_dict(self) -> dict[str, Any]:
        """For strict JSON."""
        return {**self.audit.to_dict(), "by_category": self.by_category.to_dict()}


@dataclass(frozen=True)
class DemoReport:
    """All that the demo finds.

    Attributes:
        settings: what it was made of.
        images: in the collection.
        drafted: stages 1 and 2.
        found: index, or `both`, to the share of the right pairs that stage 3 proposes.
        stages: labels against the truth before stage 5, and after stages 5, 6 and 7.
        panels: name of a panel to its outcome.
        tsr: way of computing TSR to how it goes together with the positives that the pool's labels miss.
        judges: analytics of a panel of both families.
        replies: how often each oracle gave each kind of outcome, in this run.
        benchmark: the test split.
        audits: `MINI` and `READER` to the shortcut audit of it.
    """

    settings: DemoSettings
    images: int
    drafted: Drafted
    found: Mapping[str, Estimate]
    stages: Mapping[str, Account]
    panels: Mapping[str, Panel]
    tsr: Mapping[str, TsrCheck]
    judges: JudgeReport
    replies: Mapping[str, int]
    benchmark: Benchmark = field(repr=False)
    audits: Mapping[str, PoolAudit]

    def to_dict(self) -> dict[str, Any]:
        """For strict JSON. The replies are left out: a repeated run asks nothing."""
        return {
            "settings": dataclasses.asdict(self.settings),
            "images": self.images,
            "drafted": self.drafted.to_dict(),
            "found": {index: share.to_dict() for index, share in self.found.items()},
            "stages": {name: entry.to_dict() for name, entry in self.stages.items()},
            "panels": {name: entry.to_dict() for name, entry in self.panels.items()},
            "tsr": {way: check.to_dict() for way, check in self.tsr.items()},
            "judges": self.judges.to_dict(),
            "audits": {name: entry.to_dict() for name, entry in self.audits.items()},
        }


def run_demo(
    out: Path,
    *,
    settings: DemoSettings | None = None,
    k: int = 10,
    pools: Collection[str] = (MINI, READER),
    watch: Counted = lambda *_: None,
) -> DemoReport:
    """Run all stages, hold them against the truth, and audit the benchmark that comes out.

    The folder holds the stages' outcomes (`pipeline`), what `circus_bench.rmir.export.save_all` writes, for each pool
    of the audit its Runs, labels and report (`audit-...`), and `demo.json`. A demo that was stopped goes on. The same
    settings give the same `demo.json`.

    Args:
        out: the folder.
        settings: what it is made of.
        k: the audit's cut-off.
        pools: what to audit the benchmark with.
        watch: told of the progress.

    Raises:
        CircusError: no query is left, as with oracles that err too much.
    """
    settings = settings or DemoSettings()
    watch("drawing", 0, 1)
    world = make_world(settings.seed, settings.views, fewest=settings.fewest)
    watch("drawing", 1, 1)
    asker = OracleAsker(oracles(world, settings))
    main = run_pipeline(world, settings, out / "pipeline", asker=asker, panel=paper_panel(), watch=watch)
    whole = run_pipeline(
        world, settings, out / "pipeline", asker=asker, panel=all_judges(), watch=watch, last=Stage.JUDGE
    )
    drafts = main.rows(Stage.FILTER, Draft)
    truth = correct_pairs(world, drafts)
    votes = whole.rows(Stage.JUDGE, Vote)
    assigned = main.rows(Stage.SPLIT, Assigned)
    if not any(row.split is Split.TEST for row in assigned):
        raise CircusError("the demo's judges left no query; let them err less")
    benchmark = benchmark_of(main)
    save_all(main, out)
    report = DemoReport(
        settings=settings,
        images=len(world.images),
        drafted=drafted(main.rows(Stage.GENERATE, Draft), drafts),
        found=found_by(truth, main.rows(Stage.CANDIDATES, Candidate)),
        stages=stages_against(world, main, truth),
        panels=panels_against(truth, votes),
        tsr=tsr_against(main, truth),
        judges=judge_report(votes_of(votes, mixed_panel()), family_of=family_of),
        replies=dict(asker.tally),
        benchmark=benchmark,
        audits={
            name: audited(benchmark, encoders, out / f"audit-{slug(name)}", k=k, watch=watch)
            for name, encoders in _pools(world, settings, pools).items()
        },
    )
    write_json(out / "demo.json", report.to_dict())
    return report


def audited(
    benchmark: Benchmark, encoders: Mapping[str, EncoderProtocol], out: Path, *, k: int, watch: Counted
) -> PoolAudit:
    """Run a pool on a benchmark, audit it, and write the Runs, the labels and the report."""
    from circus_bench.encoding.embedding_store import EmbeddingStore
    from circus_bench.runs.run import n_inputs, run_benchmark

    runs = []
    for name, encoder in encoders.items():
        total, done = n_inputs(benchmark), 0

        def advance(steps: int, name: str = name, total: int = total) -> None:
            nonlocal done
            done += steps
            watch(name, done, total)

        run = run_benchmark(encoder, benchmark, store=EmbeddingStore(out / "embeddings"), advance=advance)
        run.save(out / "runs" / slug(name))
        runs.append(run)
    audit = audit_runs(runs, k=k)
    audit.save_labels(out / "labels.parquet")
    write_report(audit, out / "report.html", benchmark=benchmark)
    return PoolAudit(audit, audit_by_group(audit, benchmark))


def _pools(world: World, settings: DemoSettings, wanted: Collection[str]) -> dict[str, dict[str, EncoderProtocol]]:
    from circus_bench.models import POOL_MINI, load_encoder

    found: dict[str, dict[str, EncoderProtocol]] = {}
    if MINI in wanted:
        found[MINI] = {name: load_encoder(name) for name in POOL_MINI}
    if READER in wanted:
        reader: Any = Reader(world, seed=settings.seed)
        found[READER] = {reader.mteb_model_meta.name: reader}
    return found
