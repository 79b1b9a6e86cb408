"""Write the files for the test servers of CIRR and CIRCO from a Run, and check them before they are sent.

The servers take a limited number of submissions and say little about a rejected one, so a checker lists every problem,
each with its query and id. Limits and rules: the READMEs of the CIRR and CIRCO projects and what their users met.

- CIRR test1: two files, the top 50 of the gallery and the top 3 of the query's image set, by pairid; the query's own
  reference is never listed; 5 MB at most.
- CIRCO test: one file, the top 50 of the gallery as whole numbers, by query id "0" to "799"; CIRCO leaves the reference
  in the gallery, so it is **not** taken out.

Only the multimodal condition is submitted.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Condition, Gallery
from circus_bench.errors import CircusError, FormatError, MismatchError, format_ids
from circus_bench.io import write_text
from circus_bench.runs.run import Run, check_matches
from circus_bench.sources.annotations import parse_json, read_text

CIRR_TEST1, CIRCO_TEST = "cirr/test1", "circo/test"
RECALL_FILE, SUBSET_FILE = "cirr_test1_recall.json", "cirr_test1_recall_subset.json"
CIRR_VERSION = "rc2"
CIRR_LENGTHS = {"recall": 50, "recall_subset": 3}
CIRCO_LENGTH = 50
CIRCO_QUERIES = 800
MAX_BYTES = 5_000_000
"""The CIRR server takes "5 MB"; read as the smaller of its two meanings."""

_HEAD = ("version", "metric")
_SHOWN_PROBLEMS = 5


def write_cirr_test1(run: Run, folder: StrPath, *, benchmark: Benchmark) -> tuple[Path, Path]:
    """Write both files that the CIRR test server takes, the reference left out.

    Args:
        run: a Run on `cirr/test1` that keeps at least 51 images per query.
        folder: gets `cirr_test1_recall.json` and `cirr_test1_recall_subset.json`.
        benchmark: the benchmark of the Run (annotations suffice): it knows references and image sets.

    Returns:
        The two paths.

    Raises:
        MismatchError: the Run is not one on `cirr/test1`, or not on this benchmark.
        CircusError: a query has too few images, or another rule of the server is broken. Nothing is written then.
    """
    _check_run(run, benchmark, CIRR_TEST1)
    reference_of = {query.id: query.reference for query in benchmark.queries}
    tops = {
        "recall": [
            [image for image in top if image != reference_of[query]]
            for query, top in zip(run.queries, run.top(Condition.MULTIMODAL), strict=True)
        ],
        "recall_subset": [list(top) for top in run.subset_top(Condition.MULTIMODAL)],
    }
    texts = {}
    for metric, length in CIRR_LENGTHS.items():
        _require(run, tops[metric], length, "besides the reference; run with --top-k 51 or more, on the whole gallery")
        lists = {query: top[:length] for query, top in zip(run.queries, tops[metric], strict=True)}
        content = {"version": CIRR_VERSION, "metric": metric, **lists}
        texts[metric] = json.dumps(content, separators=(",", ":"), allow_nan=False)
        _refuse(_cirr_problems(content, benchmark), _size_problems(len(texts[metric].encode())))
    paths = Path(folder, RECALL_FILE), Path(folder, SUBSET_FILE)
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths


def write_circo_test(run: Run, path: StrPath, *, benchmark: Benchmark) -> None:
    """Write the file that the CIRCO test server takes. The reference stays in: CIRCO does not take it out.

    Args:
        run: a Run on `circo/test` that keeps at least 50 images per query.
        path: the JSON file.
        benchmark: the benchmark of the Run (annotations suffice).

    Raises:
        MismatchError: the Run is not one on `circo/test`, or not on this benchmark.
        CircusError: a query has too few images, or another rule of the server is broken. Nothing is written then.
    """
    _check_run(run, benchmark, CIRCO_TEST)
    tops = run.top(Condition.MULTIMODAL)
    _require(run, tops, CIRCO_LENGTH, "; run with --top-k 50 or more, on the whole gallery")
    content = {
        query: [int(image) for image in top[:CIRCO_LENGTH]] for query, top in zip(run.queries, tops, strict=True)
    }
    _refuse(_circo_problems(content, benchmark))
    write_text(path, json.dumps(content, separators=(",", ":"), allow_nan=False))


def check_cirr_test1(path: StrPath, *, benchmark: Benchmark) -> list[str]:
    """List the problems of a JSON file for the CIRR test server, of either metric, each with the query and the id."""
    return _check(
        path, lambda found: chain(_size_problems(Path(path).stat().st_size), _cirr_problems(found, benchmark))
    )


def check_circo_test(path: StrPath, *, benchmark: Benchmark) -> list[str]:
    """List the problems of a JSON file for the CIRCO test server, each with the query and the id."""
    return _check(path, lambda found: _circo_problems(found, benchmark))


def _check_run(run: Run, benchmark: Benchmark, protocol: str) -> None:
    for what, found in (("Run", run.manifest.protocol["id"]), ("benchmark", benchmark.protocol.id)):
        if found != protocol:
            raise MismatchError(f"the server takes results of {protocol}; the {what} is of {found}")
    # The images are left out: ids are what is submitted, and a folder of images would be decoded to be compared.
    check_matches(run, dataclasses.replace(benchmark, gallery=Gallery(benchmark.gallery.ids)))


def _require(run: Run, tops: Iterable[Iterable[str]], length: int, remedy: str) -> None:
    short = [query for query, top in zip(run.queries, tops, strict=True) if len(list(top)) < length]
    if short:
        raise CircusError(f"queries with fewer than {length} images ({format_ids(short)}) {remedy}")


def _refuse(*problems: Iterable[str]) -> None:
    found = [problem for part in problems for problem in part]
    if found:
        raise CircusError(f"the server would reject this ({format_ids(found, shown=_SHOWN_PROBLEMS)})")


def _check(path: StrPath, problems_of: Callable[[Mapping[str, Any]], Iterable[str]]) -> list[str]:
    """List the problems of a JSON object in a file, or the reason why there is none."""
    origin = "the program that wrote it"
    try:
        # A byte order mark is no JSON; our reader of annotations would pass over it.
        if Path(path).is_file() and Path(path).read_bytes().startswith(b"\xef\xbb\xbf"):
            return [f"{path}: starts with a byte order mark, which is not JSON; save it without"]
        content = parse_json(read_text(path, origin=origin), path=path, origin=origin)
    except FormatError as error:
        return [str(error)]
    if not isinstance(content, dict):
        return [f"{path}: expected a JSON object by query id, found {type(content).__name__}"]
    return list(problems_of(content))


def _size_problems(size: int) -> Iterator[str]:
    if size > MAX_BYTES:
        yield f"the file has {size:,} bytes, the server takes {MAX_BYTES:,}; write it without white space"


def _cirr_problems(content: Mapping[str, Any], benchmark: Benchmark) -> Iterator[str]:
    if content.get("version") != CIRR_VERSION:
        yield f"'version' is {content.get('version')!r}, expected {CIRR_VERSION!r}"
    metric = content.get("metric")
    if metric not in CIRR_LENGTHS:
        yield f"'metric' is {metric!r}, expected {' or '.join(map(repr, CIRR_LENGTHS))}"
        return
    queries = {query.id: query for query in benchmark.queries}
    lists = {key: value for key, value in content.items() if key not in _HEAD}
    yield from _key_problems(lists, queries, "pairid of test1")
    gallery = frozenset(benchmark.gallery.ids)
    splits = {image.partition("-")[0] for image in gallery}
    for key, images in lists.items():
        yield from _list_problems(key, images, CIRR_LENGTHS[metric])
        if key not in queries or not isinstance(images, list):
            continue
        query = queries[key]
        for image in dict.fromkeys(image for image in images if isinstance(image, str)):
            if image not in gallery:
                split = image.partition("-")[0]
                known = split in {"dev", "train", "test1"} - splits
                yield f"query {key!r}: {image!r} is {f'of the split {split!r}' if known else 'unknown'}, not of test1"
            elif image == query.reference:
                yield f"query {key!r}: {image!r} is its own reference, which must not be listed"
            elif metric == "recall_subset" and image not in query.subset:
                yield f"query {key!r}: {image!r} is not in its image set"
        yield from (
            f"query {key!r}: {image!r} is of type {type(image).__name__}, expected an image name"
            for image in images
            if not isinstance(image, str)
        )


def _circo_problems(content: Mapping[str, Any], benchmark: Benchmark) -> Iterator[str]:
    yield from _key_problems(content, {str(number): None for number in range(CIRCO_QUERIES)}, "query of CIRCO test")
    gallery = frozenset(map(int, benchmark.gallery.ids))
    for key, images in content.items():
        yield from _list_problems(key, images, CIRCO_LENGTH)
        for image in images if isinstance(images, list) else ():
            if isinstance(image, bool) or not isinstance(image, int):
                yield f"query {key!r}: {image!r} is of type {type(image).__name__}, expected a whole number"
            elif image not in gallery:
                yield f"query {key!r}: {image} is no image of the gallery (COCO 2017 unlabeled)"


def _key_problems(lists: Mapping[str, Any], expected: Mapping[str, Any], what: str) -> Iterator[str]:
    for key in lists:
        if key not in expected:
            plain = key.strip().removesuffix(".0").lstrip("0") or "0"
            hint = f"; the id is a plain number, {plain!r}" if plain in expected else ""
            yield f"query {key!r}: no {what}{hint}"
    for key in expected:
        if key not in lists:
            yield f"query {key!r}: missing"


def _list_problems(key: str, images: Any, length: int) -> Iterator[str]:
    if not isinstance(images, list):
        yield f"query {key!r}: is of type {type(images).__name__}, expected a list of {length} ids"
        return
    if len(images) != length:
        yield f"query {key!r}: lists {len(images)} ids, expected {length}"
    counts = Counter(image for image in images if isinstance(image, str | int))
    yield from (f"query {key!r}: {image!r} is listed {n} times" for image, n in counts.items() if n > 1)
