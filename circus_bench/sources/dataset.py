"""Read a benchmark of your own: any Hugging Face dataset, or local parquet, CSV or JSON files, with a column mapping.

`columns` says which column holds what:

| field | | content |
|---|---|---|
| `reference` | required | id of the reference image, or the image itself (an `Image` column) |
| `text` | required | the modification text |
| `targets` | required | id of the target, or a list of ids, or `Image` values |
| `id` | optional | query id; the row number from 0 otherwise |
| `group` | optional | the category that results are broken down by |
| `reference_image` | optional | an `Image` column with the pixels of the image whose id is under `reference` |

The gallery is a second dataset (`gallery_columns`: `id`, `image`, at least one of them) or, without one, the union of
the references and targets in order of appearance. An image that comes without an id gets `sha256-` and the first 24 hex
digits of the SHA-256 of its file, so the same file is the same image wherever it occurs. The bytes of image files are
kept as they are. Other columns are not read.

Ids must be strings or whole numbers, and of one kind throughout. The protocol of the benchmark is `dataset/<name>`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench._typing import StrPath
from circus_bench.benchmark import Benchmark, Defect, Protocol, Query, ReferencePolicy
from circus_bench.errors import BenchmarkError, FormatError
from circus_bench.sources.annotations import (
    AnnotationRow,
    SourceInfo,
    build_benchmark,
    check_choice,
    check_id_types,
    read_records,
    wrap_rows,
)

if TYPE_CHECKING:
    from datasets import Dataset

PROTOCOLS = {"dataset": Protocol(id="dataset", reference=ReferencePolicy.KEPT)}
_FIELDS = ("id", "reference", "text", "targets", "group", "reference_image")
_REQUIRED = ("reference", "text", "targets")
_GALLERY_FIELDS = ("id", "image")
_ORIGIN = "whoever made it"
_TEXT_FILES = (".csv", ".json", ".jsonl")


def image_id(path: Path) -> str | None:
    """Return the name of an image file without its suffix."""
    return path.stem


def load(
    protocol: str,
    folder: StrPath | None = None,
    *,
    columns: Mapping[str, str],
    name: str,
    data: Any = None,
    split: str | None = None,
    gallery: Any = None,
    gallery_columns: Mapping[str, str] | None = None,
    gallery_split: str | None = None,
    reference: ReferencePolicy = ReferencePolicy.KEPT,
    instruction: str = "",
    about: SourceInfo | None = None,
    images: Mapping[str, bytes] | None = None,
    allow: Iterable[Defect] = (),
) -> Benchmark:
    """Read a benchmark from a dataset.

    Args:
        protocol: `dataset`.
        folder: a folder that `datasets.load_dataset` can read, or a parquet, CSV, JSON or JSON lines file.
        columns: field to column; see the module.
        name: the benchmark's name.
        data: a loaded `datasets.Dataset` or `DatasetDict`, in place of `folder`.
        split: the split, where there is more than one.
        gallery: the gallery's dataset: a folder, file or loaded dataset; references and targets by default.
        gallery_columns: field to column of the gallery; `id` and `image` by default, as far as it has them.
        gallery_split: the gallery's split, where there is more than one.
        reference: whether a query's own reference can be retrieved.
        instruction: the task instruction.
        about: origin, licenses and citation; by default what the dataset says of itself, and no right to redistribute.
        images: image id to the bytes of its file, in place of the datasets' own.
        allow: defects to allow.

    Raises:
        FormatError: the data cannot be read, lack a column, or hold something else than the column should.
        BenchmarkError: the mapping is not one of the fields above, or the annotations contradict each other.
    """
    check_choice(protocol, PROTOCOLS, what="protocol of a dataset")
    if not name:
        raise BenchmarkError("a dataset needs a name")
    _check_fields(columns, _FIELDS, _REQUIRED)
    if (folder is None) == (data is None):
        raise BenchmarkError("give either a folder (or file) or a loaded dataset as `data`")
    path = None if folder is None else Path(folder)
    found = _Images()
    table = _Table.of(data if path is None else path, columns, split=split, name=name, found=found)
    queries = tuple(table.query(number) for number in range(len(table.rows)))
    table.check_kinds()
    if gallery is None:
        ids = tuple(dict.fromkeys(image for query in queries for image in (query.reference, *query.targets)))
    else:
        ids = _gallery(gallery, gallery_columns, gallery_split, name=name, found=found)
    info = table.dataset.info
    about = about or SourceInfo(
        origin=str(info.homepage or "a dataset of the user's own"),
        license=str(info.license or "unknown"),
        image_license="unknown",
        images_redistributable=False,
        citation=str(info.citation or ""),
    )
    return build_benchmark(
        name,
        Protocol(
            id=f"dataset/{name}",
            reference=reference,
            instruction=instruction,
            gallery="the gallery dataset" if gallery is not None else "union of the references and targets",
            positives=f"column {columns['targets']!r}",
            captions=f"column {columns['text']!r}, unchanged",
        ),
        queries=queries,
        gallery=ids,
        images=images if images is not None else (found or None),
        allow=allow,
        info=about,
        files=[path] if path is not None and path.is_file() else [],
        folder=None,
        split=split or str(table.dataset.split or ""),
        counts={},
        columns=dict(columns),
    )


class _Images(Mapping[str, bytes]):
    """Images that lie in columns of datasets. Their bytes are read when asked for."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[Dataset, int, int]] = {}

    def add(self, identifier: str, column: Dataset, row: int, position: int = 0) -> None:
        """Note where an image lies: in a dataset of one column, at a row, at a position of the list there."""
        self._places.setdefault(identifier, (column, row, position))

    def __getitem__(self, identifier: str) -> bytes:
        column, row, position = self._places[identifier]
        (value,) = column[row].values()
        return _bytes(_listed(value)[position])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass
class _Table:
    """A dataset under a column mapping.

    Attributes:
        dataset: the dataset, image columns undecoded.
        columns: field to column.
        name: the benchmark's name, for messages.
        found: where images are noted.
        pictures: fields whose column holds images, with the dataset of that column alone.
        rows: the columns that hold none.
    """

    dataset: Dataset
    columns: Mapping[str, str]
    name: str
    found: _Images
    pictures: dict[str, Dataset] = field(default_factory=dict)
    rows: list[AnnotationRow] = field(default_factory=list)

    @classmethod
    def of(cls, data: Any, columns: Mapping[str, str], *, split: str | None, name: str, found: _Images) -> _Table:
        dataset = _dataset(data, split, name)
        missing = [column for column in columns.values() if column not in dataset.column_names]
        if missing:
            raise FormatError(
                f"dataset {name!r}: lacks the columns {missing}; it has {dataset.column_names}. Mend the column mapping"
            )
        pictures: dict[str, Dataset] = {}
        for part, column in columns.items():
            feature = _undecoded(dataset.features[column])
            if feature is not None:
                pictures[part] = dataset.select_columns([column]).cast_column(column, feature)
        plain = [column for part, column in columns.items() if part not in pictures]
        contents: Iterable[Any] = dataset.select_columns(plain) if plain else ({} for _ in range(len(dataset)))
        rows = [
            AnnotationRow(content, path=Path(f"dataset {name}"), number=number, origin="its author")
            for number, content in enumerate(contents)
        ]
        if not rows:
            raise FormatError(f"dataset {name!r}: holds no rows")
        return cls(dataset, columns, name, found, pictures, rows)

    def query(self, number: int) -> Query:
        row = self.rows[number]
        references = self.ids("reference", number)
        if len(references) != 1:
            row.fail(f"has {len(references)} references under {self.columns['reference']!r}, expected one")
        if "reference_image" in self.columns:
            if "reference_image" not in self.pictures:
                raise FormatError(
                    f"dataset {self.name!r}: the column {self.columns['reference_image']!r} holds no images"
                )
            self.found.add(references[0], self.pictures["reference_image"], number)
        return Query(
            id=row.get_id(self.columns["id"]) if "id" in self.columns else str(number),
            reference=references[0],
            text=row.get(self.columns["text"], str),
            targets=self.ids("targets", number),
            group=row.get_id(self.columns["group"]) if "group" in self.columns else "",
            details={"row": number},
        )

    def ids(self, part: str, number: int) -> tuple[str, ...]:
        """Return the image ids in a column: those that it holds, or those of the images that it holds."""
        row, column = self.rows[number], self.columns[part]
        if part not in self.pictures:
            return tuple(row.check_id(value, column) for value in _listed(row[column]))
        ids = []
        (value,) = self.pictures[part][number].values()
        for position, picture in enumerate(_listed(value)):
            if picture is None:
                row.fail(f"has no image under {column!r}")
            identifier = f"sha256-{hashlib.sha256(_bytes(picture)).hexdigest()[:24]}"
            self.found.add(identifier, self.pictures[part], number, position)
            ids.append(identifier)
        return tuple(ids)

    def check_kinds(self) -> None:
        """Refuse ids that are numbers in one place and strings in another."""
        plain = [self.columns[part] for part in ("reference", "targets") if part not in self.pictures]
        check_id_types(self.rows, *plain, path=Path(f"dataset {self.name}"))


def _gallery(
    data: Any, columns: Mapping[str, str] | None, split: str | None, *, name: str, found: _Images
) -> tuple[str, ...]:
    name = f"{name} (gallery)"
    dataset = _dataset(data, split, name)
    if columns is None:
        columns = {part: part for part in _GALLERY_FIELDS if part in dataset.column_names}
    _check_fields(columns, _GALLERY_FIELDS, ())
    if not columns:
        raise FormatError(
            f"dataset {name!r}: has no column 'id' or 'image'; it has {dataset.column_names}. Give gallery_columns"
        )
    table = _Table.of(dataset, columns, split=None, name=name, found=found)
    if "image" in columns and "image" not in table.pictures:
        raise FormatError(f"dataset {name!r}: the column {columns['image']!r} holds no images")
    if "id" not in columns:
        return tuple(identifier for number in range(len(table.rows)) for identifier in table.ids("image", number))
    ids = tuple(row.get_id(columns["id"]) for row in table.rows)
    if "image" in columns:
        for number, identifier in enumerate(ids):
            found.add(identifier, table.pictures["image"], number)
    return ids


def _dataset(data: Any, split: str | None, name: str) -> Dataset:
    """Return a loaded dataset, from a folder or file where need be."""
    import datasets

    if isinstance(data, str | Path):
        data = _read(Path(data))
    if isinstance(data, datasets.DatasetDict):
        if split is None and len(data) > 1:
            raise FormatError(f"dataset {name!r}: has the splits {list(data)}; say which one")
        chosen = split if split is not None else next(iter(data))
        if chosen not in data:
            raise FormatError(f"dataset {name!r}: has no split {chosen!r}, only {list(data)}")
        data = data[chosen]
    if not isinstance(data, datasets.Dataset):
        raise FormatError(f"dataset {name!r}: expected a datasets.Dataset, found {type(data).__name__}")
    return data


def _read(path: Path) -> Any:
    import datasets
    import pyarrow as pa

    try:
        if path.is_file():
            if path.suffix in _TEXT_FILES:
                # `load_dataset` guesses types: it would take the id 01 for a number, and the caption NA for no value.
                rows = read_records(path, origin=_ORIGIN, lines=path.suffix == ".json" and not _starts_a_list(path))
                wrap_rows(rows, path=path, origin=_ORIGIN)
                return datasets.Dataset.from_list(rows)
            if path.suffix != ".parquet":
                raise FormatError(f"{path}: not one of {', '.join(('.parquet', *_TEXT_FILES))}")
            return datasets.load_dataset("parquet", data_files=str(path))
        if not path.is_dir():
            raise FormatError(f"{path}: no such folder or file")
        if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
            return datasets.load_from_disk(str(path))
        return datasets.load_dataset(str(path))
    except (datasets.exceptions.DatasetsError, pa.ArrowException, OSError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: cannot be read as a dataset ({error.__cause__ or error})") from error


def _starts_a_list(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1000).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")


def _undecoded(feature: Any) -> Any:
    """Return the same feature with images left as bytes; None where it holds no images."""
    import datasets

    if isinstance(feature, datasets.Image):
        return datasets.Image(decode=False)
    if isinstance(feature, datasets.List | datasets.LargeList) and isinstance(feature.feature, datasets.Image):
        return type(feature)(datasets.Image(decode=False))
    return None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _bytes(picture: Mapping[str, Any]) -> bytes:
    data: bytes | None = picture["bytes"]
    if data is None:
        return Path(picture["path"]).read_bytes()
    return data


def _check_fields(columns: Mapping[str, str], known: Iterable[str], required: Iterable[str]) -> None:
    known = tuple(known)
    unknown = [part for part in columns if part not in known]
    missing = [part for part in required if part not in columns]
    if unknown or missing:
        wrong = f"names unknown fields {unknown}" if unknown else f"lacks the fields {missing}"
        raise BenchmarkError(f"the column mapping {wrong}; fields: {', '.join(known)}")
