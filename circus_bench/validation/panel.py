"""Pool candidate panels: the images that raters compare the target with when they judge how broad a query is.

A panel is what the models of a pool retrieve from the whole query, all put together. It tells neither which model
retrieved an image nor at which rank, and the targets stand among the others unmarked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from circus_bench.benchmark import Benchmark, Condition, Query
from circus_bench.errors import MismatchError, format_ids
from circus_bench.runs.run import Run, check_comparable, check_matches
from circus_bench.validation.hash_order import hash_shuffle
from circus_bench.validation.study import Item, Study

DEFAULT_K = 10
"""Retrieved images of each model, as in the CIRCUS audit (arXiv:2605.14787)."""


def candidate_panels(
    benchmark: Benchmark, runs: Sequence[Run], queries: Iterable[str], *, k: int = DEFAULT_K
) -> dict[str, tuple[str, ...]]:
    """Pool the candidate panel of each query.

    It is the union over the Runs of the first `k` images retrieved from the whole query, without its reference, and the
    targets that are in the gallery. Of images with the same pixels one is shown, a target before others. The order is
    that of the ids.

    Args:
        benchmark: the benchmark that was run.
        runs: the pool; without any Run all panels are empty, and nobody can judge how broad a query is.
        queries: ids of the queries.
        k: images of each Run.

    Returns:
        Query id to gallery ids.

    Raises:
        MismatchError: the Runs do not belong together or to the benchmark, kept fewer than `k` images, or a query is
            not in the benchmark.
    """
    known = {query.id: query for query in benchmark.queries}
    wanted = list(queries)
    foreign = [query for query in wanted if query not in known]
    if foreign:
        raise MismatchError(f"benchmark {benchmark.name!r} has no queries {format_ids(foreign)}")
    if not runs:
        return dict.fromkeys(wanted, ())
    check_comparable(runs)
    for run in runs:
        check_matches(run, benchmark)
    place = {query: position for position, query in enumerate(runs[0].queries)}
    tops = [run.top(Condition.MULTIMODAL) for run in runs]
    gallery = frozenset(benchmark.gallery.ids)
    digests = _digests(benchmark)
    found = {}
    for name in wanted:
        query, position = known[name], place[name]
        first: list[str] = []
        for run, top in zip(runs, tops, strict=True):
            first += _first(run, query, top[position], k=min(k, len(gallery) - (query.reference in gallery)))
        targets = [target for target in query.targets if target in gallery]
        found[name] = _without_twins(targets, sorted({*first}), digests)
    return found


def shuffle_panel(study: Study, item: Item, rater: str) -> tuple[str, ...]:
    """Shuffle an item's panel into the order that a rater sees: another one per rater and item."""
    return tuple(hash_shuffle(item.panel, study.seed, "panel", item.id, rater))


def _digests(benchmark: Benchmark) -> dict[str, str]:
    if benchmark.gallery.images is None:
        return {}
    return {image_id: info.digest for image_id, info in benchmark.inspect().readable.items()}


def _first(run: Run, query: Query, top: Sequence[str], *, k: int) -> list[str]:
    others = [image_id for image_id in top if image_id != query.reference][:k]
    if len(others) < k:
        raise MismatchError(
            f"the Run of {run.manifest.model.name} kept {len(others)} images for query {query.id!r} besides the "
            f"reference, {k} are needed for the panel; ask for fewer, or run it again with a larger --top-k"
        )
    return others


def _without_twins(targets: Sequence[str], others: Sequence[str], digests: dict[str, str]) -> tuple[str, ...]:
    shown = {digests.get(target, target) for target in targets}
    kept = list(targets)
    for image_id in others:
        pixels = digests.get(image_id, image_id)
        if image_id not in targets and pixels not in shown:
            shown.add(pixels)
            kept.append(image_id)
    return tuple(sorted(kept))
