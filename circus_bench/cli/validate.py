"""`circus-bench validate`: human validation, from drawing queries to the subset V."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circus_bench.cli.options import BenchmarkArguments, DataOption, ImagesOption
from circus_bench.cli.output import number, percent, print_json, print_table, progress, warn
from circus_bench.validation.decisions import DecisionRule

if TYPE_CHECKING:
    from circus_bench.demo.simulated_raters import Recovery
    from circus_bench.validation.decisions import Decision
    from circus_bench.validation.study import Study

app = typer.Typer(help="Human validation: draw queries, judge them blindly, measure agreement, export the subset V.")


_Study = Annotated[Path, typer.Argument(metavar="STUDY", help="Folder of a study.", exists=True, file_okay=False)]
_Database = Annotated[
    str | None, typer.Option(help="The app's database: a file or a URL.", show_default="STUDY/judgements.sqlite")
]
_Log = Annotated[
    Path | None,
    typer.Option("--judgements", help="A log of annotations as JSON lines instead.", exists=True, dir_okay=False),
]
_Rule = Annotated[DecisionRule, typer.Option(help="Rule by which annotations are aggregated.")]
_Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn.")]
_PerItem = Annotated[int, typer.Option(min=2, help="Raters per item.")]
_PanelK = Annotated[int, typer.Option(min=1, help="Retrieved images per model in a candidate panel.")]
_Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


@app.command()
def new(
    benchmarks: BenchmarkArguments,
    labels: Annotated[
        list[Path], typer.Option(help="Labels of an audit or a release, one file per benchmark, in order.", exists=True)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the study.")],
    rater: Annotated[list[str], typer.Option("--rater", "-r", help="Id of a rater; repeatable.")],
    runs: Annotated[
        list[Path] | None, typer.Option("--run", help="Folder of a Run, for the candidate panels; repeatable.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the study.")] = "validation",
    seed: _Seed = 0,
    per_stratum: Annotated[int | None, typer.Option(min=1, help="Items drawn per stratum.", show_default="all")] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(metavar="STRATUM=N", help="Items of a stratum such as cirr/unresolved; the others are complete."),
    ] = None,
    per_item: _PerItem = 3,
    common: Annotated[int, typer.Option(min=0, help="Items that all raters judge.")] = 0,
    checks: Annotated[
        Path | None,
        typer.Option(help='JSON of "BENCHMARK::QUERY": "LABEL", mixed in to see who is careful.', exists=True),
    ] = None,
    training: Annotated[
        Path | None, typer.Option(help="JSON likewise, of items shown first, with feedback.", exists=True)
    ] = None,
    rubric: Annotated[Path | None, typer.Option(help="TOML of another rubric.", exists=True, dir_okay=False)] = None,
    breadth: Annotated[
        int | None, typer.Option(min=1, help="Other answers from which on a query is too broad.", show_default="10")
    ] = None,
    panel_k: _PanelK = 10,
    data: DataOption = None,
    images: ImagesOption = None,
    json: _Json = False,
) -> None:
    """Draw shortcut-free queries, make their candidate panels, and assign them to raters blindly."""
    from circus_bench.hub.loading import load_labeled_benchmark
    from circus_bench.labels.formats import load_labels
    from circus_bench.runs.run import Run
    from circus_bench.validation.rubric import CIRCUS_RUBRIC, load_rubric
    from circus_bench.validation.sampling import SamplingFrame, labels_of, read_gold_labels, sample_study
    from circus_bench.validation.study_benchmarks import place_in_study

    if len(labels) != len(benchmarks):
        raise typer.BadParameter(f"{len(benchmarks)} benchmarks need as many files of labels, not {len(labels)}")
    if per_stratum and size:
        raise typer.BadParameter("give --per-stratum or --size, not both")
    gold = {"checks": checks, "training": training}
    known = {kind: read_gold_labels(path) if path else {} for kind, path in gold.items()}
    pool = [Run.load(folder) for folder in runs or ()]
    frames = []
    for text, path in zip(benchmarks, labels, strict=True):
        part = load_labeled_benchmark(text, data=data, images=images)
        source = part.benchmark
        frames.append(
            SamplingFrame(
                source,
                place_in_study(text, part, out),
                labels_of(source, load_labels(path, benchmark=source.name)),
                runs=[run for run in pool if run.manifest.benchmark == source.name],
                **{kind: answers.get(source.name, {}) for kind, answers in known.items()},
            )
        )
    study = sample_study(
        name,
        frames,
        raters=rater,
        rubric=load_rubric(rubric or CIRCUS_RUBRIC, breadth=breadth),
        seed=seed,
        sizes=per_stratum or (_sizes(size) if size else None),
        per_item=per_item,
        common=common,
        panel_k=panel_k,
    )
    study.save(out)
    if not pool:
        warn("there are no candidate panels, so nobody can judge how broad a query is; give the pool's Runs with --run")
    _print_study(study, out, json=json)


@app.command("import")
def import_(
    files: Annotated[
        list[Path], typer.Argument(help="Annotation files that CIRCUS released, one per rater.", exists=True)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the study.")],
    manifest: Annotated[
        Path | None, typer.Option(help="The study's manifest.json, for the inclusion probabilities.", exists=True)
    ] = None,
    json: _Json = False,
) -> None:
    """Read released annotation files as a study and a log of annotations.

    Most of the released queries have one rater: export them with --quorum 1.
    """
    from circus_bench.errors import format_ids
    from circus_bench.validation.annotations import LOG_FILE, write_annotations
    from circus_bench.validation.released import read_released

    released = read_released(files, manifest=manifest)
    released.study.save(out)
    write_annotations(out / LOG_FILE, released.annotations)
    if released.unjudged:
        warn(f"assignments without an annotation ({format_ids(released.unjudged)})")
    _print_study(released.study, out, json=json)


@app.command()
def export(
    study: _Study,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file: .parquet or .json.")],
    database: _Database = None,
    annotations: _Log = None,
    benchmark: Annotated[str, typer.Option(help="Which of the study's benchmarks, where it has several.")] = "",
    rule: _Rule = DecisionRule.MAJORITY,
    quorum: Annotated[int, typer.Option(min=1, help="Raters that an item needs to be decided.")] = 2,
    certainty: Annotated[
        float, typer.Option(min=0.5, max=1, help="For dawid_skene: posterior needed to be decided.")
    ] = 0.5,
    json: _Json = False,
) -> None:
    """Decide each query and write the verdicts, which `data make --valid` and `score --valid` take for the subset V."""
    from circus_bench.validation.decisions import decide
    from circus_bench.validation.export import export_verdicts, load_annotations
    from circus_bench.validation.study import Study
    from circus_bench.validation.study_benchmarks import load_benchmarks

    made = Study.load(study)
    log = load_annotations(study, database=database, log=annotations)
    decisions = decide(made, log, rule=rule, quorum=quorum, certainty=certainty)
    sources = load_benchmarks(made, study)
    name = export_verdicts(out, made, decisions, benchmark=benchmark, sources=sources, rule=rule)
    _print_decisions([decision for decision in decisions if decision.benchmark == name], out, json=json)


@app.command()
def agreement(
    study: _Study,
    database: _Database = None,
    annotations: _Log = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the agreement of each rater with each other one: an .svg file.")
    ] = None,
    json: _Json = False,
) -> None:
    """Measure inter-annotator agreement on the label, on validity and on each question, and find rater anomalies."""
    from circus_bench.validation.agreement import rater_matrix, study_agreement, survival
    from circus_bench.validation.export import agreement_dict, load_annotations
    from circus_bench.validation.figures import write_rater_matrix
    from circus_bench.validation.rater_anomalies import find_anomalies
    from circus_bench.validation.ratings import label_ratings
    from circus_bench.validation.study import Study

    made = Study.load(study)
    log = load_annotations(study, database=database, log=annotations)
    table, labels = study_agreement(made, log), label_ratings(made, log)
    survives, patterns = survival(labels, made.rubric.valid), find_anomalies(made, log)
    if figure:
        write_rater_matrix(figure, rater_matrix(labels))
    for found in patterns:
        warn(f"{found.pattern}: {found.message}")
    if json:
        content = {"study": made.name, "agreement": agreement_dict(table), "survival": survives.to_dict()}
        print_json({**content, "suspicions": [dataclasses.asdict(found) for found in patterns]})
        return
    print_agreement(made, table)
    typer.echo(f"a single rater's {made.rubric.valid} is also the majority's, % [95 %]: {percent(survives)}")


@app.command()
def simulate(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the study and what becomes of it.")],
    benchmark: Annotated[
        str | None, typer.Option(help="A scenes benchmark, such as demo/benchmark.", show_default="a new one, in OUT")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Labels of an audit of it.", show_default="what an ideal pool would say", exists=True),
    ] = None,
    runs: Annotated[list[Path] | None, typer.Option("--run", help="Folder of a Run, for the candidate panels.")] = None,
    errors: Annotated[
        list[float] | None,
        typer.Option("--error", min=0, max=1, help="Chance of a rater to err; repeatable.", show_default="0.1, 0.25"),
    ] = None,
    raters: Annotated[int, typer.Option(min=2, help="Number of raters.")] = 3,
    per_item: _PerItem = 3,
    rule: _Rule = DecisionRule.MAJORITY,
    seed: _Seed = 0,
    json: _Json = False,
) -> None:
    """Simulate raters of known error rates on synthetic queries, and evaluate the subset V against the ground truth."""
    from circus_bench.demo.simulated_raters import SceneGroundTruth, expected_labels, simulate_study
    from circus_bench.hub.loading import load_labeled_benchmark
    from circus_bench.hub.tables import LabeledBenchmark
    from circus_bench.labels.formats import load_labels
    from circus_bench.runs.run import Run
    from circus_bench.sources.scenes import scenes
    from circus_bench.validation.sampling import SamplingFrame, labels_of, sample_study
    from circus_bench.validation.study_benchmarks import place_in_study

    part = load_labeled_benchmark(benchmark) if benchmark else LabeledBenchmark(scenes())
    source = part.benchmark
    with progress("benchmark", len(source.image_ids)) as advance:
        source.inspect(advance=advance)
    found = labels_of(source, load_labels(labels, benchmark=source.name)) if labels else expected_labels(source)
    frame = SamplingFrame(
        source,
        place_in_study(benchmark or "scenes/test", part, out),
        found,
        runs=[Run.load(folder) for folder in runs or ()],
    )
    names = [f"rater-{place}" for place in range(1, raters + 1)]
    study = sample_study("simulated raters", [frame], raters=names, per_item=per_item, seed=seed)
    study.save(out)
    truth, sources = {source.name: SceneGroundTruth(source)}, {source.name: source}
    made = [simulate_study(study, truth, error=error, seed=seed, rule=rule) for error in errors or (0.1, 0.25)]
    for simulated in made:
        simulated.save(out / f"error-{simulated.error:g}", sources)
    if json:
        print_json({"study": study.name, "rehearsals": [simulated.to_dict() for simulated in made]})
        return
    _print_study(study, out, json=False)
    for simulated in made:
        print_agreement(
            study, simulated.agreement, title=f"agreement of raters who err with chance {simulated.error:g}"
        )
    print_recovery({f"{simulated.error:g}": simulated.recovery for simulated in made}, per_item=per_item)


@app.command()
def serve(
    study: _Study,
    database: _Database = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")] = 8000,
    backup_every: Annotated[int, typer.Option(min=1, help="Annotations after which a backup is made.")] = 50,
    hub_repo: Annotated[
        str | None,
        typer.Option(metavar="ORG/NAME", help="Private dataset on the Hub that the log is committed to now and then."),
    ] = None,
) -> None:
    """Serve the annotation app until it is stopped. Needs the extra `annotate`."""
    from circus_bench.validation.app import serve as serve_app

    serve_app(study, database=database, host=host, port=port, backup_every=backup_every, hub_repo=hub_repo)


@app.command()
def invite(
    study: _Study,
    person: Annotated[str, typer.Argument(help="Id of a rater, or the name of an adjudicator or owner.")],
    role: Annotated[str, typer.Option(help="rater, adjudicator or owner.")] = "rater",
    database: _Database = None,
    url: Annotated[str, typer.Option(help="Where the app is served.")] = "http://127.0.0.1:8000",
) -> None:
    """Make a personal sign-in link. It is shown this once; a former link of the person stops working."""
    from circus_bench.validation.app import open_log, sign_in_link

    with closing(open_log(study, database=database)) as log:
        typer.echo(sign_in_link(log.invite(person, role), url))


def print_agreement(study: Study, table: Mapping[str, Mapping[Any, Any]], *, title: str = "agreement") -> None:
    """Print coefficients of agreement on the label, on validity and on each step of the rubric."""
    questions = {"label": "label", study.rubric.valid: f"{study.rubric.valid} or not"}
    questions |= {step.id: f"flag: {step.id}" for step in study.rubric.steps}
    statistics = list(table["label"])
    rows = [
        [
            name,
            str(table[question][statistics[0]].estimate.n),
            *(
                number(coefficient.estimate) if coefficient.status == "ok" else f"undefined: {coefficient.status}"
                for coefficient in table[question].values()
            ),
        ]
        for question, name in questions.items()
    ]
    print_table(f"{title} [95 %]", ["on", "items", *statistics], rows)


def print_recovery(found: Mapping[str, Recovery], *, per_item: int) -> None:
    """Print precision and recall of V against the ground truth, by the raters' chance to err."""
    rows = [
        [error, str(of.precision.n), percent(of.precision), str(of.recall.n), percent(of.recall), str(of.undecided)]
        for error, of in found.items()
    ]
    header = ["chance to err", "in V", "precision", "truly valid", "recall", "undecided"]
    print_table(f"V against the ground truth, {per_item} simulated raters per item, % [95 %]", header, rows)


def _sizes(given: list[str]) -> dict[str, int]:
    sizes = {}
    for entry in given:
        stratum, separator, n = entry.rpartition("=")
        if not (separator and n.isdecimal()):
            raise typer.BadParameter(f"{entry!r} is not of the form STRATUM=N", param_hint="--size")
        sizes[stratum] = int(n)
    return sizes


def _print_study(study: Study, out: Path, *, json: bool) -> None:
    from circus_bench.validation.sampling import summarize_strata

    strata, loads = summarize_strata(study), {rater: len(ids) for rater, ids in study.assignments.items()}
    if json:
        print_json({"study": study.name, "strata": strata, "assignments": loads})
        return
    rows = [[name, f"{of['items']:,}", f"{of['inclusion']:.3f}"] for name, of in strata.items()]
    print_table(f"study {study.name!r}: {out}", ["stratum", "items", "drawn with probability"], rows)
    typer.echo("items of each rater: " + ", ".join(f"{rater} {n:,}" for rater, n in loads.items()))


def _print_decisions(decisions: list[Decision], out: Path, *, json: bool) -> None:
    from circus_bench.validation.estimates import validity_shares

    shares = validity_shares(decisions)
    if json:
        print_json(
            {
                "strata": {name: share.to_dict() for name, share in shares.strata.items()},
                "overall": shares.overall.to_dict(),
                "undecided": dict(shares.undecided),
            }
        )
        return
    rows = [
        [name, str(share.n), percent(share), str(shares.undecided[name]), f"{shares.sizes[name]:,.0f}"]
        for name, share in shares.strata.items()
    ]
    rows.append(["all, weighted", "", percent(shares.overall), "", f"{sum(shares.sizes.values()):,.0f}"])
    header = ["stratum", "decided", "valid, % [95 %]", "undecided", "queries it stands for"]
    print_table(f"verdicts: {out}", header, rows)
