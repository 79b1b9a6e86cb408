"""The candidate panel: what raters see of the models' answers, and what they do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from support.studies import bare_benchmark, run_with_tops

from circus_bench.benchmark import Benchmark, Defect, Gallery, Query
from circus_bench.errors import MismatchError
from circus_bench.validation.panel import candidate_panels, shuffle_panel
from circus_bench.validation.rubric import load_rubric
from circus_bench.validation.study import Item, Study

MakeBenchmark = Callable[..., Benchmark]
IDS = tuple("abcdefgh")


def benchmark(*targets: str, reference: str = "a", **changes: object) -> Benchmark:
    query = Query("q0", reference, "text", targets or ("h",))
    return bare_benchmark(queries=(query,), gallery=Gallery(IDS), **changes)


def panel(source: Benchmark, *tops: str, k: int = 3) -> str:
    """The panel of the first query, from one Run for each string of retrieved images."""
    runs = [run_with_tops(source, [top], model=f"tests/{place}") for place, top in enumerate(tops)]
    return "".join(candidate_panels(source, runs, ["q0"], k=k)["q0"])


def test_a_panel_is_the_union_of_the_runs_with_the_target_in_the_order_of_ids() -> None:
    assert panel(benchmark(), "fbcde", "cgbde") == "bcfgh"


def test_the_reference_is_left_out_and_the_next_image_moves_up() -> None:
    assert panel(benchmark(), "bacde", k=3) == "bcdh"


def test_all_targets_are_shown_once() -> None:
    assert panel(benchmark("h", "b"), "bcdef", k=2) == "bch"


def test_a_reference_that_is_a_target_is_shown() -> None:
    source = benchmark("a", allow=frozenset({Defect.REFERENCE_IS_TARGET}))
    assert panel(source, "abcde", k=2) == "abc"


def test_a_target_outside_the_gallery_is_not_shown() -> None:
    source = benchmark("nowhere", allow=frozenset({Defect.DANGLING_TARGET}))
    assert panel(source, "bcdef", k=2) == "bc"


def test_of_images_with_the_same_pixels_one_is_shown_and_a_target_first(toy_benchmark: MakeBenchmark) -> None:
    source = toy_benchmark(queries=[Query("q0", "a", "text", ("d",))], gallery=IDS)
    images = dict(source.gallery.images or {})
    # b and c are twins; e is the target's.
    twins = source.with_images({**images, "c": images["b"], "e": images["d"]})
    assert panel(twins, "cbefg", k=4) == "bdf"


def test_without_runs_panels_are_empty() -> None:
    assert candidate_panels(benchmark(), [], ["q0"]) == {"q0": ()}


def test_a_small_gallery_is_shown_as_a_whole() -> None:
    # 7 images besides the reference, fewer than the 10 asked for.
    assert panel(benchmark(), "bcdefgha", k=10) == "bcdefgh"


def test_a_run_that_kept_too_few_images_is_refused() -> None:
    with pytest.raises(MismatchError, match=r"tests/0 kept 2 images for query 'q0'.*--top-k"):
        panel(benchmark(), "abc", k=3)


def test_runs_on_another_benchmark_are_refused() -> None:
    with pytest.raises(MismatchError, match="fingerprints differ"):
        candidate_panels(benchmark(reference="b"), [run_with_tops(benchmark(), ["bcd"])], ["q0"], k=2)


def test_an_unknown_query_is_refused() -> None:
    with pytest.raises(MismatchError, match="'q9'"):
        candidate_panels(benchmark(), [], ["q9"])


class TestOrder:
    item = Item("made::q0", "made", "q0", "made/unresolved", panel=tuple("abcdefgh"))
    study = Study("made", load_rubric(), 5, (item,), {}, {})

    def test_each_rater_sees_all_images_in_another_order(self) -> None:
        ann, ben = (shuffle_panel(self.study, self.item, rater) for rater in ("ann", "ben"))
        assert sorted(ann) == sorted(ben) == list("abcdefgh")
        assert len({ann, ben, self.item.panel}) == 3

    def test_a_rater_sees_the_same_order_again(self) -> None:
        assert shuffle_panel(self.study, self.item, "ann") == shuffle_panel(self.study, self.item, "ann")

    def test_the_order_depends_on_item_and_seed(self) -> None:
        other = dataclasses.replace(self.item, id="made::q1")
        reseeded = dataclasses.replace(self.study, seed=6)
        orders = {
            shuffle_panel(self.study, self.item, "ann"),
            shuffle_panel(self.study, other, "ann"),
            shuffle_panel(reseeded, self.item, "ann"),
        }
        assert len(orders) == 3

    def test_each_image_comes_first_equally_often(self) -> None:
        # 8 images, 800 raters: 100 expected, standard deviation 9.4; 60 to 140 is more than four of them.
        first = [shuffle_panel(self.study, self.item, f"rater-{i}")[0] for i in range(800)]
        assert all(60 <= first.count(image) <= 140 for image in self.item.panel)
