"""`circus-bench rmir compare-judges|check|calibrate`: evaluate the judges and TSR of a benchmark of the pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circus_bench.cli.options import BenchmarkArgument, DataOption, ImagesOption
from circus_bench.cli.output import number, percent, print_json, print_table, warn
from circus_bench.validation.decisions import DecisionRule

if TYPE_CHECKING:
    from circus_bench.rmir.judge_analysis import ConsensusChange, JudgeReport
    from circus_bench.rmir.tsr_validity import TsrValidity


def compare_judges(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The settings.", exists=True, dir_okay=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the pipeline.", file_okay=False)] = Path("rmir"),
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the judges of stage 4: rates, agreement, and the result of leave-one-out. Requests nothing."""
    from circus_bench.api.chat.providers import split_model
    from circus_bench.rmir.config import Config
    from circus_bench.rmir.judge_analysis import judge_report
    from circus_bench.rmir.pipeline import Stage
    from circus_bench.rmir.records import Vote
    from circus_bench.rmir.resources import open_pipeline

    settings = Config.read(config)
    with open_pipeline(settings, out) as pipeline:
        votes = pipeline.rows(Stage.JUDGE, Vote)
    found = judge_report(
        votes,
        family_of=lambda judge: split_model(judge, named=settings.providers)[0],
        confidence=settings.keep.confidence,
    )
    if json:
        print_json(found.to_dict())
    else:
        print_judges(found)


def check(
    benchmark: BenchmarkArgument,
    runs: Annotated[
        list[Path], typer.Option("--run", help="Folder of a Run, whose retrieved images are checked.", exists=True)
    ],
    rater: Annotated[list[str], typer.Option("--rater", "-r", help="Id of a rater; repeatable.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the study.")],
    queries: Annotated[int | None, typer.Option(min=1, help="Queries sampled at random.", show_default="all")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Retrieved images of each Run.")] = 10,
    per_item: Annotated[int, typer.Option(min=2, help="Raters of each image.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of all sampling.")] = 0,
    data: DataOption = None,
    images: ImagesOption = None,
) -> None:
    """Make a study that finds false negatives: does an image that models retrieve answer the query?

    `circus-bench validate serve STUDY` shows it to the raters, `circus-bench rmir calibrate STUDY` tells the outcome.
    """
    from circus_bench.hub.loading import load_benchmark
    from circus_bench.hub.writer import save_benchmark
    from circus_bench.rmir.tsr_validity import NOTHING_TO_CHECK, answer_study, pairs_benchmark
    from circus_bench.runs.run import Run

    source, loaded = load_benchmark(benchmark, data=data, images=images), [Run.load(folder) for folder in runs]
    pairs = pairs_benchmark(source, loaded, queries=queries, k=k, seed=seed)
    save_benchmark(pairs, out / "pairs")
    answer_study(pairs, "pairs", raters=rater, per_item=per_item, seed=seed).save(out)
    checked = len({query.details["query"] for query in pairs.queries})
    settled = len(pairs.source[NOTHING_TO_CHECK])
    typer.echo(
        f"{len(pairs.queries):,} images of {checked:,} queries are to be judged; of {settled:,} queries all retrieved "
        f"images are labeled. The study is in {out}"
    )


def calibrate(
    studies: Annotated[list[Path], typer.Argument(metavar="STUDY...", help="Folders of studies.", exists=True)],
    rule: Annotated[DecisionRule, typer.Option(help="How annotations come to a decision.")] = DecisionRule.MAJORITY,
    quorum: Annotated[int, typer.Option(min=1, help="Raters that an image needs to be decided.")] = 2,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Calibrate TSR against the false negatives that people found. Give the studies of both splits together."""
    from circus_bench.errors import format_ids
    from circus_bench.rmir.tsr_validity import checked_validity, incomplete_queries
    from circus_bench.validation.decisions import decide
    from circus_bench.validation.export import load_annotations
    from circus_bench.validation.study import Study
    from circus_bench.validation.study_benchmarks import load_benchmarks

    checked, left_out = [], []
    for folder in studies:
        study = Study.load(folder)
        decisions = decide(study, load_annotations(folder), rule=rule, quorum=quorum)
        for pairs in load_benchmarks(study, folder).values():
            checked.append((pairs, decisions))
            known = incomplete_queries(pairs, decisions)
            left_out += sorted({str(query.details["query"]) for query in pairs.queries} - known.keys())
    found = checked_validity(checked)
    if json:
        print_json(found.to_dict())
    else:
        print_validity(found)
    if left_out:
        warn(f"queries whose images are not all decided are left out ({format_ids(left_out)})")


def print_validity(found: TsrValidity) -> None:
    """Print the calibration of TSR."""
    print_table(
        "queries of a TSR, and % of them with a false negative [95 %]",
        ["TSR", "queries", "incomplete"],
        [
            *(
                [f"{entry.low:.3f} to {entry.high:.3f}", str(entry.incomplete.n), percent(entry.incomplete)]
                for entry in found.bins
            ),
            *([f"at least {least:g}", str(share.n), percent(share)] for least, share in found.thresholds.items()),
        ],
    )
    typer.echo(
        f"chance that a complete query has the greater TSR of two: {number(found.concordance)}; 0.5 tells nothing"
    )


def print_judges(judges: JudgeReport) -> None:
    """Print the analysis of a panel."""
    print_table(
        "judges: votes in %, and what is kept without each of them",
        ["judge", "accept", "abstain", *_KEPT],
        [
            [judge, percent(rates.accept), percent(rates.abstain), *_kept(judges.leave_one_out[judge])]
            for judge, rates in judges.rates.items()
        ],
    )
    agreement = ", ".join(f"{name} {number(found.estimate)}" for name, found in judges.agreement.items())
    typer.echo(f"agreement of all judges: {agreement}\n")
    families = judges.families
    if families is None:
        return
    typer.echo(
        f"equal votes of two judges of one family: {percent(families.within)} %, of two: {percent(families.between)} %"
    )
    print_table(
        "families: votes in %, what all accept and no other judge does, and what is kept if only one judges",
        ["family", "judges", "accept", "contradicted", *_KEPT],
        [
            [
                family,
                str(count),
                percent(families.accept[family]),
                percent(families.contradicted[family]),
                *_kept(families.alone[family]),
            ]
            for family, count in families.judges.items()
        ],
    )


_KEPT = ("queries", "positives", "gained", "lost", "deleted")


def _kept(change: ConsensusChange) -> list[str]:
    return [str(getattr(change, name)) for name in _KEPT]
