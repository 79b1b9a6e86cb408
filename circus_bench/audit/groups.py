"""Break an audit down by the benchmark's query groups, such as RMIR's categories, with both averages that are in use.

`micro` is the mean over queries, `macro` the plain mean of the groups' values. They differ where groups differ in size,
and a number without its name is neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circus_bench.audit.audit import Audit
from circus_bench.audit.statistics import Estimate, combined, proportion
from circus_bench.benchmark import Benchmark, Condition
from circus_bench.io import to_plain
from circus_bench.labels.pool import check_same_queries
from circus_bench.metrics.hit_rate import hit_rate
from circus_bench.metrics.shortcut import Label


@dataclass(frozen=True, slots=True)
class Grouped:
    """A share of queries, by group.

    Attributes:
        groups: group to its share.
        micro: over all queries.
        macro: the plain mean of the groups' shares.
    """

    groups: Mapping[str, Estimate]
    micro: Estimate
    macro: Estimate

    @classmethod
    def of(cls, hits: NDArray[Any], groups: Sequence[str]) -> Grouped:
        """Compute the share of hits per group.

        Args:
            hits: bool or 0/1 [n_queries].
            groups: group of each query.

        Example:
            >>> shares = Grouped.of(np.array([1, 0, 0, 1]), ["a", "a", "a", "b"])
            >>> round(shares.groups["a"].value, 3), shares.micro.value, round(shares.macro.value, 3)
            (0.333, 0.5, 0.667)
        """
        of_query = np.array(groups)
        found = {group: proportion(hits[of_query == group]) for group in sorted(set(groups))}
        return cls(found, proportion(hits), combined(list(found.values()), [1.0] * len(found)))


@dataclass(frozen=True, slots=True)
class GroupedAudit:
    """Labels and hit rates of an audit by group.

    Attributes:
        k: the cut-off of both.
        labels: label to the share of queries that have it.
        hit_rates: model and condition to the hit rate@k; empty for published minima.
    """

    k: int
    labels: Mapping[Label, Grouped]
    hit_rates: Mapping[str, Mapping[Condition, Grouped]]

    def to_dict(self) -> dict[str, Any]:
        """Return strict JSON."""
        return {
            "k": self.k,
            "averages": {"micro": "mean over queries", "macro": "plain mean of the groups"},
            "labels": to_plain(self.labels),
            "hit_rates": to_plain(self.hit_rates),
        }


def audit_by_group(audit: Audit, benchmark: Benchmark) -> GroupedAudit:
    """Break an audit down by the groups of the benchmark's queries.

    Raises:
        MismatchError: the benchmark has other queries.
    """
    check_same_queries(audit.pool, benchmark)
    group_of = {query.id: query.group for query in benchmark.queries}
    groups = [group_of[query] for query in audit.pool.queries]
    k = audit.shortcut_labels.k
    return GroupedAudit(
        k=k,
        labels={label: Grouped.of(audit.shortcut_labels.labels == label.value, groups) for label in Label},
        hit_rates={
            run.manifest.model.name: {
                condition: Grouped.of(hit_rate(run.ranks(condition), k), groups) for condition in Condition
            }
            for run in audit.runs
        },
    )
