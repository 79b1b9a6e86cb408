"""Dawid and Skene's model: their own data, simulated raters, known answers, and degenerate tables."""

from __future__ import annotations

import numpy as np
import pytest

from circus_bench.errors import CircusError
from circus_bench.validation import dawid_skene
from circus_bench.validation.ratings import MISSING, Ratings

# Table 1 of Dawid and Skene (1979): 45 patients, fitness for anaesthesia in four classes; the first of five
# anaesthetists assessed each patient three times.
PATIENTS = """
111 1 1 1 1|333 4 3 3 4|112 2 1 2 2|222 3 1 2 1|222 3 2 2 2|222 3 3 2 2|122 2 1 1 1|333 3 4 3 3|222 2 2 2 3|232 2 2 2 3
444 4 4 4 4|222 3 3 4 3|111 1 1 1 1|222 3 2 1 2|121 1 1 1 1|111 2 1 1 1|111 1 1 1 1|111 1 1 1 1|222 2 2 2 1|222 1 3 2 2
222 2 2 2 2|222 2 2 2 1|222 3 2 2 2|221 2 2 2 2|111 1 1 1 1|111 1 1 1 1|232 2 2 2 2|111 1 1 1 1|111 1 1 1 1|112 1 1 2 1
111 1 1 1 1|333 3 2 3 3|111 1 1 1 1|222 2 2 2 2|222 3 2 3 2|433 4 3 4 3|221 2 2 3 2|232 3 2 3 3|333 3 4 3 2|111 1 1 1 1
111 1 1 1 1|121 2 1 1 1|232 2 2 2 2|121 1 1 1 1|222 2 2 2 2
"""


def anaesthetists() -> np.ndarray:
    patients = [patient.split() for line in PATIENTS.strip().splitlines() for patient in line.split("|")]
    counts = np.zeros((45, 5, 4))
    for i, patient in enumerate(patients):
        for rater, assessments in enumerate(patient):
            for assessment in assessments:
                counts[i, rater, int(assessment) - 1] += 1
    return counts


def simulated(
    rng: np.random.Generator, *, items: int, confusion: list[float], per_item: int | None = None, valid: float = 0.4
) -> tuple[np.ndarray, Ratings]:
    """Truth (0 is valid) and the ratings of raters who err with these probabilities, in both directions alike."""
    truth = (rng.random(items) >= valid).astype(int)
    codes = (truth[:, None] ^ (rng.random((items, len(confusion))) < confusion)).astype(np.int16)
    if per_item is not None:
        for row in codes:
            row[rng.permutation(len(confusion))[per_item:]] = MISSING
    names = tuple(map(str, range(items))), tuple(map(str, range(len(confusion))))
    return truth, Ratings(*names, ("valid", "not valid"), codes)


def test_the_anaesthetists_have_the_published_shares_and_error_rates() -> None:
    # Dawid and Skene (1979), section 4: shares of the classes, and the first anaesthetist's error rates.
    found = dawid_skene.fit_counts(anaesthetists(), smoothing=0)
    assert found.converged
    assert found.prevalence == pytest.approx([0.40, 0.42, 0.11, 0.07], abs=0.005)
    expected = [[0.89, 0.11, 0, 0], [0.07, 0.88, 0.05, 0], [0, 0.34, 0.66, 0], [0, 0, 0.56, 0.44]]
    assert found.confusion[0] == pytest.approx(np.array(expected), abs=0.005)


def test_the_fit_solves_the_model_s_equations() -> None:
    # Equations 2.3 to 2.5 written out with products, at the fitted values: what goes in comes out.
    counts = anaesthetists()
    found = dawid_skene.fit_counts(counts, smoothing=0, tolerance=1e-12)
    joint = np.array(
        [
            [found.prevalence[j] * np.prod([found.confusion[r, j] ** counts[i, r] for r in range(5)]) for j in range(4)]
            for i in range(45)
        ]
    )
    posterior = joint / joint.sum(axis=1, keepdims=True)
    assert found.posterior == pytest.approx(posterior, abs=1e-9)
    assert found.prevalence == pytest.approx(posterior.mean(axis=0), abs=1e-9)
    tables = np.einsum("ij,irl->rjl", posterior, counts)
    assert found.confusion == pytest.approx(tables / tables.sum(axis=2, keepdims=True), abs=1e-9)
    assert found.log_likelihood == pytest.approx(np.log(joint.sum(axis=1)).sum())


def test_more_iterations_never_lower_the_likelihood() -> None:
    fits = [dawid_skene.fit_counts(anaesthetists(), smoothing=0, max_iterations=n) for n in range(1, 15)]
    assert (np.diff([found.log_likelihood for found in fits]) > -1e-9).all()
    assert not fits[0].converged


def test_the_fit_is_the_same_at_every_call() -> None:
    _, ratings = simulated(np.random.default_rng(1), items=50, confusion=[0.1, 0.2, 0.3])
    assert (dawid_skene.fit(ratings).posterior == dawid_skene.fit(ratings).posterior).all()


def test_error_rates_of_simulated_raters_are_found() -> None:
    confusion = [0.05, 0.1, 0.2, 0.35]
    _, ratings = simulated(np.random.default_rng(2), items=4000, confusion=confusion)
    found = dawid_skene.fit(ratings)
    # 1,600 items are valid: the standard error of a share of 0.2 is 0.01.
    assert found.confusion[:, 0, 1] == pytest.approx(confusion, abs=0.04)
    assert found.confusion[:, 1, 0] == pytest.approx(confusion, abs=0.04)
    assert found.prevalence[0] == pytest.approx(0.4, abs=0.03)


def majority(ratings: Ratings) -> np.ndarray:
    counts = ratings.counts
    return (counts[:, 1] > counts[:, 0]).astype(int)


def test_with_raters_of_unequal_care_it_errs_less_than_the_majority() -> None:
    # Two careful raters of five are outvoted by three careless ones, in seven studies.
    mistakes = {"model": 0, "majority": 0}
    for seed in range(7):
        truth, ratings = simulated(np.random.default_rng(seed), items=300, confusion=[0.05, 0.05, 0.4, 0.4, 0.4])
        mistakes["model"] += int((dawid_skene.fit(ratings).posterior.argmax(axis=1) != truth).sum())
        mistakes["majority"] += int((majority(ratings) != truth).sum())
    assert mistakes["model"] < 0.6 * mistakes["majority"]


def test_with_three_of_many_equal_raters_it_is_about_as_good_as_the_majority() -> None:
    mistakes = {"model": 0, "majority": 0}
    for seed in range(7):
        truth, ratings = simulated(np.random.default_rng(seed), items=300, confusion=[0.1] * 9, per_item=3)
        mistakes["model"] += int((dawid_skene.fit(ratings).posterior.argmax(axis=1) != truth).sum())
        mistakes["majority"] += int((majority(ratings) != truth).sum())
    # Estimating 18 error rates costs something: 2,100 items, 0.028 of them wrong by majority.
    assert mistakes["model"] < 1.2 * mistakes["majority"]


def test_a_rater_who_is_nearly_always_wrong_counts_the_other_way_round() -> None:
    truth, ratings = simulated(np.random.default_rng(3), items=400, confusion=[0.15, 0.15, 0.15, 0.95])
    found = dawid_skene.fit(ratings)
    assert found.confusion[3, 0, 1] > 0.85
    assert (found.posterior.argmax(axis=1) == truth).mean() > (majority(ratings) == truth).mean()


def test_known_answers_keep_their_category_and_teach_the_error_rates() -> None:
    # Two raters who always disagree: which one to believe only the check items tell.
    codes = np.array([[0, 1], [1, 0]] * 10, np.int16)
    ratings = Ratings(tuple(map(str, range(20))), ("a", "b"), ("valid", "not valid"), codes)
    known = np.full(20, MISSING)
    known[:6] = codes[:6, 0]
    found = dawid_skene.fit(ratings, known=known)
    assert (found.posterior[:6].argmax(axis=1) == known[:6]).all()
    assert set(found.posterior[:6].ravel()) == {0.0, 1.0}
    assert (found.posterior[6:].argmax(axis=1) == codes[6:, 0]).all()


def test_known_answers_do_not_count_towards_the_shares() -> None:
    truth, ratings = simulated(np.random.default_rng(4), items=400, confusion=[0.1, 0.1, 0.1], valid=0.2)
    known = np.where(np.arange(400) < 200, truth, MISSING)
    found = dawid_skene.fit(ratings, known=known)
    assert found.prevalence[0] == pytest.approx((found.posterior[200:, 0].sum() + 0.5) / 201, abs=1e-6)


def test_without_other_items_the_shares_are_those_of_the_known_ones() -> None:
    ratings = Ratings.from_rows([["a", "a"], ["a", "b"], ["b", "b"], ["b", "b"]])
    found = dawid_skene.fit(ratings, known=np.array([0, 0, 0, 1]), smoothing=0)
    assert found.prevalence.tolist() == [0.75, 0.25]


def test_an_item_without_ratings_has_the_shares_and_changes_nothing() -> None:
    _, ratings = simulated(np.random.default_rng(5), items=60, confusion=[0.1, 0.2, 0.2])
    blank = np.vstack([ratings.codes, np.full((1, 3), MISSING, np.int16)])
    wider = dawid_skene.fit(Ratings((*ratings.items, "blank"), ratings.raters, ratings.categories, blank))
    found = dawid_skene.fit(ratings)
    assert wider.posterior[:-1] == pytest.approx(found.posterior)
    assert wider.posterior[-1] == pytest.approx(found.prevalence)


def test_a_rater_with_few_ratings_is_not_taken_for_perfect() -> None:
    # Smoothed, one right answer gives an error rate of 0.5 / 2 = 0.25; by maximum likelihood it would be 0.
    rows = [["a", "a", "a"]] + [["a", "a", None], ["b", "b", None]] * 20
    found = dawid_skene.fit(Ratings.from_rows(rows))
    assert found.confusion[2, 0, 1] == pytest.approx(0.25, abs=0.01)
    assert found.confusion[2, 1] == pytest.approx([0.5, 0.5], abs=0.01)


def test_a_rater_who_never_saw_a_category_has_equal_error_rates_there() -> None:
    rows = [["a", "a", "a"], ["a", "a", "a"], ["b", "b", None], ["b", "b", None]]
    assert dawid_skene.fit(Ratings.from_rows(rows), smoothing=0).confusion[2].tolist() == [[1, 0], [0.5, 0.5]]


def test_very_many_raters_do_not_underflow() -> None:
    _, ratings = simulated(np.random.default_rng(6), items=5, confusion=[0.45] * 1500)
    found = dawid_skene.fit(ratings)
    assert np.isfinite(found.posterior).all()
    assert found.posterior.sum(axis=1) == pytest.approx(1)


def test_when_all_say_the_same_something_else_stays_possible() -> None:
    found = dawid_skene.fit(Ratings.from_rows([["a", "a"]] * 10, categories="ab"))
    assert (found.posterior[:, 0] > 0.95).all()
    assert (found.posterior[:, 0] < 1).all()


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([[None, None]], {}, "needs ratings"),
        ([["a", "b"]], {"smoothing": -1.0}, "smoothing >= 0"),
        ([["a", "b"]], {"known": np.array([2])}, "known categories"),
        ([["a", "b"]], {"known": np.array([0, 0])}, "known categories"),
    ],
)
def test_what_cannot_be_fitted_is_refused(rows: list[list[str | None]], options: dict, message: str) -> None:
    with pytest.raises(CircusError, match=message):
        dawid_skene.fit(Ratings.from_rows(rows, categories="ab"), **options)
