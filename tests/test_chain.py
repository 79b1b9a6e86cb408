"""Encoders of known behavior through the whole chain: benchmark, encoding, ranking, audit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.standins import Chance, Constant, NotANumber, StandIn

from circus_bench.audit.audit import Audit, audit_runs
from circus_bench.audit.report import write_report
from circus_bench.benchmark import Benchmark, Condition, Gallery, Protocol, Query, ReferencePolicy
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.encoder import EncodeSettings
from circus_bench.encoding.sanity_checks import EncoderWarning
from circus_bench.errors import EmbeddingError
from circus_bench.images import decode
from circus_bench.models import POOL_MINI, load_encoder
from circus_bench.runs.run import Run, run_benchmark
from circus_bench.sources.scenes import scenes

CONDITIONS = pytest.mark.parametrize("condition", list(Condition))


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    """150 queries, gallery of 1,200, reference removed."""
    return scenes(3, 150, gallery=1200)


@pytest.fixture(scope="module")
def constant(benchmark: Benchmark, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_benchmark(Constant(), benchmark, store=EmbeddingStore(tmp_path_factory.mktemp("constant")))


@pytest.fixture(scope="module")
def chance(benchmark: Benchmark, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_benchmark(Chance(), benchmark, store=EmbeddingStore(tmp_path_factory.mktemp("chance")))


@CONDITIONS
def test_a_constant_encoder_hits_nothing(constant: Run, condition: Condition) -> None:
    # Every image ties with the target, and ties count against the model: every rank is 1,199, the last.
    assert audit_runs([constant]).scores[0].by_condition[condition]["hit_rate@10"].value == 0
    assert set(constant.ranks(condition).values) == {1199}


def test_a_constant_encoder_raises_the_alarm_for_collapsed_embeddings(constant: Run) -> None:
    assert EncoderWarning.COLLAPSED in constant.manifest.alarms


def test_a_constant_encoder_raises_the_alarms_for_parts_that_are_ignored(constant: Run) -> None:
    assert {EncoderWarning.REFERENCE_IGNORED, EncoderWarning.TEXT_IGNORED} <= set(constant.manifest.alarms)


def test_a_constant_encoder_makes_every_query_unresolved(constant: Run) -> None:
    assert set(audit_runs([constant]).shortcut_labels.labels) == {"unresolved"}


def test_all_targets_of_a_constant_encoder_are_tied(constant: Run) -> None:
    ties = audit_runs([constant]).scores[0].ties
    assert {condition: share.value for condition, share in ties.items()} == dict.fromkeys(Condition, 1.0)


@CONDITIONS
def test_a_chance_encoder_hits_as_often_as_chance(chance: Run, condition: Condition) -> None:
    # The target is equally likely at each of the N - 1 places that are left without the reference: 10 / 1,199.
    found = audit_runs([chance]).scores[0].by_condition[condition]["hit_rate@10"]
    assert found.low <= 10 / 1199 <= found.high


@CONDITIONS
def test_the_null_targets_of_a_chance_encoder_are_hit_as_often_as_chance(chance: Run, condition: Condition) -> None:
    found = audit_runs([chance]).scores[0].chance[condition]
    assert found.low <= 10 / 1199 <= found.high


@CONDITIONS
def test_the_ranks_of_a_chance_encoder_are_spread_evenly(chance: Run, condition: Condition) -> None:
    # The mean of 150 ranks uniform on 1 to 1,199 is 600, with a standard deviation of 1,199 / sqrt(12 * 150) = 28; four
    # of these are 113. Queries share references, so the image-only ones are not all independent.
    assert np.mean(chance.ranks(condition).values) == pytest.approx(600, abs=113)


def test_a_chance_encoder_raises_no_alarm(chance: Run) -> None:
    assert chance.manifest.alarms == ()


def test_a_chance_encoder_s_shortcuts_are_at_their_chance_level(chance: Run) -> None:
    # What the pool would call a shortcut by chance, 1 - (1 - 10 / 1,199)^2, is what it calls one.
    audit = audit_runs([chance])
    expected = 1 - (1 - 10 / 1199) ** 2
    found = audit.summary.shares
    assert audit.chance is not None
    for share in (audit.chance, next(share for label, share in found.items() if label == "shortcut")):
        assert share.low <= expected <= share.high


def test_an_encoder_that_gives_nan_is_refused_with_the_input_s_name(benchmark: Benchmark, tmp_path: Path) -> None:
    with pytest.raises(EmbeddingError, match=r"tests/nan gave NaN.*gallery inputs \(1: 'scene-00130'\)"):
        run_benchmark(nan_at(benchmark, "scene-00130"), benchmark, store=EmbeddingStore(tmp_path))


def test_a_shard_with_nan_is_not_stored(benchmark: Benchmark, tmp_path: Path) -> None:
    # Image 130 lies in the third shard of 50: the first two are stored, nothing else.
    with pytest.raises(EmbeddingError):
        run_benchmark(
            nan_at(benchmark, "scene-00130"),
            benchmark,
            store=EmbeddingStore(tmp_path),
            settings=EncodeSettings(checkpoint_every=50),
        )
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2
    assert list(tmp_path.rglob("*.part")) == []


def nan_at(benchmark: Benchmark, image_id: str) -> StandIn:
    assert benchmark.gallery.images is not None
    # The sanity check sees the references of the first four queries without text as well; the image must be another.
    assert image_id not in {query.reference for query in benchmark.queries[:4]}
    return NotANumber(decode(benchmark.gallery.images[image_id]).image)


def circo_query_7(shared: Path) -> Benchmark:
    """CIRCO's validation query 7 over the twelve photos that are at hand: ten others, two of its three targets."""
    data = shared / "data"
    images = {str(int(path.stem)): path.read_bytes() for path in (data / "photos" / "circo_query_7").glob("*.jpg")}
    rows = json.loads((data / "circo" / "annotations" / "val.json").read_text(encoding="utf-8"))
    row = next(row for row in rows if row["id"] == 7)
    targets = tuple(str(image) for image in row["gt_img_ids"] if str(image) in images)
    return Benchmark(
        name="circo",
        protocol=Protocol("circo/query-7", ReferencePolicy.KEPT),
        queries=(Query("7", str(row["reference_img_id"]), row["relative_caption"], targets),),
        gallery=Gallery(tuple(sorted(images, key=int)), images),
    )


@pytest.fixture(scope="module")
def photographed(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Benchmark, Audit]:
    """The photos through the three small models."""
    benchmark = circo_query_7(shared)
    store = EmbeddingStore(tmp_path_factory.mktemp("photos"))
    runs = [run_benchmark(load_encoder(name), benchmark, store=store) for name in POOL_MINI]
    return benchmark, audit_runs(runs, k=3)


def test_photos_run_with_every_small_model(photographed: tuple[Benchmark, Audit]) -> None:
    benchmark, audit = photographed
    assert (len(benchmark.gallery.ids), benchmark.queries[0].targets) == (12, ("545037", "98911"))
    for run in audit.runs:
        for condition in Condition:
            ranks = run.ranks(condition).values
            assert len(set(ranks)) == 2
            assert ranks.min() >= 1
            assert ranks.max() <= 12


def test_the_reference_photo_comes_first_when_it_is_all_that_is_asked_for(
    photographed: tuple[Benchmark, Audit],
) -> None:
    # Query and gallery side of a small model are one encoder, and the reference is kept in the gallery.
    _, audit = photographed
    assert {run.top(Condition.IMAGE_ONLY)[0][0] for run in audit.runs} == {"530944"}


def test_a_single_query_has_no_chance_level(photographed: tuple[Benchmark, Audit]) -> None:
    assert photographed[1].chance is None


def test_photos_are_embedded_in_the_report(photographed: tuple[Benchmark, Audit], tmp_path: Path) -> None:
    # Reference and two targets at least, each once.
    benchmark, audit = photographed
    write_report(audit, tmp_path / "report.html", benchmark=benchmark)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/") >= 3
    assert "is carrying fruit" in page
