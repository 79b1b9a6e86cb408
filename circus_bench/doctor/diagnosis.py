"""Check the integrity of a benchmark: apply every check, and gather what they find for reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from circus_bench.benchmark import Benchmark, Defect, Finding
from circus_bench.doctor.annotation_checks import (
    check_annotations,
    contradictory_targets,
    positives_distribution,
    shared_images,
)
from circus_bench.doctor.counts import category_of, counts_of
from circus_bench.doctor.hashes import near_duplicates
from circus_bench.doctor.image_checks import (
    HashKind,
    ImageReport,
    altered_images,
    check_images,
    check_near_duplicates,
    coverage,
    same_pixels,
    scan_images,
)
from circus_bench.doctor.results import Count, Coverage, Result, Severity
from circus_bench.errors import MismatchError, format_ids
from circus_bench.images import ImageFlag, Inspection, ParquetImages, Unreadable
from circus_bench.io import to_plain


@dataclass(frozen=True)
class NearDuplicateCount:
    """Near-duplicate candidates in a gallery, counted.

    Attributes:
        images: gallery images with a hash.
        pairs_same: pairs of images with the same hash.
        pairs_within_1: pairs whose hashes differ in one bit at most.
    """

    images: int
    pairs_same: int
    pairs_within_1: int


@dataclass(frozen=True)
class Diagnosis:
    """Findings of every check on a benchmark.

    Attributes:
        benchmark: the benchmark's name.
        protocol: the protocol's id.
        category: the part of the benchmark, where it has several with galleries of their own; else empty.
        n_queries: queries, without those that had to be left out.
        n_targets: their targets.
        n_gallery: gallery images.
        n_images: images that could be decoded; None for a benchmark of annotations alone.
        findings: contradictions between queries, targets and gallery.
        unreadable: image id to the reason why it cannot be decoded.
        altered: images whose pixels are not those recorded when the benchmark was written.
        duplicates: groups of image ids with the same pixels.
        flagged: image ids by the way they had to be decoded; not defects.
        irreducible: groups of query ids with the same reference and text but other targets; not defects.
        counts: counts beside the published ones.
        results: everything that the checks found, defects first.
        positives: number of positives to the number of queries that have so many.
        coverage: what has images; empty for annotations alone.
        near_duplicates: near-duplicate candidates by kind of hash.
    """

    benchmark: str
    protocol: str
    category: str
    n_queries: int
    n_targets: int
    n_gallery: int
    n_images: int | None
    findings: tuple[Finding, ...]
    unreadable: dict[str, Unreadable]
    altered: tuple[str, ...]
    duplicates: tuple[tuple[str, ...], ...]
    flagged: dict[ImageFlag, tuple[str, ...]]
    irreducible: tuple[tuple[str, ...], ...]
    counts: tuple[Count, ...] = ()
    results: tuple[Result, ...] = ()
    positives: Mapping[int, int] = dataclasses.field(default_factory=dict)
    coverage: tuple[Coverage, ...] = ()
    near_duplicates: Mapping[HashKind, NearDuplicateCount] = dataclasses.field(default_factory=dict)

    @property
    def title(self) -> str:
        """The protocol's id, with the category where there is one."""
        return f"{self.protocol} ({self.category})" if self.category else self.protocol

    @property
    def defects(self) -> tuple[Result, ...]:
        """The results that are defects."""
        return tuple(result for result in self.results if result.severity is Severity.DEFECT)

    @property
    def notes(self) -> tuple[Result, ...]:
        """The results that are notes."""
        return tuple(result for result in self.results if result.severity is Severity.NOTE)

    @property
    def healthy(self) -> bool:
        """Tell whether there is no defect, and no count differs from the published one."""
        return not self.defects and not any(count.differs for count in self.counts)

    def result(self, check: str) -> Result | None:
        """Return what a check found; None when it found nothing."""
        return next((result for result in self.results if result.check == check), None)

    def to_dict(self) -> dict[str, Any]:
        """Return strict JSON."""
        content = {field.name: to_plain(getattr(self, field.name)) for field in dataclasses.fields(self)}
        findings = {finding.defect.value: list(finding.ids) for finding in self.findings}
        return {**content, "findings": findings, "healthy": self.healthy}


@dataclass(frozen=True)
class HealthReport:
    """The diagnoses of the parts of a benchmark (one, or one per category), and what concerns several of them.

    Attributes:
        diagnoses: one per part.
        shared: images in the galleries of two parts.
    """

    diagnoses: tuple[Diagnosis, ...]
    shared: tuple[Result, ...] = ()

    @property
    def healthy(self) -> bool:
        """Tell whether every part is healthy."""
        return all(diagnosis.healthy for diagnosis in self.diagnoses)

    def to_dict(self) -> dict[str, Any]:
        """Return strict JSON: the diagnosis itself when there is one part, else `parts` and `shared`."""
        if len(self.diagnoses) == 1:
            return self.diagnoses[0].to_dict()
        return {"healthy": self.healthy, "parts": to_plain(self.diagnoses), "shared": to_plain(self.shared)}


def check_all(
    benchmarks: Sequence[Benchmark],
    *,
    hashes: Mapping[str, int] | None = None,
    advance: Callable[[], object] = lambda: None,
) -> HealthReport:
    """Diagnose the parts of a benchmark, and compare their galleries.

    Args:
        benchmarks: the parts: one, or one per category with a gallery of its own.
        hashes: published perceptual hashes; see `diagnose`.
        advance: called after each image, for a progress bar.

    Raises:
        MismatchError: none of the hashes is about a gallery image.
    """
    gallery = dict.fromkeys(image_id for part in benchmarks for image_id in part.gallery.ids)
    if hashes is not None and not gallery.keys() & hashes.keys():
        raise MismatchError(
            f"none of the hashes ({format_ids(hashes)}) is about a gallery image ({format_ids(gallery)}); "
            f"their file names must be image ids"
        )
    diagnoses = tuple(diagnose(benchmark, hashes=hashes, advance=advance) for benchmark in benchmarks)
    return HealthReport(diagnoses, shared_images({category_of(part) or part.name: part for part in benchmarks}))


def diagnose(
    benchmark: Benchmark,
    *,
    hashes: Mapping[str, int] | None = None,
    advance: Callable[[], object] = lambda: None,
) -> Diagnosis:
    """Decode every image of a benchmark, apply every check, and list what is wrong with it.

    Args:
        benchmark: made or loaded with all defects allowed, so that its findings are complete.
        hashes: image id to a published perceptual hash, for near duplicates without images.
        advance: called after each image, for a progress bar.
    """
    images = benchmark.gallery.images
    scanned = ImageReport(Inspection({}, {}))
    results = check_annotations(benchmark)
    altered: tuple[str, ...] = ()
    known: dict[HashKind, Mapping[str, int]] = {} if hashes is None else {HashKind.PUBLISHED: hashes}
    if images is not None:
        scanned = scan_images(images, benchmark.image_ids, advance=advance)
        recorded = images.inspection if isinstance(images, ParquetImages) else scanned.inspection
        altered = altered_images(recorded, scanned.inspection)
        known[HashKind.COMPUTED] = scanned.phashes
        # What is missing now counts, not what was missing when the benchmark was made.
        results = tuple(result for result in results if result.check != Defect.MISSING_IMAGE)
        results += check_images(scanned, altered=altered)
    counted, of_hashes = _near_duplicates(benchmark, known)
    results += of_hashes
    decoded = scanned.inspection
    flags = {flag: tuple(i for i, info in decoded.readable.items() if flag in info.flags) for flag in ImageFlag}
    contradictory = contradictory_targets(benchmark)
    return Diagnosis(
        benchmark=benchmark.name,
        protocol=benchmark.protocol.id,
        category=category_of(benchmark),
        n_queries=len(benchmark.queries),
        n_targets=sum(len(query.targets) for query in benchmark.queries),
        n_gallery=len(benchmark.gallery.ids),
        n_images=None if images is None else len(decoded.readable),
        findings=benchmark.findings,
        unreadable=dict(decoded.unreadable),
        altered=altered,
        duplicates=same_pixels(decoded),
        flagged={flag: ids for flag, ids in flags.items() if ids},
        irreducible=contradictory.groups if contradictory else (),
        counts=counts_of(benchmark),
        results=tuple(sorted(results, key=lambda result: result.severity is Severity.NOTE)),
        positives=positives_distribution(benchmark),
        coverage=() if images is None else coverage(benchmark, decoded.readable),
        near_duplicates=counted,
    )


def _near_duplicates(
    benchmark: Benchmark, known: Mapping[HashKind, Mapping[str, int]]
) -> tuple[dict[HashKind, NearDuplicateCount], tuple[Result, ...]]:
    """Find near duplicates in the gallery by each kind of hash: counted, and as results."""
    counted: dict[HashKind, NearDuplicateCount] = {}
    results: tuple[Result, ...] = ()
    for kind, hashes in known.items():
        in_gallery = {image_id: hashes[image_id] for image_id in benchmark.gallery.ids if image_id in hashes}
        near = near_duplicates(in_gallery)
        counted[kind] = NearDuplicateCount(len(in_gallery), near.n_exact_pairs, near.n_near_pairs)
        results += check_near_duplicates(benchmark, near, of=kind)
    return counted, results
