"""Run the whole RMIR pipeline on the synthetic world, offline, and evaluate every stage against the ground truth.

The numbers show what the stages do to the errors that were put in; the errors themselves are made up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench._typing import StrPath
from circus_bench.audit.audit import Audit, audit_runs
from circus_bench.audit.groups import GroupedAudit, audit_by_group
from circus_bench.audit.report import write_report
from circus_bench.audit.statistics import Estimate
from circus_bench.benchmark import Benchmark
from circus_bench.demo.rmir_ground_truth import (
    DraftQuality,
    LabelQuality,
    PanelQuality,
    TsrCheck,
    candidate_recall,
    draft_quality,
    quality_by_panel,
    quality_by_stage,
    tsr_by_list,
    votes_of,
)
from circus_bench.demo.rmir_setup import (
    DemoSettings,
    all_judges,
    mixed_panel,
    paper_panel,
    run_pipeline,
    synthetic_provider,
)
from circus_bench.demo.world.collection import World, make_world
from circus_bench.demo.world.reader_model import ReaderModel
from circus_bench.demo.world.synthetic_judges import SyntheticClient, family_of
from circus_bench.demo.world.truth import ground_truth_pairs
from circus_bench.errors import CircusError
from circus_bench.io import slug, to_plain, write_json
from circus_bench.rmir.export import benchmark_of, write_release
from circus_bench.rmir.judge_analysis import JudgeReport, judge_report
from circus_bench.rmir.pipeline import Stage, Watch
from circus_bench.rmir.records import Candidate, Draft, Split, SplitAssignment, Vote

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol

MINI, READER = "mini encoders", "reader"
"""Pools that the demo's benchmark is audited with: trained encoders that know nothing of the world, and one model that
understands its questions."""


@dataclass(frozen=True)
class PoolAudit:
    """Shortcut audit of the test split with one pool.

    Attributes:
        audit: labels, sensitivity and scores.
        by_category: labels and hit rates by category, micro and macro.
    """

    audit: Audit = field(repr=False)
    by_category: GroupedAudit

    def to_dict(self) -> dict[str, Any]:
        """Convert to strict JSON, the categories beside the audit's numbers."""
        return {**self.audit.to_dict(), "by_category": self.by_category.to_dict()}


@dataclass(frozen=True)
class DemoReport:
    """Results of the demo.

    Attributes:
        settings: of the world and the errors.
        images: number of images in the collection.
        drafted: drafts of stages 1 and 2 against the ground truth.
        found: index, or `both`, to the share of the right pairs that stage 3 proposes.
        stages: labels against the ground truth before stage 5, and after stages 5, 6 and 7.
        panels: name of a panel to its outcome.
        tsr: way of computing TSR to its validity against the pool's false negatives.
        judges: analysis of a panel of both families.
        replies: number of results per synthetic model and type, in this run.
        benchmark: the test split.
        audits: `MINI` and `READER` to the shortcut audit of it.
    """

    settings: DemoSettings
    images: int
    drafted: DraftQuality
    found: Mapping[str, Estimate]
    stages: Mapping[str, LabelQuality]
    panels: Mapping[str, PanelQuality]
    tsr: Mapping[str, TsrCheck]
    judges: JudgeReport
    replies: Mapping[str, int]
    benchmark: Benchmark = field(repr=False)
    audits: Mapping[str, PoolAudit]

    def to_dict(self) -> dict[str, Any]:
        """Convert to strict JSON. The replies are left out: a repeated run requests nothing."""
        left_out = {"replies", "benchmark"}
        names = [entry.name for entry in dataclasses.fields(self) if entry.name not in left_out]
        return {name: to_plain(getattr(self, name)) for name in names}


def run_demo(
    out: StrPath,
    *,
    settings: DemoSettings | None = None,
    k: int = 10,
    pools: Collection[str] = (MINI, READER),
    watch: Watch = lambda *_: None,
) -> DemoReport:
    """Run all stages, evaluate them against the ground truth, and audit the resulting benchmark.

    The folder holds the stages' outputs (`pipeline`), the dataset folder (`dataset`), for each pool
    of the audit its Runs, labels and report (`audit-...`), and `demo.json`. A demo that was stopped goes on. The same
    settings give the same `demo.json`.

    Args:
        out: the folder.
        settings: of the world and the errors.
        k: the audit's cut-off.
        pools: pools to audit the benchmark with.
        watch: called with the progress.

    Raises:
        CircusError: no query is left, as with judges that err too much.
    """
    out, settings = Path(out), settings or DemoSettings()
    watch("drawing", 0, 1)
    world = make_world(settings.seed, settings.views, fewest=settings.fewest)
    watch("drawing", 1, 1)
    client = SyntheticClient(synthetic_provider(world, settings))
    main = run_pipeline(world, settings, out / "pipeline", client=client, panel=paper_panel(), watch=watch)
    whole = run_pipeline(
        world, settings, out / "pipeline", client=client, panel=all_judges(), watch=watch, last=Stage.JUDGE
    )
    drafts = main.rows(Stage.FILTER, Draft)
    truth = ground_truth_pairs(world, drafts)
    votes = whole.rows(Stage.JUDGE, Vote)
    assigned = main.rows(Stage.SPLIT, SplitAssignment)
    if not any(row.split is Split.TEST for row in assigned):
        raise CircusError("the demo's judges left no query; let them err less")
    benchmark = benchmark_of(main)
    write_release(main, out / "dataset")
    report = DemoReport(
        settings=settings,
        images=len(world.images),
        drafted=draft_quality(main.rows(Stage.GENERATE, Draft), drafts),
        found=candidate_recall(truth, main.rows(Stage.CANDIDATES, Candidate)),
        stages=quality_by_stage(world, main, truth),
        panels=quality_by_panel(truth, votes),
        tsr=tsr_by_list(main, truth),
        judges=judge_report(votes_of(votes, mixed_panel()), family_of=family_of),
        replies=dict(client.tally),
        benchmark=benchmark,
        audits={
            name: audited(benchmark, encoders, out / f"audit-{slug(name)}", k=k, watch=watch)
            for name, encoders in _pools(world, settings, pools).items()
        },
    )
    write_json(out / "demo.json", report.to_dict())
    return report


def audited(
    benchmark: Benchmark, encoders: Mapping[str, EncoderProtocol], out: Path, *, k: int, watch: Watch
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
    audit.labels.save(out / "labels.parquet")
    write_report(audit, out / "report.html", benchmark=benchmark)
    return PoolAudit(audit, audit_by_group(audit, benchmark))


def _pools(world: World, settings: DemoSettings, wanted: Collection[str]) -> dict[str, dict[str, EncoderProtocol]]:
    from circus_bench.models import POOL_MINI, load_encoder

    found: dict[str, dict[str, EncoderProtocol]] = {}
    if MINI in wanted:
        found[MINI] = {name: load_encoder(name) for name in POOL_MINI}
    if READER in wanted:
        reader: Any = ReaderModel(world, seed=settings.seed)
        found[READER] = {reader.mteb_model_meta.name: reader}
    return found
