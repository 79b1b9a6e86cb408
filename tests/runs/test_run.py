"""A Run says what was measured, survives the disk byte for byte, and refuses to be mixed with strangers."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.standins import Blind, StandIn

from circus_bench.benchmark import Benchmark, Condition, Defect, Query, ReferencePolicy
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.sanity_checks import EncoderWarning
from circus_bench.errors import CircusError, FormatError, MismatchError
from circus_bench.io import sha256, write_parquet
from circus_bench.metrics.hit_rate import hit_rate
from circus_bench.ranking.backends import Backend
from circus_bench.runs.run import Run, check_comparable, check_matches, n_inputs, run_benchmark

Make = Callable[..., Run]


@pytest.fixture
def make_run(tmp_path: Path, toy_benchmark: Callable[..., Benchmark]) -> Make:
    """`make_run(benchmark=None, encoder=None, **options)`: a Run of the toy benchmark."""

    def make(benchmark: Benchmark | None = None, encoder: StandIn | None = None, **options: object) -> Run:
        store = EmbeddingStore(tmp_path / "embeddings")
        return run_benchmark(encoder or StandIn(), benchmark or toy_benchmark(), store=store, **options)

    return make


def test_every_target_has_a_rank_in_every_condition(make_run: Make) -> None:
    run = make_run()
    # Three queries with 1, 1 and 2 targets.
    assert run.offsets.tolist() == [0, 1, 2, 4]
    for condition in Condition:
        ranks = run.ranks(condition)
        assert ranks.offsets.tolist() == run.offsets.tolist()
        assert ((ranks.values >= 1) & (ranks.values <= 4)).all()


def test_an_image_only_query_finds_its_own_reference_first(make_run: Make) -> None:
    run = make_run()
    # q1 and q2 have their references a and b in the gallery; q3 has its own outside.
    assert [top[0] for top in run.top(Condition.IMAGE_ONLY)][:2] == ["a", "b"]


def test_ranks_under_the_other_reference_policy_follow_from_the_same_run(make_run: Make) -> None:
    run = make_run()
    kept, removed = (run.ranks(Condition.IMAGE_ONLY, reference=policy) for policy in ReferencePolicy)
    # The reference stands at rank 1 for q1 and q2; the reference of q3 is not in the gallery.
    assert (kept.values - removed.values).tolist() == [1, 1, 0, 0]


def test_the_protocol_s_policy_is_the_default(make_run: Make, toy_benchmark: Callable[..., Benchmark]) -> None:
    protocol = dataclasses.replace(toy_benchmark().protocol, reference=ReferencePolicy.REMOVED)
    run = make_run(toy_benchmark(protocol=protocol))
    assert run.ranks(Condition.IMAGE_ONLY) == run.ranks(Condition.IMAGE_ONLY, reference=ReferencePolicy.REMOVED)


def test_a_target_that_is_the_reference_cannot_be_retrieved_once_the_reference_is_removed(
    make_run: Make, toy_benchmark: Callable[..., Benchmark]
) -> None:
    queries = (Query("q1", "a", "same", ("a", "b")), Query("q2", "b", "other", ("c",)))
    run = make_run(toy_benchmark(queries=queries, allow=frozenset({Defect.REFERENCE_IS_TARGET})))
    kept, removed = (run.ranks(Condition.MULTIMODAL, reference=policy) for policy in ReferencePolicy)
    assert math.isfinite(kept.values[0])
    assert removed.values[0] == math.inf
    assert math.isfinite(removed.values[1])


def test_a_dangling_target_is_never_retrieved(make_run: Make, toy_benchmark: Callable[..., Benchmark]) -> None:
    queries = (Query("q1", "a", "x", ("gone", "b")), Query("q2", "b", "y", ("c",)))
    run = make_run(toy_benchmark(queries=queries, allow=frozenset({Defect.DANGLING_TARGET})))
    assert run.ranks(Condition.MULTIMODAL).values[0] == math.inf
    assert run.ties(Condition.MULTIMODAL)[0] == 0


def test_null_ranks_have_the_shape_of_the_ranks(make_run: Make) -> None:
    run = make_run()
    null = run.null_ranks(Condition.MULTIMODAL)
    assert null is not None
    assert null.counts.tolist() == [1, 1, 2]


def test_a_single_query_has_no_null_ranks(make_run: Make, toy_benchmark: Callable[..., Benchmark]) -> None:
    run = make_run(toy_benchmark(queries=[Query("q", "a", "x", ("b",))]))
    assert run.null_ranks(Condition.MULTIMODAL) is None


def test_the_top_has_the_length_asked_for(make_run: Make) -> None:
    assert {len(top) for condition in Condition for top in make_run(top_k=2).top(condition)} == {2}


def test_progress_counts_every_input(tmp_path: Path, toy_benchmark: Callable[..., Benchmark]) -> None:
    steps: list[int] = []
    run_benchmark(StandIn(), toy_benchmark(), store=EmbeddingStore(tmp_path), advance=steps.append)
    assert sum(steps) == n_inputs(toy_benchmark()) == 4 + 3 * 3


def test_alarms_are_in_the_manifest(make_run: Make) -> None:
    # Without text it gives every gallery image the same vector.
    assert make_run(encoder=Blind()).manifest.alarms == (EncoderWarning.REFERENCE_IGNORED, EncoderWarning.COLLAPSED)


def test_saving_and_loading_keeps_everything_but_gallery_positions(make_run: Make, tmp_path: Path) -> None:
    run = make_run()
    run.save(tmp_path / "run")
    loaded = Run.load(tmp_path / "run")
    assert (loaded.manifest, loaded.queries, loaded.targets) == (run.manifest, run.queries, run.targets)
    for condition in Condition:
        for policy in ReferencePolicy:
            assert loaded.ranks(condition, reference=policy) == run.ranks(condition, reference=policy)
        assert loaded.null_ranks(condition) == run.null_ranks(condition)
        assert loaded.ties(condition).tolist() == run.ties(condition).tolist()
        assert loaded.top(condition) == run.top(condition)
        scores = (result.results[condition].ranking.top_score.tolist() for result in (loaded, run))
        assert next(scores) == next(scores)


def test_unreachable_ranks_and_missing_nulls_survive_the_disk(
    make_run: Make, tmp_path: Path, toy_benchmark: Callable[..., Benchmark]
) -> None:
    queries = [Query("q", "a", "x", ("gone", "b"))]
    make_run(toy_benchmark(queries=queries, allow=frozenset({Defect.DANGLING_TARGET}))).save(tmp_path / "run")
    loaded = Run.load(tmp_path / "run")
    assert loaded.ranks(Condition.MULTIMODAL).values[0] == math.inf
    assert loaded.null_ranks(Condition.MULTIMODAL) is None


def test_the_same_input_gives_the_same_bytes(
    tmp_path: Path, toy_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    for name in ("one", "two"):
        run = run_benchmark(StandIn(), toy_benchmark(), store=EmbeddingStore(tmp_path / f"{name}-embeddings"))
        run.save(tmp_path / name)
    files = [sorted((tmp_path / name).iterdir()) for name in ("one", "two")]
    assert [path.name for path in files[0]] == ["manifest.json", "ranks.parquet", "topk.parquet"]
    for first, second in zip(*files, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_a_loaded_run_is_saved_with_the_same_tables(make_run: Make, tmp_path: Path) -> None:
    make_run().save(tmp_path / "one")
    Run.load(tmp_path / "one").save(tmp_path / "two")
    for name in ("ranks.parquet", "topk.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_folder_without_a_manifest_is_unfinished(make_run: Make, tmp_path: Path) -> None:
    make_run().save(tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(FormatError, match=r"manifest\.json: no such file"):
        Run.load(tmp_path / "run")


def test_a_table_that_was_changed_is_refused(make_run: Make, tmp_path: Path) -> None:
    make_run().save(tmp_path / "run")
    path = tmp_path / "run" / "ranks.parquet"
    write_parquet(path, pq.read_table(path).slice(1))
    with pytest.raises(FormatError, match="SHA-256 differs"):
        Run.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.slice(0, table.num_rows - 1), "rows of image_only are not those"),
        (lambda table: table.filter(pc.not_equal(table["query"], "q1")), "3 queries, of which 1 have no target"),
        (lambda table: pa.concat_tables([table, table]), "holds rows twice"),
        (lambda table: table.drop_columns("ties"), "lacks the columns"),
        (lambda table: table.set_column(3, "rank", [[99] * table.num_rows]), "rank outside 1 to 4"),
    ],
)
def test_a_table_that_contradicts_its_manifest_is_refused(
    make_run: Make, tmp_path: Path, change: Callable[[object], object], message: str
) -> None:
    make_run().save(tmp_path / "run")
    path = tmp_path / "run" / "ranks.parquet"
    write_parquet(path, change(pq.read_table(path)))
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    manifest["files"]["ranks.parquet"] = sha256(path)  # as somebody who forges a table would
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FormatError, match=message):
        Run.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("schema_version", 99, "schema version 99"), ("alarms", ["loud"], "loud"), ("model", {"name": "x"}, "formats.md")],
)
def test_a_manifest_of_another_schema_is_refused(
    make_run: Make, tmp_path: Path, key: str, value: object, message: str
) -> None:
    make_run().save(tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(FormatError, match=message):
        Run.load(tmp_path / "run")


class Other(StandIn):
    name = "tests/other"


def test_runs_of_different_models_on_one_benchmark_are_comparable(make_run: Make) -> None:
    check_comparable([make_run(), make_run(encoder=Other())])


def test_two_runs_of_one_model_are_not_a_pool(make_run: Make) -> None:
    with pytest.raises(MismatchError, match="tests/stand-in occurs twice"):
        check_comparable([make_run(), make_run()])


@pytest.mark.parametrize("part", ["name", "protocol", "queries", "images"])
def test_runs_of_different_benchmarks_are_not_mixed(
    make_run: Make, toy_benchmark: Callable[..., Benchmark], part: str
) -> None:
    toy = toy_benchmark()
    changes = {
        "name": {"name": "toy2"},
        "protocol": {"protocol": dataclasses.replace(toy.protocol, reference=ReferencePolicy.REMOVED)},
        "queries": {"queries": (dataclasses.replace(toy.queries[0], text="blue"), *toy.queries[1:])},
        "images": {"images": {**(toy.gallery.images or {}), "a": (toy.gallery.images or {})["b"]}},
    }
    with pytest.raises(MismatchError, match="tests/stand-in and tests/other"):
        check_comparable([make_run(), make_run(toy_benchmark(**changes[part]), Other())])


def test_a_run_matches_the_annotations_of_its_benchmark_without_images(
    make_run: Make, toy_benchmark: Callable[..., Benchmark]
) -> None:
    check_matches(make_run(), toy_benchmark(with_images=False))


def test_a_run_does_not_match_another_benchmark(make_run: Make, toy_benchmark: Callable[..., Benchmark]) -> None:
    with pytest.raises(MismatchError, match="not made on this version"):
        check_matches(make_run(), toy_benchmark(queries=toy_benchmark().queries[:2]))


def test_back_ends_give_the_same_ranks(make_run: Make) -> None:
    by_numpy, by_torch = (make_run(backend=backend) for backend in Backend)
    for condition in Condition:
        assert by_numpy.ranks(condition) == by_torch.ranks(condition)


def hidden_benchmark(toy_benchmark: Callable[..., Benchmark]) -> Benchmark:
    """Queries whose targets only a server knows, one of them with a subset."""
    toy = toy_benchmark()
    protocol = dataclasses.replace(toy.protocol, hidden_targets=True)
    queries = [
        dataclasses.replace(query, targets=(), subset=("a", "c", "d") if query.id == "q1" else ())
        for query in toy.queries
    ]
    return toy_benchmark(protocol=protocol, queries=queries)


def test_hidden_targets_leave_what_is_retrieved(
    make_run: Make, tmp_path: Path, toy_benchmark: Callable[..., Benchmark]
) -> None:
    run = make_run(hidden_benchmark(toy_benchmark))
    run.save(tmp_path / "run")
    loaded = Run.load(tmp_path / "run")
    assert loaded.queries == ("q1", "q2", "q3")
    assert loaded.targets == ((), (), ())
    assert [len(top) for top in loaded.top(Condition.MULTIMODAL)] == [4, 4, 4]


def test_the_subset_is_sorted_by_score_without_the_reference(
    make_run: Make, toy_benchmark: Callable[..., Benchmark]
) -> None:
    run = make_run(hidden_benchmark(toy_benchmark))
    # The reference of q1 is a; c and d stand in the order in which the whole top has them.
    expected = tuple(image for image in run.top(Condition.MULTIMODAL)[0] if image in "cd")
    assert run.subset_top(Condition.MULTIMODAL) == (expected, (), ())


def test_hidden_targets_cannot_be_scored_here(make_run: Make, toy_benchmark: Callable[..., Benchmark]) -> None:
    with pytest.raises(CircusError, match="only the server of toy/test knows the targets"):
        make_run(hidden_benchmark(toy_benchmark)).ranks(Condition.MULTIMODAL)


def test_a_manifest_that_lacks_a_field_or_has_one_of_another_type_names_it(make_run: Make, tmp_path: Path) -> None:
    make_run().save(tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in content.items() if key not in {"date", "seed"}}))
    with pytest.raises(FormatError, match=r"manifest\.json: lacks date, seed"):
        Run.load(tmp_path / "run")
    path.write_text(json.dumps({**content, "n_queries": "3", "model": {"name": "x", "revision": "y"}}))
    with pytest.raises(FormatError, match=r"manifest\.json: model\.dtype: Field required.*; n_queries: .*found '3'"):
        Run.load(tmp_path / "run")
    path.write_text(json.dumps({**content, "protocol": {"id": "toy/test", "reference": "sometimes"}}))
    with pytest.raises(FormatError, match=r"manifest\.json, protocol: reference: .*found 'sometimes'"):
        Run.load(tmp_path / "run")


def test_a_table_that_is_not_there_is_named(make_run: Make, tmp_path: Path) -> None:
    make_run().save(tmp_path / "run")
    (tmp_path / "run" / "topk.parquet").unlink()
    with pytest.raises(FormatError, match=r"topk\.parquet: no such file"):
        Run.load(tmp_path / "run")


def test_a_run_and_its_store_take_paths_as_text(tmp_path: Path, toy_benchmark: Callable[..., Benchmark]) -> None:
    run = run_benchmark(StandIn(), toy_benchmark(), store=EmbeddingStore(str(tmp_path / "embeddings")))
    run.save(str(tmp_path / "run"))
    assert Run.load(str(tmp_path / "run")).queries == run.queries


class LongName(StandIn):
    name = f"tests/{'x' * 200}"


def test_reprs_stay_short(make_run: Make, toy_benchmark: Callable[..., Benchmark]) -> None:
    ids = [f"image-{number}" for number in range(40)]
    queries = [Query(f"q{number}", ids[0], f"text {number}", tuple(ids[1:30])) for number in range(30)]
    run = make_run(toy_benchmark(queries=queries, gallery=ids), encoder=LongName())
    result = run.results[Condition.MULTIMODAL]
    for shown in (run, run.manifest, result, result.ranking, run.ranks(Condition.MULTIMODAL)):
        assert len(repr(shown)) <= 400, type(shown)
    named = make_run()
    assert "tests/stand-in on toy, protocol toy/test, 3 queries, 4 images" in repr(named)
    rate = 100 * hit_rate(named.ranks(Condition.TEXT_ONLY), 10).mean()
    assert f"text_only {rate:.1f} %" in repr(named)


def test_a_run_on_a_thousand_queries_prints_in_three_hundred_characters(
    make_run: Make, toy_benchmark: Callable[..., Benchmark]
) -> None:
    queries = [Query(f"q{number}", "a", f"text {number}", ("b", "c")) for number in range(1000)]
    run = make_run(toy_benchmark(queries=queries))
    assert len(repr(run)) <= 300
    assert len(run._repr_html_()) < 200_000


def test_html_of_a_run_has_the_hit_rates_and_escapes_names(
    make_run: Make, toy_benchmark: Callable[..., Benchmark]
) -> None:
    html = make_run(toy_benchmark(name="<script>alert(1)</script>"))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    # All four gallery images are among the first five.
    assert "hit rate@1/5/10/50, multimodal" in html
    assert "/ 100.0 / 100.0 / 100.0 %" in html


def test_a_run_with_hidden_targets_is_displayed_without_rates(
    make_run: Make, toy_benchmark: Callable[..., Benchmark]
) -> None:
    run = make_run(hidden_benchmark(toy_benchmark))
    assert "targets hidden" in repr(run)
    assert "hit rate" not in run._repr_html_()


def test_the_pandas_table_has_a_row_per_query_and_target(make_run: Make) -> None:
    run = make_run()
    table = run.to_pandas()
    names = ("rank", "ties", "null_rank", "subset_rank")
    assert list(table) == ["query", "target", *(f"{name}_{condition}" for condition in Condition for name in names)]
    assert list(zip(table["query"], table["target"], strict=True)) == [
        ("q1", "b"),
        ("q2", "c"),
        ("q3", "d"),
        ("q3", "a"),
    ]
    for condition in Condition:
        null = run.null_ranks(condition)
        assert null is not None
        assert table[f"rank_{condition}"].tolist() == run.ranks(condition).values.tolist()
        assert table[f"ties_{condition}"].tolist() == run.ties(condition).tolist()
        assert table[f"null_rank_{condition}"].tolist() == null.values.tolist()
        assert table[f"subset_rank_{condition}"].isna().all()


def test_the_pandas_table_follows_the_reference_policy_and_marks_what_is_missing(
    make_run: Make, toy_benchmark: Callable[..., Benchmark]
) -> None:
    queries = [Query("q", "a", "x", ("gone", "b"), subset=("a", "b", "c"))]
    allow = frozenset({Defect.DANGLING_TARGET})
    run = make_run(toy_benchmark(queries=queries, allow=allow))
    removed = run.to_pandas(reference=ReferencePolicy.REMOVED)
    # The target outside the gallery is never retrieved; a single query has no null target.
    assert removed["rank_multimodal"][0] == math.inf
    assert removed["null_rank_multimodal"].isna().all()
    assert removed["subset_rank_multimodal"].isna().tolist() == [True, False]
    assert (run.to_pandas()["rank_image_only"] - removed["rank_image_only"])[1] == 1


def test_the_pandas_table_needs_targets(make_run: Make, toy_benchmark: Callable[..., Benchmark]) -> None:
    with pytest.raises(CircusError, match="only the server"):
        make_run(hidden_benchmark(toy_benchmark)).to_pandas()


@pytest.mark.parametrize(
    ("terminal", "options", "shown"),
    [
        (True, {}, True),
        (True, {"progress": False}, False),
        (True, {"advance": lambda _: None}, False),
        (False, {}, False),
        (False, {"progress": True}, True),
    ],
)
def test_a_progress_bar_is_shown_in_a_terminal_unless_somebody_else_counts(
    make_run: Make, monkeypatch: pytest.MonkeyPatch, terminal: bool, options: dict[str, object], shown: bool
) -> None:
    stderr = io.StringIO()
    stderr.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", stderr)
    make_run(**options)
    assert ("encoding: 100%" in stderr.getvalue()) is shown
