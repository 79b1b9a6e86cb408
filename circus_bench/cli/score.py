"""`circus-bench score`: the scores of Runs on a subset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    json: Annotated[bool, typer.Option("--json", help="Print every metric as JSON.")] = False,
) -> None:
    """Score Runs of one benchmark and protocol: every metric, on full and, with the labels of an audit, on sf.

    With human verdicts besides, on v too: where they are a sample with unequal chances, every query counts for those
    that it stands for.
    """
    from circus_bench.audit.scores import score_run
    from circus_bench.labels.label_table import LabelTable, Subset
    from circus_bench.runs.run import Run, check_comparable

    if valid and not labels:
        raise typer.BadParameter("the validated queries are some of the shortcut-free ones; give --labels too")
    loaded = [Run.load(folder) for folder in runs]
    check_comparable(loaded)
    table = LabelTable.load(labels) if labels else None
    protocol = loaded[0].manifest.protocol
    scores = [score_run(run, k=k) for run in loaded]
    if table:
        scores += [score_run(run, subset=Subset.SF, chosen=table.mask_of(run, Subset.SF), k=k) for run in loaded]
        if valid:
            from circus_bench.labels.formats import read_verdicts

            queries = loaded[0].queries
            verdicts = read_verdicts(valid, benchmark=loaded[0].manifest.benchmark)
            chosen = table.mask_of(loaded[0], Subset.V, valid=verdicts.valid_among(queries))
            weights = verdicts.weights_of(queries)
            scores += [score_run(run, subset=Subset.V, chosen=chosen, weights=weights, k=k) for run in loaded]
    if json:
        print_json({"protocol": dict(protocol), "scores": [entry.to_dict() for entry in scores]})
    else:
        print_scores(f"hit rate@{k} in %, {protocol['id']}, reference {protocol['reference']}", scores, k=k)
