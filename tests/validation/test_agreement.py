"""Agreement: published worked examples, an independent computation on random tables, and what is undefined."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score
from support.judged import BROAD, TARGET, TEXT, VALID, judge_all, study

from circus_bench.audit.statistics import proportion
from circus_bench.errors import CircusError
from circus_bench.io import to_json
from circus_bench.validation import agreement as agreement_module
from circus_bench.validation.agreement import (
    STATISTICS,
    Coefficient,
    Statistic,
    Status,
    agreement,
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    mean_cohen_kappa,
    rater_matrix,
    raw_agreement,
    study_agreement,
    survival,
)
from circus_bench.validation.ratings import MISSING, Ratings

Rows = list[list[str | None]]


def by_rater(*raters: str) -> Ratings:
    """A table from one string of ratings for each rater, "." for a missing one."""
    return Ratings.from_rows([[None if value == "." else value for value in row] for row in zip(*raters, strict=True)])


def from_counts(text: str) -> Ratings:
    """A table from how many raters chose each category, one line for each item; who chose it is not published."""
    counts = [[int(n) for n in line.split()] for line in text.strip().splitlines()]
    rows = [[str(c) for c, n in enumerate(line) for _ in range(n)] for line in counts]
    return Ratings.from_rows(rows, categories=[str(c) for c in range(len(counts[0]))])


def from_crosstab(table: list[list[int]]) -> Ratings:
    """Two raters, from how many items the first (row) and the second (column) put where."""
    pairs = [(a, b, n) for a, row in enumerate(table) for b, n in enumerate(row)]
    return Ratings.from_rows([[str(a), str(b)] for a, b, n in pairs for _ in range(n)])


# K. Krippendorff, "Computing Krippendorff's alpha-reliability" (2011), section C: four observers, twelve units.
KRIPPENDORFF = by_rater("123321412...", "1233224125.3", ".3332342251.", "12332441251.")

# J. L. Fleiss, "Measuring nominal scale agreement among many raters", Psychological Bulletin 76 (1971), table 1: 30
# patients, six psychiatrists each; depression, personality disorder, schizophrenia, neurosis, other.
FLEISS = """
0 0 0 6 0
0 3 0 0 3
0 1 4 0 1
0 0 0 0 6
0 3 0 3 0
2 0 4 0 0
0 0 4 0 2
2 0 3 1 0
2 0 0 4 0
0 0 0 0 6
1 0 0 5 0
1 1 0 4 0
0 3 3 0 0
1 0 0 5 0
0 2 0 3 1
0 0 5 0 1
3 0 0 1 2
5 1 0 0 0
0 2 0 4 0
1 0 2 0 3
0 0 0 0 6
0 1 0 5 0
0 2 0 1 3
2 0 0 4 0
1 0 0 4 1
0 5 0 1 0
4 0 0 0 2
0 2 0 4 0
1 0 5 0 0
0 0 0 0 6
"""

# The worked example of Wikipedia's article "Fleiss' kappa": ten subjects, fourteen raters, five categories.
FOURTEEN = """
0 0 0 0 14
0 2 6 4 2
0 0 3 5 6
0 3 9 2 0
2 2 8 1 1
7 7 0 0 0
3 2 6 3 0
2 5 3 2 2
6 5 2 1 0
0 2 2 3 7
"""

# The overview of K. L. Gwet's R package irrCAC: two abstractors, 100 pregnancies, three categories.
ABSTRACTORS = from_crosstab([[13, 0, 0], [0, 20, 7], [0, 4, 56]])


def test_krippendorff_s_alpha_is_that_of_his_worked_example_with_missing_values() -> None:
    assert krippendorff_alpha(KRIPPENDORFF).estimate.value == pytest.approx(0.743, abs=5e-4)


@pytest.mark.parametrize(
    ("statistic", "published"),
    [
        # The overview of irrCAC prints these for the same table (there named cac.raw4raters).
        (Statistic.RAW, 0.8181818),
        (Statistic.AC1, 0.77544),
        (Statistic.FLEISS, 0.76117),
        (Statistic.KRIPPENDORFF, 0.74342),
    ],
)
def test_coefficients_with_missing_ratings_are_those_that_gwet_prints(statistic: Statistic, published: float) -> None:
    assert STATISTICS[statistic](KRIPPENDORFF).estimate.value == pytest.approx(published, abs=6e-6)


def test_fleiss_kappa_is_that_of_his_paper() -> None:
    assert fleiss_kappa(from_counts(FLEISS)).estimate.value == pytest.approx(0.430, abs=5e-4)


def test_fleiss_kappa_is_that_of_fourteen_raters() -> None:
    assert fleiss_kappa(from_counts(FOURTEEN)).estimate.value == pytest.approx(0.210, abs=5e-4)


@pytest.mark.parametrize(
    ("statistic", "published"),
    [
        # The overview of irrCAC prints these for the first 15 of Fleiss' patients (there named distrib.6raters).
        (Statistic.RAW, 0.5511111),
        (Statistic.AC1, 0.4448007),
        (Statistic.FLEISS, 0.4139265),
        (Statistic.KRIPPENDORFF, 0.4204384),
    ],
)
def test_coefficients_of_six_raters_are_those_that_gwet_prints(statistic: Statistic, published: float) -> None:
    fifteen = from_counts("\n".join(FLEISS.strip().splitlines()[:15]))
    assert STATISTICS[statistic](fifteen).estimate.value == pytest.approx(published, abs=6e-8)


@pytest.mark.parametrize(
    ("statistic", "published"),
    [
        (Statistic.COHEN, 0.7964094),
        (Statistic.FLEISS, 0.7962397),  # of two raters: Scott's pi
        (Statistic.AC1, 0.8493305),
        (Statistic.KRIPPENDORFF, 0.7972585),
        (Statistic.RAW, 0.89),
    ],
)
def test_coefficients_of_two_raters_are_those_that_gwet_prints(statistic: Statistic, published: float) -> None:
    assert STATISTICS[statistic](ABSTRACTORS).estimate.value == pytest.approx(published, abs=6e-8)


@pytest.mark.parametrize(
    ("table", "published"),
    [
        # The worked examples of Wikipedia's article "Cohen's kappa": 50 grant proposals, and the two tables of equal
        # agreement whose kappas differ.
        ([[20, 5], [10, 15]], 0.40),
        ([[45, 15], [25, 15]], 0.1304),
        ([[25, 35], [5, 35]], 0.2593),
    ],
)
def test_cohen_s_kappa_is_that_of_worked_examples(table: list[list[int]], published: float) -> None:
    assert mean_cohen_kappa(from_crosstab(table)).estimate.value == pytest.approx(published, abs=5e-5)


def random_table(rng: np.random.Generator) -> Ratings:
    """Raters who know the truth to some degree, with missing ratings and categories that hardly anybody chooses."""
    n, raters, q = rng.integers(2, 25), rng.integers(2, 7), rng.integers(2, 6)
    truth = rng.choice(q, size=n, p=rng.dirichlet(np.full(q, 0.7)))
    guess = rng.integers(0, q, size=(n, raters))
    codes = np.where(rng.random((n, raters)) < rng.random(), truth[:, None], guess)
    codes[rng.random((n, raters)) < rng.choice([0.0, 0.2, 0.6])] = MISSING
    names = tuple(f"i{i}" for i in range(n)), tuple(f"r{r}" for r in range(raters)), tuple("abcde"[:q])
    return Ratings(*names, codes.astype(np.int16))


def pairwise(table: Ratings) -> dict[Statistic, float]:
    """The coefficients in another way, from nothing but pairs of single ratings; NaN where chance leaves nothing over.

    Krippendorff's chance agreement is that of two ratings drawn from all pairable ones without replacement; Fleiss'
    that of ratings drawn from two random items' random raters; Cohen's that of the two raters' ratings of shuffled
    items.
    """
    items = [[code for code in row if code != MISSING] for row in table.codes.tolist()]
    rated, paired = [row for row in items if row], [row for row in items if len(row) > 1]
    observed = np.mean([np.mean([a == b for a, b in combinations(row, 2)]) for row in paired])
    pool = np.array([code for row in paired for code in row])
    weighted = sum(np.mean([a == b for a, b in combinations(row, 2)]) * len(row) for row in paired) / len(pool)
    drawn = (pool[:, None] == pool)[~np.eye(len(pool), dtype=bool)].mean()
    shares = [np.mean([row.count(c) / len(row) for row in rated]) for c in range(len(table.categories))]
    fleiss = sum(share * share for share in shares)
    ac1 = sum(share * (1 - share) for share in shares) / (len(shares) - 1)
    kappas = []
    for a, b in combinations(range(len(table.raters)), 2):
        both = [(row[a], row[b]) for row in table.codes.tolist() if MISSING not in (row[a], row[b])]
        if len(both) > 1:
            equal = np.mean([x == y for x, y in both])
            left, right = Counter(x for x, _ in both), Counter(y for _, y in both)
            chance = sum(left[c] * right[c] for c in left) / len(both) ** 2
            kappas.append(corrected(equal, chance))
    return {
        Statistic.RAW: float(observed),
        Statistic.KRIPPENDORFF: corrected(weighted, drawn),
        Statistic.FLEISS: corrected(observed, fleiss),
        Statistic.AC1: corrected(observed, ac1),
        Statistic.COHEN: float(np.nanmean(kappas)) if np.isfinite(kappas).any() else math.nan,
    }


def corrected(observed: float, chance: float) -> float:
    return math.nan if chance > 1 - 1e-12 else float((observed - chance) / (1 - chance))


def test_coefficients_agree_with_an_independent_computation_on_1000_random_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Intervals have tests of their own; without them 1,000 tables take seconds.
    monkeypatch.setattr(agreement_module, "resampled_means", lambda rows: rows.mean(axis=1, keepdims=True))
    rng = np.random.default_rng(20110125)
    tables = [table for table in (random_table(rng) for _ in range(1300)) if raw_agreement(table).status is Status.OK]
    assert len(tables) >= 1000
    for table in tables[:1000]:
        expected = pairwise(table)
        for statistic, found in agreement(table).items():
            assert found.estimate.value == pytest.approx(expected[statistic], abs=1e-9, nan_ok=True), statistic


def test_cohen_s_kappa_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        a, b = rng.integers(0, 4, (2, 60))
        b = np.where(rng.random(60) < 0.5, a, b)
        table = Ratings.from_rows([[str(x), str(y)] for x, y in zip(a, b, strict=True)])
        assert mean_cohen_kappa(table).estimate.value == pytest.approx(cohen_kappa_score(a, b))


def test_krippendorff_s_alpha_nears_fleiss_kappa_with_many_items() -> None:
    # Without missing ratings they differ by a correction for small samples only: 1 - alpha = (1 - kappa)(1 - 1/n).
    table = from_counts(FOURTEEN)
    kappa, n = fleiss_kappa(table).estimate.value, 140
    assert 1 - krippendorff_alpha(table).estimate.value == pytest.approx((1 - kappa) * (1 - 1 / n))


def test_the_names_of_categories_raters_and_items_make_no_difference() -> None:
    turned = Ratings(
        KRIPPENDORFF.items[::-1], KRIPPENDORFF.raters, KRIPPENDORFF.categories[::-1], KRIPPENDORFF.codes[::-1, ::-1]
    )
    for statistic, function in STATISTICS.items():
        expected = function(KRIPPENDORFF).estimate.value
        assert function(turned).estimate.value == pytest.approx(expected), statistic


def test_only_ac1_depends_on_categories_that_nobody_chose() -> None:
    wider = Ratings(KRIPPENDORFF.items, KRIPPENDORFF.raters, (*KRIPPENDORFF.categories, "9"), KRIPPENDORFF.codes)
    changed = {s for s, f in STATISTICS.items() if f(wider).estimate.value != f(KRIPPENDORFF).estimate.value}
    assert changed == {Statistic.AC1}


def test_items_with_one_rating_do_not_change_observed_agreement() -> None:
    alone: Rows = [["a", "a"], ["a", "b"], ["b", "b"], ["a", None], [None, "b"]]
    assert raw_agreement(Ratings.from_rows(alone)).estimate.value == pytest.approx(2 / 3)
    assert raw_agreement(Ratings.from_rows(alone)).estimate.n == 3


UNDEFINED: dict[Status, Rows] = {
    Status.NO_RATINGS: [[None, None], [None, None]],
    Status.ONE_RATER: [["a", None], ["b", None], ["a", None]],
    Status.NO_OVERLAP: [["a", None], [None, "b"], ["a", None]],
    Status.TOO_FEW_ITEMS: [["a", "a"], [None, "b"], ["a", None]],
}


@pytest.mark.parametrize("status", UNDEFINED)
@pytest.mark.parametrize("statistic", Statistic)
def test_what_is_undefined_has_a_status_and_no_value(statistic: Statistic, status: Status) -> None:
    found = STATISTICS[statistic](Ratings.from_rows(UNDEFINED[status], categories="ab"))
    assert found.status is status
    assert math.isnan(found.estimate.value)
    assert math.isnan(found.estimate.low)


@pytest.mark.parametrize("statistic", Statistic)
def test_an_empty_table_has_no_ratings(statistic: Statistic) -> None:
    assert STATISTICS[statistic](Ratings.from_rows([], categories="ab")).status is Status.NO_RATINGS


@pytest.mark.parametrize("statistic", [Statistic.KRIPPENDORFF, Statistic.FLEISS, Statistic.COHEN])
def test_with_a_single_category_in_use_chance_explains_everything(statistic: Statistic) -> None:
    found = STATISTICS[statistic](Ratings.from_rows([["a", "a"]] * 20, categories="ab"))
    assert found.status is Status.SINGLE_CATEGORY
    assert math.isnan(found.estimate.value)


def test_with_a_single_category_in_use_raw_agreement_and_ac1_are_1() -> None:
    table = Ratings.from_rows([["a", "a"]] * 20, categories="ab")
    for found in (raw_agreement(table), gwet_ac1(table)):
        assert (found.status, found.estimate.value) == (Status.OK, 1)


def test_ac1_needs_two_categories_to_choose_from() -> None:
    assert gwet_ac1(Ratings.from_rows([["a", "a"]] * 20)).status is Status.SINGLE_CATEGORY


def test_skewed_labels_push_alpha_below_0_but_not_ac1() -> None:
    # 38 items "a" by both raters, one "a" and "b", one "b" and "a". Raw agreement 38/40 = 0.95. Alpha: 80 ratings, 2 of
    # them "b"; expected disagreement 2 * 78 * 2 / (80 * 79) = 0.04937; alpha = 1 - 0.05 / 0.04937 = -0.0128.
    # AC1: chance 2 * 0.975 * 0.025 = 0.04875; (0.95 - 0.04875) / 0.95125 = 0.9474.
    table = Ratings.from_rows([["a", "a"]] * 38 + [["a", "b"], ["b", "a"]])
    assert raw_agreement(table).estimate.value == pytest.approx(0.95)
    assert krippendorff_alpha(table).estimate.value == pytest.approx(-0.0128, abs=5e-5)
    assert gwet_ac1(table).estimate.value == pytest.approx(0.9474, abs=5e-5)


def test_an_interval_holds_its_value_and_is_the_same_at_every_call() -> None:
    for statistic, found in agreement(ABSTRACTORS).items():
        assert found.estimate.low < found.estimate.value < found.estimate.high, statistic
        assert STATISTICS[statistic](ABSTRACTORS) == found


@pytest.mark.parametrize("statistic", Statistic)
def test_an_interval_is_about_as_wide_as_gwet_s_standard_error_says(statistic: Statistic) -> None:
    # The overview of irrCAC prints these standard errors for the abstractors, from a formula for large samples.
    errors = {
        Statistic.COHEN: 0.05891,
        Statistic.FLEISS: 0.05905,
        Statistic.AC1: 0.04322,
        Statistic.KRIPPENDORFF: 0.05905,
        Statistic.RAW: 0.03129,
    }
    found = STATISTICS[statistic](ABSTRACTORS).estimate
    assert found.high - found.low == pytest.approx(2 * 1.96 * errors[statistic], rel=0.12)


@pytest.mark.parametrize("statistic", [Statistic.RAW, Statistic.KRIPPENDORFF, Statistic.COHEN])
def test_a_bootstrap_interval_covers_the_truth_about_as_often_as_it_says(statistic: Statistic) -> None:
    # Three raters, right with 0.85 and otherwise at random among two labels, half of the items each: two raters agree
    # with probability 0.925^2 + 0.075^2 = 0.86125, and chance is 1/2: the others are 0.7225.
    rng = np.random.default_rng(11)
    truth = 0.86125 if statistic is Statistic.RAW else 0.7225
    covered = []
    for _ in range(100):
        codes = rng.integers(0, 2, 80)[:, None] ^ (rng.random((80, 3)) < 0.075)
        table = Ratings(tuple(map(str, range(80))), ("r", "s", "t"), ("a", "b"), codes.astype(np.int16))
        found = STATISTICS[statistic](table).estimate
        covered.append(found.low <= truth <= found.high)
    # 100 trials at 0.95 fall below this once in some thousand times.
    assert np.mean(covered) > 0.87


@pytest.mark.parametrize("statistic", Statistic)
def test_perfect_agreement_on_few_items_has_an_interval(statistic: Statistic) -> None:
    # Raw agreement: Wilson's lower limit of 10 of 10. The others: chance (about one half) taken from that limit.
    found = STATISTICS[statistic](Ratings.from_rows([["a", "a"], ["b", "b"]] * 5)).estimate
    wilson = proportion(np.ones(10)).low
    chance = {Statistic.RAW: 0.0, Statistic.KRIPPENDORFF: 9 / 19}.get(statistic, 0.5)
    assert (found.value, found.high) == (1, 1)
    assert found.low == pytest.approx((wilson - chance) / (1 - chance))


def test_a_coefficient_is_strict_json() -> None:
    content = json.loads(to_json(krippendorff_alpha(Ratings.from_rows([["a", "a"]] * 3)).to_dict()))
    assert content == {
        "statistic": "krippendorff_alpha",
        "status": "single_category",
        "raters": 2,
        "ratings": 6,
        "value": None,
        "low": None,
        "high": None,
        "n": 0,
    }


def test_a_study_s_agreement_is_told_for_the_label_each_label_and_each_flag() -> None:
    log = judge_all({"ann": [VALID, VALID, TEXT, BROAD], "bob": [VALID, TARGET, TEXT, VALID]})
    found = study_agreement(study(4), log)
    values = {question: of[Statistic.RAW].estimate.value for question, of in found.items()}
    # Items 0 and 2 have equal labels; 1 and 3 differ in validity. Flags differ on item 1 (target) and 3 (breadth).
    assert values == {
        "label": 0.5, VALID: 0.5, TEXT: 1, "INVALID_IMAGE_QUERY": 1, TARGET: 0.75, BROAD: 0.75,
        "text": 1, "reference": 1, "target": 0.75, "breadth": 0.75,
    }  # fmt: skip


def test_the_matrix_compares_each_pair_on_the_items_that_both_rated() -> None:
    table = by_rater("aabb.", "aabbb", "...ab")
    found = rater_matrix(table)
    assert found.shared.tolist() == [[0, 4, 1], [4, 0, 2], [1, 2, 0]]
    assert found.agreement[0, 1] == 1
    assert found.agreement[0, 2] == found.agreement[2, 0] == 0
    assert found.agreement[1, 2] == 0.5
    assert found.kappa[1, 0] == 1
    assert found.kappa[1, 2] == 0  # one of them says only b: agreement is what chance gives
    assert np.isnan(found.kappa[0, 2])  # one shared item
    assert np.isnan(np.diag(found.agreement)).all()


def test_the_mean_kappa_is_that_of_the_pairs_that_have_one() -> None:
    found = mean_cohen_kappa(by_rater("aabb.", "aabbb", "...ab"))
    assert found.estimate.value == pytest.approx((1 + 0) / 2)


def test_a_single_valid_survives_as_often_as_the_majority_confirms_it() -> None:
    # Ratings "valid" that are in the majority: 3 of item 0, 2 of item 1; alone on item 2. Item 3 is never valid, item 4
    # has too few ratings. 5 of 6 survive.
    table = by_rater("vvvx.", "vvxxv", "vxxxv")
    found = survival(table, "v")
    assert (found.value, found.n) == (pytest.approx(5 / 6), 3)
    assert found.low < found.value < found.high


def test_a_tie_is_no_majority() -> None:
    assert survival(by_rater("vv", "vv", "xv", "xv"), "v").value == pytest.approx(4 / 6)


def test_survival_without_exception_has_wilson_s_interval_over_items() -> None:
    assert survival(by_rater("vvx", "vvx", "vvx"), "v") == proportion(np.ones(2))


def test_survival_is_undefined_where_the_category_was_never_chosen() -> None:
    assert math.isnan(survival(Ratings.from_rows([["x", "x", "x"]], categories="vx"), "v").value)


def test_survival_of_an_unknown_category_is_refused() -> None:
    with pytest.raises(CircusError, match="no category 'z'"):
        survival(by_rater("v", "v", "v"), "z")


def test_a_coefficient_counts_raters_and_ratings() -> None:
    found: Coefficient = raw_agreement(KRIPPENDORFF)
    # Krippendorff (2011): 41 values, of which 40 are pairable, in 11 pairable units.
    assert (found.raters, found.ratings, found.estimate.n) == (4, 41, 11)
