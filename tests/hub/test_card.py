"""The card and the task list: what they say follows from the folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import DatasetCard
from support.parts import FREE, made_benchmark, made_labels, made_part

from circus_bench.benchmark import Defect, Query
from circus_bench.hub.card import render_card, render_eval
from circus_bench.hub.licenses import known_licenses
from circus_bench.hub.tables import LabeledBenchmark
from circus_bench.hub.writer import write_dataset_folder
from circus_bench.labels.labels import Subset


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("built") / "circus"
    return write_dataset_folder([made_part()], out, with_images=False)


def built(part: LabeledBenchmark, tmp_path: Path, **options: Any) -> str:
    write_dataset_folder([part], tmp_path / "circus", **options)
    return (tmp_path / "circus" / "README.md").read_text()


def head(card: str) -> dict[str, Any]:
    return DatasetCard(card).data.to_dict()


class TestHead:
    def test_names_every_configuration_with_its_files(self, manifest: dict[str, Any]) -> None:
        configs = {config["config_name"]: config["data_files"] for config in head(render_card(manifest))["configs"]}
        assert configs.keys() == {
            f"made_{subset}{table}" for subset in Subset for table in ("", "-corpus", "-queries", "-qrels")
        }
        assert configs["made_sf-queries"] == [{"split": "test", "path": "data/made/sf-queries/*.parquet"}]

    def test_one_license_is_named(self, tmp_path: Path) -> None:
        assert (
            head(built(LabeledBenchmark(made_benchmark(name="circo", images=False)), tmp_path))["license"]
            == "cc-by-nc-4.0"
        )

    def test_several_licenses_are_other(self, tmp_path: Path) -> None:
        built(LabeledBenchmark(made_benchmark(name="circo", images=False)), tmp_path)
        card = built(LabeledBenchmark(made_benchmark(name="cirr", images=False)), tmp_path)
        assert (head(card)["license"], head(card)["license_name"]) == ("other", "per-source")

    def test_the_size_is_that_of_all_full_sets(self, manifest: dict[str, Any]) -> None:
        assert head(render_card(manifest))["size_categories"] == ["n<1K"]


class TestText:
    def test_the_table_of_splits_holds_the_counted_rows(self, manifest: dict[str, Any]) -> None:
        # Full 4, sf 3 and v 2 queries in a gallery of 6 (tests/parts.py).
        assert "| made | made/test | kept | 4 | 3 | 2 | 6 | no |" in render_card(manifest)

    def test_a_subset_that_is_not_there_is_not_in_the_table(self, tmp_path: Path) -> None:
        assert "`sf`" not in built(LabeledBenchmark(made_benchmark()), tmp_path)

    def test_findings_are_the_known_defects(self, tmp_path: Path) -> None:
        queries = (*made_benchmark().queries, Query("odd one", "g1", "hm", ("g1",)))
        benchmark = made_benchmark(queries=queries, allow=frozenset({Defect.REFERENCE_IS_TARGET}))
        card = built(LabeledBenchmark(benchmark), tmp_path)
        assert "- made: queries whose reference is one of their targets; kept as they are (1: 'odd one')" in card

    @pytest.mark.parametrize("defect", Defect)
    def test_every_defect_has_words(self, defect: Defect, manifest: dict[str, Any]) -> None:
        entry = {**manifest["benchmarks"]["made"], "findings": [{"defect": defect.value, "ids": ["x"]}]}
        assert "(1: 'x')" in render_card({**manifest, "benchmarks": {"made": entry}})

    def test_terms_come_from_the_source(self, manifest: dict[str, Any]) -> None:
        assert "| annotations | CC0-1.0 |" in render_card(manifest)

    def test_what_is_not_known_is_not_stated(self, tmp_path: Path) -> None:
        card = built(LabeledBenchmark(made_benchmark(images=False, source={})), tmp_path)
        assert "| annotations | not stated |" in card
        assert "| images | not stated |" in card

    def test_non_commercial_terms_are_pointed_out(self, tmp_path: Path) -> None:
        assert "circo: non-commercial use only" in built(
            LabeledBenchmark(made_benchmark(name="circo", images=False)), tmp_path
        )

    def test_a_folder_for_local_use_says_so(self, tmp_path: Path) -> None:
        card = built(LabeledBenchmark(made_benchmark(name="cirr")), tmp_path)
        assert "cannot be published" in card

    def test_a_folder_without_images_tells_how_to_join_them(self, manifest: dict[str, Any]) -> None:
        assert 'data make "ORG/circus#made" --images path/to/images --out ' in render_card(manifest)

    def test_a_folder_with_images_does_not(self, tmp_path: Path) -> None:
        assert "--images" not in built(made_part(), tmp_path)

    def test_text_with_a_pipe_stays_in_its_cell(self, tmp_path: Path) -> None:
        card = built(LabeledBenchmark(made_benchmark(source={**FREE, "origin": "a | b\nc"})), tmp_path)
        assert "| from | a \\| b c |" in card

    def test_the_origin_of_the_labels_is_named(self, manifest: dict[str, Any]) -> None:
        assert "| labels and judgments | made up; cut-off 10; 2 models |" in render_card(manifest)

    @pytest.mark.parametrize("name", [name for name, known in known_licenses().items() if known["bibtex"]])
    def test_a_known_source_is_cited(self, name: str, tmp_path: Path) -> None:
        card = built(LabeledBenchmark(made_benchmark(name=name, images=False)), tmp_path)
        assert known_licenses()[name]["bibtex"] in card

    def test_the_labels_paper_is_cited_where_there_are_labels(self, tmp_path: Path, manifest: dict[str, Any]) -> None:
        assert "2605.14787" in render_card(manifest)
        assert "2605.14787" not in built(LabeledBenchmark(made_benchmark()), tmp_path)

    def test_an_origin_of_which_nothing_is_known_leaves_no_row(self, tmp_path: Path) -> None:
        labels = made_labels(made_benchmark())
        unknown = dataclasses.replace(labels.provenance, source="", k=None, pool=())
        bare = dataclasses.replace(labels, provenance=unknown)
        assert "labels and judgments" not in built(LabeledBenchmark(made_benchmark(), bare), tmp_path)


def test_eval_yaml_has_one_task_a_subset_and_condition(manifest: dict[str, Any]) -> None:
    content = yaml.safe_load(render_eval(manifest))
    assert content.keys() == {"name", "description", "evaluation_framework", "tasks"}
    assert content["evaluation_framework"] == "mteb"
    assert content["tasks"] == [
        {"id": f"made_{subset}{part}", "config": f"made_{subset}", "split": "test"}
        for subset in ("full", "sf", "v")
        for part in ("", "_text_only", "_image_only")
    ]
