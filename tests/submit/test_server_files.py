"""Server files follow the servers' rules, and the checkers find every way of breaking one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.makers import make_run

from circus_bench.benchmark import Benchmark, Condition, Gallery, Protocol, Query, ReferencePolicy
from circus_bench.errors import CircusError, MismatchError
from circus_bench.runs.run import ConditionResult, Run
from circus_bench.sources import load_source
from circus_bench.submit.server_files import (
    MAX_BYTES,
    RECALL_FILE,
    SUBSET_FILE,
    check_circo_test,
    check_cirr_test1,
    write_circo_test,
    write_cirr_test1,
)


def run_on(benchmark: Benchmark, tops: Sequence[Sequence[str]], subsets: Sequence[Sequence[str]] | None = None) -> Run:
    """A Run with these retrieved images; text-only and image-only find them in the opposite order."""
    made = make_run([], [], [])
    subsets = subsets or [()] * len(tops)
    results = {}
    for condition in Condition:
        step = 1 if condition is Condition.MULTIMODAL else -1
        results[condition] = ConditionResult(
            made.results[condition].ranking,
            tuple(tuple(top[::step]) for top in tops),
            tuple(tuple(subset[::step]) for subset in subsets),
        )
    manifest = dataclasses.replace(
        made.manifest,
        benchmark=benchmark.name,
        fingerprint=benchmark.fingerprint,
        protocol=dataclasses.asdict(benchmark.protocol),
        n_queries=len(benchmark.queries),
    )
    return Run(manifest, tuple(query.id for query in benchmark.queries), ((),) * len(benchmark.queries), results)


def hidden(protocol: str, queries: Sequence[Query], gallery: Sequence[str]) -> Benchmark:
    return Benchmark(
        name=protocol.partition("/")[0],
        protocol=Protocol(protocol, ReferencePolicy.KEPT, hidden_targets=True),
        queries=tuple(queries),
        gallery=Gallery(tuple(gallery)),
    )


# Sixty images; three queries whose image sets are the ten images from number 10, 20 and 30, their reference the first.
NAMES = [f"test1-{number}-0-img0" for number in range(60)]


@pytest.fixture(scope="module")
def cirr() -> Benchmark:
    queries = [
        Query(str(1000 + number), NAMES[10 * number], "text", (), subset=tuple(NAMES[10 * number : 10 * number + 6]))
        for number in (1, 2, 3)
    ]
    return hidden("cirr/test1", queries, NAMES)


@pytest.fixture(scope="module")
def cirr_run(cirr: Benchmark) -> Run:
    # Every query retrieves the first 55 images in order, its reference among them.
    return run_on(cirr, [NAMES[:55]] * 3, [query.subset[1:] for query in cirr.queries])


@pytest.fixture(scope="module")
def circo() -> Benchmark:
    queries = [Query(str(number), str(number), "text", ()) for number in range(800)]
    return hidden("circo/test", queries, [str(number) for number in range(900)])


@pytest.fixture(scope="module")
def circo_run(circo: Benchmark) -> Run:
    # Query i retrieves the images i, i + 1, ... : its reference first.
    return run_on(circo, [[str(number + i) for i in range(51)] for number in range(800)])


def load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


# CIRR, written.


def test_the_recall_file_lists_50_images_without_the_reference(cirr: Benchmark, cirr_run: Run, tmp_path: Path) -> None:
    recall, _ = write_cirr_test1(cirr_run, tmp_path, benchmark=cirr)
    content = load(recall)
    assert (content.pop("version"), content.pop("metric")) == ("rc2", "recall")
    assert content == {str(1000 + n): [name for name in NAMES[:51] if name != NAMES[10 * n]] for n in (1, 2, 3)}


def test_the_subset_file_lists_the_top_3_of_the_image_set(cirr: Benchmark, cirr_run: Run, tmp_path: Path) -> None:
    _, subset = write_cirr_test1(cirr_run, tmp_path, benchmark=cirr)
    content = load(subset)
    assert (content.pop("version"), content.pop("metric")) == ("rc2", "recall_subset")
    assert content == {str(1000 + n): NAMES[10 * n + 1 : 10 * n + 4] for n in (1, 2, 3)}


def test_both_cirr_files_pass_their_check(cirr: Benchmark, cirr_run: Run, tmp_path: Path) -> None:
    paths = write_cirr_test1(cirr_run, tmp_path, benchmark=cirr)
    assert [path.name for path in paths] == [RECALL_FILE, SUBSET_FILE]
    assert [check_cirr_test1(path, benchmark=cirr) for path in paths] == [[], []]


def test_a_cirr_run_of_50_images_is_short_by_the_reference(cirr: Benchmark, tmp_path: Path) -> None:
    # The reference of 1040 is beyond the 50 images; the others have theirs among them, which leaves 49.
    queries = (*cirr.queries, Query("1040", NAMES[59], "text", (), subset=tuple(NAMES[50:56])))
    benchmark = dataclasses.replace(cirr, queries=queries)
    run = run_on(benchmark, [NAMES[:50]] * 4, [query.subset[1:] for query in queries])
    with pytest.raises(CircusError, match=r"fewer than 50 images \(3: '1001', '1002', '1003'\).*--top-k 51"):
        write_cirr_test1(run, tmp_path, benchmark=benchmark)
    assert not list(tmp_path.iterdir())


def test_a_run_of_another_protocol_is_not_submitted(cirr: Benchmark, cirr_run: Run, tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="takes results of circo/test; the Run is of cirr/test1"):
        write_circo_test(cirr_run, tmp_path / "x.json", benchmark=cirr)


def test_a_run_on_other_annotations_is_not_submitted(cirr: Benchmark, cirr_run: Run, tmp_path: Path) -> None:
    first = dataclasses.replace(cirr.queries[0], text="other")
    other = dataclasses.replace(cirr, queries=(first, *cirr.queries[1:]))
    with pytest.raises(MismatchError, match="fingerprints differ"):
        write_cirr_test1(cirr_run, tmp_path, benchmark=other)


def test_a_subset_top_outside_the_image_set_is_not_written(cirr: Benchmark, tmp_path: Path) -> None:
    run = run_on(cirr, [NAMES[:55]] * 3, [NAMES[:5]] * 3)
    with pytest.raises(CircusError, match="the server would reject this"):
        write_cirr_test1(run, tmp_path, benchmark=cirr)
    assert not list(tmp_path.iterdir())


def test_a_run_from_the_disk_gives_the_same_files(cirr: Benchmark, cirr_run: Run, tmp_path: Path) -> None:
    ranking = dataclasses.replace(
        cirr_run.results[Condition.MULTIMODAL].ranking, top_score=np.zeros((3, 55), np.float32)
    )
    results = {c: dataclasses.replace(result, ranking=ranking) for c, result in cirr_run.results.items()}
    dataclasses.replace(cirr_run, results=results).save(tmp_path / "run")
    write_cirr_test1(cirr_run, tmp_path / "a", benchmark=cirr)
    write_cirr_test1(Run.load(tmp_path / "run"), tmp_path / "b", benchmark=cirr)
    for name in (RECALL_FILE, SUBSET_FILE):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


# CIRCO, written.


def test_the_circo_file_lists_50_whole_numbers_for_each_of_800_queries(
    circo: Benchmark, circo_run: Run, tmp_path: Path
) -> None:
    write_circo_test(circo_run, tmp_path / "x.json", benchmark=circo)
    content = load(tmp_path / "x.json")
    assert list(content) == [str(number) for number in range(800)]
    # The reference of query 7 is image 7: it stays.
    assert content["7"] == list(range(7, 57))
    assert check_circo_test(tmp_path / "x.json", benchmark=circo) == []


def test_a_circo_run_of_fewer_images_is_not_written(circo: Benchmark, circo_run: Run, tmp_path: Path) -> None:
    run = run_on(circo, [top[:49] for top in circo_run.top(Condition.MULTIMODAL)])
    with pytest.raises(CircusError, match=r"fewer than 50 images \(800: '0', '1'"):
        write_circo_test(run, tmp_path / "x.json", benchmark=circo)


# What the checkers find.

Change = Callable[[dict[str, Any]], object]


def changed(path: Path, change: Change) -> Path:
    content = load(path)
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda c: c["1001"].__setitem__(1, NAMES[0]), f"query '1001': {NAMES[0]!r} is listed 2 times"),
        (lambda c: c["1001"].pop(), "query '1001': lists 49 ids, expected 50"),
        (lambda c: c["1001"].__setitem__(0, "what"), "query '1001': 'what' is unknown, not of test1"),
        (
            lambda c: c["1001"].__setitem__(0, "dev-1-0-img0"),
            "query '1001': 'dev-1-0-img0' is of the split 'dev', not of test1",
        ),
        (
            lambda c: c["1001"].__setitem__(0, NAMES[10]),
            f"query '1001': {NAMES[10]!r} is its own reference, which must not be listed",
        ),
        (lambda c: c["1001"].__setitem__(0, 7), "query '1001': 7 is of type int, expected an image name"),
        (lambda c: c.pop("1002"), "query '1002': missing"),
        (lambda c: c.update({"5": c["1001"]}), "query '5': no pairid of test1"),
        (lambda c: c.update({"1003": "x"}), "query '1003': is of type str, expected a list of 50 ids"),
        (lambda c: c.update(version="rc1"), "'version' is 'rc1', expected 'rc2'"),
        (lambda c: c.update(metric="mAP"), "'metric' is 'mAP', expected 'recall' or 'recall_subset'"),
    ],
)
def test_the_cirr_check_finds(cirr: Benchmark, cirr_run: Run, tmp_path: Path, change: Change, problem: str) -> None:
    recall, _ = write_cirr_test1(cirr_run, tmp_path, benchmark=cirr)
    assert check_cirr_test1(changed(recall, change), benchmark=cirr) == [problem]


def test_the_cirr_check_finds_a_key_that_is_written_another_way(cirr: Benchmark, cirr_run: Run, tmp_path: Path) -> None:
    recall, _ = write_cirr_test1(cirr_run, tmp_path, benchmark=cirr)
    path = changed(recall, lambda content: content.update({"1001.0": content.pop("1001")}))
    assert check_cirr_test1(path, benchmark=cirr) == [
        "query '1001.0': no pairid of test1; the id is a plain number, '1001'",
        "query '1001': missing",
    ]


def test_the_cirr_check_finds_images_outside_the_image_set(cirr: Benchmark, cirr_run: Run, tmp_path: Path) -> None:
    _, subset = write_cirr_test1(cirr_run, tmp_path, benchmark=cirr)
    path = changed(subset, lambda content: content["1001"].__setitem__(2, NAMES[40]))
    assert check_cirr_test1(path, benchmark=cirr) == [f"query '1001': {NAMES[40]!r} is not in its image set"]


def test_the_cirr_check_finds_a_file_that_is_too_large(cirr: Benchmark, cirr_run: Run, tmp_path: Path) -> None:
    recall, _ = write_cirr_test1(cirr_run, tmp_path, benchmark=cirr)
    recall.write_text(recall.read_text(encoding="utf-8") + " " * MAX_BYTES, encoding="utf-8")
    (problem,) = check_cirr_test1(recall, benchmark=cirr)
    assert "the server takes 5,000,000" in problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda c: c["7"].__setitem__(1, 7), "query '7': 7 is listed 2 times"),
        (lambda c: c["7"].append(1), "query '7': lists 51 ids, expected 50"),
        (lambda c: c["7"].__setitem__(0, "7"), "query '7': '7' is of type str, expected a whole number"),
        (lambda c: c["7"].__setitem__(0, 7.0), "query '7': 7.0 is of type float, expected a whole number"),
        (lambda c: c["7"].__setitem__(0, True), "query '7': True is of type bool, expected a whole number"),
        (lambda c: c["7"].__setitem__(0, 900), "query '7': 900 is no image of the gallery (COCO 2017 unlabeled)"),
        (lambda c: c.pop("799"), "query '799': missing"),
        (lambda c: c.update({"800": c["7"]}), "query '800': no query of CIRCO test"),
        (lambda c: c.update({"007": c["7"]}), "query '007': no query of CIRCO test; the id is a plain number, '7'"),
        (lambda c: c.update({"7": {}}), "query '7': is of type dict, expected a list of 50 ids"),
    ],
)
def test_the_circo_check_finds(circo: Benchmark, circo_run: Run, tmp_path: Path, change: Change, problem: str) -> None:
    write_circo_test(circo_run, tmp_path / "x.json", benchmark=circo)
    assert check_circo_test(changed(tmp_path / "x.json", change), benchmark=circo) == [problem]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"0": [1, 2,]}', "a comma with nothing after it"),
        (b'{"0": [NaN]}', "holds NaN, which is not JSON"),
        (b'{"0": [1], "0": [2]}', r"a key more than once"),
        (b"[1, 2]", "expected a JSON object by query id, found list"),
        (b'\xef\xbb\xbf{"0": []}', "starts with a byte order mark"),
        (b'{"0": ["\xff"]}', "not UTF-8"),
    ],
)
def test_a_file_that_is_no_strict_json_is_one_problem(
    cirr: Benchmark, circo: Benchmark, tmp_path: Path, text: bytes, problem: str
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text)
    for found in (check_circo_test(path, benchmark=circo), check_cirr_test1(path, benchmark=cirr)):
        assert len(found) == 1
        assert problem in found[0]


def test_a_missing_file_is_a_problem(circo: Benchmark, tmp_path: Path) -> None:
    (problem,) = check_circo_test(tmp_path / "x.json", benchmark=circo)
    assert "no such file" in problem


# Against the real annotations.


def test_a_full_cirr_submission_fits_the_server(shared: Path, tmp_path: Path) -> None:
    benchmark = load_source("cirr/test1", shared / "data" / "cirr")
    # The 51 longest names of the gallery: no submission is larger.
    longest = sorted(benchmark.gallery.ids, key=len)[-51:]
    subsets = [[name for name in query.subset if name != query.reference] for query in benchmark.queries]
    run = run_on(benchmark, [longest] * len(benchmark.queries), subsets)
    recall, subset = write_cirr_test1(run, tmp_path, benchmark=benchmark)
    assert len(load(recall)) == len(load(subset)) == 4148 + 2
    assert recall.stat().st_size < MAX_BYTES
    assert check_cirr_test1(recall, benchmark=benchmark) == check_cirr_test1(subset, benchmark=benchmark) == []


def test_a_full_circo_submission_passes_its_check(shared: Path, tmp_path: Path) -> None:
    benchmark = load_source("circo/test", shared / "data" / "circo")
    run = run_on(benchmark, [benchmark.gallery.ids[number : number + 50] for number in range(800)])
    write_circo_test(run, tmp_path / "x.json", benchmark=benchmark)
    assert check_circo_test(tmp_path / "x.json", benchmark=benchmark) == []
