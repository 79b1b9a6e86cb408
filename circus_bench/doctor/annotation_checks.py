"""Check annotations: each check is a pure function of a Benchmark that returns one `Result`, or None."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from circus_bench.benchmark import Benchmark, Defect, Query
from circus_bench.doctor.results import Result, Severity, defect, note, note_of_groups

MANY_POSITIVES = 10
"""More positives than this exceed the usual cut-off, so that recall@10 cannot reach 1."""

SHORT = 2
"""Characters of a caption that hardly says anything."""

_MEANINGS = {
    Defect.NON_STRING_ID: "ids that are no strings and were written out as text; check that 12 and '012' stay apart",
    Defect.DUPLICATE_GALLERY_ID: "gallery ids that occur twice, of which the first was kept; make them unique",
    Defect.DUPLICATE_QUERY_ID: "query ids that occur twice, of which the first was kept; make them unique",
    Defect.DUPLICATE_TARGET: "queries that list a target twice, of which the first mention was kept; remove the second",
    Defect.NO_TARGET: "queries without a target, which were left out; complete or remove them",
    Defect.DANGLING_TARGET: "targets outside the gallery, which can never be retrieved; complete the gallery",
    Defect.REFERENCE_IS_TARGET: "queries whose own reference is a target, so that returning the query image counts as "
    "a success; correct the labels, or report scores without these queries too",
    Defect.EMPTY_TEXT: "queries with a blank modification text; complete or remove them",
    Defect.DANGLING_SUBSET: "images of subsets outside the gallery, which never compete; complete the gallery",
    Defect.MISSING_IMAGE: "images without a file; fetch them, or run without them and say so",
}


def recorded_defects(benchmark: Benchmark) -> tuple[Result, ...]:
    """List the contradictions that were met, and allowed, when the benchmark was made: one result per kind."""
    merged: dict[Defect, list[str]] = {}
    for finding in benchmark.findings:
        merged.setdefault(finding.defect, []).extend(finding.ids)
    return tuple(
        Result(kind.value, Severity.DEFECT, tuple(dict.fromkeys(ids)), _MEANINGS[kind]) for kind, ids in merged.items()
    )


def reference_for_hard_target(benchmark: Benchmark) -> Result | None:
    """Find queries whose positives hold the reference and miss the hard target."""
    ids = [query.id for query in benchmark.queries if query.reference in query.targets and _misses_hard_target(query)]
    meaning = (
        "queries whose positives hold the reference itself and miss the hard target: the query image counts as right, "
        "the true answer as wrong; score them against the hard target, or report scores without them too"
    )
    return defect("reference_for_hard_target", ids, meaning)


def hard_target_missed(benchmark: Benchmark) -> Result | None:
    """Find queries whose positives miss the hard target, apart from those of `reference_for_hard_target`."""
    ids = [q.id for q in benchmark.queries if q.reference not in q.targets and _misses_hard_target(q)]
    meaning = (
        "queries whose positives miss the hard target, the image that the annotator wrote the text for; "
        "compare scores with those against the hard target"
    )
    return defect("hard_target_missed", ids, meaning)


def soft_label_is_reference(benchmark: Benchmark) -> Result | None:
    """Find queries whose soft labels, which this protocol does not use, hold the reference and miss the hard target."""
    ids = []
    for query in benchmark.queries:
        soft = _soft_positives(query)
        if query.reference in soft.difference(query.targets) and not soft & set(_hard_targets(query)):
            ids.append(query.id)
    meaning = (
        "queries whose soft labels hold the reference itself and miss the hard target: this protocol is not concerned, "
        "but one that takes its positives from the soft labels is"
    )
    return note("soft_label_is_reference", ids, meaning)


def references_outside(benchmark: Benchmark) -> Result | None:
    """Find references that are not in the gallery."""
    gallery = frozenset(benchmark.gallery.ids)
    outside = dict.fromkeys(query.reference for query in benchmark.queries if query.reference not in gallery)
    meaning = "references outside the gallery: they never compete, so that both reference policies give the same ranks"
    return note("reference_outside_gallery", outside, meaning)


def contradictory_targets(benchmark: Benchmark) -> Result | None:
    """Find queries with the same reference and text, but other targets."""
    groups = [group for group in _same_query(benchmark) if len({frozenset(query.targets) for query in group}) > 1]
    meaning = "queries with the same reference and text but other targets: no model can be right about all of them"
    return note_of_groups("contradictory_targets", _ids(groups), meaning)


def repeated_queries(benchmark: Benchmark) -> Result | None:
    """Find queries with the same reference, text and targets."""
    groups = grouped(
        benchmark.queries, lambda query: (query.reference, query.text, frozenset(query.targets), query.subset)
    )
    groups = [group for group in groups if group[0].targets]
    meaning = "queries with the same reference, text and targets: they count twice; remove all but one of each"
    return note_of_groups("repeated_query", _ids(groups), meaning)


def empty_captions(benchmark: Benchmark) -> Result | None:
    """Find queries of which one of several captions is empty; a text that is all blank is `Defect.EMPTY_TEXT`."""
    ids = [query.id for query in benchmark.queries if query.text.strip() and not all(map(str.strip, _captions(query)))]
    meaning = (
        "queries that lack one of their captions, so that the text was made of the others; complete the annotations"
    )
    return defect("empty_caption", ids, meaning)


def identical_captions(benchmark: Benchmark) -> Result | None:
    """Find rows whose captions are the same, but for case and outer white space."""

    def repeats(captions: Sequence[str]) -> bool:
        given = [caption.strip().casefold() for caption in captions if caption.strip()]
        return len(set(given)) < len(given)

    found = [query.id for query in benchmark.queries if any(map(repeats, caption_rows(query)))]
    meaning = "queries with the same caption twice: the joined text repeats itself and says no more than one of them"
    return note("identical_captions", found, meaning)


def short_captions(benchmark: Benchmark) -> Result | None:
    """Find captions of one or two characters."""
    meaning = f"queries with a caption of at most {SHORT} characters, which hardly says what to change"
    return _about_captions(benchmark, "short_caption", lambda caption: 0 < len(caption.strip()) <= SHORT, meaning)


def non_ascii_captions(benchmark: Benchmark) -> Result | None:
    """Find captions with characters outside ASCII."""
    meaning = "queries with characters outside ASCII: compare texts in one Unicode form (NFC) and keep the raw text"
    return _about_captions(benchmark, "non_ascii", lambda caption: not caption.isascii(), meaning)


def double_spaces(benchmark: Benchmark) -> Result | None:
    """Find captions with two spaces in a row."""
    meaning = "queries with two spaces in a row: a tool that collapses them has other texts, and another fingerprint"
    return _about_captions(benchmark, "double_space", lambda caption: "  " in caption, meaning)


def many_positives(benchmark: Benchmark) -> Result | None:
    """Find queries with more positives than the usual cut-off."""
    meaning = (
        f"queries with more than {MANY_POSITIVES} positives: recall@{MANY_POSITIVES} cannot reach 1 for them, and "
        f"AP@{MANY_POSITIVES} divides by {MANY_POSITIVES}, not by their number"
    )
    ids = [query.id for query in benchmark.queries if len(query.targets) > MANY_POSITIVES]
    return note("many_positives", ids, meaning)


CHECKS: tuple[Callable[[Benchmark], Result | None], ...] = (
    reference_for_hard_target,
    hard_target_missed,
    soft_label_is_reference,
    empty_captions,
    contradictory_targets,
    repeated_queries,
    references_outside,
    identical_captions,
    short_captions,
    non_ascii_captions,
    double_spaces,
    many_positives,
)


def check_annotations(benchmark: Benchmark) -> tuple[Result, ...]:
    """Apply every check above, and return those that found something."""
    return (*recorded_defects(benchmark), *filter(None, (check(benchmark) for check in CHECKS)))


def positives_distribution(benchmark: Benchmark) -> dict[int, int]:
    """Map the number of positives to the number of queries that have so many, ascending."""
    return dict(sorted(Counter(len(query.targets) for query in benchmark.queries).items()))


def shared_images(benchmarks: Mapping[str, Benchmark]) -> tuple[Result, ...]:
    """Find images in the galleries of two benchmarks: one result for each pair that has any.

    Args:
        benchmarks: name of the part (a category, say) to its benchmark.
    """
    results = []
    for (one, first), (other, second) in combinations(benchmarks.items(), 2):
        gallery = frozenset(first.gallery.ids)
        both = [image_id for image_id in second.gallery.ids if image_id in gallery]
        meaning = (
            f"images in the galleries of both {one} and {other}: keep the galleries apart, for a joint one is smaller "
            f"than their sum and gives other ranks"
        )
        results.append(note(f"shared_by_{one}_and_{other}", both, meaning))
    return tuple(filter(None, results))


def caption_rows(query: Query) -> list[tuple[str, ...]]:
    """Return the captions as the annotators wrote them, one tuple for each row that the query was made of.

    They are `details["captions"]` where the source kept them: one entry per row, a string or a list of strings. Else
    the text stands in.
    """
    given = query.details.get("captions")
    if not isinstance(given, list | tuple) or not given:
        return [(query.text,)]
    return [(row,) if isinstance(row, str) else tuple(map(str, row)) for row in given]


def grouped(items: Iterable[Any], key: Callable[[Any], Hashable]) -> list[list[Any]]:
    """Group items that share a key, as groups of two or more."""
    groups: dict[Hashable, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [group for group in groups.values() if len(group) > 1]


def _same_query(benchmark: Benchmark) -> list[list[Query]]:
    return grouped(benchmark.queries, lambda query: (query.reference, query.text))


def _ids(groups: Iterable[Sequence[Query]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(query.id for query in group) for group in groups)


def _hard_targets(query: Query) -> tuple[str, ...]:
    """Return the images that the texts were written for, one per row of the query; empty where unknown."""
    hard = query.details.get("target_hard", ())
    return (hard,) if isinstance(hard, str) else tuple(hard)


def _misses_hard_target(query: Query) -> bool:
    hard = _hard_targets(query)
    return bool(hard) and not set(hard) & set(query.targets)


def _soft_positives(query: Query) -> frozenset[str]:
    """Return the images of soft value 1.0, the maps of several rows merged; a later value replaces an earlier one."""
    given = query.details.get("target_soft", ())
    merged: dict[str, float] = {}
    for values in (given,) if isinstance(given, Mapping) else given:
        merged |= values
    return frozenset(image_id for image_id, value in merged.items() if value == 1)


def _captions(query: Query) -> list[str]:
    return [caption for row in caption_rows(query) for caption in row]


def _about_captions(benchmark: Benchmark, check: str, found: Callable[[str], bool], meaning: str) -> Result | None:
    return note(check, [query.id for query in benchmark.queries if any(map(found, _captions(query)))], meaning)
