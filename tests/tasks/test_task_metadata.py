"""The checks that mteb makes of its own tasks, and that metadata and descriptions agree with the sources."""

from __future__ import annotations

import json
import re

import pytest

from circus_bench.hub.tables import LabeledBenchmark
from circus_bench.hub.writer import write_dataset_folder
from circus_bench.labels.labels import Subset
from circus_bench.labels.published import published_labels
from circus_bench.sources import load_source
from circus_bench.sources.circo import PROTOCOLS as CIRCO
from circus_bench.sources.cirr import PROTOCOLS as CIRR
from circus_bench.sources.fashioniq import PROTOCOLS as FASHIONIQ
from circus_bench.sources.lasco import PROTOCOLS as LASCO
from circus_bench.sources.rmir import PROTOCOLS as RMIR
from circus_bench.sources.scenes import GENERATOR_VERSION
from circus_bench.tasks.circus_cirr import CircusCIRR
from circus_bench.tasks.circus_scenes import CircusScenes
from circus_bench.tasks.registry import task_classes

PROTOCOLS = {**CIRR, **FASHIONIQ, **LASCO, **CIRCO, **RMIR}
UNKNOWN = {"CIRCUS-Scenes": ["reference"], "RMIR": ["date"]}
"""What is not known of a task: scenes has no page of its own, and RMIR does not say when it was collected."""
OPTIONAL = ("prompt", "adapted_from", "contributed_by", "superseded_by")  # as in TaskMetadata.is_filled
EVERY_TASK = pytest.mark.parametrize("task", task_classes(), ids=lambda task: task.metadata.name)


@EVERY_TASK
def test_metadata_are_complete_but_for_what_is_unknown(task):
    metadata = task.metadata
    metadata._validate_metadata()
    empty = [name for name in type(metadata).model_fields if getattr(metadata, name) is None and name not in OPTIONAL]
    assert empty == UNKNOWN.get(metadata.name, [])


@EVERY_TASK
def test_data_are_pinned(task):
    assert task.metadata.dataset["revision"] not in ("", "main", "master")


@EVERY_TASK
def test_citations_are_in_mteb_form(task):
    # mteb formats an entry with one field a line, sorted by name, each ended by a comma.
    for entry in filter(None, (task.metadata.bibtex_citation or "").strip().split("\n\n")):
        head, *fields, end = entry.splitlines()
        assert re.fullmatch(r"@\w+\{\w+,", head)
        assert all(re.fullmatch(r"  \w+ = \{.*\},", field) for field in fields)
        assert fields == sorted(fields)
        assert end == "}"


@EVERY_TASK
def test_descriptions_are_checked_in_and_count_the_gallery(task):
    stats = task.metadata.descriptive_stats
    assert stats is not None
    assert set(stats["test"]["hf_subset_descriptive_stats"]) == set(task.metadata.hf_subsets)
    assert task.metadata.n_samples == {"test": stats["test"]["num_queries"] + stats["test"]["num_documents"]}


@EVERY_TASK
def test_the_prompt_is_the_instruction_of_the_protocol(task):
    if task is CircusScenes:
        assert task.metadata.prompt is None
        return
    instruction = PROTOCOLS[task.protocol].instruction
    assert task.metadata.prompt == ({"query": instruction} if instruction else None)


def test_the_revision_of_scenes_is_that_of_its_generator():
    assert CircusScenes.metadata.revision == str(GENERATOR_VERSION)


@pytest.mark.parametrize(
    ("name", "queries", "gallery"),
    # Published counts: queries in full, sf and v (CIRCUS, table 1 and section 4), gallery; RMIR's of its paper.
    [
        ("CIRCUS-CIRR", {"full": 4170, "sf": 685, "v": 303}, 21551),
        ("CIRCUS-FashionIQ", {"full": 6003, "sf": None, "v": 586}, 74381),  # which ones are in sf is not known
        ("CIRCUS-LaSCo", {"full": 30031, "sf": 18418, "v": 758}, 39826),
        ("CIRCUS-CIRCO", {"full": 220, "sf": 56, "v": 42}, 123403),
        ("RMIR", {"full": 1634}, 35803),
    ],
)
def test_descriptions_hold_the_published_counts(name, queries, gallery):
    (task,) = [task for task in task_classes() if task.metadata.name == name]
    subsets = task.metadata.descriptive_stats["test"]["hf_subset_descriptive_stats"]
    assert {subset: of and of["num_queries"] for subset, of in subsets.items()} == queries
    assert {of["num_documents"] for of in subsets.values() if of} == {gallery}


@pytest.fixture
def described(tmp_path, monkeypatch):
    """`described(task)`: its statistics, computed afresh, without touching those that are checked in."""

    def compute(task):
        place = property(lambda _: tmp_path / "statistics.json")
        monkeypatch.setattr(type(task.metadata), "descriptive_stat_path", place)
        task().calculate_descriptive_statistics(overwrite_results=True)
        return json.loads((tmp_path / "statistics.json").read_text(), parse_constant=pytest.fail)

    return compute


def test_the_checked_in_description_of_scenes_is_the_computed_one(described):
    held = CircusScenes.metadata.descriptive_stats
    assert described(CircusScenes) == held


@pytest.mark.parametrize(("protocol", "name"), [("cirr/circus", "CIRCUS-CIRR"), ("circo/val", "CIRCUS-CIRCO")])
def test_checked_in_descriptions_follow_from_the_annotation_files(
    shared, described, tmp_path, monkeypatch, protocol, name
):
    benchmark = load_source(protocol, shared / "data" / protocol.partition("/")[0])
    write_dataset_folder([LabeledBenchmark(benchmark, published_labels(benchmark.name))], tmp_path / "circus")
    monkeypatch.setenv("CIRCUS_DATA", str(tmp_path / "circus"))
    (task,) = [task for task in task_classes() if task.metadata.name == name]
    held = task.metadata.descriptive_stats
    assert described(task) == held


def test_descriptions_of_images_agree_with_mteb(folder, described, monkeypatch):
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    monkeypatch.setenv("CIRCUS_DATA", str(folder))
    found = described(CircusCIRR)["test"]["hf_subset_descriptive_stats"]["v"]
    task = CircusCIRR()
    task.load_data()
    assert found == AbsTaskRetrieval._calculate_descriptive_statistics_from_split(task, "test", hf_subset="v")


def test_mteb_finds_the_tables_of_a_subset(folder, monkeypatch, small_cirr):
    monkeypatch.setenv("CIRCUS_DATA", str(folder))
    task = CircusCIRR()
    task.load_data()
    split = task.dataset["v"]["test"]
    valid = small_cirr().subsets[Subset.V]
    assert split["queries"]["text"] == [query.text for query in valid]
    assert len(split["corpus"]) == 400
    assert split["relevant_docs"][valid[0].id] == {valid[0].targets[0]: 1}


def test_tables_of_scenes_are_made_without_a_folder():
    task = CircusScenes()
    task.load_data()
    assert set(task.dataset["full"]["test"]["queries"].column_names) == {"id", "text", "image"}
    assert "instruction" not in task.dataset["full"]["test"]
