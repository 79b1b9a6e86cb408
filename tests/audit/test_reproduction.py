"""Measured beside published scores: the transcription is sound, and nothing agrees that was not measured."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.makers import make_run

from circus_bench.audit.published_scores import (
    COMP_GAP,
    NO_WHOLE_COUNT,
    PUBLISHED_SCORES,
    Caveat,
    Effect,
    PublishedBenchmark,
    PublishedScores,
    PublishedValue,
)
from circus_bench.audit.reproduction import Comparison, Outcome, Reproduction, by_protocol, reproduce
from circus_bench.audit.statistics import UNDEFINED, Estimate, proportion
from circus_bench.benchmark import Condition, Protocol, ReferencePolicy
from circus_bench.encoding.sanity_checks import EncoderWarning
from circus_bench.errors import CircusError, FormatError, MismatchError
from circus_bench.io import read_json, to_json, to_plain, write_json
from circus_bench.labels.labels import Subset
from circus_bench.labels.published import PUBLISHED, published_labels
from circus_bench.models.registry import pool
from circus_bench.runs.run import Run

MM, T, I = Condition  # noqa: E741
FULL, SF, V = Subset


@pytest.fixture(scope="module")
def shipped() -> PublishedScores:
    return PublishedScores.load()


def value(number: float = 0.5, **changes: Any) -> PublishedValue:
    settings: dict[str, Any] = {
        "model": "A", "subset": FULL, "quantity": "multimodal", "k": 10, "value": number, "half_unit": 0.0005
    }  # fmt: skip
    return PublishedValue(**{**settings, **changes})


def caveat(name: str, **scope: Any) -> Caveat:
    return Caveat(name, Effect.MAY_DIFFER, "what", "why", "source", **scope)


def scores(*values: PublishedValue, caveats: Sequence[Caveat] = (), **changes: Any) -> PublishedScores:
    """What is published about the benchmark of `make_run`, with four queries."""
    settings: dict[str, Any] = {
        "name": "made", "protocol": "made/test", "reference": ReferencePolicy.KEPT, "instruction": "",
        "n_gallery": 1000, "subsets": {FULL: 4}, "values": values,
    }  # fmt: skip
    computed = Caveat(NO_WHOLE_COUNT, Effect.CANNOT_MATCH, "what", "why", "source", attached="computed")
    ids = {"A": ("tests/a",), "B": ("tests/b", "tests/b-preview")}
    return PublishedScores(
        ("a paper",), ids, {"made": PublishedBenchmark(**{**settings, **changes})}, (*caveats, computed)
    )


def run(model: str = "tests/a", **options: Any) -> Run:
    """Hits at 10: three of four with both parts, one (q0) with the text, one (q1) with the image."""
    return make_run([1, 5, 10, 11], [10, 50, 50, 50], [50, 1, 50, 50], model=model, **options)


def only(found: Reproduction) -> Comparison:
    (comparison,) = found.comparisons
    return comparison


class TestTranscription:
    """The published scores agree with each other, and with the labels that ship with the package."""

    def test_every_model_has_every_value_of_its_table(self, shipped: PublishedScores) -> None:
        counts = {name: len(of.values) for name, of in shipped.benchmarks.items()}
        # 11 models under 3 conditions and either on full, and multimodal on sf and v; 3 gaps; 3 labels. LaSCo lacks
        # the single conditions; RMIR has 7 models at two cut-offs.
        whole = 11 * (4 + 2) + 3 + 3
        assert counts == {"cirr": whole, "fashioniq": whole, "lasco": whole - 33, "circo": whole, "rmir": 14}

    def test_every_value_on_full_is_a_share_of_whole_queries(self, shipped: PublishedScores) -> None:
        # CIRR's 4,170 queries give shares 0.024 points apart, printed to 0.01: a slip of a digit is seen as a rule.
        wrong = [
            (name, published_value)
            for name, of in shipped.benchmarks.items()
            if name != "rmir"
            for published_value in of.values
            if published_value.quantity != COMP_GAP and published_value.subset is not V
            if not published_value.is_share_of(of.subsets[published_value.subset])
        ]
        assert wrong == []

    def test_the_values_on_v_that_no_whole_number_of_queries_gives(self, shipped: PublishedScores) -> None:
        wrong = {
            name: [v.model for v in of.values if v.subset is V and v.model and not v.is_share_of(of.subsets[V])]
            for name, of in shipped.benchmarks.items()
        }
        assert wrong == {
            "cirr": ["GME-Qwen2VL", "LamRA", "Qwen3-VL-2B", "Rzen-Embed"],
            "fashioniq": ["GME-Qwen2VL", "Rzen-Embed", "Gemini Emb. 2"],
            "lasco": ["E5-Omni"],
            "circo": [],
            "rmir": [],
        }

    def test_cirr_s_values_on_v_are_shares_of_323_queries(self, shipped: PublishedScores) -> None:
        of_v = [v for v in shipped.benchmarks["cirr"].values if v.subset is V and v.model]
        assert all(v.is_share_of(323) for v in of_v)

    def test_either_part_alone_is_between_the_better_part_and_the_sum(self, shipped: PublishedScores) -> None:
        for of in shipped.benchmarks.values():
            table = {(v.model, v.quantity): v.value for v in of.values if v.subset is FULL}
            for model in of.models:
                if (model, "either_unimodal") in table:
                    parts = [table[model, condition.value] for condition in (T, I)]
                    assert max(parts) <= table[model, "either_unimodal"] <= sum(parts) + 1e-9

    @pytest.mark.parametrize("name", ["cirr", "circo"])
    def test_label_counts_are_those_of_the_shipped_verdicts(self, shipped: PublishedScores, name: str) -> None:
        of = shipped.benchmarks[name]
        labels = [verdict.label for verdict in published_labels(name).by_query.values()]
        for v in of.values:
            if not v.model and v.quantity != COMP_GAP:
                assert round(v.value * of.subsets[FULL]) == labels.count(v.quantity)  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", PUBLISHED)
    def test_subset_sizes_and_protocols_are_those_of_the_shipped_verdicts(
        self, shipped: PublishedScores, name: str
    ) -> None:
        verdicts = published_labels(name)
        of = shipped.benchmarks[name]
        assert of.subsets[FULL] == verdicts.provenance.n_queries
        assert of.subsets[V] == sum(verdict.valid is True for verdict in verdicts.by_query.values())
        assert of.protocol in verdicts.provenance.protocols

    @pytest.mark.parametrize("name", PUBLISHED)
    def test_the_models_are_the_pool_of_the_shipped_verdicts(self, shipped: PublishedScores, name: str) -> None:
        ids = [shipped.ids[model] for model in shipped.benchmarks[name].models]
        assert len(ids) == 11
        assert all(any(i in of for of in ids) for i in published_labels(name).provenance.pool)

    def test_every_model_goes_by_the_name_under_which_it_is_loaded(self, shipped: PublishedScores) -> None:
        names = {model.name for model in pool()}
        assert all(names.intersection(ids) for ids in shipped.ids.values())

    def test_every_caveat_is_about_something_published_and_names_its_source(self, shipped: PublishedScores) -> None:
        assert all(c.what and c.why and c.source for c in shipped.caveats)
        for c in shipped.caveats:
            concerned = [v for name, of in shipped.benchmarks.items() for v in of.values if c.concerns(name, v)]
            assert bool(concerned) is (c.attached == "declared"), c.id

    def test_the_label_counts_are_marked_as_those_of_a_twelfth_run(self, shipped: PublishedScores) -> None:
        (twelfth,) = [c for c in shipped.caveats if c.id == "twelfth-run"]
        assert twelfth.effect is Effect.CANNOT_MATCH
        marked = {
            (name, v.quantity)
            for name, of in shipped.benchmarks.items()
            for v in of.values
            if twelfth.concerns(name, v)
        }
        labels = ("shortcut", "composition_required", "unresolved")
        assert marked == {(name, label) for name in PUBLISHED for label in labels}


class TestFile:
    @pytest.mark.parametrize(
        "change",
        [
            {"schema_version": 2},
            {"models": {}},
            {"caveats": []},
            {"benchmarks": {"x": {}}},
            {"caveats": [{"id": NO_WHOLE_COUNT}]},
        ],
    )
    def test_a_file_of_another_schema_is_refused(self, tmp_path: Path, change: dict[str, Any]) -> None:
        write_json(tmp_path / "scores.json", {**read_json(PUBLISHED_SCORES), **change})
        with pytest.raises(FormatError, match=r"scores\.json"):
            PublishedScores.load(tmp_path / "scores.json")

    def test_an_unknown_column_is_refused(self, tmp_path: Path) -> None:
        content = json.loads(PUBLISHED_SCORES.read_text())
        content["benchmarks"]["cirr"]["hit_rate"][0]["columns"][1] = "text"
        write_json(tmp_path / "scores.json", content)
        with pytest.raises(FormatError, match="unknown columns"):
            PublishedScores.load(tmp_path / "scores.json")


class TestOutcome:
    # Three hits of four: 75 %, Wilson's interval 30.1 to 95.4 (circus_bench.audit.statistics.proportion).
    MEASURED = proportion(np.array([1, 1, 1, 0]))

    @pytest.mark.parametrize(
        ("number", "outcome"),
        [
            (0.75, Outcome.SAME),
            (0.7504, Outcome.SAME),  # rounds to 75.0
            (0.751, Outcome.WITHIN),
            (0.302, Outcome.WITHIN),
            (0.3003, Outcome.WITHIN),  # to the printed digit it may have been 30.08; the interval begins at 30.06
            (0.3, Outcome.OUTSIDE),
            (0.955, Outcome.OUTSIDE),
        ],
    )
    def test_it_follows_from_interval_and_rounding(self, number: float, outcome: Outcome) -> None:
        assert Comparison(value(number), self.MEASURED, ()).outcome is outcome

    def test_an_undefined_number_agrees_with_nothing(self) -> None:
        comparison = Comparison(value(), UNDEFINED, ())
        assert comparison.outcome is Outcome.UNDEFINED
        assert comparison.to_dict()["difference"] is None

    def test_the_difference_is_measured_less_published(self) -> None:
        assert Comparison(value(0.5), self.MEASURED, ()).difference == pytest.approx(0.25)


class TestComparisons:
    @pytest.mark.parametrize(
        ("quantity", "expected"), [("multimodal", 3), ("text_only", 1), ("image_only", 1), ("either_unimodal", 2)]
    )
    def test_hit_rates_of_each_condition(self, quantity: str, expected: int) -> None:
        found = reproduce([run()], published=scores(value(quantity=quantity)))
        assert only(found).measured == proportion(np.arange(4) < expected)

    def test_the_cut_off_is_the_published_one(self) -> None:
        assert only(reproduce([run()], published=scores(value(k=9)))).measured.value == 0.5

    def test_a_subset_is_taken_from_its_mask(self) -> None:
        published_scores = scores(value(subset=V), subsets={FULL: 4, V: 2})
        found = reproduce([run()], published=published_scores, masks={V: np.array([False, False, True, True])})
        assert only(found).measured == Estimate(0.5, *dataclasses.astuple(proportion(np.array([1, 0])))[1:])

    def test_a_subset_that_is_not_known_is_not_compared(self) -> None:
        found = reproduce([run()], published=scores(value(subset=V), subsets={FULL: 4, V: 2}))
        assert found.comparisons == ()
        assert any("everything on v" in line for line in found.not_compared)

    def test_a_model_without_a_run_is_listed_and_not_compared(self) -> None:
        found = reproduce([run()], published=scores(value(), value(model="B")))
        assert [comparison.published.model for comparison in found.comparisons] == ["A"]
        assert found.not_compared[0] == "published, but without a Run: B"

    def test_a_run_of_an_unpublished_model_is_listed(self) -> None:
        found = reproduce([run(), run("tests/new")], published=scores(value()))
        assert "measured, but not published: tests/new" in found.not_compared

    def test_a_model_goes_by_any_of_its_ids(self) -> None:
        found = reproduce([run("tests/b-preview")], published=scores(value(model="B")))
        assert only(found).published.model == "B"

    def test_pool_numbers_need_the_whole_pool(self) -> None:
        pool_values = (value(model="", quantity=COMP_GAP), value(model="", quantity="shortcut"))
        published_scores = scores(value(), value(model="B"), *pool_values)
        part = reproduce([run()], published=published_scores)
        assert [comparison.published.model for comparison in part.comparisons] == ["A"]
        assert any("need Runs of all 2 models" in line for line in part.not_compared)
        whole = reproduce([run(), run("tests/b")], published=published_scores)
        assert [comparison.published.name for comparison in whole.comparisons[2:]] == ["comp_gap", "shortcut"]
        # q0 is solved by the text alone, q1 by the image alone.
        assert whole.comparisons[3].measured.value == 0.5

    def test_models_out_of_the_pool_do_not_label(self) -> None:
        all_hits = make_run([1] * 4, [1] * 4, [1] * 4, model="tests/new")
        found = reproduce([run(), all_hits], published=scores(value(), value(model="", quantity="shortcut")))
        assert found.comparisons[1].measured.value == 0.5

    def test_the_outcome_is_strict_json(self) -> None:
        found = reproduce([run()], published=scores(value(), value(subset=V), caveats=[caveat("a")]))
        assert json.loads(to_json(to_plain(found)))["comparisons"][0]["caveats"] == ["a"]


class TestCaveats:
    @pytest.mark.parametrize(
        ("scope", "concerned"),
        [
            ({}, True),
            ({"benchmarks": ("made",), "models": ("A",), "quantities": ("multimodal",)}, True),
            ({"benchmarks": ("cirr",)}, False),
            ({"models": ("B",)}, False),
            ({"subsets": ("sf",)}, False),
            ({"quantities": ("image_only",)}, False),
        ],
    )
    def test_they_are_attached_by_their_scope(self, scope: dict[str, Any], concerned: bool) -> None:
        found = reproduce([run()], published=scores(value(), caveats=[caveat("a", **scope)]))
        assert only(found).caveats == (("a",) if concerned else ())
        assert [c.id for c in found.caveats] == (["a"] if concerned else [])

    def test_a_value_that_no_whole_number_of_hits_gives_is_marked(self) -> None:
        # Of four queries: 0, 25, 50, 75 or 100 %.
        assert only(reproduce([run()], published=scores(value(0.6)))).caveats == (NO_WHOLE_COUNT,)
        assert only(reproduce([run()], published=scores(value(0.5)))).caveats == ()


class TestMismatch:
    def test_a_protocol_without_published_scores_is_refused(self) -> None:
        protocol = dataclasses.asdict(Protocol("made/official", ReferencePolicy.KEPT))
        with pytest.raises(MismatchError, match=r"under the protocol made/official.*made/test"):
            reproduce([run(protocol=protocol)], published=scores(value()))

    def test_the_other_reference_policy_is_refused(self) -> None:
        with pytest.raises(MismatchError, match="the reference kept, the Runs with it removed"):
            reproduce([run(policy=ReferencePolicy.REMOVED)], published=scores(value()))

    def test_a_part_of_the_queries_is_refused(self) -> None:
        with pytest.raises(MismatchError, match="about 5 queries, the Runs about 4"):
            reproduce([run()], published=scores(value(), subsets={FULL: 5}))

    def test_two_runs_of_one_published_model_are_refused(self) -> None:
        with pytest.raises(MismatchError, match="are one model, B"):
            reproduce([run("tests/b"), run("tests/b-preview")], published=scores(value(model="B")))

    def test_runs_of_unpublished_models_alone_are_an_error(self) -> None:
        with pytest.raises(CircusError, match=r"published for tests/new; there are some for tests/a"):
            reproduce([run("tests/new")], published=scores(value()))

    def test_no_run_is_an_error(self) -> None:
        with pytest.raises(CircusError, match="no Run"):
            reproduce([], published=scores(value()))

    @pytest.mark.parametrize(
        ("changes", "warning"),
        [
            ({"n_gallery": 999}, "the Runs rank 1,000 images, the published ones 999"),
            ({"instruction": "Find it."}, "instruction is '', the published one 'Find it.'"),
            ({"subsets": {FULL: 4, V: 3}}, "v has 2 queries here and 3 in the publication"),
        ],
    )
    def test_other_circumstances_are_warned_of(self, changes: dict[str, Any], warning: str) -> None:
        masks = {V: np.array([True, True, False, False])}
        found = reproduce([run()], published=scores(value(), **changes), masks=masks if "subsets" in changes else None)
        assert any(warning in line for line in found.warnings)

    def test_circumstances_that_are_unknown_are_not(self) -> None:
        found = reproduce([run()], published=scores(value(), instruction=None, reference=None))
        assert found.warnings == ()

    def test_alarms_are_warned_of(self) -> None:
        found = reproduce([run(alarms=(EncoderWarning.TEXT_IGNORED,))], published=scores(value()))
        assert "text_ignored" in found.warnings[0]


def test_runs_are_grouped_by_protocol() -> None:
    other = run("tests/b", protocol=dataclasses.asdict(Protocol("made/other", ReferencePolicy.KEPT)))
    groups = by_protocol([run(), other, run("tests/c")])
    assert [[r.manifest.model.name for r in group] for group in groups] == [["tests/a", "tests/c"], ["tests/b"]]


def test_a_gap_is_printed_with_its_digits_and_a_share_in_per_cent() -> None:
    assert value(0.137, quantity=COMP_GAP).digits == 3
    assert value(0.118, half_unit=0.0005).digits == 1
    assert value(0.1234, half_unit=0.00005).digits == 2
