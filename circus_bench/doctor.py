"""The integrity of a benchmark: what is wrong with it, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from circus_bench.benchmark import Benchmark, Finding
from circus_bench.images import ImageFlag, Inspection, Unreadable, inspect_images


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Attributes:
        benchmark: the benchmark's name.
        protocol: the protocol's id.
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
    """

    benchmark: str
    protocol: str
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

    @property
    def healthy(self) -> bool:
        """Whether the benchmark can be run as it is and no image is doubtful. Duplicate pixels alone are no illness."""
        return not (self.findings or self.unreadable or self.altered)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "benchmark": self.benchmark,
            "protocol": self.protocol,
            "healthy": self.healthy,
            "n_queries": self.n_queries,
            "n_targets": self.n_targets,
            "n_gallery": self.n_gallery,
            "n_images": self.n_images,
            "findings": {finding.defect.value: list(finding.ids) for finding in self.findings},
            "unreadable": {image_id: reason.value for image_id, reason in self.unreadable.items()},
            "altered": list(self.altered),
            "duplicates": [list(group) for group in self.duplicates],
            "flagged": {flag.value: list(ids) for flag, ids in self.flagged.items()},
            "irreducible": [list(group) for group in self.irreducible],
        }


def diagnose(benchmark: Benchmark, *, advance: Callable[[], object] = lambda: None) -> Diagnosis:
    """Decode every image of a benchmark, and list what is wrong with it.

    Args:
        benchmark: made or loaded with all defects allowed, so that its findings are complete.
        advance: called after each image, for a progress bar.
    """
    recorded = decoded = Inspection({}, {})
    if benchmark.gallery.images is not None:
        recorded = benchmark.inspect()
        decoded = inspect_images(benchmark.gallery.images, benchmark.image_ids, trust_records=False, advance=advance)
    altered = [
        image_id
        for image_id, info in recorded.readable.items()
        if image_id not in decoded.readable or decoded.readable[image_id].digest != info.digest
    ]
    flags = {flag: tuple(i for i, info in decoded.readable.items() if flag in info.flags) for flag in ImageFlag}
    return Diagnosis(
        benchmark=benchmark.name,
        protocol=benchmark.protocol.id,
        n_queries=len(benchmark.queries),
        n_targets=sum(len(query.targets) for query in benchmark.queries),
        n_gallery=len(benchmark.gallery.ids),
        n_images=len(decoded.readable) if benchmark.gallery.images is not None else None,
        findings=benchmark.findings,
        unreadable=dict(decoded.unreadable),
        altered=tuple(altered),
        duplicates=_groups({image_id: info.digest for image_id, info in decoded.readable.items()}),
        flagged={flag: ids for flag, ids in flags.items() if ids},
        irreducible=_groups({query.id: (query.reference, query.text) for query in benchmark.queries}),
    )


def _groups(keys: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Ids that share a key, as groups of two or more."""
    groups: dict[Any, list[str]] = {}
    for identifier, key in keys.items():
        groups.setdefault(key, []).append(identifier)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)
