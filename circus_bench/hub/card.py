"""The card and the task list of a dataset folder, rendered from its manifest alone."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from circus_bench.benchmark import Condition, Defect
from circus_bench.errors import format_ids
from circus_bench.hub.eval_tasks import K, eval_tasks
from circus_bench.hub.licenses import CIRCUS_CITATION
from circus_bench.hub.tables import SPLIT, Table
from circus_bench.labels.labels import Subset

TITLE = "CIRCUS: composed image retrieval without unimodal shortcuts"
SUBSET_WORDS = {
    Subset.FULL: "all queries",
    Subset.SF: "shortcut-free: no model of the pool finds a target from the text alone or from the image alone",
    Subset.V: "shortcut-free and judged valid by people",
}

_DEFECT_WORDS = {
    Defect.NON_STRING_ID: "ids that are no strings; written out as text",
    Defect.DUPLICATE_GALLERY_ID: "gallery ids that occur twice; the first is kept",
    Defect.DUPLICATE_QUERY_ID: "query ids that occur twice; the first is kept",
    Defect.DUPLICATE_TARGET: "queries that list a target twice; the first mention is kept",
    Defect.NO_TARGET: "queries without a target; left out",
    Defect.DANGLING_TARGET: "targets that are not in the gallery; they count as never retrieved",
    Defect.REFERENCE_IS_TARGET: "queries whose reference is one of their targets; kept as they are",
    Defect.EMPTY_TEXT: "queries with a blank text; kept as they are",
    Defect.DANGLING_SUBSET: "images of queries' subsets that are not in the gallery; they never compete",
    Defect.MISSING_IMAGE: "images that are missing",
}
_SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}


def render_card(manifest: Mapping[str, Any]) -> str:
    """README.md: what is in the folder and under which terms; its head names the configurations.

    Args:
        manifest: of the dataset folder; see `circus_bench.hub.writer.write_dataset_folder`.
    """
    benchmarks = [_entry(name, entry) for name, entry in sorted(manifest["benchmarks"].items())]
    present = [subset for subset in Subset if any(subset in entry["counts"] for entry in benchmarks)]
    configs = [name for entry in benchmarks for name, of in entry["configs"].items() if of["table"] == Table.ROWS]
    paper = any(entry["verdicts"] for entry in benchmarks)
    cited = [*([CIRCUS_CITATION] if paper else []), *(entry["terms"]["citation"] for entry in benchmarks)]
    return _render(
        "dataset_card.md.j2",
        head=_head(benchmarks),
        title=TITLE,
        subsets=[subset.value for subset in present],
        subset_words={subset.value: words for subset, words in SUBSET_WORDS.items()},
        paper=paper,
        package_version=manifest["package_version"],
        example=configs[-1],
        split=SPLIT,
        bare=[entry["slug"] for entry in benchmarks if not entry["pixels"]],
        benchmarks=benchmarks,
        non_commercial=[entry["slug"] for entry in benchmarks if "-nc" in entry["terms"]["licence"]],
        publishable=manifest["publishable"],
        citations=[text for text in dict.fromkeys(cited) if text],
    )


def render_eval(manifest: Mapping[str, Any]) -> str:
    """eval.yaml: the evaluation tasks as the Hub reads them, one for each benchmark, subset and condition."""
    description = (
        "Composed image retrieval: find the target of a reference image and a modification text in a gallery. "
        f"The value is the hit rate@{K} in per cent; tasks that end in _{Condition.TEXT_ONLY} or "
        f"_{Condition.IMAGE_ONLY} show the model one part of the query."
    )
    return _render("eval.yaml.j2", name=TITLE, description=description, tasks=eval_tasks(manifest), split=SPLIT)


def render_result(**content: Any) -> str:
    """Render the text of a pull request that enters results; see `circus_bench.submit`."""
    return _render("leaderboard_entry.md.j2", **content)


def _render(template: str, **content: Any) -> str:
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - the results are Markdown and YAML; values are escaped where they need it
    )
    return environment.from_string((files("circus_bench.cards") / template).read_text("utf-8")).render(**content)


def _entry(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Extend a benchmark's entry of the manifest by what the card says of it."""
    rows = {of["subset"]: of["rows"] for of in entry["configs"].values() if of["table"] == Table.ROWS}
    gallery = next(of["rows"] for of in entry["configs"].values() if of["table"] == Table.CORPUS)
    return {
        **entry,
        "slug": name,
        "counts": {subset: f"{count:,}" for subset, count in rows.items()},
        "n_rows": rows,
        "gallery": f"{gallery:,}",
        "terms": {key: _cell(value) if key != "citation" else value for key, value in entry["terms"].items()},
        "protocol": {key: _cell(value) for key, value in entry["protocol"].items()},
        "labels": _cell(_labels(entry["verdicts"] or {})),
        "defects": [
            {"words": _DEFECT_WORDS[Defect(finding["defect"])], "ids": format_ids(finding["ids"])}
            for finding in entry["findings"]
        ],
    }


def _labels(origin: Mapping[str, Any]) -> str:
    """Tell in one line where labels and human judgments come from."""
    parts = [
        origin.get("source"),
        origin.get("k") and f"cut-off {origin['k']}",
        origin.get("pool") and f"{len(origin['pool'])} models",
        origin.get("licence"),
    ]
    return "; ".join(part for part in parts if part)


def _cell(value: Any) -> Any:
    """Text that fits into one cell of a Markdown table."""
    return " ".join(value.replace("|", "\\|").split()) if isinstance(value, str) else value


def _head(benchmarks: list[dict[str, Any]]) -> str:
    """Make the YAML head: license, tags and configurations."""
    from huggingface_hub import DatasetCardData

    licenses = {entry["terms"]["licence"] for entry in benchmarks}
    total = sum(entry["n_rows"][Subset.FULL] for entry in benchmarks)
    head: dict[str, Any] = {
        "pretty_name": TITLE,
        "language": ["en"],
        "license": licenses.pop() if len(licenses) == 1 else "other",
        "size_categories": [next((words for limit, words in _SIZES.items() if total < limit), "n>1M")],
        "tags": ["composed-image-retrieval", "image-retrieval", "benchmark", "mteb"],
        "configs": [
            {"config_name": name, "data_files": [{"split": SPLIT, "path": f"{config['folder']}/*.parquet"}]}
            for entry in benchmarks
            for name, config in entry["configs"].items()
        ],
    }
    if head["license"] == "other":
        head["license_name"] = "per-source"
        head["license_link"] = "README.md#sources-and-licenses"
    return DatasetCardData(**head).to_yaml(line_break="\n") + "\n"
