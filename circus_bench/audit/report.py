"""Write the report of an audit: one HTML file that needs nothing else, for people who would rather look than read."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from circus_bench._typing import StrPath
from circus_bench._version import __version__
from circus_bench.audit.audit import Audit, check_audit_matches
from circus_bench.audit.figures import SUBSET_NAMES, Thumbnail, Thumbnails, to_svg, words
from circus_bench.audit.groups import audit_by_group
from circus_bench.audit.statistics import LEVEL, Estimate, proportion
from circus_bench.benchmark import Benchmark, Condition, Query, ReferencePolicy
from circus_bench.encoding.sanity_checks import EncoderWarning
from circus_bench.errors import CircusError, MismatchError, format_ids
from circus_bench.io import write_text
from circus_bench.metrics.ranks import Floats
from circus_bench.metrics.shortcut import Label, Shortcut

SHOWN_TOP = 5
"""Retrieved images shown for each condition of an example."""

_SHOWN_TARGETS = 4
_SHOWN_GROUPS = 40
_SHOWN_VALUE = 300  # characters of one entry of a benchmark's provenance
_NBSP = "\N{NO-BREAK SPACE}"
_ALARMS = {
    EncoderWarning.REFERENCE_IGNORED: "another reference image does not move the multimodal embedding",
    EncoderWarning.TEXT_IGNORED: "another modification text does not move the multimodal embedding",
    EncoderWarning.REFERENCE_LEAKS: "another reference image moves the text-only embedding",
    EncoderWarning.TEXT_LEAKS: "another modification text moves the image-only embedding",
    EncoderWarning.COLLAPSED: "all gallery embeddings are nearly the same",
}
_KINDS = (*Shortcut, Label.COMPOSITION_REQUIRED, Label.UNRESOLVED)


def write_report(audit: Audit, path: StrPath, *, benchmark: Benchmark | None = None, examples: int = 3) -> None:
    """Write an audit as one self-contained HTML file; the same audit gives the same bytes.

    Args:
        audit: the audit. What it does not hold (published minima have no Runs and no scores) is left out.
        path: the HTML file.
        benchmark: the benchmark that was audited, for its groups and for examples with pictures, which are embedded as
            thumbnails: mind the license of the images before passing the file on. Its queries may be in another order.
        examples: queries shown for each label, 0 for none.

    Raises:
        CircusError: `examples` is negative.
        MismatchError: the benchmark is not the audited one.
    """
    if examples < 0:
        raise CircusError(f"examples must be 0 or more, found {examples}")
    if benchmark is not None:
        benchmark = _in_audit_order(audit, benchmark)
    thumbnails = Thumbnails(benchmark.gallery.images if benchmark else None)
    shown = _examples(audit, benchmark, thumbnails, examples) if benchmark else {}
    multiple = any(len(targets) > 1 for run in audit.runs for targets in run.targets)
    content = {
        "audit": audit,
        "name": _name(audit, benchmark),
        "facts": _facts(audit, benchmark),
        "models": [run.manifest for run in audit.runs],
        "source": _source(audit, benchmark),
        "warnings": _warnings(audit, benchmark),
        "segments": _segments(audit),
        "groups": _groups(audit, benchmark),
        "shown_groups": _SHOWN_GROUPS,
        "scores": _scores(audit),
        "metrics": _metrics(audit.shortcut_labels.k, multiple=multiple),
        "k_sweep_figure": to_svg(
            audit.plot("k_sweep"), name="k-sweep", description="Share of each label against the cut-off K"
        ),
        "agreement": _agreement(audit),
        "examples": shown,
        "pictures": thumbnails.embedded,
        "has_pictures": benchmark is not None and benchmark.gallery.images is not None,
        "conditions": list(Condition),
        "policy": _policy(audit, benchmark),
        "level": round(100 * LEVEL),
        "version": __version__,
    }
    write_text(path, _render(content))


def _render(content: Mapping[str, Any]) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("circus_bench", "audit"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        percent=_percent, number=_number, interval=_interval, rank=_rank, words=words, thousands=lambda n: f"{n:,}"
    )
    return environment.get_template("report.html.j2").render(content).lstrip()


def _percent(share: Estimate | float) -> str:
    """Format a share as a percentage; an undefined one is called so, never 0."""
    value = share.value if isinstance(share, Estimate) else share
    return "undefined" if math.isnan(value) else f"{100 * value:.1f}{_NBSP}%"


def _number(value: Estimate | float) -> str:
    number = value.value if isinstance(value, Estimate) else value
    return "undefined" if math.isnan(number) else f"{number:.3f}".replace("-", "\N{MINUS SIGN}")


def _interval(estimate: Estimate, *, percent: bool = False) -> str:
    if math.isnan(estimate.low):
        return ""
    ends = (f"{100 * end:.1f}" if percent else f"{end:.3f}" for end in (estimate.low, estimate.high))
    return f"[{f',{_NBSP}'.join(ends)}]".replace("-", "\N{MINUS SIGN}")


def _rank(rank: float) -> str:
    return "never" if math.isinf(rank) else f"{rank:,.0f}"


def _in_audit_order(audit: Audit, benchmark: Benchmark) -> Benchmark:
    """Return the benchmark with its queries in the audit's order, for a fingerprint does not depend on it."""
    check_audit_matches(audit, benchmark)
    by_id = {query.id: query for query in benchmark.queries}
    if by_id.keys() != set(audit.pool.queries):
        foreign = [query for query in audit.pool.queries if query not in by_id]
        raise MismatchError(
            f"the audit and benchmark {benchmark.name!r} have different queries: {len(audit.pool.queries):,} and "
            f"{len(by_id):,}; not in the benchmark are {format_ids(foreign)}"
        )
    if tuple(by_id) == audit.pool.queries:
        return benchmark
    return dataclasses.replace(benchmark, queries=tuple(by_id[query] for query in audit.pool.queries))


def _name(audit: Audit, benchmark: Benchmark | None) -> str:
    return str(audit.about.get("benchmark") or (benchmark and benchmark.name) or audit.about.get("best_ranks", "audit"))


def _protocol(audit: Audit, benchmark: Benchmark | None) -> dict[str, Any]:
    return dict(audit.about.get("protocol") or (dataclasses.asdict(benchmark.protocol) if benchmark else {}))


def _policy(audit: Audit, benchmark: Benchmark | None) -> str:
    return str(_protocol(audit, benchmark).get("reference", ""))


def _facts(audit: Audit, benchmark: Benchmark | None) -> list[tuple[str, str]]:
    """Return the provenance block: what was audited, with what, and when."""
    protocol, labels = _protocol(audit, benchmark), audit.shortcut_labels
    n_gallery = audit.about.get("n_gallery") or (len(benchmark.gallery.ids) if benchmark else None)
    fingerprint = audit.about.get("fingerprint") or {}
    manifests = [run.manifest for run in audit.runs]
    dates = sorted({manifest.date for manifest in manifests})
    software = sorted({f"{name} {version}" for manifest in manifests for name, version in manifest.software.items()})
    facts = [
        ("Protocol", protocol.get("id", "")),
        ("Reference policy", protocol.get("reference", "")),
        ("Gallery", protocol.get("gallery", "")),
        ("Targets", protocol.get("positives", "")),
        ("Texts", protocol.get("captions", "")),
        ("Queries", f"{len(audit.pool.queries):,}"),
        ("Gallery size", f"{n_gallery:,}" if n_gallery else ""),
        ("Cut-off", f"K = {labels.k}"),
        ("Support", f"{labels.min_unimodal} model(s) from one modality, {labels.min_multimodal} from both"),
        ("Pool", ", ".join(audit.pool.models)),
        ("Validation", audit.about.get("validation", "")),
        ("Best ranks read from", audit.about.get("best_ranks", "")),
        ("Ranked", " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""),
        ("Annotations", fingerprint.get("annotations") or ""),
        ("Images", fingerprint.get("images") or ""),
        ("Software", ", ".join(software)),
    ]
    return [(name, str(value)) for name, value in facts if value]


def _source(audit: Audit, benchmark: Benchmark | None) -> list[tuple[str, str]]:
    """Return the benchmark's own provenance (license, version, citation), long entries cut."""
    source = dict(benchmark.source if benchmark else audit.runs[0].manifest.source if audit.runs else {})
    shown = []
    for name, value in sorted(source.items()):
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
        shown.append((words(name), text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}…"))
    return shown


def _warnings(audit: Audit, benchmark: Benchmark | None) -> list[str]:
    """List what a reader must know before believing any number."""
    found = [
        f"{run.manifest.model.name}: {words(alarm)} ({_ALARMS[alarm]}). Its Run is not to be trusted."
        for run in audit.runs
        for alarm in run.manifest.alarms
    ]
    source: Mapping[str, Any] = benchmark.source if benchmark else audit.runs[0].manifest.source if audit.runs else {}
    left_out = source.get("left_out_images")
    if left_out:
        found.append(f"Images left out, and with them the queries that need them ({format_ids(left_out)}).")
    found += [
        f"The benchmark contradicts itself: {words(finding.defect)} ({format_ids(finding.ids)})."
        for finding in (benchmark.findings if benchmark else ())
    ]
    return found


@dataclass(frozen=True)
class _Segment:
    """One part of the label bar, and a row of the label table."""

    kind: str
    name: str
    start: float
    share: Estimate
    count: int


def _segments(audit: Audit) -> list[_Segment]:
    kinds = _kinds(audit)
    segments: list[_Segment] = []
    for kind in _KINDS:
        mask = kinds == kind.value
        start = segments[-1].start + segments[-1].share.value if segments else 0.0
        segments.append(_Segment(kind.value, words(kind), start, proportion(mask), int(mask.sum())))
    return segments


def _kinds(audit: Audit) -> np.ndarray[Any, np.dtype[np.str_]]:
    """Return the label of every query, a shortcut's being its detail."""
    labels = audit.shortcut_labels
    return np.where(labels.details != "", labels.details, labels.labels)


def _groups(audit: Audit, benchmark: Benchmark | None) -> dict[str, Any]:
    """Count every label in every group; empty where there are no groups to tell apart."""
    if benchmark is None or len({query.group for query in benchmark.queries}) < 2:
        return {}
    table = audit.by_group(benchmark)
    largest = sorted(table, key=lambda group: -sum(table[group].values()))[:_SHOWN_GROUPS]
    columns = [(f"shortcut: {kind}" if isinstance(kind, Shortcut) else kind.value) for kind in _KINDS]
    rows = []
    for group in (group for group in table if group in largest):
        counts = [table[group].get(column, 0) for column in columns]
        total, shortcuts = sum(counts), sum(counts[: len(Shortcut)])
        share = proportion(np.arange(total) < shortcuts)
        rows.append({"name": group or "(no group)", "counts": counts, "total": total, "shortcut": share})
    shares = audit_by_group(audit, benchmark).labels[Label.SHORTCUT]
    return {"columns": [words(column) for column in columns], "rows": rows, "n": len(table), "shortcuts": shares}


def _scores(audit: Audit) -> list[dict[str, Any]]:
    """Return for every subset its scores, its figure and the pool's CompGap."""
    found, k = [], audit.shortcut_labels.k
    for subset, name in SUBSET_NAMES.items():
        of_subset = [scores for scores in audit.scores if scores.subset == subset]
        if of_subset:
            description = f"Hit rate at {k} of each model, {name}"
            drawn = of_subset[0].n_queries > 0
            plot = f"hit_rate_{subset}"
            figure = to_svg(audit.plot(plot), name=f"hit-rate-{name}", description=description) if drawn else ""
            gap = audit.comp_gap.get(subset)
            found.append({"subset": subset.value, "name": name, "rows": of_subset, "figure": figure, "comp_gap": gap})
    return found


def _metrics(k: int, *, multiple: bool) -> list[tuple[str, str, bool]]:
    """Return the columns of the score tables: metric, heading, whether it is a share."""
    several = [(f"recall@{k}", f"Recall@{k}", True), (f"map@{k}", f"mAP@{k}", True)] if multiple else []
    return [*several, ("ndcg", "nDCG", False), ("mrr", "MRR", False)]


def _agreement(audit: Audit) -> dict[str, Any]:
    """Count the models that solve each shortcut from one modality; empty for a pool that is not of single models."""
    pool, labels = audit.pool, audit.shortcut_labels
    shortcuts = ~labels.shortcut_free
    total = int(shortcuts.sum())
    if len(pool.models) < 2 or not total:
        return {}
    support = labels.support_unimodal[shortcuts]
    counts = [(m, int((support == m).sum())) for m in range(labels.min_unimodal, len(pool.models) + 1)]
    hits = np.minimum(pool.best[Condition.TEXT_ONLY], pool.best[Condition.IMAGE_ONLY])[:, shortcuts] <= labels.k
    models = [
        (model, int(of_model.sum()), int((of_model & (support == 1)).sum()))
        for model, of_model in zip(pool.models, hits, strict=True)
    ]
    return {"total": total, "counts": counts, "models": models}


@dataclass(frozen=True)
class _Shown:
    """A retrieved image.

    Attributes:
        picture: its thumbnail.
        place: its place in the list, from 1.
        target_rank: its rank if it is a target, which ties can put below its place; else None.
        is_reference: whether it is the query's own reference.
    """

    picture: Thumbnail
    place: int
    target_rank: float | None
    is_reference: bool


@dataclass(frozen=True)
class _Answer:
    """The outcome of one condition: the top of one model's list and its rank; the best of the pool, and who hit."""

    condition: Condition
    shown: list[_Shown]
    rank: float
    best: float
    hits: list[str]


@dataclass(frozen=True)
class _Example:
    """A query with its pictures and answers; `model` made the lists, and is empty where none were kept."""

    query: Query
    reference: Thumbnail
    targets: list[Thumbnail]
    more_targets: int
    model: str
    answers: list[_Answer]


def _examples(audit: Audit, benchmark: Benchmark, thumbnails: Thumbnails, wanted: int) -> dict[str, list[_Example]]:
    """Choose queries spread evenly over those of each label."""
    kinds = _kinds(audit)
    found = {}
    for kind in _KINDS:
        positions = np.flatnonzero(kinds == kind.value)
        chosen = np.linspace(0, len(positions) - 1, min(wanted, len(positions))).round().astype(int)
        found[words(kind)] = [
            _example(audit, benchmark.queries[position], int(position), kind, thumbnails)
            for position in positions[chosen]
        ]
    return {name: shown for name, shown in found.items() if shown}


def _example(audit: Audit, query: Query, position: int, kind: Label | Shortcut, thumbnails: Thumbnails) -> _Example:
    ranks = {condition: audit.pool.best[condition][:, position] for condition in Condition}
    chosen, k = _most_telling(ranks, kind), audit.shortcut_labels.k
    answers = [
        _Answer(
            condition,
            _top(audit, query, position, chosen, condition, thumbnails),
            rank=float(ranks[condition][chosen]),
            best=float(ranks[condition].min()),
            hits=[audit.pool.models[m].rpartition("/")[2] for m in np.flatnonzero(ranks[condition] <= k)],
        )
        for condition in Condition
    ]
    return _Example(
        query=query,
        reference=thumbnails.of(query.reference),
        targets=[thumbnails.of(target) for target in query.targets[:_SHOWN_TARGETS]],
        more_targets=max(len(query.targets) - _SHOWN_TARGETS, 0),
        model=audit.pool.models[chosen] if audit.runs else "",
        answers=answers,
    )


def _most_telling(ranks: Mapping[Condition, Floats], kind: Label | Shortcut) -> int:
    """Choose the model with the best evidence for a label: best ranks under its conditions, first of equals."""
    text, image = ranks[Condition.TEXT_ONLY], ranks[Condition.IMAGE_ONLY]
    evidence: dict[Label | Shortcut, tuple[Floats, ...]] = {
        Shortcut.TEXT_ONLY: (text,),
        Shortcut.IMAGE_ONLY: (image,),
        # The model whose worse rank of the two is best; of equals the one whose better rank is.
        Shortcut.BOTH: (np.minimum(text, image), np.maximum(text, image)),
    }
    return int(np.lexsort(evidence.get(kind, (ranks[Condition.MULTIMODAL],)))[0])


def _top(
    audit: Audit, query: Query, position: int, model: int, condition: Condition, thumbnails: Thumbnails
) -> list[_Shown]:
    if not audit.runs:
        return []
    run = audit.runs[model]
    of_query = slice(run.offsets[position], run.offsets[position + 1])
    ranks = dict(zip(run.targets[position], run.ranks(condition).values[of_query].tolist(), strict=True))
    top: Iterable[str] = run.top(condition)[position]
    if run.policy is ReferencePolicy.REMOVED:
        top = (image_id for image_id in top if image_id != query.reference)
    return [
        _Shown(thumbnails.of(image_id), place, ranks.get(image_id), image_id == query.reference)
        for place, image_id in enumerate(list(top)[:SHOWN_TOP], 1)
    ]
