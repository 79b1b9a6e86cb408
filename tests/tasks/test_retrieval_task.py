"""One evaluation by mteb: what is encoded, what is scored, what lies on disk, what is used again."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mteb
import numpy as np
import pyarrow.parquet as pq
import pytest
from mteb.cache import ResultCache

from circus_bench.audit.audit import audit_runs
from circus_bench.benchmark import Condition
from circus_bench.errors import CircusError, ImageError, MismatchError
from circus_bench.hub.reader import read_benchmark
from circus_bench.hub.writer import write_dataset_folder
from circus_bench.runs.run import Run
from circus_bench.sources.cirr import PROTOCOLS
from circus_bench.tasks.circus_cirr import CircusCIRR

IN_SUBSET = {"full": range(40), "sf": range(1, 40, 2), "v": range(1, 40, 4)}
"""Positions of the queries; see `small_cirr`."""


def evaluate(model: Any, data: Path, out: Path | None, **options: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CIRCUS_DATA", str(data))
        cache = ResultCache(out) if out else None
        return mteb.evaluate(model, CircusCIRR(), cache=cache, co2_tracker=False, show_progress_bar=False, **options)


def results_of(out: Path) -> Path:
    (folder,) = (out / "results").glob("*/*")
    return folder


@pytest.fixture(scope="module")
def evaluated(folder, make_counting, tmp_path_factory):
    """One evaluation into a fresh output folder: the encoder, the results' folder, the scores by subset, the Run."""
    out = tmp_path_factory.mktemp("out")
    model = make_counting()
    evaluate(model, folder, out)
    written = results_of(out)
    content = json.loads((written / "CIRCUS-CIRR.json").read_text(), parse_constant=pytest.fail)
    scores = {entry["hf_subset"]: entry for entry in content["scores"]["test"]}
    return SimpleNamespace(model=model, out=out, written=written, scores=scores, run=Run.load(written / "CIRCUS-CIRR"))


def best_ranks(written: Path) -> dict[str, np.ndarray]:
    """For each condition the rank of each query's one target, read from the file without the library."""
    table = pq.read_table(written / "CIRCUS-CIRR" / "ranks.parquet").to_pylist()
    return {c.value: np.array([row["rank"] for row in table if row["condition"] == c.value]) for c in Condition}


def test_each_gallery_image_is_encoded_exactly_once(evaluated):
    assert len(evaluated.model.documents) == 400
    assert set(evaluated.model.documents.values()) == {1}


def test_the_nine_cells_follow_from_the_saved_rank_table(evaluated):
    ranks = best_ranks(evaluated.written)
    for subset, positions in IN_SUBSET.items():
        conditions = evaluated.scores[subset]["by_reference"]["kept"]["conditions"]
        for condition, of_condition in ranks.items():
            # One target a query: the hit rate@10 is the share of ranks up to 10. mteb rounds to six digits.
            expected = float(np.mean(of_condition[list(positions)] <= 10))
            assert conditions[condition]["hit_rate_at_10"]["value"] == pytest.approx(expected, abs=1e-6)


def test_comp_gap_follows_from_the_saved_rank_table(evaluated):
    ranks = best_ranks(evaluated.written)
    for subset, positions in IN_SUBSET.items():
        ndcg = {c: float(np.mean(1 / np.log2(1 + of[list(positions)]))) for c, of in ranks.items()}
        expected = 1 - max(ndcg["text_only"], ndcg["image_only"]) / ndcg["multimodal"]
        assert evaluated.scores[subset]["comp_gap"] == pytest.approx(expected, abs=1e-6)


def test_the_main_score_is_the_multimodal_hit_rate_with_the_reference_kept(evaluated):
    for subset, positions in IN_SUBSET.items():
        hits = best_ranks(evaluated.written)["multimodal"][list(positions)] <= 10
        assert evaluated.scores[subset]["main_score"] == pytest.approx(float(np.mean(hits)), abs=1e-6)
        assert evaluated.scores[subset]["reference"] == "kept"


def test_removing_the_reference_never_lowers_a_hit_rate(evaluated):
    policies = evaluated.scores["full"]["by_reference"]
    for condition in Condition:
        kept, removed = (policies[name]["conditions"][condition.value] for name in ("kept", "removed"))
        assert all(removed[f"hit_rate_at_{k}"]["value"] >= kept[f"hit_rate_at_{k}"]["value"] for k in (1, 5, 10))


def test_the_reference_is_out_of_the_way_of_image_only_queries_when_removed(evaluated):
    # The reference is an image-only query's own picture, so it has rank 1 unless it is removed.
    policies = evaluated.scores["full"]["by_reference"]
    assert policies["kept"]["conditions"]["image_only"]["hit_rate_at_1"]["value"] == 0


def test_metrics_at_a_cut_off_follow_from_the_ranks(evaluated):
    ranks = best_ranks(evaluated.written)["multimodal"].astype(float)
    found = evaluated.scores["full"]["by_reference"]["kept"]["conditions"]["multimodal"]
    near = ranks <= 20
    # One target: DCG is 1 / log2(1 + rank), the ideal 1; reciprocal rank and average precision are both 1 / rank.
    assert found["ndcg_at_20"]["value"] == pytest.approx(np.mean(near / np.log2(1 + ranks)), abs=1e-6)
    assert found["mrr_at_20"]["value"] == pytest.approx(np.mean(near / ranks), abs=1e-6)
    assert found["map_at_20"]["value"] == pytest.approx(np.mean(near / ranks), abs=1e-6)
    assert found["recall_at_20"]["value"] == found["hit_rate_at_20"]["value"]


def test_every_cell_has_an_interval_around_it(evaluated):
    for condition in evaluated.scores["v"]["by_reference"]["kept"]["conditions"].values():
        for estimate in condition.values():
            assert estimate["low"] <= estimate["value"] <= estimate["high"]
            assert estimate["n"] == 10


def test_a_result_says_what_was_scored(evaluated, folder):
    scores = evaluated.scores["sf"]
    assert scores["protocol"] == "cirr/circus"
    assert (scores["n_queries"], scores["n_relevant"], scores["n_gallery"]) == (20, 20, 400)
    assert scores["fingerprint"]["annotations"] == read_benchmark(folder, "cirr").fingerprint.annotations
    assert set(scores["ties"]) == {"multimodal", "text_only", "image_only"}
    assert scores["by_reference"]["kept"]["chance"]["multimodal"]["n"] == 20


def test_an_audit_starts_from_the_run_beside_the_results(evaluated):
    assert evaluated.run.manifest.protocol["id"] == "cirr/circus"
    assert len(audit_runs([evaluated.run]).pool.queries) == 40


def test_a_prediction_folder_gets_the_top_of_the_gallery_and_the_run(evaluated, folder, make_counting, tmp_path):
    evaluate(make_counting(), folder, None, prediction_folder=tmp_path)
    model = evaluated.run.manifest.model
    assert Run.load(tmp_path / "CIRCUS-CIRR" / "circus-bench__mini-balanced" / model.revision)
    content = json.loads((tmp_path / "CIRCUS-CIRR_predictions.json").read_text())
    query, top = evaluated.run.queries[1], evaluated.run.top(Condition.MULTIMODAL)[1]
    assert list(content["v"]["test"][query]) == list(top)
    assert list(content["v"]["test"]) == [evaluated.run.queries[position] for position in IN_SUBSET["v"]]


def test_a_finished_run_is_used_again(evaluated, folder, make_counting):
    again = make_counting()
    evaluate(again, folder, evaluated.out, overwrite_strategy="always")
    assert not again.documents
    assert not again.queries


def test_a_lost_run_is_made_from_the_stored_embeddings(folder, make_counting, tmp_path, monkeypatch):
    monkeypatch.setenv("CIRCUS_STORE", str(tmp_path / "store"))
    evaluate(make_counting(), folder, tmp_path / "a")
    again = make_counting()
    evaluate(again, folder, tmp_path / "b")
    assert not again.documents
    assert (results_of(tmp_path / "a") / "CIRCUS-CIRR" / "ranks.parquet").read_bytes() == (
        results_of(tmp_path / "b") / "CIRCUS-CIRR" / "ranks.parquet"
    ).read_bytes()


def test_a_run_on_other_data_is_replaced(small_cirr, folder, stand_in_images, make_counting, tmp_path, caplog):
    other = small_cirr(audited=False)
    write_dataset_folder([other], tmp_path / "bare")
    stand_in_images.SIDE, side = 64, stand_in_images.SIDE
    try:
        stand_in_images.join_stand_ins(tmp_path / "bare", "cirr", out=tmp_path / "larger")
    finally:
        stand_in_images.SIDE = side
    evaluate(make_counting(), folder, tmp_path / "out")
    model = make_counting()
    with caplog.at_level(logging.WARNING, "mteb"):
        evaluate(model, tmp_path / "larger", tmp_path / "out", overwrite_strategy="always")
    assert len(model.documents) == 400
    assert "a Run of another model, dataset or protocol" in caplog.text


def test_a_damaged_run_is_made_again(folder, make_counting, tmp_path, caplog):
    evaluate(make_counting(), folder, tmp_path)
    ranks = results_of(tmp_path) / "CIRCUS-CIRR" / "ranks.parquet"
    whole = ranks.read_bytes()
    ranks.write_bytes(whole[:-8])
    with caplog.at_level(logging.WARNING, "mteb"):
        evaluate(make_counting(), folder, tmp_path, overwrite_strategy="always")
    assert ranks.read_bytes() == whole
    assert "made again" in caplog.text


def test_runs_go_where_the_environment_says(folder, make_counting, tmp_path, monkeypatch):
    monkeypatch.setenv("CIRCUS_RUNS", str(tmp_path / "runs"))
    model = make_counting()
    evaluate(model, folder, tmp_path / "out")
    revision = model.mteb_model_meta.revision
    assert Run.load(tmp_path / "runs" / "CIRCUS-CIRR" / "circus-bench__mini-balanced" / revision)
    assert not (results_of(tmp_path / "out") / "CIRCUS-CIRR").exists()


def test_without_cache_and_settings_nothing_is_kept(folder, make_counting, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluate(make_counting(), folder, None)
    assert not list(tmp_path.iterdir())


def test_subsets_that_the_data_do_not_know_are_left_out_with_a_warning(
    small_cirr, stand_in_images, make_counting, tmp_path, caplog
):
    write_dataset_folder([small_cirr(audited=False)], tmp_path / "bare")
    stand_in_images.join_stand_ins(tmp_path / "bare", "cirr", out=tmp_path / "data")
    with caplog.at_level(logging.WARNING, "mteb"):
        (result,) = evaluate(make_counting(), tmp_path / "data", None).task_results
    assert [entry["hf_subset"] for entry in result.scores["test"]] == ["full"]
    assert "the subsets sf, v need labels or human judgments" in caplog.text


def test_asking_only_for_unknown_subsets_is_an_error(small_cirr, tmp_path, monkeypatch):
    write_dataset_folder([small_cirr(audited=False)], tmp_path / "bare")
    monkeypatch.setenv("CIRCUS_DATA", str(tmp_path / "bare"))
    with pytest.raises(CircusError, match="the subsets v need labels"):
        CircusCIRR().filter_languages(["eng"], hf_subsets=["v"]).load_data()


def test_missing_pixels_are_named_and_the_way_to_join_them(bare_folder, make_counting):
    with pytest.raises(ImageError, match=r"(?s)400: 'scene-00000', .*CIRCUS_DATA") as caught:
        evaluate(make_counting(), bare_folder, None)
    assert f"circus-bench data make {bare_folder}#cirr --images IMAGES" in str(caught.value)
    assert "circus-bench data make cirr/circus --data DATA --images IMAGES" in str(caught.value)


def test_another_protocol_is_refused(small_cirr, make_counting, tmp_path):
    write_dataset_folder([small_cirr(PROTOCOLS["cirr/official"], audited=False)], tmp_path / "data")
    with pytest.raises(MismatchError, match="protocol cirr/official, the task is scored under cirr/circus"):
        evaluate(make_counting(), tmp_path / "data", None)


def test_encode_options_that_would_be_lost_are_refused(folder, make_counting):
    with pytest.raises(CircusError, match="does not pass on precision"):
        evaluate(make_counting(), folder, None, encode_kwargs={"precision": "int8"})
