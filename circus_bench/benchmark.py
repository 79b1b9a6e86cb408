"""Query, Gallery, Protocol and Benchmark: frozen, and checked when they are made.

A benchmark that contradicts itself is an error that lists the ids concerned. Each kind of defect can be allowed
explicitly; it is then repaired in the one way that `Defect` describes, and recorded in `Benchmark.findings`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from circus_bench.distributed import SINGLE_PROCESS, DistributedJob
from circus_bench.errors import BenchmarkError, ImageError, duplicates, format_ids
from circus_bench.images import Inspection, inspect_images


class Condition(StrEnum):
    """The parts of a query that an encoder is given."""

    MULTIMODAL = "multimodal"
    """The reference image and the modification text."""
    TEXT_ONLY = "text_only"
    """The text; the reference is replaced by a black image of its size."""
    IMAGE_ONLY = "image_only"
    """The reference; neither text nor instruction."""


class ReferencePolicy(StrEnum):
    """The treatment of a query's own reference image in the gallery.

    A gallery that holds the reference either ranks it like any other image (`kept`: M-BEIR, MTEB, the CIRCUS paper) or
    leaves it out for that query (`removed`: the official CIRR protocol).
    """

    KEPT = "kept"
    REMOVED = "removed"


class Defect(StrEnum):
    """A way in which a benchmark contradicts itself, and what is done where the defect is allowed."""

    NON_STRING_ID = "non_string_id"
    """An id is not a string (a number, say): it is written out as text."""
    DUPLICATE_GALLERY_ID = "duplicate_gallery_id"
    """Two gallery images share an id: the first is kept."""
    DUPLICATE_QUERY_ID = "duplicate_query_id"
    """Two queries share an id: the first is kept."""
    DUPLICATE_TARGET = "duplicate_target"
    """A query lists a target twice: the first mention is kept."""
    NO_TARGET = "no_target"
    """A query has no target: it is left out."""
    DANGLING_TARGET = "dangling_target"
    """A target is not in the gallery: it stays, and counts as never retrieved."""
    REFERENCE_IS_TARGET = "reference_is_target"
    """A query's reference is one of its targets: it stays."""
    EMPTY_TEXT = "empty_text"
    """A modification text is blank: it stays."""
    DANGLING_SUBSET = "dangling_subset"
    """An image of a query's subset is not in the gallery: it stays, and never competes."""
    MISSING_IMAGE = "missing_image"
    """A gallery or reference image has no bytes: it stays, and encoding it fails."""


@dataclass(frozen=True, slots=True)
class Query:
    """A composed query: a reference image and a modification text, and the gallery images that answer it.

    Attributes:
        id: unique within the benchmark.
        reference: id of the reference image.
        text: the modification text, as its author wrote it.
        targets: gallery ids of the positives; the order matters only between targets of equal score.
        group: the category that results are broken down by; empty when there is none.
        subset: gallery ids of the small set that the targets are also ranked in (CIRR's image set); may be empty.
        details: further facts of the source, JSON-able (a planted kind, CIRR's image set, CIRCO's semantic aspects).
    """

    id: str
    reference: str
    text: str
    targets: tuple[str, ...]
    group: str = ""
    subset: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Gallery:
    """The images that every query is ranked against: all of them, always.

    Attributes:
        ids: gallery image ids.
        images: image id to the original bytes of its file, for the gallery and for references outside it. None for a
            benchmark of annotations alone, which can be inspected and scored but not encoded.
    """

    ids: tuple[str, ...]
    images: Mapping[str, bytes] | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        """Name the number of images rather than each of them."""
        return f"Gallery({len(self.ids):,} images, {'no bytes' if self.images is None else 'with their bytes'})"


@dataclass(frozen=True, slots=True)
class Protocol:
    """The scoring rules of a benchmark, as data. No score appears without its protocol's id.

    Attributes:
        id: `<benchmark>/<protocol>`, such as `cirr/official`.
        reference: whether a query's own reference can be retrieved.
        instruction: the task instruction given to encoders with the multimodal and the text-only query.
        gallery: what the gallery consists of.
        positives: which images count as targets.
        captions: how the modification text is made from the annotations.
        hidden_targets: whether only a server knows the targets: the queries then have none here, and a Run of them
            holds nothing but what is retrieved.
    """

    id: str
    reference: ReferencePolicy
    instruction: str = ""
    gallery: str = ""
    positives: str = ""
    captions: str = ""
    hidden_targets: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """An allowed defect, as it was met and repaired.

    Attributes:
        defect: its kind.
        ids: the queries or images concerned.
    """

    defect: Defect
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Two hashes over a benchmark's content that depend neither on the order of queries nor of the gallery.

    Attributes:
        annotations: over query ids, references, texts, targets and subsets, and the gallery ids.
        images: over the digests of all images; None when the benchmark has none.
    """

    annotations: str
    images: str | None

    def matches(self, other: Fingerprint) -> bool:
        """Tell whether both describe the same benchmark, as far as both know it."""
        known = self.images is not None and other.images is not None
        return self.annotations == other.annotations and (not known or self.images == other.images)


@dataclass(frozen=True)
class Benchmark:
    """Queries, a gallery and the protocol they are scored under.

    Args:
        name: the benchmark's name, such as `cirr`.
        protocol: how it is scored.
        queries: the queries, in the source's order.
        gallery: the gallery.
        source: where it comes from (version, seed, license, citation), JSON-able.
        allow: defects that are repaired and recorded rather than refused.

    Attributes:
        findings: the allowed defects that were met.

    Raises:
        BenchmarkError: the parts contradict each other in a way that is not allowed.
    """

    name: str
    protocol: Protocol
    queries: tuple[Query, ...]
    gallery: Gallery
    source: Mapping[str, Any] = field(default_factory=dict)
    allow: frozenset[Defect] = frozenset()
    findings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        checker = _Checker(self.name, self.allow, hidden_targets=self.protocol.hidden_targets)
        gallery = dataclasses.replace(self.gallery, ids=checker.gallery_ids(self.gallery.ids))
        queries = checker.queries(self.queries, frozenset(gallery.ids))
        checker.images(queries, gallery)
        object.__setattr__(self, "gallery", gallery)
        object.__setattr__(self, "queries", queries)
        # A loaded benchmark brings the findings of its first construction; its repaired parts show them no more.
        object.__setattr__(self, "findings", tuple(dict.fromkeys((*self.findings, *checker.findings))))

    def __repr__(self) -> str:
        """Name the counts rather than each query."""
        images = "" if self.gallery.images is not None else ", annotations only"
        return (
            f"Benchmark({self.name!r}, {self.protocol.id}: {len(self.queries):,} queries, "
            f"{len(self.gallery.ids):,} gallery images{images})"
        )

    def _repr_html_(self) -> str:
        """Show the counts and a few images in a notebook."""
        from circus_bench.notebook import facts_table, gallery_strip

        facts = {
            "protocol": self.protocol.id,
            "reference": f"{self.protocol.reference.value} in the gallery",
            "queries": len(self.queries),
            "targets": sum(len(query.targets) for query in self.queries),
            "gallery images": len(self.gallery.ids),
            "groups": len({query.group for query in self.queries} - {""}),
            **{f"allowed: {finding.defect.value}": len(finding.ids) for finding in self.findings},
        }
        images = self.gallery.images
        query = self.queries[0]
        shown = dict.fromkeys((query.reference, *query.targets[:1], *self.gallery.ids[:4]))
        strip = gallery_strip(images, shown) if images is not None else ""
        return facts_table(f"{self.name}: {query.text[:120]!r} and other queries", facts, below=strip)

    @cached_property
    def image_ids(self) -> tuple[str, ...]:
        """Ids of every image needed: the gallery, then references outside it."""
        return tuple(dict.fromkeys((*self.gallery.ids, *(query.reference for query in self.queries))))

    def inspect(
        self, *, advance: Callable[[], object] = lambda: None, job: DistributedJob = SINGLE_PROCESS
    ) -> Inspection:
        """Decode every image once; see `circus_bench.images.inspect_images`. Later calls return the first result.

        Args:
            advance: called after each image, for a progress bar.
            job: the processes that share the work; every one of them has to call this.

        Raises:
            ImageError: the benchmark has no images.
        """
        if "_inspection" not in self.__dict__:
            if self.gallery.images is None:
                raise ImageError(f"benchmark {self.name!r} has annotations only; join its images first")
            inspection = inspect_images(self.gallery.images, self.image_ids, advance=advance, job=job)
            object.__setattr__(self, "_inspection", inspection)
        else:
            for _ in self.image_ids:
                advance()
        inspected: Inspection = self.__dict__["_inspection"]
        return inspected

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Hashes of the annotations and of the images. The first call decodes every image whose facts are unknown."""
        annotations = hashlib.sha256()
        for query in sorted(self.queries, key=lambda query: query.id):
            row = [query.id, query.reference, query.text, query.targets, query.subset]
            annotations.update(json.dumps(row).encode())
        annotations.update(json.dumps(sorted(self.gallery.ids)).encode())
        if self.gallery.images is None:
            return Fingerprint(annotations.hexdigest(), None)
        inspection = self.inspect()
        images = hashlib.sha256()
        for image_id in sorted(self.image_ids):
            info = inspection.readable.get(image_id)
            state = info.digest if info else inspection.unreadable[image_id].value
            images.update(json.dumps([image_id, state]).encode())
        return Fingerprint(annotations.hexdigest(), images.hexdigest())

    def without_images(self, image_ids: Iterable[str]) -> Benchmark:
        """Leave images out of the gallery, and with them every query that needs them.

        A query is left out when its reference or all its targets are gone. The result has a fingerprint of its own, so
        that its runs are never mixed with those of the whole benchmark.
        """
        gone = frozenset(image_ids)
        queries = []
        for query in self.queries:
            targets = tuple(target for target in query.targets if target not in gone)
            if query.reference not in gone and (targets or self.protocol.hidden_targets):
                queries.append(dataclasses.replace(query, targets=targets))
        ids = tuple(image_id for image_id in self.gallery.ids if image_id not in gone)
        source = {**self.source, "left_out_images": sorted(gone.union(self.source.get("left_out_images", ())))}
        gallery = dataclasses.replace(self.gallery, ids=ids)
        return dataclasses.replace(self, queries=tuple(queries), gallery=gallery, source=source)

    def annotations_only(self) -> Benchmark:
        """Leave the images out: what remains can be inspected and scored, but not encoded."""
        return dataclasses.replace(self, gallery=Gallery(self.gallery.ids))

    def with_images(self, images: Mapping[str, bytes]) -> Benchmark:
        """Join images to a benchmark of annotations.

        Args:
            images: image id to the bytes of its file, such as `circus_bench.images.ImageFiles`.

        Raises:
            BenchmarkError: a gallery or reference image is not among them, and `Defect.MISSING_IMAGE` is not allowed.
        """
        return dataclasses.replace(self, gallery=dataclasses.replace(self.gallery, images=images))


class _Checker:
    """Applies the policy to each kind of defect: an error, or a repair and a finding."""

    def __init__(self, name: str, allow: frozenset[Defect], *, hidden_targets: bool) -> None:
        self._name = name
        self._allow = allow
        self._hidden_targets = hidden_targets
        self.findings: list[Finding] = []

    def gallery_ids(self, given: Sequence[Any]) -> tuple[str, ...]:
        ids = self._strings(given, "gallery ids")
        self._report(Defect.DUPLICATE_GALLERY_ID, duplicates(ids), "gallery ids occur more than once")
        if not ids:
            raise BenchmarkError(f"benchmark {self._name!r}: the gallery is empty")
        return tuple(dict.fromkeys(ids))

    def queries(self, given: Sequence[Query], gallery: frozenset[str]) -> tuple[Query, ...]:
        self._strings([query.id for query in given], "query ids")
        self._strings([query.reference for query in given], "references")
        self._strings([target for query in given for target in query.targets], "targets")
        queries = [
            dataclasses.replace(
                query,
                id=str(query.id),
                reference=str(query.reference),
                targets=tuple(map(str, query.targets)),
            )
            for query in given
        ]

        def report(defect: Defect, found: Callable[[Query], bool], what: str) -> None:
            self._report(defect, [query.id for query in queries if found(query)], what)

        repeated = duplicates(query.id for query in queries)
        self._report(Defect.DUPLICATE_QUERY_ID, repeated, "query ids occur more than once")
        first: dict[str, Query] = {}
        for query in queries:
            first.setdefault(query.id, query)
        queries = list(first.values())
        wrong = [query.id for query in queries if not isinstance(query.text, str)]
        if wrong:
            raise BenchmarkError(f"benchmark {self._name!r}: modification texts are not strings ({format_ids(wrong)})")
        if not self._hidden_targets:
            report(Defect.NO_TARGET, lambda q: not q.targets, "queries have no target")
            queries = [query for query in queries if query.targets]
        report(Defect.DUPLICATE_TARGET, lambda q: bool(duplicates(q.targets)), "queries list a target twice")
        queries = [dataclasses.replace(q, targets=tuple(dict.fromkeys(q.targets))) for q in queries]
        dangling = [target for query in queries for target in query.targets if target not in gallery]
        self._report(Defect.DANGLING_TARGET, dangling, "targets are not in the gallery")
        outside = [image for query in queries for image in query.subset if image not in gallery]
        self._report(Defect.DANGLING_SUBSET, outside, "images of subsets are not in the gallery")
        report(Defect.REFERENCE_IS_TARGET, lambda q: q.reference in q.targets, "queries have their reference as target")
        report(Defect.EMPTY_TEXT, lambda q: not q.text.strip(), "queries have a blank modification text")
        if not queries:
            raise BenchmarkError(f"benchmark {self._name!r}: there is no query")
        return tuple(queries)

    def images(self, queries: Sequence[Query], gallery: Gallery) -> None:
        if gallery.images is None:
            return
        needed = dict.fromkeys((*gallery.ids, *(query.reference for query in queries)))
        missing = [image_id for image_id in needed if image_id not in gallery.images]
        self._report(Defect.MISSING_IMAGE, missing, "gallery or reference images have no bytes")

    def _strings(self, ids: Sequence[Any], what: str) -> list[str]:
        others = [identifier for identifier in ids if not isinstance(identifier, str)]
        self._report(Defect.NON_STRING_ID, others, f"{what} are not strings")
        return [str(identifier) for identifier in ids]

    def _report(self, defect: Defect, ids: Sequence[Any], what: str) -> None:
        if not ids:
            return
        if defect not in self._allow:
            raise BenchmarkError(
                f"benchmark {self._name!r}: {what} ({format_ids(ids)}). "
                f"Mend them, or allow {defect.value!r} to have it recorded."
            )
        self.findings.append(Finding(defect, tuple(map(str, ids))))
