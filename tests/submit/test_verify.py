"""A submission is refused when it does not follow from its rank tables: each doctored one with its reason."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.standins import Constant, StandIn, vector_of
from support.submissions import (
    DATASET,
    LISTED,
    MODEL,
    REVISION,
    leaderboard_benchmark,
    make_leaderboard,
    run_on,
    with_ranking,
)

from circus_bench.benchmark import Condition, Defect, Fingerprint, Query, ReferencePolicy
from circus_bench.encoding.sanity_checks import EncoderWarning
from circus_bench.io import read_json, sha256, write_json
from circus_bench.ranking.ranker import ReferencePosition
from circus_bench.runs.manifest import MANIFEST_FILE
from circus_bench.runs.run import Run
from circus_bench.runs.tables import RANKS_FILE, TOP_FILE
from circus_bench.submit.leaderboard import Leaderboard, results_file, run_folder, write_results
from circus_bench.submit.verify import SubmissionError, require_valid, verify_submission
from circus_bench.submit.violations import Violation
from circus_bench.submit.violations import ViolationKind as Kind

MM = Condition.MULTIMODAL
YAML, RUN = results_file("made"), run_folder("made")


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Leaderboard:
    return make_leaderboard(tmp_path_factory.mktemp("board") / "circus")


@pytest.fixture(scope="module")
def honest(board: Leaderboard, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    run_on(leaderboard_benchmark(), folder / "run")
    write_results([folder / "run"], folder / "submission", model=MODEL, leaderboard=board)
    return folder / "submission"


@pytest.fixture
def doctored(honest: Path, tmp_path: Path) -> Path:
    """A copy of the honest submission, to be changed."""
    shutil.copytree(honest, tmp_path / "doctored")
    return tmp_path / "doctored"


def violations(folder: Path, board: Leaderboard, model: str = MODEL) -> dict[Kind, Violation]:
    return {violation.kind: violation for violation in verify_submission(folder, model=model, leaderboard=board)}


def change_run(folder: Path, change: Callable[[Run], Run]) -> None:
    """Change the Run of a submission as its own tools would write it, checksums included."""
    change(Run.load(folder / RUN)).save(folder / RUN)


def change_manifest(folder: Path, **changes: Any) -> None:
    path = folder / RUN / MANIFEST_FILE
    write_json(path, {**read_json(path), **changes})


def change_table(folder: Path, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change a table, and the checksum in the manifest with it."""
    path = folder / RUN / name
    pq.write_table(change(pq.read_table(path)), path)
    files = read_json(folder / RUN / MANIFEST_FILE)["files"]
    change_manifest(folder, files={**files, name: sha256(path)})


def change_entries(folder: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    entries = yaml.safe_load((folder / YAML).read_text())
    change(entries)
    (folder / YAML).write_text(yaml.safe_dump(entries))


def row_of(run: Run, query: str) -> int:
    return int(run.offsets[run.queries.index(query)])


def with_rank(run: Run, query: str, rank: int, *, condition: Condition = MM) -> Run:
    ranks = run.results[condition].ranking.rank.copy()
    ranks[row_of(run, query)] = rank
    return with_ranking(run, condition, rank=ranks)


def unlisted(run: Run) -> str:
    """A query whose first target is beyond the list."""
    return next(q for i, q in enumerate(run.queries) if run.targets[i][0] not in run.top(MM)[i])


class TestHonest:
    def test_an_honest_submission_is_accepted(self, honest: Path, board: Leaderboard) -> None:
        assert verify_submission(honest, model=MODEL, leaderboard=board) == []

    @pytest.mark.parametrize("policy", ReferencePolicy)
    @pytest.mark.parametrize("top_k", [11, LISTED, 40])
    def test_ties_targets_and_references_in_any_place_are_accepted(
        self, tmp_path: Path, policy: ReferencePolicy, top_k: int
    ) -> None:
        # Few different vectors: images tie in groups, within the lists and across their ends. q12 to q15 have their
        # reference among their targets.
        class Coarse(StandIn):
            def vector(self, image: Any, text: str | None) -> Any:
                return np.round(vector_of(f"{super().vector(image, text).sum():.6f}", 3)) + np.float32(0.5)

        benchmark = leaderboard_benchmark(policy)
        more = tuple(
            Query(f"q{i}", f"g{i}", f"text {i}", (f"g{i + 1}", f"g{i}", f"g{i + 2}", "g39")) for i in range(12, 16)
        )
        benchmark = dataclasses.replace(
            benchmark,
            queries=(*benchmark.queries, *more),
            allow=benchmark.allow | {Defect.REFERENCE_IS_TARGET},
        )
        board = make_leaderboard(tmp_path / "circus", benchmark)
        run = run_on(benchmark, tmp_path / "run", encoder=Coarse(), top_k=top_k)
        assert np.count_nonzero(run.ties(MM)) > len(run.queries) / 2
        write_results([tmp_path / "run"], tmp_path / "submission", model=MODEL, leaderboard=board)
        assert verify_submission(tmp_path / "submission", model=MODEL, leaderboard=board) == []

    def test_results_on_other_datasets_are_left_alone(self, doctored: Path, board: Leaderboard) -> None:
        other = [{"dataset": {"id": "cais/hle", "task_id": "default"}, "value": 20.9}]
        (doctored / ".eval_results" / "hle.yaml").write_text(yaml.safe_dump(other))
        assert violations(doctored, board) == {}


class TestHead:
    def test_another_model_s_run(self, honest: Path, board: Leaderboard) -> None:
        found = violations(honest, board, model="group/other")
        assert "the Run is of 'tests/stand-in', the repository of 'group/other'" in found[Kind.WRONG_MODEL].message

    def test_another_version_of_the_benchmark(self, doctored: Path, board: Leaderboard) -> None:
        change_manifest(doctored, fingerprint=dataclasses.asdict(Fingerprint("another", None)))
        assert violations(doctored, board).keys() == {Kind.WRONG_FINGERPRINT}

    def test_a_fingerprint_without_images(self, doctored: Path, board: Leaderboard) -> None:
        fingerprint = read_json(doctored / RUN / MANIFEST_FILE)["fingerprint"]
        change_manifest(doctored, fingerprint={**fingerprint, "images": None})
        assert violations(doctored, board).keys() == {Kind.WRONG_FINGERPRINT}

    def test_another_benchmark_under_a_copied_fingerprint(self, doctored: Path, board: Leaderboard) -> None:
        change_manifest(doctored, benchmark="easier")
        assert violations(doctored, board).keys() == {Kind.WRONG_FINGERPRINT}

    def test_another_protocol(self, doctored: Path, board: Leaderboard) -> None:
        protocol = read_json(doctored / RUN / MANIFEST_FILE)["protocol"]
        change_manifest(doctored, protocol={**protocol, "id": "made/easy", "reference": "kept"})
        found = violations(doctored, board)
        assert found.keys() == {Kind.WRONG_PROTOCOL}
        assert found[Kind.WRONG_PROTOCOL].message.endswith("they differ in id, reference")

    def test_a_smaller_gallery(self, doctored: Path, board: Leaderboard) -> None:
        change_manifest(doctored, n_gallery=39)
        assert "ranks 39 images, the gallery has 40" in violations(doctored, board)[Kind.WRONG_FINGERPRINT].message

    def test_alarms(self, doctored: Path, board: Leaderboard) -> None:
        change_manifest(doctored, alarms=[EncoderWarning.TEXT_LEAKS.value])
        assert violations(doctored, board)[Kind.ALARM].ids == ("text_leaks",)

    def test_no_run(self, doctored: Path, board: Leaderboard) -> None:
        shutil.rmtree(doctored / RUN)
        assert violations(doctored, board).keys() == {Kind.UNREADABLE}

    def test_a_table_that_is_not_the_manifest_s(self, doctored: Path, board: Leaderboard) -> None:
        ranks = pq.read_table(doctored / RUN / RANKS_FILE)
        pq.write_table(ranks, doctored / RUN / RANKS_FILE, compression="none")
        assert "SHA-256 differs" in violations(doctored, board)[Kind.UNREADABLE].message

    @pytest.mark.parametrize("manifest", [{}, {"model": []}, {"protocol": [1]}, {"fingerprint": 3}, {"n_gallery": "x"}])
    def test_a_manifest_that_makes_no_sense(self, doctored: Path, board: Leaderboard, manifest: dict[str, Any]) -> None:
        whole = read_json(doctored / RUN / MANIFEST_FILE) if manifest else {}
        write_json(doctored / RUN / MANIFEST_FILE, {**whole, **manifest})
        assert violations(doctored, board).keys() & {Kind.UNREADABLE, Kind.WRONG_FINGERPRINT}


class TestRows:
    def test_a_query_left_out(self, doctored: Path, board: Leaderboard) -> None:
        for name in (RANKS_FILE, TOP_FILE):
            change_table(doctored, name, lambda table: table.filter(np.array(table["query"].to_pylist()) != "q5"))
        found = verify_submission(doctored, model=MODEL, leaderboard=board)
        assert {violation.kind for violation in found} == {Kind.MISSING_QUERIES}
        # In both tables, under every condition.
        assert [violation.ids for violation in found] == [("q5",)] * 6

    def test_a_query_of_one_condition_left_out(self, doctored: Path, board: Leaderboard) -> None:
        def without(table: pa.Table) -> pa.Table:
            rows = zip(table["query"].to_pylist(), table["condition"].to_pylist(), strict=True)
            return table.filter(np.array([row != ("q5", "text_only") for row in rows]))

        change_table(doctored, RANKS_FILE, without)
        assert violations(doctored, board)[Kind.MISSING_QUERIES].where.endswith("ranks.parquet, text_only")

    def test_a_query_that_is_not_the_benchmark_s(self, doctored: Path, board: Leaderboard) -> None:
        def renamed(table: pa.Table) -> pa.Table:
            names = ["easy" if name == "q5" else name for name in table["query"].to_pylist()]
            return table.set_column(table.schema.get_field_index("query"), "query", pa.array(names))

        for name in (RANKS_FILE, TOP_FILE):
            change_table(doctored, name, renamed)
        found = violations(doctored, board)
        assert found[Kind.UNKNOWN_QUERIES].ids == ("easy",)
        assert found[Kind.MISSING_QUERIES].ids == ("q5",)

    @pytest.mark.parametrize("name", [RANKS_FILE, TOP_FILE])
    def test_rows_that_occur_twice(self, doctored: Path, board: Leaderboard, name: str) -> None:
        change_table(doctored, name, lambda table: pa.concat_tables([table, table.slice(0, 2)]))
        found = violations(doctored, board)
        assert found.keys() == {Kind.DUPLICATE_ROWS}
        assert found[Kind.DUPLICATE_ROWS].ids[0].startswith("q0")

    def test_an_easier_target(self, doctored: Path, board: Leaderboard) -> None:
        def easier(table: pa.Table) -> pa.Table:
            rows = zip(table["query"].to_pylist(), table["target"].to_pylist(), strict=True)
            targets = ["g30" if query == "q4" else target for query, target in rows]
            return table.set_column(table.schema.get_field_index("target"), "target", pa.array(targets))

        change_table(doctored, RANKS_FILE, easier)
        found = violations(doctored, board)
        assert found.keys() == {Kind.WRONG_TARGETS}
        assert found[Kind.WRONG_TARGETS].ids == ("q4",)

    def test_targets_in_another_order(self, doctored: Path, board: Leaderboard) -> None:
        # Among targets of one score the first has the better rank.
        def swapped(run: Run) -> Run:
            first, *others = run.targets
            return dataclasses.replace(run, targets=(first[::-1], *others))

        change_run(doctored, swapped)
        assert violations(doctored, board).keys() == {Kind.WRONG_TARGETS}

    @pytest.mark.parametrize("rank", [41, -1])
    def test_a_rank_outside_the_gallery(self, doctored: Path, board: Leaderboard, rank: int) -> None:
        change_run(doctored, lambda run: with_rank(run, "q1", rank))
        found = violations(doctored, board)
        assert found[Kind.RANK_OUTSIDE_GALLERY].ids == ("q1 g13",)
        assert f"such as {rank}" in found[Kind.RANK_OUTSIDE_GALLERY].message

    def test_a_target_without_a_rank(self, doctored: Path, board: Leaderboard) -> None:
        change_run(doctored, lambda run: with_rank(run, "q1", 0))  # written as null
        assert violations(doctored, board).keys() == {Kind.RANK_OUTSIDE_GALLERY}

    def test_a_rank_of_a_target_that_is_not_in_the_gallery(self, doctored: Path, board: Leaderboard) -> None:
        def reached(run: Run) -> Run:
            ranks = run.results[MM].ranking.rank.copy()
            ranks[-1] = 1
            return with_ranking(run, rank=ranks)

        change_run(doctored, reached)
        assert violations(doctored, board)[Kind.RANK_OUTSIDE_GALLERY].ids == ("q11 nowhere",)


class TestScores:
    def test_a_rank_that_puts_the_target_before_its_ties(self, doctored: Path, board: Leaderboard) -> None:
        # Rank 1 with 5 ties: against the model it would be 6 at least.
        def optimistic(run: Run) -> Run:
            ties = run.ties(MM).copy()
            ties[row_of(run, "q1")] = 5
            return with_ranking(with_rank(run, "q1", 1), ties=ties)

        change_run(doctored, optimistic)
        assert violations(doctored, board)[Kind.GOLD_FIRST].ids == ("q1 g13",)

    def test_ties_that_are_not_admitted(self, doctored: Path, board: Leaderboard) -> None:
        # The list puts the target first among three images of one score, and the table says rank 1 without ties.
        def silent(run: Run) -> Run:
            place = run.queries.index("q1")
            result = run.results[MM]
            listed = ["g13", *(image for image in result.top_ids[place] if image != "g13")][:LISTED]
            scores = result.ranking.top_score.copy()
            scores[place] = np.linspace(0.5, 0.1, LISTED)
            scores[place, :3] = 0.9
            ids = (*result.top_ids[:place], tuple(listed), *result.top_ids[place + 1 :])
            ranks = result.ranking.rank.copy()
            ranks[row_of(run, "q1")] = 1
            ranking = dataclasses.replace(result.ranking, rank=ranks, top_score=scores)
            changed = dataclasses.replace(result, ranking=ranking, top_ids=ids)
            return dataclasses.replace(run, results={**run.results, MM: changed})

        change_run(doctored, silent)
        found = violations(doctored, board)
        assert found[Kind.GOLD_FIRST].ids == ("q1 g13",)
        assert "rank 1, though 2 images of the same score make it 3" in found[Kind.GOLD_FIRST].message

    def test_constant_scores(self, board: Leaderboard, tmp_path: Path) -> None:
        # Honest ranks of an encoder that sees nothing; only its alarms were struck out.
        run_on(leaderboard_benchmark(), tmp_path / "run", encoder=Constant())
        write_results([tmp_path / "run"], tmp_path / "submission", model=Constant.name, leaderboard=board)
        found = verify_submission(tmp_path / "submission", model=Constant.name, leaderboard=board)
        assert [violation.kind for violation in found] == [Kind.CONSTANT_SCORES] * 3
        assert len(found[0].ids) == 12

    def test_a_target_that_is_listed_further_down(self, doctored: Path, board: Leaderboard) -> None:
        def better(run: Run) -> Run:
            place, query = next(
                (i, q) for i, q in enumerate(run.queries) if run.targets[i][0] in run.top(MM)[i][2:] and i % 3
            )
            assert run.targets[place][0] in run.top(MM)[place]
            return with_rank(run, query, 1)

        change_run(doctored, better)
        assert violations(doctored, board).keys() == {Kind.RANK_NOT_AS_LISTED}

    def test_a_hit_that_is_not_listed(self, doctored: Path, board: Leaderboard) -> None:
        change_run(doctored, lambda run: with_rank(run, unlisted(run), 3))
        found = violations(doctored, board)
        assert found.keys() == {Kind.RANK_NOT_AS_LISTED}
        assert f"not among the first {LISTED}" in found[Kind.RANK_NOT_AS_LISTED].message

    def test_a_hit_that_is_not_listed_under_one_part_of_the_query(self, doctored: Path, board: Leaderboard) -> None:
        # A worse unimodal rank would raise CompGap; a better one than listed is refused like any other.
        def better(run: Run) -> Run:
            tops = run.top(Condition.IMAGE_ONLY)
            query = next(q for i, q in enumerate(run.queries) if run.targets[i][0] not in tops[i])
            return with_rank(run, query, 1, condition=Condition.IMAGE_ONLY)

        change_run(doctored, better)
        assert violations(doctored, board)[Kind.RANK_NOT_AS_LISTED].where.endswith("topk.parquet, image_only")

    def test_a_reference_that_is_said_to_be_in_the_way(self, doctored: Path, board: Leaderboard) -> None:
        # The protocol takes a reference above the target out of its rank; with the text alone it often is below.
        text_only = Condition.TEXT_ONLY
        honest = Run.load(doctored / RUN).results[text_only].ranking.reference
        assert ReferencePosition.BELOW in honest
        raised = np.where(honest == ReferencePosition.BELOW, ReferencePosition.ABOVE, honest).astype(np.int8)
        change_run(doctored, lambda run: with_ranking(run, text_only, reference=raised))
        found = violations(doctored, board)
        assert found.keys() == {Kind.RANK_NOT_AS_LISTED}
        assert "the reference is said to be above" in found[Kind.RANK_NOT_AS_LISTED].message

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda ids, scores: (ids[:10], scores[:, :10]), "expected one each, for 11 images or more"),
            (lambda ids, scores: ((ids[0], *ids[:-1]), scores), "images occur twice"),
            (lambda ids, scores: (("elsewhere", *ids[1:]), scores), "images are not in the gallery"),
            (lambda ids, scores: (ids, scores[:, ::-1]), "scores are not finite, or rise"),
            (lambda ids, scores: (ids, np.full_like(scores, np.nan)), "scores are not finite, or rise"),
        ],
    )
    def test_a_list_that_is_no_ranking(
        self, doctored: Path, board: Leaderboard, change: Callable[..., Any], message: str
    ) -> None:
        def changed(run: Run) -> Run:
            result = run.results[MM]
            lists = [change(ids, result.ranking.top_score) for ids in result.top_ids]
            ranking = dataclasses.replace(result.ranking, top_score=lists[0][1])
            new = dataclasses.replace(result, ranking=ranking, top_ids=tuple(ids for ids, _ in lists))
            return dataclasses.replace(run, results={**run.results, MM: new})

        change_run(doctored, changed)
        assert message in violations(doctored, board)[Kind.BAD_LISTING].message


class TestEntries:
    def test_a_raised_value(self, doctored: Path, board: Leaderboard) -> None:
        change_entries(doctored, lambda entries: entries[3].update(value=99.5))
        found = violations(doctored, board)
        assert found.keys() == {Kind.WRONG_VALUE}
        assert found[Kind.WRONG_VALUE].ids == ("made_sf",)
        assert "made_sf: 99.5 instead of" in found[Kind.WRONG_VALUE].message

    def test_a_value_of_better_ranks_than_those_attached(self, doctored: Path, board: Leaderboard) -> None:
        # The ranks are swapped for worse, sound ones after the values were written.
        run_on(leaderboard_benchmark(), doctored / RUN, encoder=type("Other", (StandIn,), {"dim": 2})())
        assert Kind.WRONG_VALUE in violations(doctored, board)

    def test_other_notes(self, doctored: Path, board: Leaderboard) -> None:
        change_entries(doctored, lambda entries: entries[0].update(notes="verified by the organizers"))
        assert violations(doctored, board)[Kind.WRONG_FACTS].ids == ("made_full",)

    def test_a_task_left_out(self, doctored: Path, board: Leaderboard) -> None:
        change_entries(doctored, lambda entries: entries.pop(1))
        found = violations(doctored, board)
        assert found.keys() == {Kind.MISSING_ENTRY}
        assert found[Kind.MISSING_ENTRY].ids == ("made_full_text_only",)

    def test_a_second_entry_for_the_dataset_in_upper_case(self, doctored: Path, board: Leaderboard) -> None:
        second = [{"dataset": {"id": DATASET.upper(), "task_id": "made_v", "revision": REVISION}, "value": 100}]
        (doctored / ".eval_results" / "other.yaml").write_text(yaml.safe_dump(second))
        assert violations(doctored, board)[Kind.DUPLICATE_ENTRY].ids == ("made_v",)

    def test_a_second_entry_in_another_file(self, doctored: Path, board: Leaderboard) -> None:
        second = [{"dataset": {"id": DATASET, "task_id": "made_v", "revision": REVISION}, "value": 100}]
        (doctored / ".eval_results" / "zz.yaml").write_text(yaml.safe_dump(second))
        assert violations(doctored, board)[Kind.DUPLICATE_ENTRY].ids == ("made_v",)

    def test_an_unknown_task(self, doctored: Path, board: Leaderboard) -> None:
        change_entries(doctored, lambda entries: entries[0]["dataset"].update(task_id="made_easy"))
        found = violations(doctored, board)
        assert found[Kind.UNKNOWN_TASK].ids == ("made_easy",)

    def test_another_revision_of_the_dataset(self, doctored: Path, board: Leaderboard) -> None:
        change_entries(doctored, lambda entries: entries[0]["dataset"].update(revision="0" * 40))
        assert violations(doctored, board)[Kind.WRONG_REVISION].ids == ("made_full",)

    def test_no_entry(self, tmp_path: Path, board: Leaderboard) -> None:
        assert violations(tmp_path, board).keys() == {Kind.NO_ENTRY}

    @pytest.mark.parametrize("text", ["{", "- 3", "- {value: 3}", "just text", ""])
    def test_a_file_that_is_no_list_of_results(self, doctored: Path, board: Leaderboard, text: str) -> None:
        (doctored / ".eval_results" / "zz.yaml").write_text(text)
        assert violations(doctored, board).keys() == {Kind.UNREADABLE}


def test_an_error_names_every_refusal(doctored: Path, board: Leaderboard) -> None:
    change_entries(doctored, lambda entries: entries[0].update(value=99.5, notes=""))
    with pytest.raises(SubmissionError) as error:
        require_valid(doctored, model=MODEL, leaderboard=board)
    assert "wrong_value" in str(error.value)
    assert "wrong_facts" in str(error.value)
