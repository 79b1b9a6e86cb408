"""The verdicts file: what it holds, and that a release and a score take it for V."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.judged import BROAD, REFERENCE, TARGET, TEXT, VALID, item, judge, judge_all, study
from support.studies import COMPOSED, OPEN, SHORTCUT, bare_benchmark

from circus_bench.benchmark import Fingerprint
from circus_bench.errors import CircusError, FormatError, MismatchError
from circus_bench.hub.tables import LabeledBenchmark
from circus_bench.labels.formats import load_labels
from circus_bench.labels.labels import Labels, Subset
from circus_bench.labels.provenance import IdScheme, Provenance
from circus_bench.labels.query_label import QueryLabel, RejectionReason
from circus_bench.validation.annotations import write_annotations
from circus_bench.validation.decisions import DecisionRule, decide
from circus_bench.validation.export import export_verdicts, load_annotations
from circus_bench.validation.rubric import RubricStep
from circus_bench.validation.study import Study

SUFFIXES = pytest.mark.parametrize("suffix", ["parquet", "json"])

# Five queries: valid by 2 to 1; too broad by 2 to 1; target and text flagged by most; a tie of two; nobody judged it.
VOTES = {
    "ann": [VALID, BROAD, TARGET, VALID, None],
    "bob": [VALID, BROAD, TARGET, BROAD, None],
    "cy": [TEXT, VALID, REFERENCE, None, None],
}
STRATA = ["composition_required", "unresolved", "unresolved", "unresolved", "unresolved"]


def made_study(**changes: Any) -> Study:
    panel = ("t3", "t4")
    items = [item(n, stratum=f"made/{stratum}", inclusion=0.5, panel=panel) for n, stratum in enumerate(STRATA)]
    return dataclasses.replace(study(items), **changes)


def written(path: Path, *, sources: bool = True, **changes: Any) -> Path:
    annotations = judge_all(VOTES)
    annotations[0] = dataclasses.replace(
        annotations[0], alternatives=("t3", "t4"), answers={"text_alone": True, "image_alone": False}
    )
    annotations[1] = dataclasses.replace(annotations[1], alternatives=("t4",), answers={"text_alone": False})
    annotations[2] = dataclasses.replace(annotations[2], reasons=("text.ungrammatical",))
    benchmark = {"made": bare_benchmark(5, prefix="")} if sources else None
    export_verdicts(path, made_study(**changes), decide(made_study(**changes), annotations), sources=benchmark)
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".json":
        found: list[dict[str, Any]] = json.loads(path.read_text())["queries"]
        return found
    return pq.read_table(path).to_pylist()


@SUFFIXES
def test_the_file_is_read_as_verdicts(suffix: str, tmp_path: Path) -> None:
    verdicts = load_labels(written(tmp_path / f"v.{suffix}"))
    assert verdicts.benchmark == "made"
    assert {query: (v.audited, v.valid, v.stratum, v.reasons) for query, v in verdicts.by_query.items()} == {
        "0": (True, True, COMPOSED, ()),
        "1": (True, False, OPEN, (RejectionReason.QUERY_TOO_BROAD,)),
        "2": (True, False, OPEN, (RejectionReason.INVALID_TARGET_IMAGE,)),
        "3": (True, None, OPEN, ()),
        "4": (False, None, OPEN, ()),
    }
    assert verdicts.weights(["x", *"01234"]).tolist() == [1, 2, 2, 2, 2, 2]


@SUFFIXES
def test_the_evidence_is_kept_for_each_query(suffix: str, tmp_path: Path) -> None:
    first, second, *_, last = rows(written(tmp_path / f"v.{suffix}"))
    votes = {entry["label"]: entry["raters"] for entry in first["votes"]}
    assert votes == {VALID: 2, TEXT: 1, REFERENCE: 0, TARGET: 0, BROAD: 0}
    assert (first["decision"], first["raters"], first["weight"]) == (VALID, 3, 2.0)
    assert 0 < second["posterior"] < 0.5 < first["posterior"] < 1
    assert first["reasons"] == [{"reason": "text.ungrammatical", "raters": 1}]
    # Two of three raters clicked t4, one t3; of two who answered, one found the target from the text alone.
    shares = [(entry["image"], round(entry["share"], 3)) for entry in first["alternatives"]]
    assert shares == [("t4", 0.667), ("t3", 0.333)]
    assert {entry["question"]: entry["yes"] for entry in first["answers"]} == {"text_alone": 0.5, "image_alone": 0.0}
    assert (last["human_valid"], last["decision"], last["posterior"], last["raters"]) == (None, None, None, 0)


@SUFFIXES
def test_the_same_input_gives_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    once, again = (written(tmp_path / f"{name}.{suffix}") for name in ("a", "b"))
    assert once.read_bytes() == again.read_bytes()


def test_the_origin_ties_the_file_to_a_version_of_the_benchmark(tmp_path: Path) -> None:
    origin = load_labels(written(tmp_path / "v.parquet")).provenance
    benchmark = bare_benchmark(5, prefix="")
    assert (origin.protocols, origin.n_queries, origin.id_scheme) == (("made/test",), 5, IdScheme.ID)
    assert origin.fingerprint == benchmark.fingerprint


def test_without_the_benchmark_a_released_one_goes_by_the_ids_of_the_release(tmp_path: Path) -> None:
    items = [item(0)]
    lasco = dataclasses.replace(items[0], id="lasco::0", benchmark="lasco")
    annotations = [dataclasses.replace(judge(rater, 0), item="lasco::0") for rater in ("ann", "bob")]
    export_verdicts(tmp_path / "v.json", study([lasco]), decide(study([lasco]), annotations))
    origin = load_labels(tmp_path / "v.json").provenance
    assert (origin.id_scheme, origin.n_queries, origin.source) == (IdScheme.POSITION, 30031, "human validation 'made'")


def test_check_and_training_items_are_not_exported(tmp_path: Path) -> None:
    items = [item(0), item(1, known=VALID), item(2, known=VALID, training=True)]
    annotations = judge_all({"ann": [VALID] * 3, "bob": [VALID] * 3})
    export_verdicts(tmp_path / "v.json", study(items), decide(study(items), annotations))
    assert [row["query"] for row in rows(tmp_path / "v.json")] == ["0"]


def test_a_rejection_under_a_label_that_no_release_knows_has_unknown_reasons(tmp_path: Path) -> None:
    rubric = made_study().rubric
    odd = RubricStep("odd", "Is it even?", "ODD", "Odd", "9", 9, {})
    changed = dataclasses.replace(rubric, steps=(*rubric.steps, odd))
    one = dataclasses.replace(study(1), rubric=changed)
    annotations = [judge(rater, 0, "ODD", flags=("odd",)) for rater in ("ann", "bob")]
    export_verdicts(tmp_path / "v.json", one, decide(one, annotations))
    row = rows(tmp_path / "v.json")[0]
    assert (row["decision"], row["human_valid"]) == ("ODD", False)
    assert {row[reason.value] for reason in RejectionReason} == {None}


def test_a_study_without_items_has_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="has no items"):
        export_verdicts(tmp_path / "v.json", study(0), [])


def test_one_of_several_benchmarks_has_to_be_named(tmp_path: Path) -> None:
    items = [item(0), dataclasses.replace(item(1), id="other::1", benchmark="other", stratum="other/unresolved")]
    with pytest.raises(MismatchError, match="several benchmarks"):
        export_verdicts(tmp_path / "v.json", study(items), [])
    decisions = decide(study(items), [])
    assert export_verdicts(tmp_path / "v.json", study(items), decisions, benchmark="other") == "other"
    assert [row["query"] for row in rows(tmp_path / "v.json")] == ["1"]


def test_a_benchmark_that_the_study_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="not about 'other'"):
        export_verdicts(tmp_path / "v.json", made_study(), [], benchmark="other")


def test_the_rule_is_on_record(tmp_path: Path) -> None:
    export_verdicts(tmp_path / "v.json", study(1), decide(study(1), []), rule=DecisionRule.UNANIMOUS)
    head = json.loads((tmp_path / "v.json").read_text())
    assert (head["rule"], head["study"], head["rubric"]["breadth"]) == ("unanimous", "made", 10)


class TestConsumers:
    labels = Labels(
        "made",
        Provenance(source="an audit", n_queries=5, pool=("tests/a",)),
        {
            "0": QueryLabel("0", COMPOSED),
            **{str(n): QueryLabel(str(n), OPEN) for n in (1, 2, 3)},
            "4": QueryLabel("4", OPEN),
        },
    )

    def test_labels_and_verdicts_together_give_full_sf_and_v(self, tmp_path: Path) -> None:
        validation = load_labels(written(tmp_path / "v.parquet"))
        part = LabeledBenchmark(bare_benchmark(5, prefix=""), self.labels.with_validation(validation))
        found = {subset: [query.id for query in queries] for subset, queries in part.subsets.items()}
        everything = ["0", "1", "2", "3", "4"]
        assert found == {Subset.FULL: everything, Subset.SF: everything, Subset.V: ["0"]}
        assert part.labels is not None
        assert part.labels.provenance.pool == ("tests/a",)

    def test_an_own_validation_replaces_one_that_was_there(self, tmp_path: Path) -> None:
        judged = QueryLabel("1", OPEN, audited=True, valid=True, stratum=OPEN)
        before = dataclasses.replace(self.labels, by_query={**self.labels.by_query, "1": judged})
        merged = before.with_validation(load_labels(written(tmp_path / "v.json")))
        assert (merged.by_query["1"].valid, merged.by_query["1"].reasons) == (False, (RejectionReason.QUERY_TOO_BROAD,))

    def test_a_query_that_is_a_shortcut_by_now_is_a_mismatch(self, tmp_path: Path) -> None:
        relabeled = dataclasses.replace(self.labels, by_query={**self.labels.by_query, "0": QueryLabel("0", SHORTCUT)})
        with pytest.raises(MismatchError, match="disagree on 1 queries"):
            relabeled.with_validation(load_labels(written(tmp_path / "v.json")))

    def test_labels_of_another_version_are_a_mismatch(self, tmp_path: Path) -> None:
        origin = dataclasses.replace(self.labels.provenance, fingerprint=Fingerprint("another", None))
        other = dataclasses.replace(self.labels, provenance=origin)
        with pytest.raises(MismatchError, match="fingerprints differ"):
            other.with_validation(load_labels(written(tmp_path / "v.json")))

    def test_the_valid_queries_of_a_run_are_found_by_their_ids(self, tmp_path: Path) -> None:
        verdicts = load_labels(written(tmp_path / "v.parquet"))
        assert verdicts.mask(list("43210"), Subset.V).tolist() == [False, False, False, False, True]
        with pytest.raises(MismatchError, match="find no query"):
            verdicts.mask(["q0", "q1"], Subset.V)


class TestDamagedFiles:
    @pytest.mark.parametrize(
        "changes", [{"schema_version": 2}, {"benchmark": None}, {"origin": {}}, {"queries": [{"query": "0"}]}]
    )
    def test_a_file_of_another_version_or_without_its_parts_is_refused(
        self, changes: dict[str, Any], tmp_path: Path
    ) -> None:
        path = written(tmp_path / "v.json")
        content = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
        with pytest.raises(FormatError, match=r"v\.json"):
            load_labels(path)

    def test_a_parquet_file_without_a_column_is_refused(self, tmp_path: Path) -> None:
        path = written(tmp_path / "v.parquet")
        pq.write_table(pq.read_table(path).drop_columns(["human_valid"]), path)
        with pytest.raises(FormatError, match="human_valid"):
            load_labels(path)


class TestLog:
    def test_a_given_log_is_read(self, tmp_path: Path) -> None:
        write_annotations(tmp_path / "log.jsonl", judge_all(VOTES))
        assert load_annotations(tmp_path, log=tmp_path / "log.jsonl") == judge_all(VOTES)

    def test_the_log_of_an_import_is_found(self, tmp_path: Path) -> None:
        write_annotations(tmp_path / "judgements.jsonl", judge_all(VOTES))
        assert load_annotations(tmp_path) == judge_all(VOTES)

    def test_the_database_of_the_app_is_found(self, tmp_path: Path) -> None:
        from circus_bench.validation.app import open_log

        made = study(1)
        made.save(tmp_path)
        log = open_log(tmp_path)
        receipt = log.record(judge("ann", 0, event="e1"))
        log.close()
        assert load_annotations(tmp_path) == [receipt.annotation]

    def test_a_database_that_does_not_exist_is_not_made(self, tmp_path: Path) -> None:
        with pytest.raises(CircusError, match="no such database"):
            load_annotations(tmp_path, database=tmp_path / "no.sqlite")
        assert not list(tmp_path.iterdir())

    def test_a_database_and_a_log_in_one_folder_do_not_hide_each_other(self, tmp_path: Path) -> None:
        from circus_bench.validation.app import open_log

        study(5).save(tmp_path)
        write_annotations(tmp_path / "judgements.jsonl", judge_all(VOTES))
        log = open_log(tmp_path)
        log.invite("ann")
        log.close()
        with pytest.raises(CircusError, match="say which are meant"):
            load_annotations(tmp_path)
        assert load_annotations(tmp_path, log=tmp_path / "judgements.jsonl") == judge_all(VOTES)
        assert load_annotations(tmp_path, database=tmp_path / "judgements.sqlite") == []

    def test_a_database_and_a_log_at_once_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(CircusError, match="not from both"):
            load_annotations(tmp_path, database="a.sqlite", log=tmp_path / "log.jsonl")

    def test_a_study_without_annotations_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(CircusError, match=r"holds no annotations, neither .* nor judgements\.jsonl"):
            load_annotations(tmp_path)
