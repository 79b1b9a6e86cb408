"""`circus-bench score`: the scores of Runs on a subset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from circus_bench.cli.options import JsonOption
from circus_bench.cli.output import print_json, print_scores


def score(
    runs: Annotated[list[Path], typer.Argument(help="Folders of Runs.", exists=True, file_okay=False)],
    labels: Annotated[
        Path | None, typer.Option(help="labels.parquet of an audit, for the subset sf.", exists=True, dir_okay=False)
    ] = None,
    valid: Annotated[
        Path | None,
        typer.Option(
            help="Human verdicts (validate export, or a release), for the subset v.", exists=True, dir_okay=False
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Cut-off of the table.")] = 10,
    json: JsonOption = False,
) -> None:
    """Score Runs of one benchmark and protocol: every metric, on full and, with the labels of an audit, on sf.

    With human verdicts besides, on v too: where they are a sample with unequal chances, every query counts for those
    that it stands for.
    """
    from circus_bench.audit.scores import score_run
    from circus_bench.labels.formats import load_labels
    from circus_bench.labels.labels import Subset
    from circus_bench.runs.run import Run, check_comparable

    if valid and not labels:
        raise typer.BadParameter("the validated queries are some of the shortcut-free ones; give --labels too")
    loaded = [Run.load(folder) for folder in runs]
    check_comparable(loaded)
    protocol, name = loaded[0].manifest.protocol, loaded[0].manifest.benchmark
    scores = [score_run(run, k=k) for run in loaded]
    if labels:
        table = load_labels(labels, benchmark=name)
        scores += [score_run(run, subset=Subset.SF, chosen=table.mask(run, Subset.SF), k=k) for run in loaded]
        if valid:
            validation = load_labels(valid, benchmark=name)
            chosen = table.mask(loaded[0], Subset.V, validation=validation)
            weights = validation.weights(loaded[0].queries)
            scores += [score_run(run, subset=Subset.V, chosen=chosen, weights=weights, k=k) for run in loaded]
    if json:
        print_json({"protocol": dict(protocol), "scores": [entry.to_dict() for entry in scores]})
    else:
        print_scores(f"hit rate@{k} in %, {protocol['id']}, reference {protocol['reference']}", scores, k=k)
