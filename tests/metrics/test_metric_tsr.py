"""Test-set reliability: worked values, abstentions and refused input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from circus_bench.errors import FormatError
from circus_bench.metrics import Verdict, negative_share, tsr

WORDS = {"N": "negative", "P": "positive", "A": "abstain"}


def judged(*candidates: str) -> list[list[str]]:
    """Verdicts from one string per candidate, one letter per judge."""
    return [[WORDS[letter] for letter in candidate] for candidate in candidates]


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ("NNNN", 1.0),  # m = 1, 1, 1, 1
        ("PNNN", (3 / 4 + 1 + 1 + 1) / 4),  # 0.9375
        ("NNNP", (3 / 4 + 2 / 3 + 1 / 2 + 0) / 4),  # 0.4792
        ("PPPP", 0.0),
    ],
)
@pytest.mark.parametrize("n_judges", [1, 3])
def test_unanimous_verdicts(candidates: str, expected: float, n_judges: int) -> None:
    assert tsr(judged(*(verdict * n_judges for verdict in candidates))) == pytest.approx(expected)


def test_one_candidate_is_its_own_share() -> None:
    assert tsr(judged("NNP")) == pytest.approx(2 / 3)


def test_share_is_zero_only_below_half() -> None:
    # 3, 2 and 1 negative of 4: exactly half keeps its share.
    assert negative_share(judged("NNNP", "NNPP", "NPPP")).tolist() == [0.75, 0.5, 0]


def test_abstentions_count_in_the_denominator() -> None:
    # 2 of 3 judges; 1 of 3 is below half, though the only verdict is negative.
    assert negative_share(judged("NNA", "NAA", "AAA")).tolist() == pytest.approx([2 / 3, 0, 0])


def test_mixed_list() -> None:
    # Shares 1, 1/2, 1/2, 0; suffix means 2/4, 1/3, 1/4, 0.
    assert tsr(judged("NN", "NP", "NA", "PA")) == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 4)


def test_a_positive_costs_more_the_later_it_stands() -> None:
    values = [tsr(judged(*("P" if i == place else "N" for i in range(6)))) for place in range(6)]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == 6


def test_enum_members_and_arrays_are_taken() -> None:
    members = [[Verdict.NEGATIVE, Verdict.POSITIVE], [Verdict.NEGATIVE, Verdict.ABSTAIN]]
    assert tsr(members) == tsr(np.array(judged("NP", "NA")))


def test_rows_of_unequal_length_are_refused() -> None:
    with pytest.raises(FormatError, match=r"verdict of every judge.*rows of \[1, 2\] verdicts"):
        tsr([["negative", "negative"], ["negative"]])


@pytest.mark.parametrize("verdicts", [[], [[]], [[], []], ["negative"]])
def test_no_candidate_or_no_judge_is_refused(verdicts: Any) -> None:
    with pytest.raises(FormatError, match="n_judges"):
        tsr(verdicts)


@pytest.mark.parametrize("bad", ["Negative", "", "yes", None, 0])
def test_an_unknown_verdict_is_refused_and_named(bad: Any) -> None:
    with pytest.raises(FormatError, match="unknown verdicts"):
        tsr([["negative", "positive"], ["negative", bad]])
