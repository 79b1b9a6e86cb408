"""Export the decisions of a study as a file of human verdicts, which `data make` and `score` take for the subset V.

A benchmark's file holds every query that was judged, with the evidence: votes, posterior, weight, reasons, graded
alternatives. What it means is described in docs/formats.md, its columns in `circus_bench.labels.validation_file`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark
from circus_bench.errors import CircusError, MismatchError, format_ids
from circus_bench.labels.formats import RELEASED_REASONS
from circus_bench.labels.provenance import Provenance
from circus_bench.labels.published import PUBLISHED
from circus_bench.labels.query_label import RejectionReason
from circus_bench.labels.validation_file import write_validation
from circus_bench.validation.agreement import Coefficient, Statistic
from circus_bench.validation.annotations import DATABASE_FILE, LOG_FILE, Annotation, read_annotations
from circus_bench.validation.decisions import Decision, DecisionRule
from circus_bench.validation.rubric import Rubric
from circus_bench.validation.sampling import SHORTCUT_FREE
from circus_bench.validation.study import Study

_REASON_OF = {name.upper(): reason for reason, name in RELEASED_REASONS.items()}
"""A rubric's label to the reason that a release has for it."""


def load_annotations(
    folder: StrPath, *, database: StrPath | None = None, log: StrPath | None = None
) -> list[Annotation]:
    """Load the annotations of a saved study.

    Args:
        folder: where the study is saved.
        database: the app's database, a file or a URL.
        log: a file of JSON lines instead. Without either, the app's default database in the folder is taken, or the
            file `judgements.jsonl` that an import or a simulation left there, whichever exists.

    Raises:
        CircusError: there is neither, or it is not said which of two; or the database is none of this study.
        FormatError: the log is none.
    """
    if log is not None and database is not None:
        raise CircusError(f"annotations are read from a database ({database}) or from a log ({log}), not from both")
    folder = Path(folder)
    if log is None and database is None:
        # One of them must not hide the other: to invite somebody is enough to make a database.
        held = [folder / name for name in (DATABASE_FILE, LOG_FILE) if (folder / name).is_file()]
        if len(held) > 1:
            raise CircusError(
                f"{folder}: holds annotations in {DATABASE_FILE} and in {LOG_FILE}; say which are meant by --database "
                "or --judgements, or move one of them away"
            )
        if not held:
            raise CircusError(f"{folder}: holds no annotations, neither {DATABASE_FILE} nor {LOG_FILE}")
        database, log = (held[0], None) if held[0].name == DATABASE_FILE else (None, held[0])
    if log is not None:
        return read_annotations(log)
    assert database is not None
    if "://" not in str(database) and not Path(database).is_file():
        raise CircusError(f"{database}: no such database; annotations can also be read from a log of JSON lines")
    from circus_bench.validation.app import open_log

    with closing(open_log(folder, database=database)) as opened:
        return opened.annotations()


def agreement_dict(table: Mapping[str, Mapping[Statistic, Coefficient]]) -> dict[str, dict[str, Any]]:
    """Convert the agreement of a study, by question and statistic, to strict JSON."""
    return {
        question: {statistic.value: coefficient.to_dict() for statistic, coefficient in of_question.items()}
        for question, of_question in table.items()
    }


def export_verdicts(
    path: StrPath,
    study: Study,
    decisions: Iterable[Decision],
    *,
    benchmark: str = "",
    sources: Mapping[str, Benchmark] | None = None,
    rule: DecisionRule = DecisionRule.MAJORITY,
) -> str:
    """Write the verdicts on one benchmark: JSON where the name ends in `.json`, else parquet. Same input, same bytes.

    Args:
        path: the file.
        study: what was judged.
        decisions: of its items, see `circus_bench.validation.decisions.decide`.
        benchmark: the benchmark's name; not needed where the study has one only.
        sources: the benchmarks themselves by name, which tie the file to their version; an imported study of released
            annotations goes by their query ids without.
        rule: how the decisions were come to, for the record.

    Returns:
        The benchmark's name.

    Raises:
        MismatchError: the study has several benchmarks and none was named, or not this one.
    """
    name = _one_benchmark(study, benchmark)
    rows = [_row(study.rubric, decision) for decision in decisions if decision.benchmark == name]
    head = {
        "benchmark": name,
        "origin": _provenance(study, name, (sources or {}).get(name)).to_dict(),
        "study": study.name,
        "seed": study.seed,
        "rubric": {"id": study.rubric.id, "version": study.rubric.version, "breadth": study.rubric.breadth},
        "rule": rule.value,
    }
    write_validation(Path(path), head, rows)
    return name


def _one_benchmark(study: Study, wanted: str) -> str:
    names = list(dict.fromkeys(item.benchmark for item in study.items))
    if not names:
        raise MismatchError(f"study {study.name!r} has no items, so there is nothing to export")
    if (wanted or len(names) > 1) and wanted not in names:
        what = f"not about {wanted!r}" if wanted else "about several benchmarks; name one"
        raise MismatchError(f"study {study.name!r} is {what}: it has {format_ids(names)}")
    return wanted or names[0]


def _provenance(study: Study, name: str, source: Benchmark | None) -> Provenance:
    said = f"human validation {study.name!r}"
    if source is None:
        return dataclasses.replace(PUBLISHED.get(name, Provenance()), source=said)
    return Provenance(
        source=said,
        protocols=(source.protocol.id,),
        reference=source.protocol.reference,
        n_queries=len(source.queries),
        fingerprint=source.fingerprint,
    )


def _row(rubric: Rubric, decision: Decision) -> dict[str, Any]:
    given = _reasons(rubric, decision)
    # A rejection under a label that no release knows, or under none, has reasons that a release cannot tell.
    known = bool(decision.valid) or bool(given)
    stratum = decision.stratum.rpartition("/")[2]
    return {
        "query": decision.query,
        "human_audited": decision.raters > 0 or decision.adjudicated,
        "human_valid": decision.valid,
        "stratum": stratum if stratum in SHORTCUT_FREE else None,
        **{reason.value: reason in given if known else None for reason in RejectionReason},
        "decision": decision.label or None,
        "raters": decision.raters,
        "votes": _pairs("label", "raters", decision.votes),
        "posterior": decision.posterior,
        "weight": decision.weight,
        "reasons": _pairs("reason", "raters", decision.reasons),
        "answers": _pairs("question", "yes", decision.answers),
        "alternatives": _pairs("image", "share", decision.alternatives),
    }


def _reasons(rubric: Rubric, decision: Decision) -> set[RejectionReason]:
    """List why a query is rejected: the label of the decision, and what more than half of the raters flagged."""
    if decision.valid is not False:
        return set()
    labels = {step.label for step in rubric.steps if step.id in decision.flags} | {decision.label}
    return {_REASON_OF[label] for label in labels if label in _REASON_OF}


def _pairs(name: str, value: str, entries: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{name: key, value: entry} for key, entry in entries.items()]
