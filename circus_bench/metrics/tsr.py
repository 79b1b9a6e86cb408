"""Compute test-set reliability (TSR): the certainty that the end of a judged candidate list holds negatives only."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from circus_bench.errors import FormatError, format_ids
from circus_bench.metrics.ranks import Floats


class Verdict(StrEnum):
    """Verdict of a judge on a candidate for a query."""

    NEGATIVE = "negative"
    POSITIVE = "positive"
    ABSTAIN = "abstain"
    """No usable verdict: the judge refused, or the reply could not be read."""


Verdicts = Sequence[Sequence[str]] | NDArray[np.str_]


def negative_share(verdicts: Verdicts) -> Floats:
    """Compute the share of the judges that call each candidate negative, 0 where fewer than half of them do.

    All judges are in the denominator, also those that abstain: an abstention never makes a list look more reliable.
    (The RMIR paper is silent on abstentions; this is our choice.)

    Args:
        verdicts: [K, n_judges] values of `Verdict`, best candidate first; every candidate has every judge's verdict.

    Returns:
        float64 [K], each 0 or in [0.5, 1].

    Raises:
        FormatError: there is no candidate or no judge, the rows differ in length, or a verdict is unknown.

    Example:
        >>> negative_share([["negative", "negative"], ["negative", "abstain"], ["positive", "abstain"]]).tolist()
        [1.0, 0.5, 0.0]
    """
    table = _table(verdicts)
    n_judges = table.shape[1]
    negative = (table == Verdict.NEGATIVE.value).sum(axis=1)
    return np.where(2 * negative >= n_judges, negative / n_judges, 0.0)


def tsr(verdicts: Verdicts) -> float:
    """Average over i the mean negative share of candidates i to K: RMIR's test-set reliability (CVPR 2026).

    Later candidates weigh more: a list that ends in sure negatives makes a missed positive beyond K unlikely. Lists of
    different length do not compare, for appended negatives raise the value.

    Args:
        verdicts: see `negative_share`.

    Returns:
        A number in [0, 1]: 1 exactly when all judges call all candidates negative.

    Raises:
        FormatError: see `negative_share`.

    Example:
        A positive first: (3/4 + 1 + 1 + 1) / 4.

        >>> tsr([["positive"], ["negative"], ["negative"], ["negative"]])
        0.9375
    """
    share = negative_share(verdicts)
    lengths = np.arange(len(share), 0, -1)
    suffix_means = np.cumsum(share[::-1])[::-1] / lengths
    return float(suffix_means.mean())


def _table(verdicts: Verdicts) -> NDArray[np.str_]:
    try:
        table = np.asarray(verdicts)
    except ValueError:
        lengths = sorted({len(row) for row in verdicts})
        raise FormatError(
            f"every candidate needs a verdict of every judge, {Verdict.ABSTAIN.value!r} included; "
            f"found rows of {lengths} verdicts"
        ) from None
    if table.ndim != 2 or not table.size:
        raise FormatError(f"expected verdicts of the shape [K, n_judges], found {table.shape}")
    words = set(table.ravel().tolist())
    unknown = sorted(words - set(Verdict), key=repr)
    if unknown:
        raise FormatError(f"unknown verdicts {format_ids(unknown)}; expected one of {[v.value for v in Verdict]}")
    return table
