"""Load a benchmark by name: a dataset folder, a protocol of a source, or a dataset repository on the Hub.

| name | what it is |
|---|---|
| `cirr/circus` | a protocol id; its annotation files lie in the folder `cirr` of `data` |
| `FOLDER` | a dataset folder, as `circus-bench data make` and `save_benchmark` write it |
| `FOLDER#cirr_v` | one of its configurations: a benchmark, or a subset of one |
| `ORG/NAME@REVISION#cirr_v` | the same of a dataset repository on the Hub; without `@REVISION` its newest state |

Every command and every function that takes a benchmark takes these names.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Defect, Finding, Fingerprint, Gallery, Protocol, ReferencePolicy
from circus_bench.errors import CircusError, FormatError, MismatchError, format_ids
from circus_bench.hub.reader import query_from, read_benchmark, read_labels, recorded_digests
from circus_bench.hub.tables import LabeledBenchmark, config_name
from circus_bench.hub.writer import MANIFEST, read_manifest
from circus_bench.images import ParquetImages
from circus_bench.io import read_json, read_parquet
from circus_bench.labels.labels import Subset
from circus_bench.labels.published import published_labels
from circus_bench.sources import PROTOCOLS, join_images, load_source

Images = StrPath | Mapping[str, bytes]

_PUBLISHED = {"cirr/circus": "cirr", "fashioniq/circus": "fashioniq", "circo/val": "circo", "lasco/val": "lasco"}
"""Protocols that the published labels were made under, and their benchmark."""
_GENERATED = "scenes/test"
_ANY = "dataset"
_BY_CATEGORY = "fashioniq/original"
_OLD_FORM = "benchmark.json"
_REPOSITORY = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+?)(@(?P<revision>[\w.-]+(/[\w.-]+)*))?")


def load_benchmark(
    name: StrPath,
    /,
    *,
    data: StrPath | None = None,
    images: Images | None = None,
    allow: Collection[Defect | str] = (),
    **options: Any,
) -> Benchmark:
    """Load a benchmark by name; see the module for the names.

    Args:
        name: a dataset folder, a protocol id, or a dataset repository on the Hub; after `#` the configuration.
        data: the folder in which each source's annotation files have a folder of their own (`cirr`, `fashioniq`, ...);
            needed for a protocol id. For `dataset` the file or folder itself.
        images: a folder of image files, searched at any depth (or its folder named after the benchmark, where it has
            one), or image id to the bytes of a file. A dataset folder with images needs none.
        allow: defects to allow; see `Defect`.
        options: further arguments of a protocol's source, such as `category`; see `circus_bench.sources.load_source`.

    Raises:
        CircusError: the name is none of these, its files cannot be used, or it names several benchmarks.
        BenchmarkError: the annotations contradict each other, or images are missing.

    Example:
        >>> load_benchmark("scenes/test", queries=40, gallery=400).name
        'scenes'
    """
    return load_labeled_benchmark(name, data=data, images=images, allow=allow, **options).benchmark


def load_labeled_benchmark(name: StrPath, /, **arguments: Any) -> LabeledBenchmark:
    """Load a benchmark by name with the labels of its queries; arguments and errors as `load_benchmark`."""
    parts = load_labeled_benchmarks(name, **arguments)
    if len(parts) > 1:
        known = ", ".join(f"{name}#{part.name}" for part in parts)
        raise CircusError(f"{name} holds {len(parts)} benchmarks; name one of them: {known}")
    return parts[0]


def load_labeled_benchmarks(
    name: StrPath,
    /,
    *,
    data: StrPath | None = None,
    images: Images | None = None,
    allow: Collection[Defect | str] = (),
    **options: Any,
) -> tuple[LabeledBenchmark, ...]:
    """Load all benchmarks that a name stands for, with the labels of their queries.

    Arguments and errors as `load_benchmark`. A dataset folder may hold several benchmarks, and `fashioniq/original`
    without the option `category` is one for each.
    """
    named = BenchmarkName.parse(name)
    defects = _defects(allow)
    if named.is_protocol:
        parts = _from_source(named.place, data=data, images=images, allow=defects, options=options)
    elif options:
        raise CircusError(f"{name} is a benchmark already: it takes no options ({', '.join(options)})")
    elif named.is_old_form:
        benchmark = _load_old_form(Path(named.place), defects)
        parts = (LabeledBenchmark(benchmark if images is None else _join(benchmark, images)),)
    else:
        parts = _from_folder(named, images=images, allow=defects)
    return _select(parts, named)


@dataclass(frozen=True, slots=True)
class BenchmarkName:
    """The parts of a name that stands for a benchmark.

    Attributes:
        place: a folder, a protocol id, or a dataset repository with its revision.
        config: a configuration: a benchmark, or a subset of one; empty for all.
    """

    place: str
    config: str = ""

    @classmethod
    def parse(cls, name: StrPath) -> BenchmarkName:
        """Take a name apart; a folder whose own name has a `#` in it is taken as it is.

        Example:
            >>> BenchmarkName.parse("ORG/circus@v1#cirr_v")
            BenchmarkName(place='ORG/circus@v1', config='cirr_v')
        """
        text = str(name)
        place, mark, config = ("", "", "") if Path(text).is_dir() else text.rpartition("#")
        return cls(place, config) if mark else cls(text)

    def __str__(self) -> str:
        """Write the name as `parse` reads it."""
        return f"{self.place}#{self.config}" if self.config else self.place

    @property
    def is_old_form(self) -> bool:
        """Tell whether it is a folder in the form of version 0.1."""
        return (Path(self.place) / _OLD_FORM).is_file() and not (Path(self.place) / MANIFEST).is_file()

    @property
    def is_protocol(self) -> bool:
        """Tell whether it is a protocol id; a folder that holds a benchmark comes first."""
        return self.place in PROTOCOLS and not (Path(self.place) / MANIFEST).is_file() and not self.is_old_form

    @property
    def is_pinned(self) -> bool:
        """Tell whether it names the same everywhere: a repository at a revision."""
        pinned = _REPOSITORY.fullmatch(self.place)
        return pinned is not None and pinned["revision"] is not None and not Path(self.place).is_dir()

    @property
    def has_images(self) -> bool:
        """Tell whether it is a folder with the images of its benchmarks."""
        if self.is_old_form:
            return (Path(self.place) / "images.parquet").is_file()
        folder = Path(self.place)
        return (folder / MANIFEST).is_file() and all(
            of["pixels"] for of in read_manifest(folder)["benchmarks"].values()
        )

    def folder(self) -> Path:
        """Return the dataset folder, downloaded if it lies on the Hub.

        Raises:
            CircusError: there is none of this name.
        """
        folder = Path(self.place)
        if folder.is_dir():
            return folder
        pinned = _REPOSITORY.fullmatch(self.place)
        if pinned is None:
            raise CircusError(_unknown(self.place))
        suffix = next((f"_{subset.value}" for subset in Subset if self.config.endswith(f"_{subset.value}")), "")
        try:
            return fetch_dataset_folder(
                pinned["repository"], pinned["revision"], benchmark=self.config.removesuffix(suffix)
            )
        except CircusError as error:
            raise CircusError(
                f"{_unknown(self.place)}; {error}" if pinned["revision"] is None else str(error)
            ) from error


def fetch_dataset_folder(repository: str, revision: str | None, *, benchmark: str = "") -> Path:
    """Download a dataset folder from the Hub, or find it in the cache.

    Args:
        repository: `ORG/NAME`.
        revision: commit, tag or branch; the newest commit when None.
        benchmark: the only benchmark whose files are wanted; all of them when empty.

    Raises:
        CircusError: it cannot be had.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    wanted = f"data/{benchmark}/*" if benchmark else "data/*"
    try:
        snapshot = snapshot_download(
            repository,
            repo_type="dataset",
            revision=revision,
            allow_patterns=["README.md", MANIFEST, wanted],  # the card names the configurations
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        at = f" at {revision}" if revision else ""
        raise CircusError(
            f"the dataset repository {repository}{at} cannot be had ({type(error).__name__}: {error}). Make a dataset "
            f"folder with `circus-bench data make`"
        ) from error
    return Path(snapshot)


def _defects(allow: Collection[Defect | str]) -> frozenset[Defect]:
    unknown = sorted({*allow} - {*Defect})
    if unknown:
        raise CircusError(f"no defects {', '.join(unknown)}; those that can be allowed: {', '.join(Defect)}")
    return frozenset(map(Defect, allow))


def _unknown(place: str) -> str:
    source = place.partition("/")[0]
    close = [protocol for protocol in PROTOCOLS if protocol.partition("/")[0] == source]
    close = close or difflib.get_close_matches(place, PROTOCOLS, n=3, cutoff=0.5)
    return (
        f"{place}: neither a dataset folder nor a protocol (close: {', '.join(close or PROTOCOLS)}), nor a dataset "
        f"repository ORG/NAME@REVISION"
    )


def _from_folder(
    named: BenchmarkName, *, images: Images | None, allow: Collection[Defect]
) -> tuple[LabeledBenchmark, ...]:
    folder = named.folder()
    held = read_manifest(folder)["benchmarks"]
    wanted = [name for name in held if not named.config or named.config in _configs(name)]
    if not wanted:
        raise CircusError(_no_config(named, [config for name in held for config in _configs(name)]))
    parts = []
    for name in wanted:
        benchmark = read_benchmark(folder, name, allow=allow)
        if images is not None:
            benchmark = _join(benchmark, images)
            _check_pixels(benchmark, recorded_digests(folder, name))
        parts.append(LabeledBenchmark(benchmark, read_labels(folder, name)))
    return tuple(parts)


def _from_source(
    protocol: str, *, data: StrPath | None, images: Images | None, allow: Collection[Defect], options: Mapping[str, Any]
) -> tuple[LabeledBenchmark, ...]:
    name = protocol.partition("/")[0]
    given: dict[str, Any] = {**options, "allow": allow} if allow and protocol != _GENERATED else dict(options)
    if protocol == _GENERATED:
        folder = None
    elif data is None:
        where = "where it lies" if protocol == _ANY else f"in which folder the folder {name!r} of its files lies"
        raise CircusError(f"{protocol}: --data is missing; say {where}")
    else:
        folder = Path(data) if protocol == _ANY else Path(data) / name
    each = [given]
    if protocol == _BY_CATEGORY and "category" not in given:
        from circus_bench.sources.fashioniq import CATEGORIES

        each = [{**given, "category": category} for category in CATEGORIES]
    found = images if images is None or isinstance(images, Mapping) else _image_folder(images, name)
    benchmarks = [load_source(protocol, folder, images=found, **of_part) for of_part in each]
    labels = published_labels(_PUBLISHED[protocol]) if protocol in _PUBLISHED else None
    return tuple(LabeledBenchmark(benchmark, labels) for benchmark in benchmarks)


def _select(parts: Sequence[LabeledBenchmark], named: BenchmarkName) -> tuple[LabeledBenchmark, ...]:
    """Choose the benchmark or subset that a name asks for."""
    if not named.config:
        return tuple(parts)
    for part in parts:
        if named.config == part.name:
            return (part,)
    for part in parts:
        for subset in Subset:
            if named.config == config_name(part.name, subset):
                return (part.subset(subset),)
    raise CircusError(_no_config(named, [config for part in parts for config in _configs(part.name)]))


def _configs(name: str) -> list[str]:
    """List what may stand after `#` for a benchmark: its name, and the names of its subsets."""
    return [name, *(config_name(name, subset) for subset in Subset)]


def _no_config(named: BenchmarkName, known: Sequence[str]) -> str:
    return f"{named.place}: no benchmark or subset {named.config!r}; those there may be: {', '.join(known)}"


def _join(benchmark: Benchmark, images: Images) -> Benchmark:
    if isinstance(images, Mapping):
        return benchmark.with_images(images)
    return join_images(benchmark, _image_folder(images, benchmark.protocol.id.partition("/")[0]))


def _image_folder(images: StrPath, source: str) -> Path:
    """Return the folder named after a source, where a folder of images has one."""
    return Path(images) / source if (Path(images) / source).is_dir() else Path(images)


def _check_pixels(benchmark: Benchmark, digests: Mapping[str, str]) -> None:
    """Refuse joined images that are not those whose digests were recorded."""
    readable = benchmark.inspect().readable if digests else {}
    other = [i for i, digest in digests.items() if i in readable and readable[i].digest != digest]
    if other:
        raise MismatchError(
            f"{benchmark.name}: images have other pixels than those that were recorded ({format_ids(other)})"
        )


def _load_old_form(folder: Path, allow: Collection[Defect]) -> Benchmark:
    """Read a folder in the form of version 0.1: benchmark.json, queries, gallery and images as one file each."""
    import pyarrow as pa

    warnings.warn(
        f"{folder} has the form of version 0.1; `circus-bench data make {folder} --out NEW` writes it anew",
        FutureWarning,
        stacklevel=4,
    )
    head = read_json(folder / _OLD_FORM)
    if head.get("schema_version") != 1:
        raise FormatError(f"{folder / _OLD_FORM}: schema version {head.get('schema_version')!r}, expected 1")
    text, texts, images = pa.string(), pa.list_(pa.string()), folder / "images.parquet"
    names = ("id", "reference", "text", "group", "details")
    schema = pa.schema([*((name, text) for name in names), ("targets", texts), ("subset", texts)])
    ids = read_parquet(folder / "gallery.parquet", schema=pa.schema([("id", text)]))["id"].to_pylist()
    rows = read_parquet(folder / "queries.parquet", schema=schema).to_pylist()
    try:
        benchmark = Benchmark(
            name=head["name"],
            protocol=Protocol(**{**head["protocol"], "reference": ReferencePolicy(head["protocol"]["reference"])}),
            queries=tuple(query_from(row, id_column="id") for row in rows),
            gallery=Gallery(tuple(ids), ParquetImages.load(images) if images.exists() else None),
            source=head["source"],
            allow=frozenset(allow) | {Defect(defect) for defect in head["allow"]},
            findings=tuple(Finding(Defect(f["defect"]), tuple(f["ids"])) for f in head["findings"]),
        )
        written = Fingerprint(**head["fingerprint"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{folder / _OLD_FORM}: {error!r}; see docs/formats.md") from error
    if benchmark.fingerprint != written:
        raise FormatError(f"{folder}: the files were changed after they were written (fingerprint differs)")
    return benchmark
