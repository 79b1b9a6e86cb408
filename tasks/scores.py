"""Score a Run on a subset, as mteb's result files keep it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from circus_bench.audit.scores import Mask, score_run
from circus_bench.audit.statistics import Estimate, mean, proportion
from circus_bench.benchmark import Condition, ReferencePolicy
from circus_bench.metrics.hit_rate import hit_rate
from circus_bench.metrics.mrr import reciprocal_rank
from circus_bench.metrics.ndcg import ndcg
from circus_bench.runs.run import Run

CUTOFFS = (1, 5, 10, 20, 50)


def score_subset(
    run: Run, *, subset: str, chosen: Mask, k: int, groups: Mapping[str, Mask] | None = None
) -> dict[str, Any]:
    """Score a Run on a subset under both reference policies, for strict JSON: what is undefined is None.

    Args:
        run: the Run on the whole benchmark.
        subset: its name.
        chosen: bool [n_queries], the queries of the subset.
        k: cut-off of the main score, of `either_unimodal`, of the chance level and of the groups.
        groups: name to bool [n_queries], for a score of each.

    Returns:
        | key | content |
        |---|---|
        | `hit_rate_at_<k>` | the main score: multimodal, under the protocol's reference policy |
        | `text_only_hit_rate_at_<k>`, `image_only_hit_rate_at_<k>` | the same from one modality |
        | `comp_gap` | CompGap, under the protocol's reference policy |
        | `protocol`, `reference` | the protocol's id and its reference policy |
        | `by_reference` | under each policy every metric of every condition, CompGap, chance level: see `_under` |
        | `ties` | targets that tie with other images, by condition |
        | `groups` | hit rate@k by group and condition, and the plain mean over groups (`macro`) |
        | `benchmark`, `fingerprint`, `n_queries`, `n_relevant`, `n_gallery`, `alarms` | what was scored |
    """
    manifest = run.manifest
    rows = np.repeat(chosen, np.diff(run.offsets))
    by_reference = {policy.value: _under(run, policy, subset=subset, chosen=chosen, k=k) for policy in ReferencePolicy}
    own = by_reference[run.policy.value]
    main = f"hit_rate_at_{k}"
    return {
        main: own["conditions"][Condition.MULTIMODAL.value][main]["value"],
        **{
            f"{condition}_{main}": own["conditions"][condition.value][main]["value"]
            for condition in (Condition.TEXT_ONLY, Condition.IMAGE_ONLY)
        },
        "comp_gap": own["comp_gap"]["value"],
        "protocol": manifest.protocol["id"],
        "reference": run.policy.value,
        "by_reference": by_reference,
        "ties": {condition.value: int((run.ties(condition)[rows] > 0).sum()) for condition in Condition},
        **({"groups": _by_group(run, chosen, groups, k=k)} if groups else {}),
        "benchmark": manifest.benchmark,
        "fingerprint": dataclasses.asdict(manifest.fingerprint),
        "n_queries": int(chosen.sum()),
        "n_relevant": int(rows.sum()),
        "n_gallery": manifest.n_gallery,
        "alarms": [alarm.value for alarm in manifest.alarms],
    }


def _under(run: Run, policy: ReferencePolicy, *, subset: str, chosen: Mask, k: int) -> dict[str, Any]:
    """Compute every metric under a reference policy, with confidence intervals: `Scores.to_dict` in mteb's names.

    Added to the metrics of `score_run` are nDCG and MRR at a cut-off, which mteb reports; `ndcg` and `mrr` are over the
    whole gallery.
    """
    protocol = {**run.manifest.protocol, "reference": policy.value}
    seen = dataclasses.replace(run, manifest=dataclasses.replace(run.manifest, protocol=protocol))
    scores = score_run(seen, subset=subset, chosen=chosen, k=k, cutoffs=CUTOFFS).to_dict()
    conditions: dict[str, dict[str, Any]] = {}
    for condition in Condition:
        ranks = seen.ranks(condition)
        cut: dict[str, Estimate] = {f"ndcg@{at}": mean(ndcg(ranks, k=at)[chosen]) for at in CUTOFFS}
        # The best target's reciprocal rank, where it is within the cut-off.
        cut |= {f"mrr@{at}": mean((reciprocal_rank(ranks) * hit_rate(ranks, at))[chosen]) for at in CUTOFFS}
        found = scores["conditions"][condition.value] | {name: estimate.to_dict() for name, estimate in cut.items()}
        conditions[condition.value] = {name.replace("@", "_at_"): estimate for name, estimate in found.items()}
    kept = ("comp_gap", "either_unimodal", "chance", "share_tied")
    return {"conditions": conditions, **{name: scores[name] for name in kept}}


def _by_group(run: Run, chosen: Mask, groups: Mapping[str, Mask], *, k: int) -> dict[str, Any]:
    """Compute hit rate@k by group and condition; `macro` is the plain mean over the groups that have queries."""
    estimates = {
        condition.value: {
            name: proportion(hit_rate(run.ranks(condition), k)[chosen & group]) for name, group in groups.items()
        }
        for condition in Condition
    }
    macro = {
        condition: float(np.mean([estimate.value for estimate in of.values() if estimate.n]))
        for condition, of in estimates.items()
    }
    by_group = {name: {condition: of[name].to_dict() for condition, of in estimates.items()} for name in groups}
    return {"by_group": by_group, "macro": macro}


def summarize_scores(scores: Mapping[str, Any], *, k: int) -> str:
    """Summarize what `score_subset` gave in one line: the three hit rates and CompGap."""
    own = scores["by_reference"][scores["reference"]]
    cells = [
        f"{condition} {_percent(own['conditions'][condition.value][f'hit_rate_at_{k}'])}" for condition in Condition
    ]
    gap = own["comp_gap"]
    return (
        f"hit rate@{k} in % [95 %], {scores['protocol']}, reference {scores['reference']}, "
        f"{scores['n_queries']:,} queries: {', '.join(cells)}; CompGap {_number(gap)}"
    )


def _percent(estimate: Mapping[str, Any]) -> str:
    if estimate["value"] is None:
        return "undefined"
    return "{value:.1%} [{low:.1%}, {high:.1%}]".format(**estimate).replace("%", "")


def _number(estimate: Mapping[str, Any]) -> str:
    return "undefined" if estimate["value"] is None else "{value:.3f} [{low:.3f}, {high:.3f}]".format(**estimate)
