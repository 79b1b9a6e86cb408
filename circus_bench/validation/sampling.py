"""Draw the stratified sample of queries that a study judges.

Queries are drawn at random from strata, a benchmark's queries of one label each. A stratum that is not drawn completely
is known by the inclusion probability of its items, whose inverse weights later estimates. Strata are for the analysis
and never shown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark
from circus_bench.errors import CircusError, FormatError, MismatchError, duplicates, format_ids
from circus_bench.labels.labels import Labels
from circus_bench.metrics.shortcut import Label
from circus_bench.runs.run import Run
from circus_bench.sources.annotations import read_json
from circus_bench.validation.assignment import assign, interleave_checks
from circus_bench.validation.hash_order import hash_shuffle
from circus_bench.validation.panel import DEFAULT_K, candidate_panels
from circus_bench.validation.rubric import Rubric, load_rubric
from circus_bench.validation.study import Item, Study

SHORTCUT_FREE = (Label.COMPOSITION_REQUIRED, Label.UNRESOLVED)
"""The labels whose queries are judged."""

CHECK, TRAINING = "check", "training"
"""Strata of the items with a gold label."""


@dataclass(frozen=True)
class SamplingFrame:
    """Sampling frame: the queries of one benchmark that a study draws from.

    Attributes:
        benchmark: the benchmark.
        folder: where it is saved, relative to the study's folder or absolute.
        labels: query id to its label; see `labels_of`. Only shortcut-free queries are drawn.
        runs: the pool's Runs, which the candidate panels are made of.
        checks: query id to the label that a careful rater gives it. These queries are mixed with the others to see
            whether a rater is careful, and they are neither drawn nor counted.
        training: the same for queries that are shown with feedback first, in this order.
    """

    benchmark: Benchmark
    folder: str
    labels: Mapping[str, Label]
    runs: Sequence[Run] = ()
    checks: Mapping[str, str] = field(default_factory=dict)
    training: Mapping[str, str] = field(default_factory=dict)


def labels_of(benchmark: Benchmark, labels: Labels) -> dict[str, Label]:
    """Return query id to label, as an audit or a release tells; a query without a label is left out.

    Raises:
        MismatchError: the labels are about another benchmark.
    """
    found = {query: label.label or label.stratum for query, label in labels.align(benchmark).items()}
    return {query: label for query, label in found.items() if label is not None}


def read_gold_labels(path: StrPath) -> dict[str, dict[str, str]]:
    """Read gold labels from a JSON object of `<benchmark>::<query>` to label: benchmark to query to label.

    Raises:
        FormatError: the file is none, or an entry has another form.
    """
    found: dict[str, dict[str, str]] = {}
    for name, label in read_json(Path(path), dict, origin="whoever made it").items():
        benchmark, separator, query = name.partition("::")
        if not (benchmark and separator and query and isinstance(label, str)):
            raise FormatError(f'{path}: {name!r}: {label!r} is not of the form "<benchmark>::<query>": "<label>"')
        found.setdefault(benchmark, {})[query] = label
    return found


def summarize_strata(study: Study) -> dict[str, dict[str, Any]]:
    """Summarize each stratum by its number of `items` and their `inclusion` probability, in the study's order."""
    found: dict[str, dict[str, Any]] = {}
    for item in study.items:
        found.setdefault(item.stratum, {"items": 0, "inclusion": item.inclusion})["items"] += 1
    return found


def sample_study(
    name: str,
    frames: Sequence[SamplingFrame],
    *,
    raters: Sequence[str],
    rubric: Rubric | None = None,
    seed: int = 0,
    sizes: int | Mapping[str, int] | None = None,
    per_item: int = 3,
    common: int = 0,
    panel_k: int = DEFAULT_K,
) -> Study:
    """Draw the items of a study and assign them. The same arguments give the same study.

    A larger sample of the same seed holds the smaller one.

    Args:
        name: its name.
        frames: what to draw from, one per benchmark.
        raters: their ids.
        rubric: the questions; those of the CIRCUS audit by default.
        seed: of everything drawn.
        sizes: items drawn of each stratum: a number, which a smaller stratum does not reach; or numbers by stratum
            (`cirr/unresolved`), which it must have, all others being drawn completely. Everything by default.
        per_item: raters of each item.
        common: items that all raters judge, spread over the strata by their size.
        panel_k: see `candidate_panels`.

    Raises:
        CircusError: a number makes no sense, a stratum has too few queries, or nothing is left to draw.
        MismatchError: labels, Runs, checks or training queries are about another benchmark or rubric.
    """
    rubric = rubric or load_rubric()
    _check_frames(frames, rubric)
    drawn = _draw(frames, seed=seed, sizes=sizes)
    if common > len(drawn):
        raise CircusError(f"{common:,} items for all raters were asked for, but only {len(drawn):,} are drawn")
    shared = [item.id for item in _spread(drawn, seed=seed)[:common]]
    owners = assign([item.id for item in drawn], raters, per_item=per_item, everyone=shared, seed=seed)
    known = [item for frame in frames for item in _known_items(frame)]
    trained, checks = ([item.id for item in known if item.training is kind] for kind in (True, False))
    order = {
        rater: (*trained, *interleave_checks(own, checks, seed=seed, rater=rater)) for rater, own in owners.items()
    }
    items = _with_panels([*known, *drawn], frames, k=panel_k)
    folders = {frame.benchmark.name: frame.folder for frame in frames}
    return Study(name, rubric, seed, tuple(items), order, folders)


def _known_items(frame: SamplingFrame) -> list[Item]:
    name = frame.benchmark.name
    return [
        Item(f"{name}::{query}", name, query, f"{name}/{kind}", known=label, training=kind == TRAINING)
        for kind, answers in ((TRAINING, frame.training), (CHECK, frame.checks))
        for query, label in answers.items()
    ]


def _draw(frames: Sequence[SamplingFrame], *, seed: int, sizes: int | Mapping[str, int] | None) -> list[Item]:
    strata = {
        f"{frame.benchmark.name}/{label.value}": (frame.benchmark.name, _free_queries(frame, label))
        for frame in frames
        for label in SHORTCUT_FREE
    }
    strata = {stratum: of for stratum, of in strata.items() if of[1]}
    if not strata:
        raise CircusError("no query can be drawn: none is labeled composition_required or unresolved")
    wanted = _sizes({stratum: len(queries) for stratum, (_, queries) in strata.items()}, sizes)
    return [
        Item(f"{name}::{query}", name, query, stratum, inclusion=wanted[stratum] / len(queries))
        for stratum, (name, queries) in strata.items()
        for query in hash_shuffle(queries, seed, "sample", stratum)[: wanted[stratum]]
    ]


def _free_queries(frame: SamplingFrame, label: Label) -> list[str]:
    taken = {*frame.checks, *frame.training}
    return [query for query, of_query in frame.labels.items() if of_query is label and query not in taken]


def _sizes(present: Mapping[str, int], sizes: int | Mapping[str, int] | None) -> dict[str, int]:
    if sizes is None:
        return dict(present)
    if isinstance(sizes, int):
        if sizes < 1:
            raise CircusError(f"{sizes} items of each stratum cannot be drawn; ask for 1 or more")
        return {stratum: min(n, sizes) for stratum, n in present.items()}
    unknown = [stratum for stratum in sizes if stratum not in present]
    wrong = [f"{stratum}: {n}" for stratum, n in sizes.items() if stratum in present and not 1 <= n <= present[stratum]]
    if unknown or wrong:
        raise CircusError(
            f"sizes that cannot be drawn: {format_ids([*unknown, *wrong])}; "
            f"the strata are {', '.join(f'{stratum} ({n:,})' for stratum, n in present.items())}"
        )
    return {stratum: sizes.get(stratum, n) for stratum, n in present.items()}


def _spread(items: Sequence[Item], *, seed: int) -> list[Item]:
    """Order items so that every beginning holds each stratum by its share."""
    strata: dict[str, list[str]] = {}
    for item in items:
        strata.setdefault(item.stratum, []).append(item.id)
    place = {
        item: ((position + 0.5) / len(ids), stratum)
        for stratum, ids in strata.items()
        for position, item in enumerate(hash_shuffle(ids, seed, "common"))
    }
    return sorted(items, key=lambda item: place[item.id])


def _with_panels(items: Sequence[Item], frames: Sequence[SamplingFrame], *, k: int) -> list[Item]:
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for frame in frames:
        name = frame.benchmark.name
        queries = [item.query for item in items if item.benchmark == name]
        panels = candidate_panels(frame.benchmark, frame.runs, queries, k=k)
        found |= {(name, query): panel for query, panel in panels.items()}
    return [dataclasses.replace(item, panel=found[item.benchmark, item.query]) for item in items]


def _check_frames(frames: Sequence[SamplingFrame], rubric: Rubric) -> None:
    twice = duplicates(frame.benchmark.name for frame in frames)
    if twice:
        raise MismatchError(f"a benchmark occurs twice: {format_ids(twice)}")
    for frame in frames:
        named = {*frame.labels, *frame.checks, *frame.training}
        foreign = sorted(named - {query.id for query in frame.benchmark.queries})
        if foreign:
            raise MismatchError(f"benchmark {frame.benchmark.name!r} has no queries {format_ids(foreign)}")
        both = sorted({*frame.checks} & {*frame.training})
        if both:
            raise MismatchError(f"queries are both for training and for checks: {format_ids(both)}")
        strange = sorted({*frame.checks.values(), *frame.training.values()} - {*rubric.labels})
        if strange:
            raise MismatchError(
                f"benchmark {frame.benchmark.name!r}: known answers {format_ids(strange)} are no labels of the rubric "
                f"{rubric.id!r}, which has {', '.join(rubric.labels)}"
            )
