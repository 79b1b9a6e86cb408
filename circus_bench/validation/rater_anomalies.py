"""Find rater anomalies: patterns in annotations that a person should look at before the study is believed.

None of them proves anything. Each has a written definition, and where chance can bring it about, it is reported only if
chance would do so in fewer than one study in a hundred (`CHANCE`). A complete answer is everything that a rater says of
an item: label, flags, reasons, answers, alternatives and note.

A study's items stand stratum by stratum, and most items of one stratum may deserve the same answer. What chance makes
of items in a row is therefore computed from how often answers occur, or are equal, in the stratum of each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, groupby
from operator import itemgetter
from statistics import median
from typing import TypeVar

import numpy as np

from circus_bench.audit.statistics import Estimate, proportion
from circus_bench.errors import format_ids
from circus_bench.validation.annotations import Annotation
from circus_bench.validation.ratings import blind_annotations
from circus_bench.validation.study import Study

CHANCE = 0.01
"""Significance level: a pattern that chance brings about more often is not reported."""
LENGTH = 10
"""Shorter blocks, and raters with fewer annotations, are not looked at."""
PACE = 3.0
"""A rater this many times as fast or as slow as the others is reported."""

_HASTE = 0.05  # of the time that the rubric expects
_MOSTLY = 0.9  # the same answer on so many items is called constant
_OTHERS = 2  # with fewer other raters nobody can tell who is off the pace
_PASSING = 0.7  # share of check items that a rater should answer as known
_CHECKS = 3  # fewer check items say nothing
_Value = TypeVar("_Value", bound=Hashable)


class AnomalyPattern(StrEnum):
    """Pattern of a rater anomaly."""

    COPIED = "copied"
    """Two raters gave equal complete answers to many items in a row (in the study's order), far more than raters who
    agree as often as the others would."""
    REPEATED = "repeated"
    """A block of complete answers, one item after the other, occurs again on other items: in one rater's work in the
    order of judging, or with all raters' answers in the study's order."""
    IDENTICAL_ITEMS = "identical_items"
    """Items share the complete answers of all their raters, two of whom at least wrote a note or clicked alternatives:
    what belongs to one item is found on another."""
    CONSTANT = "constant"
    """A rater gives nearly always the same complete answer, more often than the others give it to the same items."""
    FAST = "fast"
    """A rater's median time is less than a third of that of the middle one of at least three raters."""
    SLOW = "slow"
    """A rater's median time is more than three times that of the middle one of at least three raters."""
    DRIFT = "drift"
    """A rater calls queries valid more or less often in the second half of their work than in the first (Fisher's exact
    test; the order of items is random)."""
    FAILED_CHECKS = "failed_checks"
    """A rater answers fewer than 70 % of the check items as known."""


@dataclass(frozen=True, slots=True)
class RaterAnomaly:
    """Pattern that was found in the work of raters.

    Attributes:
        pattern: what it is.
        raters: whose annotations show it.
        items: the items concerned; empty for a pattern of all of a rater's work.
        message: what was seen, in one sentence.
    """

    pattern: AnomalyPattern
    raters: tuple[str, ...]
    items: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Pace:
    """Speed of a rater.

    Attributes:
        n: annotations with a time.
        median: seconds; NaN without any.
        low: tenth percentile in seconds.
        high: ninetieth percentile in seconds.
        hasty: annotations in less than a twentieth of the time that the rubric expects.
    """

    n: int
    median: float
    low: float
    high: float
    hasty: int


@dataclass(frozen=True, slots=True)
class Window:
    """Stretch of a rater's work.

    Attributes:
        start: place of its first annotation in the rater's work, from 0.
        n: annotations.
        valid: share called valid.
        agreement: share of comparisons with other raters of the same items in which the label is the same; `n` is the
            number of comparisons.
        seconds: median time; NaN without times.
    """

    start: int
    n: int
    valid: Estimate
    agreement: Estimate
    seconds: float


def find_anomalies(study: Study, annotations: Iterable[Annotation], *, length: int = LENGTH) -> list[RaterAnomaly]:
    """Find all anomalies in the annotations of a study.

    Args:
        study: what was judged.
        annotations: the event log, in the order of judging.
        length: shorter blocks, and raters with fewer annotations, are not looked at.

    Raises:
        MismatchError: the annotations are about another study.
    """
    log = blind_annotations(study, annotations)
    work = _by_rater([annotation for annotation in log if not study.item_by_id[annotation.item].is_check])
    strata = {item.id: item.stratum for item in study.items}
    return [
        *_copied(work, strata, length),
        *_repeated(work, strata, length),
        *_identical_items(work, strata),
        *_constant(work, length),
        *_out_of_pace(rater_paces(study, log), length),
        *_drifting(study, work, length),
        *_failing(check_item_accuracy(study, log)),
    ]


def rater_paces(study: Study, annotations: Iterable[Annotation]) -> dict[str, Pace]:
    """Measure how fast each rater works; annotations of 0 seconds have no time. Errors as `find_anomalies`."""
    found = {}
    for rater, work in _by_rater(blind_annotations(study, annotations)).items():
        seconds = np.array([annotation.seconds for annotation in work.values() if annotation.seconds > 0])
        low, middle, high = np.quantile(seconds, [0.1, 0.5, 0.9]).tolist() if len(seconds) else [math.nan] * 3
        found[rater] = Pace(len(seconds), middle, low, high, int((seconds < _HASTE * study.rubric.seconds).sum()))
    return found


def check_item_accuracy(study: Study, annotations: Iterable[Annotation]) -> dict[str, Estimate]:
    """Compute the share of check items to which each rater gave the gold label. Errors as `find_anomalies`."""
    right: dict[str, list[bool]] = {}
    for annotation in blind_annotations(study, annotations):
        item = study.item_by_id[annotation.item]
        if item.is_check:
            right.setdefault(annotation.rater, []).append(annotation.label == item.known)
    return {rater: proportion(np.array(answers)) for rater, answers in right.items()}


def drift_windows(study: Study, annotations: Iterable[Annotation], *, size: int = 50) -> dict[str, list[Window]]:
    """Cut each rater's work into stretches of `size` annotations, in the order of judging, to see drift.

    Errors as `find_anomalies`.
    """
    work = _by_rater(blind_annotations(study, annotations))
    found: dict[str, list[Window]] = {}
    for rater, of_rater in work.items():
        others = [of_other for other, of_other in work.items() if other != rater]
        own = list(of_rater.values())
        for start in range(0, len(own), size):
            part = own[start : start + size]
            valid = [annotation.label == study.rubric.valid for annotation in part]
            same = [j.label == other[j.item].label for j in part for other in others if j.item in other]
            times = [annotation.seconds for annotation in part if annotation.seconds > 0]
            seconds = median(times) if times else math.nan
            window = Window(start, len(part), proportion(np.array(valid)), proportion(np.array(same, bool)), seconds)
            found.setdefault(rater, []).append(window)
    return found


Work = Mapping[str, Mapping[str, Annotation]]
"""Rater to item to annotation, both in the order of judging."""


def _by_rater(annotations: Iterable[Annotation]) -> dict[str, dict[str, Annotation]]:
    work: dict[str, dict[str, Annotation]] = {}
    for annotation in annotations:
        work.setdefault(annotation.rater, {})[annotation.item] = annotation
    return work


def _answer(annotation: Annotation) -> Hashable:
    lists = (annotation.flags, annotation.reasons, annotation.alternatives)
    answers = tuple(sorted(annotation.answers.items()))
    return (annotation.label, *(tuple(sorted(entries)) for entries in lists), answers, annotation.note)


def _copied(work: Work, strata: Mapping[str, str], length: int) -> list[RaterAnomaly]:
    """Find runs of equal answers of two raters, against the rate at which answers are equal elsewhere.

    That rate, of each stratum, is the greater of the pair's own on other items and that of all other comparisons: two
    careful raters agree more often than a third one lets expect, and two who copy throughout have no other items.
    """
    equal = {
        (a, b): {
            item: _answer(work[a][item]) == _answer(work[b][item])
            for item in strata
            if item in work[a].keys() & work[b].keys()
        }
        for a, b in combinations(work, 2)
    }
    everywhere = _by_stratum(strata, (entry for of_pair in equal.values() for entry in of_pair.items()))
    found = []
    for pair, of_pair in equal.items():
        own = _by_stratum(strata, of_pair.items())
        runs = [tuple(item for item, _ in group) for same, group in groupby(of_pair.items(), itemgetter(1)) if same]
        chances = {run: _chance_of(run, strata, (everywhere, own)) for run in runs if len(run) >= length}
        if not chances:
            continue
        run, chance = min(chances.items(), key=itemgetter(1))
        n = len(run)
        if len(equal) * (len(of_pair) - n + 1) * chance < CHANCE:
            message = (
                f"{pair[0]} and {pair[1]} gave equal answers to {n} items in a row of the {len(of_pair)} that both "
                f"judged; elsewhere answers to such items are equal {chance ** (1 / n):.0%} of the time"
            )
            found.append(RaterAnomaly(AnomalyPattern.COPIED, pair, run, message))
    return found


def _chance_of(run: Sequence[str], strata: Mapping[str, str], rates: Sequence[Mapping[str, Counter[bool]]]) -> float:
    """Compute the chance that answers to the items of a run are equal, by the greatest of the rates elsewhere."""
    chance = 1.0
    for stratum, k in Counter(strata[item] for item in run).items():
        # One equal and one different comparison are added: without them a rate of 1 would explain everything.
        chance *= max((of[stratum][True] - k + 1) / (of[stratum].total() - k + 2) for of in rates) ** k
    return chance


def _by_stratum(strata: Mapping[str, str], entries: Iterable[tuple[str, _Value]]) -> dict[str, Counter[_Value]]:
    """Count how often each value occurs among the items of each stratum."""
    counts: dict[str, Counter[_Value]] = {}
    for item, value in entries:
        counts.setdefault(strata[item], Counter())[value] += 1
    return counts


def _repeated(work: Work, strata: Mapping[str, str], length: int) -> list[RaterAnomaly]:
    found = []
    for rater, judged in work.items():
        answers = {item: _answer(annotation) for item, annotation in judged.items()}
        found += _repetitions((rater,), answers, strata, length)
    if len(work) > 1:
        found += _repetitions(tuple(work), _rows(work, strata), strata, length)
    return found


def _rows(work: Work, order: Iterable[str]) -> dict[str, Hashable]:
    """Collect what all raters say of each item that two or more of them judged, in the study's order."""
    rows = {
        item: tuple((rater, _answer(judged[item])) for rater, judged in work.items() if item in judged)
        for item in order
    }
    return {item: row for item, row in rows.items() if len(row) > 1}


def _repetitions(
    raters: tuple[str, ...], answers: Mapping[str, Hashable], strata: Mapping[str, str], length: int
) -> list[RaterAnomaly]:
    """Find blocks that occur twice without overlap and that independent answers of these frequencies hardly repeat."""
    items, sequence, frequency = list(answers), list(answers.values()), _by_stratum(strata, answers.items())
    n = len(sequence)
    seen: dict[tuple[Hashable, ...], int] = {}
    found: list[RaterAnomaly] = []
    position = 0
    while position + length <= n:
        block = tuple(sequence[position : position + length])
        first = seen.setdefault(block, position)
        end = length
        if first + length <= position:
            while position + end < n and first + end < position and sequence[first + end] == sequence[position + end]:
                end += 1
            again = [(frequency[strata[item]], answers[item]) for item in items[position : position + end]]
            surprise = sum(math.log(counts[answer] / counts.total()) for counts, answer in again)
            if math.comb(n, 2) * math.exp(surprise) < CHANCE:
                message = (
                    f"{' and '.join(raters)}: the answers to {end} items in a row, from {items[first]!r} on, occur "
                    f"again from {items[position]!r} on"
                )
                repeated = tuple(items[position : position + end])
                found.append(RaterAnomaly(AnomalyPattern.REPEATED, raters, repeated, message))
                position += end
                continue
        position += 1
    return found


def _identical_items(work: Work, order: Iterable[str]) -> list[RaterAnomaly]:
    groups: dict[Hashable, list[str]] = {}
    for item in order:
        given = [judged[item] for judged in work.values() if item in judged]
        if sum(bool(annotation.note or annotation.alternatives) for annotation in given) > 1:
            row = tuple((annotation.rater, _answer(annotation)) for annotation in given)
            groups.setdefault(row, []).append(item)
    found = []
    for items in groups.values():
        if len(items) > 1:
            raters = tuple(rater for rater, judged in work.items() if items[0] in judged)
            names = " and ".join(raters)
            message = f"{names} gave the same notes, clicks and labels to all of these items: {format_ids(items)}"
            found.append(RaterAnomaly(AnomalyPattern.IDENTICAL_ITEMS, raters, tuple(items), message))
    return found


def _constant(work: Work, length: int) -> list[RaterAnomaly]:
    """Compare how often a rater gives their most frequent answer with how often the others give it to those items."""
    from scipy.stats import binom

    found = []
    for rater, judged in work.items():
        answers = Counter(_answer(annotation) for annotation in judged.values())
        answer, count = answers.most_common(1)[0]
        if len(judged) < length or count < _MOSTLY * len(judged):
            continue
        others = [of_other for other, of_other in work.items() if other != rater]
        given = [_answer(other[item]) == answer for item in judged for other in others if item in other]
        # As in `_copied`; without other raters the answer counts as one of two.
        rate = (sum(given) + 1) / (len(given) + 2)
        if len(work) * binom.sf(count - 1, len(judged), rate) < CHANCE:
            message = (
                f"{rater} gave the same answer to {count} of {len(judged)} items; the others give it in {rate:.0%}"
            )
            found.append(RaterAnomaly(AnomalyPattern.CONSTANT, (rater,), (), message))
    return found


def _out_of_pace(of_raters: Mapping[str, Pace], length: int) -> list[RaterAnomaly]:
    medians = {rater: pace.median for rater, pace in of_raters.items() if pace.n >= length}
    if len(medians) < _OTHERS + 1:
        return []
    usual = median(medians.values())
    found = []
    for rater, own in medians.items():
        pattern = AnomalyPattern.FAST if own < usual / PACE else AnomalyPattern.SLOW if own > usual * PACE else None
        if pattern:
            message = f"{rater} takes {own:.1f} s for an item in the median, raters take {usual:.1f} s"
            found.append(RaterAnomaly(pattern, (rater,), (), message))
    return found


def _drifting(study: Study, work: Work, length: int) -> list[RaterAnomaly]:
    from scipy.stats import fisher_exact

    found = []
    for rater, judged in work.items():
        valid = [annotation.label == study.rubric.valid for annotation in judged.values()]
        early, late = valid[: len(valid) // 2], valid[len(valid) // 2 :]
        if len(early) < length:
            continue
        table = [[sum(part), len(part) - sum(part)] for part in (early, late)]
        if len(work) * fisher_exact(table).pvalue < CHANCE:
            message = (
                f"{rater} called {sum(early)} of the first {len(early)} items valid, but {sum(late)} of the last "
                f"{len(late)}"
            )
            found.append(RaterAnomaly(AnomalyPattern.DRIFT, (rater,), (), message))
    return found


def _failing(of_raters: Mapping[str, Estimate]) -> list[RaterAnomaly]:
    return [
        RaterAnomaly(
            AnomalyPattern.FAILED_CHECKS,
            (rater,),
            (),
            f"{rater} answered {round(right.value * right.n)} of {right.n} check items as known",
        )
        for rater, right in of_raters.items()
        if right.n >= _CHECKS and right.value < _PASSING
    ]
