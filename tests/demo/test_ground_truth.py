"""The check against the planted truth counts what it says."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import pytest
from support.makers import make_run

from circus_bench.benchmark import Benchmark, Query
from circus_bench.demo.ground_truth import check_ground_truth
from circus_bench.errors import BenchmarkError, CircusError
from circus_bench.io import to_json, to_plain
from circus_bench.labels.pool import Pool
from circus_bench.sources.scenes import QueryKind

# Kind, images that fulfill the text, near-duplicates of the reference: at K = 10 the truth of these is shortcut (text 4
# <= 10), shortcut (near 5 + 1 <= 10), composition_required twice (crowds of 40 = 4 K and 10), undecided (text crowd 20
# < 40), and unresolved.
PLANTS = [
    (QueryKind.TEXT_SHORTCUT, 4, 20),
    (QueryKind.IMAGE_SHORTCUT, 100, 5),
    (QueryKind.COMPOSITION_REQUIRED, 40, 10),
    (QueryKind.COMPOSITION_REQUIRED, 50, 12),
    (QueryKind.COMPOSITION_REQUIRED, 20, 10),
    (QueryKind.TOO_BROAD, 80, 10),
]

MakeBenchmark = Callable[..., Benchmark]


def planted(toy_benchmark: MakeBenchmark, plants: Sequence[tuple[QueryKind, int, int]] = PLANTS) -> Benchmark:
    queries = [
        Query(f"q{i}", "a", f"text {i}", ("b",), group=kind, details={"kind": kind, "n_text": n_text, "n_near": n_near})
        for i, (kind, n_text, n_near) in enumerate(plants)
    ]
    return toy_benchmark(queries=queries, with_images=False)


def pool(*models: tuple[list[int], list[int], list[int]]) -> Pool:
    return Pool.of_runs([make_run(*ranks, model=f"tests/{i}") for i, ranks in enumerate(models)])


#          text  image  CR     CR     CR     broad
PERFECT = ([1, 1, 2, 3, 4, 99], [2, 99, 99, 99, 99, 99], [99, 3, 99, 99, 99, 99])
# The image shortcut (now 30) and the composed q3 (now a text shortcut) are wrong; q2 is lost in multimodal.
FAULTY = ([1, 1, 40, 3, 4, 99], [2, 99, 99, 8, 99, 99], [99, 30, 99, 99, 99, 99])


def test_labels_that_follow_the_plants_agree_with_them(toy_benchmark: MakeBenchmark) -> None:
    found = check_ground_truth(planted(toy_benchmark), pool(PERFECT), k=10)
    assert (found.agreement.value, found.agreement.n) == (1, 5)  # q4 is undecided


def test_labels_that_contradict_the_plants_are_counted(toy_benchmark: MakeBenchmark) -> None:
    # q1 is composition_required instead of shortcut, q2 unresolved and q3 a shortcut instead of composition_required:
    # of the five decided queries q0 and q5 are right.
    assert check_ground_truth(planted(toy_benchmark), pool(FAULTY), k=10).agreement.value == pytest.approx(2 / 5)


def test_caught_shortcuts_are_counted_by_kind(toy_benchmark: MakeBenchmark) -> None:
    found = check_ground_truth(planted(toy_benchmark), pool(FAULTY), k=10)
    assert (found.text_caught.value, found.image_caught.value) == (1, 0)


def test_found_compositions_are_counted_over_all_that_were_planted(toy_benchmark: MakeBenchmark) -> None:
    # q2 is unresolved, q3 a shortcut, q4 found: 1 of 3, the undecided one among them.
    found = check_ground_truth(planted(toy_benchmark), pool(FAULTY), k=10).composition_found
    assert (found.value, found.n) == (pytest.approx(1 / 3), 3)


def test_the_best_single_model_on_compositions_is_told(toy_benchmark: MakeBenchmark) -> None:
    # q2 to q4: the first model finds q3 and q4, the second none; together they have no more than the first.
    none = ([1, 1, 50, 50, 50, 99], *FAULTY[1:])
    found = check_ground_truth(planted(toy_benchmark), pool(none, FAULTY), k=10).best_multimodal
    assert (found.value, found.n) == (pytest.approx(2 / 3), 3)


def test_at_another_cut_off_other_plants_are_decided(toy_benchmark: MakeBenchmark) -> None:
    # K = 5: the text shortcut (4), q2 to q4 and the broad one (crowds of at least 20 and 5); an image shortcut with 5
    # near-duplicates is at 6 at best, so left to chance.
    assert check_ground_truth(planted(toy_benchmark), pool(PERFECT), k=5).agreement.n == 5
    # K = 20: the text shortcut (4), the image shortcut (6) and q4 (20 fulfill its text); the others' text crowds are
    # under 80 or their near-duplicates under 20.
    assert check_ground_truth(planted(toy_benchmark), pool(PERFECT), k=20).agreement.n == 3


def test_a_kind_that_was_not_planted_is_undefined(toy_benchmark: MakeBenchmark) -> None:
    benchmark = planted(toy_benchmark, PLANTS[:1])
    found = check_ground_truth(benchmark, pool(([1], [1], [1])), k=10)
    assert math.isnan(found.image_caught.value)
    assert json.loads(to_json(to_plain(found)))["image_caught"]["status"] == "undefined"


@pytest.mark.filterwarnings("error")
def test_without_planted_compositions_nothing_is_averaged_over_nothing(toy_benchmark: MakeBenchmark) -> None:
    found = check_ground_truth(planted(toy_benchmark, PLANTS[:2]), pool(([1, 1], [1, 1], [1, 1])), k=10)
    assert math.isnan(found.best_multimodal.value)


def test_a_benchmark_that_was_not_planted_is_refused(toy_benchmark: MakeBenchmark) -> None:
    queries = [Query(f"q{i}", "a", "text", ("b",)) for i in range(2)]
    with pytest.raises(BenchmarkError, match="'q0' is not one of the benchmark `scenes`"):
        check_ground_truth(toy_benchmark(queries=queries, with_images=False), pool(([1, 1], [1, 1], [1, 1])), k=10)


def test_the_check_does_not_depend_on_the_order_of_the_benchmark(toy_benchmark: MakeBenchmark) -> None:
    benchmark = planted(toy_benchmark)
    turned = toy_benchmark(queries=benchmark.queries[::-1], with_images=False)
    assert check_ground_truth(turned, pool(FAULTY), k=10) == check_ground_truth(benchmark, pool(FAULTY), k=10)


def test_a_pool_over_other_queries_is_refused(toy_benchmark: MakeBenchmark) -> None:
    with pytest.raises(CircusError):
        check_ground_truth(planted(toy_benchmark), pool(([1], [1], [1])), k=10)


def test_the_check_is_written_as_strict_json(toy_benchmark: MakeBenchmark) -> None:
    written = json.loads(to_json(to_plain(check_ground_truth(planted(toy_benchmark), pool(PERFECT), k=10))))
    assert (written["k"], written["agreement"]["value"], written["text_caught"]["value"]) == (10, 1, 1)


def test_a_shortcut_is_a_label_whatever_the_modality_that_gave_it(toy_benchmark: MakeBenchmark) -> None:
    # The planted text shortcut is found by the image alone: the label is the same, and so is the agreement.
    by_image = (PERFECT[0], [99, *PERFECT[1][1:]], [2, *PERFECT[2][1:]])
    assert check_ground_truth(planted(toy_benchmark), pool(by_image), k=10).text_caught.value == 1
